package convert_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// TestLoadAddresses converts programs that are loaded where they do not run: kernels and
// firmware. objcopy -O binary writes what is loaded, from the lowest address to the highest, and
// there must not be more of it than what is new, at the end.
func TestLoadAddresses(t *testing.T) {
	const (
		// Data of each processor has addresses of its own, from 0 on, between those of other segments.
		kernel = `PHDRS { text PT_LOAD FLAGS(5); data PT_LOAD FLAGS(6); percpu PT_LOAD FLAGS(6); init PT_LOAD FLAGS(7); }
SECTIONS {
	. = 0xffffffff81000000;
	.text : AT(ADDR(.text) - 0xffffffff80000000) { *(.text) } :text
	.eh_frame : AT(ADDR(.eh_frame) - 0xffffffff80000000) { *(.eh_frame) } :text
	. = ALIGN(0x200000);
	.data : AT(ADDR(.data) - 0xffffffff80000000) { QUAD(1) } :data
	. = ALIGN(0x1000);
	.percpu 0 : AT(ADDR(.data) + 0x1000 - 0xffffffff80000000) { QUAD(3) } :percpu
	. = ADDR(.data) + 0x2000;
	.init : AT(ADDR(.init) - 0xffffffff80000000) { QUAD(2) } :init
	.bss : AT(ADDR(.bss) - 0xffffffff80000000) { . += 0x3000; } :init
}`
		firmware = `MEMORY { flash (rx) : ORIGIN = 0x08000000, LENGTH = 1M  ram (rwx) : ORIGIN = 0x20000000, LENGTH = 128K }
PHDRS { text PT_LOAD FLAGS(5); data PT_LOAD FLAGS(6); bss PT_LOAD FLAGS(6); }
SECTIONS {
	.text : { *(.text) } >flash :text
	.eh_frame : { *(.eh_frame) } >flash :text
	.data : { QUAD(1) QUAD(2) } >ram AT>flash :data
	.bss (NOLOAD) : { . += 0x8000; } >ram :bss
}`
		program = `SECTIONS {
	. = 0x400000 + SIZEOF_HEADERS;
	.text : { *(.text) }
	.eh_frame : { *(.eh_frame) }
	. = ALIGN(0x1000);
	.data : { QUAD(1) }
}`
	)
	for _, tt := range []struct {
		name, script string
		gap          int  // bytes of .bss and padding between what is loaded and what is new
		absent       bool // all load addresses are 0
	}{
		{"kernel", kernel, 0x3000 + 0x2000, false},
		{"firmware", firmware, 0x8000 + 0x2000, false},
		{"program", program, 0x2000, false},
		{"program, no load addresses", program, 0x2000, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := linkScript(t, assembled(t, many(3, 0)), tt.script)
			dir := peer.Run(t, "sid", ":", in)
			if tt.absent {
				b, f := testfile.Read(t, in), open(t, in)
				for i := range f.Progs {
					clear(b[f.Phoff+uint64(i)*elffile.ProgSize+24:][:8]) // p_paddr
				}
				if err := os.WriteFile(in, b, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			out, c := run(t, in, convert.Options{})
			if err := image.Compare(open(t, in), open(t, out)); err != nil {
				t.Error(err)
			}
			if tt.absent && slices.ContainsFunc(open(t, out).Progs, func(h elf.Prog64) bool { return h.Paddr != 0 }) {
				t.Errorf("some load addresses are not 0: %+v", open(t, out).Progs)
			}
			replace(t, out, filepath.Join(dir, "prog.sframe"))
			for _, objcopy := range []string{"objcopy", "llvm-objcopy-23"} {
				if tt.absent && objcopy != "objcopy" {
					continue // it takes them for addresses, at which the segments overlap
				}
				// In blocks of 512 bytes: a file of gigabytes is not what this is about.
				peer.Again(t, "sid", dir, "ulimit -f 65536; for f in prog prog.sframe; do "+objcopy+
					" -O binary $f $f.bin; done")
				before, after := testfile.Read(t, filepath.Join(dir, "prog.bin")),
					testfile.Read(t, filepath.Join(dir, "prog.sframe.bin"))
				if !bytes.HasPrefix(after, before) {
					t.Errorf("%s: the first %d of %d bytes are not those of the original", objcopy, len(before),
						len(after))
				}
				if most := len(before) + tt.gap + int(c.Size); len(after) > most ||
					len(after) < len(before)+int(c.Size) {
					t.Errorf("%s: %d bytes become %d; want between %d and %d", objcopy, len(before),
						len(after), len(before)+int(c.Size), most)
				}
			}
		})
	}
}

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

// TestHighAddresses converts programs in the upper half of the address space, as kernels are, and
// at its very end. objdump has to find the functions there.
func TestHighAddresses(t *testing.T) {
	for _, tt := range []struct{ text, refused string }{
		{"0xffffffff81000000", ""},
		{"0x8000000000000000", ""},
		{"0x7fffffffffffe000", ""},
		{"0xffffffffff000000", ""},
		{"0xffffffffffff0000", ""},
		{"0xffffffffffffc000", ""},
		{"0xffffffffffffd000", ""},
		{"0xffffffffffffe000", "no addresses are left"}, // what follows .text has the last page
	} {
		in := linkObject(t, assembled(t, many(3, 0)), "-Ttext="+tt.text)
		for _, opt := range []convert.Options{{Version: sframe.V1}, {Version: sframe.V2},
			{Version: sframe.V2, PCRel: true}, {Version: sframe.V3}} {
			dryRun := dry(add(opt))
			if tt.refused != "" {
				for _, j := range []job{add(opt), dryRun} {
					if _, err := tryJob(t, in, j); err == nil || !strings.Contains(err.Error(), tt.refused) {
						t.Errorf("%s, %v: error is %v; want %q", tt.text, opt.Version, err, tt.refused)
					}
				}
				continue
			}
			if _, err := tryJob(t, in, dryRun); err != nil {
				t.Errorf("%s, %v: %v", tt.text, opt.Version, err)
			}
			out, c := run(t, in, opt)
			if c.Covered != c.Described || c.Described != 12 {
				t.Errorf("%s, %v: %d of %d bytes are covered", tt.text, opt.Version, c.Covered, c.Described)
			}
			if err := image.Compare(open(t, in), open(t, out)); err != nil {
				t.Errorf("%s, %v: %v", tt.text, opt.Version, err)
			}
			if opt.Version == sframe.V1 {
				continue // which objdump of sid does not know
			}
			b, err := peer.Tool(t, "sid", "objdump")("--sframe", out).CombinedOutput()
			if err != nil || !strings.Contains(string(b), "pc = "+tt.text+",") {
				t.Errorf("%s, %v: objdump does not find it (%v):\n%s", tt.text, opt.Version, err, b)
			}
		}
	}
}

// TestCodeStays converts executables with fixed addresses, at whose head there is what cannot
// move. Profilers find functions by their places in the file, which therefore stay, but where
// code is in the way; then the report says how much has moved.
func TestCodeStays(t *testing.T) {
	const (
		gcc  = "gcc-16 -O2 -static -o prog user.c -lm "
		lld  = "mkdir b; ln -s /usr/bin/ld.lld-23 b/ld; " + gcc + "-Bb "
		cros = "-linux-gnu-gcc-16 -O2 -static -o prog user.c -lm "
	)
	for _, tt := range []struct {
		name, build, run string
		moved            bool
	}{
		{"GNU", gcc, "", false},
		{"GNU, no build-id", gcc + "-Wl,--build-id=none", "", false},
		{"GNU, no separate code", gcc + "-Wl,-z,noseparate-code", "", true},
		{"GNU, large alignment", gcc + "-Wl,-z,max-page-size=0x200000", "", false},
		{"lld", lld, "", false},
		{"lld, no section for read-only data", lld + "-Wl,--no-rosegment", "", true},
		{"mold", gcc + "-fuse-ld=mold", "", false},
		{"musl", "REALGCC=gcc-16 musl-gcc -O2 -static -no-pie -o prog user.c", "", false},
		{"musl, build-id", "REALGCC=gcc-16 musl-gcc -O2 -static -no-pie -Wl,--build-id -o prog user.c", "", false},
		{"aarch64", "aarch64" + cros, "qemu-aarch64", true},
		{"aarch64, separate code", "aarch64" + cros + "-Wl,-z,separate-code", "qemu-aarch64", false},
		{"s390x", "s390x" + cros, "qemu-s390x", true},
		{"s390x, separate code", "s390x" + cros + "-Wl,-z,separate-code", "qemu-s390x", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := peer.Run(t, "sid", tt.build+" 2>log || { cat log; exit 1; }; "+tt.run+" ./prog",
				"../testdata/c/user.c")
			in := filepath.Join(dir, "prog")
			out, c := run(t, in, convert.Options{})
			before, after := open(t, in), open(t, out)
			if err := image.Compare(before, after); err != nil {
				t.Error(err)
			}
			var moved uint64
			for i := range before.Sections {
				s := &before.Sections[i]
				if s.Flags&uint64(elf.SHF_EXECINSTR) == 0 || s.Size == 0 {
					continue
				}
				off, ok := after.FileOffset(s.Addr, s.Size)
				if !ok {
					t.Fatalf("%s is not loaded any more", s.Name)
				}
				if off != s.Off {
					moved += s.Size
				}
			}
			if c.MovedCode != moved || (moved > 0) != tt.moved {
				t.Errorf("%d bytes of code have another place in the file, and %d are said to; want that there are some: %t", moved, c.MovedCode, tt.moved)
			}
			replace(t, out, filepath.Join(dir, "converted"))
			peer.Again(t, "sid", dir, tt.run+" ./converted")
			if tt.run == "" { // it computes AT_PHDR as old kernels do
				peer.Again(t, "sid", dir, "qemu-x86_64 ./converted")
			}
		})
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
