package convert_test

import (
	"bytes"
	"fmt"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// manyFunctions returns assembly that defines 4-byte functions with three rows each, and a .bss of the given size.
func manyFunctions(functions int, bss uint64) string {
	return fmt.Sprintf(`	.text
	.globl _start
_start:
	.rept %d
	.cfi_startproc
	push %%rbp
	.cfi_def_cfa_offset 16
	nop
	pop %%rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.endr
	.bss
	.skip %#x
`, functions, bss)
}

// TestReach converts position-independent programs with a .bss of various sizes between code and .sframe, so that some,
// all or none of the functions are within reach of 32-bit start addresses.
func TestReach(t *testing.T) {
	const functions, size = 1000, 4
	for _, bss := range []uint64{0x6f000000, 0x70100000, 0x7fff0000, 0x7fff9000, 0x7fffa000, 0x7fffb000, 0x80000000} {
		prog := peer.Linked(t, peer.Assembled(t, manyFunctions(functions, bss)), "-pie", "--no-dynamic-linker")
		in := open(t, prog)
		far, _ := run(t, prog, convert.Options{Version: sframe.V3})
		at := open(t, far).Section(".sframe").Addr // in all versions
		for _, opt := range []convert.Options{{Version: sframe.V1}, {Version: sframe.V2}, {Version: sframe.V3},
			{Version: sframe.V2, PCRel: true}} {
			// Distances to functions are measured from the start of the section, or of the FDEs' start address fields.
			want, least := uint64(0), uint64(0)
			for n := uint64(0); n < functions; n++ {
				start := in.Entry + n*size
				if opt.Version == sframe.V3 || start+1<<31 >= at {
					want += size
				}
				if start+1<<31 >= at+28+20*functions {
					least += size
				}
			}
			_, err := tryRun(t, prog, opt)
			if want == 0 || least == 0 && err != nil {
				want := fmt.Sprintf("no code is within 2 GiB of .sframe at %#x; use format 3", at)
				if err == nil || err.Error() != want {
					t.Errorf(".bss of %#x, %v: %v; want %s", bss, opt.Version, err, want)
				}
				continue
			}
			out, c := run(t, prog, opt)
			if got := open(t, out).Section(".sframe").Addr; got != at {
				t.Errorf(".bss of %#x, %v: the section is at %#x; want %#x", bss, opt.Version, got, at)
			}
			if opt.PCRel {
				if c.Covered < least || c.Covered > want || !c.Verified {
					t.Errorf(".bss of %#x, PCRel: %d bytes are covered; want between %d and %d", bss,
						c.Covered, least, want)
				}
				continue
			}
			if c.Covered != want {
				t.Errorf(".bss of %#x, %v: %d bytes are covered; want %d", bss, opt.Version, c.Covered, want)
			}
		}
	}
}

// TestNear converts programs with a .bss of 3 GiB and addresses for .sframe near the code: before the first segment, or
// between segments. All code must be within reach of 32-bit start addresses.
func TestNear(t *testing.T) {
	const functions, size = 1000, 4
	object := peer.Assembled(t, manyFunctions(functions, 3<<30))
	for _, flags := range [][]string{
		{"-z", "separate-code"}, {"-z", "noseparate-code"},
		{"-pie", "--no-dynamic-linker", "-z", "separate-code", "-z", "max-page-size=0x200000"},
	} {
		old := testfile.Read(t, peer.Linked(t, object, flags...))
		for _, opt := range []convert.Options{{Version: sframe.V1}, {Version: sframe.V2, PCRel: true}} {
			with, res := must.Two(inMemory(old, opt))(t)
			if c := res.Facts[0]; c.Covered != functions*size || !c.Verified {
				t.Errorf("%v, %v: %d bytes are covered; want %d", flags, opt.Version, c.Covered, functions*size)
			}
			if err := image.Compare(elftest.Parse(t, old), elftest.Parse(t, with)); err != nil {
				t.Errorf("%v, %v: %v", flags, opt.Version, err)
			}
			force := opt
			force.Force = true
			if again, _, err := inMemory(with, force); err != nil || !bytes.Equal(again, with) {
				t.Errorf("%v, %v: replaced: %d bytes instead of %d, error %v", flags, opt.Version, len(again),
					len(with), err)
			}
			plain, _ := must.Two(runBytes(with, remove("")))(t)
			if again, _, err := inMemory(plain, opt); err != nil || !bytes.Equal(again, with) {
				t.Errorf("%v, %v: removed and added: %d bytes instead of %d, error %v", flags, opt.Version, len(again),
					len(with), err)
			}
		}
	}
}
