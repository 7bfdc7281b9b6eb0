package convert_test

import (
	"fmt"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
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

// TestReach converts programs with a .bss of various sizes between code and .sframe, so that some, all or none of the
// functions are within reach of 32-bit start addresses.
func TestReach(t *testing.T) {
	const functions, size = 1000, 4
	for _, bss := range []uint64{0x6f000000, 0x70100000, 0x7fff0000, 0x7fff9000, 0x7fffa000, 0x7fffb000, 0x80000000} {
		prog := peer.Linked(t, peer.Assembled(t, manyFunctions(functions, bss)))
		in := open(t, prog)
		for _, opt := range []convert.Options{{Version: sframe.V1}, {Version: sframe.V2}, {Version: sframe.V3},
			{Version: sframe.V2, PCRel: true}} {
			out, c := run(t, prog, opt)
			at := open(t, out).Section(".sframe").Addr
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
