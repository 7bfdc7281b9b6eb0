package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/long"
)

// TestHostileObjects has relocatable objects that no assembler makes.
func TestHostileObjects(t *testing.T) {
	const pc32 = uint32(elf.R_X86_64_PC32)
	for _, tt := range []struct {
		name   string
		make   func(o *elftest.Object)
		patch  func(p *elftest.Patcher)
		data   func() []byte
		args   []string
		status int
		want   string
		long   bool // it takes long
	}{
		{name: "nothing wrong", make: func(o *elftest.Object) {}, want: "describes (64 of "},
		{name: "aarch64, big-endian", data: func() []byte {
			return elftest.BigObject(elf.EM_AARCH64,
				uint32(elf.R_AARCH64_PREL32)).Bytes()
		}, want: "describes (64 of "},
		{name: "amd64, big-endian", data: func() []byte { return elftest.BigObject(elf.EM_X86_64, pc32).Bytes() },
			status: 1, want: "ABI"},

		// Symbol tables.
		{name: "only global symbols", make: func(o *elftest.Object) {
			o.Symbols[elffile.SymSize+
				4] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
		}, status: 1, want: "no local symbol"},
		{name: "symbol value 2^64-1", make: func(o *elftest.Object) { binary.LittleEndian.PutUint64(o.Symbols[elffile.SymSize+8:], math.MaxUint64) }, want: "unchanged: the CFI describes no code"},

		// Relocations.
		{name: "relocation of unknown type", make: func(o *elftest.Object) { o.Rela(elftest.ObjRela, 0, 1, 0x1234, 0) },
			status: 1, want: "relocation type 4660 of .eh_frame+0x0"},
		{name: "relocations that contradict each other", make: func(o *elftest.Object) {
			o.Code(".text.other", 64)
			o.Rela(elftest.ObjRela, 20+8, 2, pc32, 0)
		}, want: " covers "},

		// Sections.
		{name: "section names in .text", make: func(o *elftest.Object) { o.Header.Shstrndx = elftest.ObjText },
			want: "unchanged: no CFI"},
		{name: "a section over the ELF header",
			make: func(o *elftest.Object) { o.At(o.Add(".comment", elf.SHT_PROGBITS, 0, nil), 0, 100) }, status: 1,
			want: "section 7 (.comment) at file offset 0x0 overlaps the ELF header"},
		{name: "3 GiB of code in one section", make: func(o *elftest.Object) { o.At(elftest.ObjText, 64, 3<<30) },
			status: 1, want: "code and CFI have more than 2 GiB, up to section 1 (.text)"},
		{name: "function over two sections", make: func(o *elftest.Object) {
			o.Code(".text.other", 4096)
			o.FDE(1, 0, 2048)
		}, want: "but the executable code there ends at"},

		// CFI.
		{name: "several .eh_frame", make: func(o *elftest.Object) {
			text := o.Add(".text.other", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 32))
			frame := o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
			rela := o.RelaOf(".rela.eh_frame", frame)
			o.CIE(frame)
			o.FDEIn(frame, rela, uint32(o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(text), 0)), 0, 32)
		}, want: "describes (96 of "},
		{name: ".eh_frame compressed", make: func(o *elftest.Object) {
			s := &o.Sections[elftest.ObjFrame]
			s.Data = elftest.Compressed(elf.COMPRESS_ZLIB, 1<<20, s.Data)
			s.Flags |= uint64(elf.SHF_COMPRESSED)
		}, status: 1, want: "section .eh_frame at file offset"},

		// An .sframe that is there.
		{name: ".sframe that is code, replaced", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 32))
		}, args: []string{"--force"}, status: 1,
			want: "section 7 (.sframe) cannot be replaced: its flags are SHF_ALLOC+SHF_EXECINSTR"},
		{name: ".sframe there, and nothing that could be in it, replaced", make: func(o *elftest.Object) {
			s := &o.Sections[elftest.ObjFrame]
			s.Data = bytes.ReplaceAll(s.Data, elftest.Sound, []byte{0x0c, 2, 8, 0x90, 1})
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--force", "--format", "2"}, want: "describes (0 of "},
		{name: "two .sframe, removed", make: func(o *elftest.Object) {
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"remove"}, status: 1, want: ".sframe"},
		{name: ".sframe with two sections of relocations, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			for range 2 {
				o.Rela(o.RelaOf(".rela.sframe", i), 0, 1, pc32, 0)
			}
		}, args: []string{"remove"}, status: 1, want: ".sframe"},
		{name: ".sframe that a symbol is in, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Symbol(elf.STB_LOCAL, elf.STT_OBJECT, uint16(i), 0)
		}, args: []string{"remove"}, status: 1, want: "section 7 (.sframe) cannot be removed: a symbol refers to it"},
		{name: ".sframe in a section group, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_GROUP, make([]byte, 32))
			o.Add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, byte(i), 0, 0, 0})
		}, args: []string{"remove"}, status: 1, want: "group"},
		{name: ".sframe that other sections refer to, removed", make: func(o *elftest.Object) {
			i := o.Add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.Sections[o.Add(".meta", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_LINK_ORDER,
				make([]byte, 32))].Link = uint32(i)
		}, args: []string{"remove"}, status: 1, want: ".sframe"},

		// Much of something.
		{name: "70,000 sections of code, with gaps", long: true, data: func() []byte {
			o := manyCode(70_000)
			s := &o.Sections[elftest.ObjFrame]
			s.Data = bytes.ReplaceAll(s.Data, []byte{0x41, 0x0e, 16}, []byte{0x41, 0x0d, 2}) // CFA rcx
			return o.Bytes()
		}, args: []string{"--format", "2"}, want: "not covered"},
		{name: "60,000 relocation sections of one section", make: func(o *elftest.Object) {
			for range 20_000 {
				o.Rela(elftest.ObjRela, 20+8, 1, pc32, 0)
			}
			n := uint64(len(o.Sections[elftest.ObjRela].Data))
			for range 60_000 {
				o.At(o.RelaOf(".rela.eh_frame", elftest.ObjFrame), 0x100, n)
			}
		}, status: 1, want: "relocation sections overlap"},
		{name: "30,000 sections .eh_frame with overlapping relocations", make: func(o *elftest.Object) {
			at := uint64(len(o.Sections[elftest.ObjFrame].Data))
			o.Sections[elftest.ObjRela].Data = bytes.Repeat(o.Sections[elftest.ObjRela].Data, 40_000)
			n := uint64(len(o.Sections[elftest.ObjRela].Data))
			for range 30_000 {
				i := o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
				o.At(i, 64+64, at)
				o.At(o.RelaOf(".rela.eh_frame", i), 64+64+48, n)
			}
		}, status: 1, want: "relocation sections overlap"},
		{name: "20,000 symbol tables of a megabyte", make: func(o *elftest.Object) {
			at := uint64(len(o.Sections[elftest.ObjFrame].Data))
			for range 40_000 {
				o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, elftest.ObjText, 0)
			}
			for range 20_000 {
				i := o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
				o.At(i, 64+64, at)
				tab := o.Add(".symtab", elf.SHT_SYMTAB, 0, nil)
				o.At(tab, 64+64+48+24, uint64(len(o.Symbols)))
				r := o.RelaOf(".rela.eh_frame", i)
				o.Sections[r].Link = uint32(tab)
				o.At(r, 64+64+48, 24)
			}
		}, status: 1, want: "symbol tables overlap"},
		{name: "a million symbols", long: true, make: func(o *elftest.Object) {
			for range 1_000_000 {
				o.Symbols = append(o.Symbols, o.Symbols[elffile.SymSize:2*elffile.SymSize]...)
			}
		}, want: "describes (64 of "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				long.Test(t)
			}
			var b []byte
			if tt.data != nil {
				b = tt.data()
			} else {
				o := elftest.NewObject()
				tt.make(o)
				b = o.Bytes()
			}
			if tt.patch != nil {
				p := elftest.Patch(t.Fatalf, b)
				tt.patch(p)
				b = p.B
			}
			o := convertHostile(t, t.TempDir(), b, tt.args...)
			o.expect(t, tt.status, tt.want)
		})
	}
}

// manyCode returns an object with n more sections of code, with a function of 16 bytes in
// each.
func manyCode(n int) *elftest.Object {
	o := elftest.NewObject()
	code := make([]byte, 16)
	shndx := make([]byte, 8, 4*n+8)
	for i := range n {
		index := o.Add(fmt.Sprintf(".text.f%d", i), elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, code)
		section := uint16(index)
		if index >= int(elf.SHN_LORESERVE) {
			section = uint16(elf.SHN_XINDEX)
		}
		o.FDE(uint32(o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, section, 0)), 0, 16)
		shndx = binary.LittleEndian.AppendUint32(shndx, uint32(index))
	}
	o.Sections[o.Add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, shndx)].Link = elftest.ObjSymtab
	return o
}

// expect checks the exit status, and that something is printed.
func (o *outcome) expect(t *testing.T, status int, want string) {
	t.Helper()
	if o.status != status || !strings.Contains(o.stderr, want) {
		t.Errorf("exit status %d; want %d\n%.2000s\nwhich should contain %q", o.status, status, o.stderr, want)
	}
}
