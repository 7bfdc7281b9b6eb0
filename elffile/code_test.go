package elffile

import (
	"debug/elf"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"
)

// TestCode checks which sections and segments are code, and their order.
func TestCode(t *testing.T) {
	const code = elf.SHF_ALLOC | elf.SHF_EXECINSTR
	section := func(name string, typ elf.SectionType, flags elf.SectionFlag, addr, size uint64) Section {
		return Section{Name: name, Base: addr, Section64: elf.Section64{
			Type: uint32(typ), Flags: uint64(flags), Off: 0x40, Size: size,
		}}
	}
	sections := []Section{
		section(".text", elf.SHT_PROGBITS, code, 0x2000, 0x10),
		section(".init", elf.SHT_PROGBITS, code, 0x1000, 0x1000),
		section(".nothing", elf.SHT_NOBITS, code, 0x3000, 8),
		section(".empty", elf.SHT_PROGBITS, code, 0x4000, 0),
		section(".data", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_WRITE, 0x5000, 8),
		section(".not.loaded", elf.SHT_PROGBITS, elf.SHF_EXECINSTR, 0x6000, 8),
		section(".wraps", elf.SHT_PROGBITS, code, 0x7000, math.MaxUint64-0x6fff),
		section(".no.base", elf.SHT_PROGBITS, code, 0, 4),
	}
	segments := []elf.Prog64{
		{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: 0x80, Vaddr: 0x9000, Memsz: 0x30,
			Filesz: 0x20,
		},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Vaddr: 0xa000, Memsz: 8, Filesz: 8},
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_X), Memsz: 8},
	}
	const sound = "0x1000-0x2000 .init 0x40+0x1000\n0x2000-0x2010 .text 0x40+0x10\n0x3000-0x3008 .nothing 0x40+0x0\n"
	describe := func(all []CodeRange) (text string) {
		for _, c := range all {
			text += fmt.Sprintf("%#x-%#x %s %#x+%#x\n", c.Begin, c.End, c.Name, c.Off, c.Filesz)
		}
		return text
	}
	for _, tt := range []struct {
		typ      elf.Type
		sections []Section
		want     string
	}{
		{elf.ET_DYN, sections, "0x0-0x4 .no.base 0x40+0x4\n" + sound},
		{elf.ET_REL, sections, sound},
		{elf.ET_DYN, nil, "0x9000-0x9030 PT_LOAD 0x80+0x20\n"},
	} {
		f := &File{Header64: elf.Header64{Type: uint16(tt.typ)}, Sections: tt.sections, Progs: segments}
		if got := describe(f.Code()); got != tt.want {
			t.Errorf("%v, %d sections:\n%s; want\n%s", tt.typ, len(tt.sections), got, tt.want)
		}
	}
}

func TestSpan(t *testing.T) {
	s := Span{10, 20}
	for _, tt := range []struct {
		t                  Span
		overlaps, contains bool
	}{
		{Span{0, 10}, false, false}, {Span{0, 11}, true, false},
		{Span{10, 20}, true, true}, {Span{19, 21}, true, false},
		{Span{20, 21}, false, false}, {Span{12, 13}, true, true},
	} {
		if s.Overlaps(tt.t) != tt.overlaps || s.Contains(tt.t) != tt.contains {
			t.Errorf("%v and %v: overlaps %t, contains %t", s, tt.t, s.Overlaps(tt.t), s.Contains(tt.t))
		}
	}
	if s.Has(9) || !s.Has(10) || !s.Has(19) || s.Has(20) || s.Size() != 10 {
		t.Errorf("%v has the wrong addresses", s)
	}
}

// TestMaxContent checks that maxContent limits the size of contents, whatever the size of the file.
func TestMaxContent(t *testing.T) {
	for size, want := range map[uint64]string{
		maxContent:     "cannot decompress to the 134217728 bytes declared in the header",
		maxContent + 1: "134217729 bytes exceeds the limit of 134217728",
	} {
		f := &File{budget: NewBudget(1 << 40)}
		_, err := f.decompress("section x", 0, &compression{elf.COMPRESS_ZLIB, 0, size}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: error %v, want %q", size, err, want)
		}
	}
}

// TestOffsets compares offsets with the structs of debug/elf.
func TestOffsets(t *testing.T) {
	for i, tt := range []struct{ got, want uintptr }{
		{HeaderSize, unsafe.Sizeof(elf.Header64{})},
		{ProgSize, unsafe.Sizeof(elf.Prog64{})},
		{SectionSize, unsafe.Sizeof(elf.Section64{})},
		{SymSize, unsafe.Sizeof(elf.Sym64{})},
		{RelaSize, unsafe.Sizeof(elf.Rela64{})},
		{DynSize, unsafe.Sizeof(elf.Dyn64{})},
		{SymShndx, unsafe.Offsetof(elf.Sym64{}.Shndx)},
		{SymValue, unsafe.Offsetof(elf.Sym64{}.Value)},
		{RelaInfo, unsafe.Offsetof(elf.Rela64{}.Info)},
		{RelaAddend, unsafe.Offsetof(elf.Rela64{}.Addend)},
		{DynValue, unsafe.Offsetof(elf.Dyn64{}.Val)},
	} {
		if tt.got != tt.want {
			t.Errorf("%d: %d, want %d", i, tt.got, tt.want)
		}
	}
}
