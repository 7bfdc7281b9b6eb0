package convert_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// many returns functions of four bytes each, with a row more than their first, in front of a .bss.
func many(functions int, bss uint64) string {
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

// TestReach has a .bss between code and .sframe that is so large that only some of the functions,
// all of them or none are near enough for start addresses of 32 bits.
func TestReach(t *testing.T) {
	const functions, size = 1000, 4
	for _, bss := range []uint64{0x6f000000, 0x70100000, 0x7fff0000, 0x7fff9000, 0x7fffa000, 0x7fffb000, 0x80000000} {
		prog := linkObject(t, assembled(t, many(functions, bss)))
		in := open(t, prog)
		for _, opt := range []convert.Options{{Version: sframe.V1}, {Version: sframe.V2}, {Version: sframe.V3},
			{Version: sframe.V2, PCRel: true}} {
			out, c := run(t, prog, opt)
			at := open(t, out).Section(".sframe").Addr
			// From the start of the section, or from the field of each function, which come
			// one after the other, to the function.
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

// TestLargeObject has an object with nearly as much code as relocations of 32 bits can reach, and
// functions at its start and its end.
func TestLargeObject(t *testing.T) {
	long.Test(t)
	const size = 1<<31 - 1<<20
	path := assembled(t, many(2, 0))
	f := open(t, path)
	b := testfile.Read(t, path)
	text := slices.IndexFunc(f.Sections, func(s elffile.Section) bool { return s.Name == ".text" })
	// .text becomes a hole after all else, and the second function its end.
	header := b[f.Shoff+uint64(text)*elffile.SectionSize:]
	off := uint64(len(b)+4095) &^ 4095
	binary.LittleEndian.PutUint64(header[24:], off)
	binary.LittleEndian.PutUint64(header[32:], size)
	rela := f.Section(".rela.eh_frame")
	second := b[rela.Off+elffile.RelaSize:]
	if addend := binary.LittleEndian.Uint64(second[16:]); rela.Size != 2*elffile.RelaSize || addend != 4 {
		t.Fatalf("%d bytes of relocations, the second with addend %d", rela.Size, addend)
	}
	binary.LittleEndian.PutUint64(second[16:], size-4)
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(off+size)); err != nil {
		t.Fatal(err)
	}
	for _, opt := range []convert.Options{{Version: sframe.V2}, {Version: sframe.V2, PCRel: true},
		{Version: sframe.V3}} {
		res, err := files.Convert(t.Context(), path, "", files.Options{Work: files.Add(opt, ""), DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		if c := res.Facts[0]; c.Described != 8 || c.Covered != 8 || !c.Verified {
			t.Errorf("%v: %d of %d bytes are covered, verified %t", opt.Version, c.Covered, c.Described, c.Verified)
		}
	}
}
