package elfwrite

import (
	"debug/elf"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
)

// TestIdentifier checks which names are valid in C after __start_ and __stop_.
func TestIdentifier(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "z": true, "A": true, "Z": true, "_": true, "a0": true, "a9": true, "note_abi": true, "_0": true,
		"": false, "0": false, "9a": false, ".note": false, "a.b": false, "a-b": false, "a/": false, "a:": false,
		"@": false, "[": false, "`": false, "{": false,
	} {
		if got := identifier.MatchString(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

// TestMergeNotes merges two PT_NOTEs, but only if their notes are adjacent in the file, in memory and by load address,
// and are parsed in the same way with an alignment of 4 bytes.
func TestMergeNotes(t *testing.T) {
	const size = 28 // size of a note with a 4-byte name and 12-byte contents
	plain := elftest.Note(4, 12, 1, "GNU\x00", make([]byte, 12))
	wide := elftest.Note(4, 12, 5, "GNU\x00", make([]byte, 12)) // with an alignment of 8, padding follows
	for _, tt := range []struct {
		name   string
		change func(a, b *elf.Prog64)
		merged bool
	}{
		{"adjacent", func(a, b *elf.Prog64) {}, true},
		{"in reverse order", func(a, b *elf.Prog64) { *a, *b = *b, *a }, true},
		{"empty first", func(a, b *elf.Prog64) {
			a.Filesz, a.Memsz, b.Off, b.Vaddr, b.Paddr = 0, 0, a.Off, 0x400, 0x800
		}, false},
		{"empty last", func(a, b *elf.Prog64) { b.Filesz, b.Memsz = 0, 0 }, false},
		{"more memory first", func(a, b *elf.Prog64) { a.Memsz++ }, false},
		{"more memory last", func(a, b *elf.Prog64) { b.Memsz++ }, false},
		{"different flags", func(a, b *elf.Prog64) { b.Flags |= uint32(elf.PF_W) }, false},
		{"not adjacent in the file", func(a, b *elf.Prog64) { b.Off += size }, false},
		{"not adjacent in memory", func(a, b *elf.Prog64) { b.Vaddr, b.Paddr = b.Vaddr+8, b.Paddr+8 }, false},
		{"a different load address", func(a, b *elf.Prog64) { b.Paddr += 8 }, false},
		{"half a note", func(a, b *elf.Prog64) { b.Filesz, b.Memsz = size-4, size-4 }, false},
		{"a byte more", func(a, b *elf.Prog64) { b.Filesz, b.Memsz = size+1, size+1 }, false},
		{"a size that is not a multiple of 4", func(a, b *elf.Prog64) {
			a.Off, a.Vaddr, a.Paddr, a.Filesz, a.Memsz = a.Off+0x100, 0x500, 0x900, 17, 17
			b.Off, b.Vaddr, b.Paddr = a.Off+17, 0x511, 0x911
		}, false},
		{"two notes that an alignment of 8 separates", func(a, b *elf.Prog64) {
			b.Filesz, b.Memsz, b.Align = 32+size, 32+size, 8
		}, false},
	} {
		old := read(t, "plt")
		short := elftest.Note(4, 1, 1, "GNU\x00", make([]byte, 1))[:17]
		f := elftest.Parse(t, slices.Concat(old, plain, wide, make([]byte, 4), wide, make([]byte, 0x100-88), short,
			plain, make([]byte, 0x40)))
		note := func(off uint64) elf.Prog64 {
			return elf.Prog64{Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: uint64(len(old)) + off,
				Vaddr: 0x400 + off, Paddr: 0x800 + off, Filesz: size, Memsz: size, Align: 4}
		}
		progs := []elf.Prog64{note(0), {Type: uint32(elf.PT_LOAD)}, note(size)}
		tt.change(&progs[0], &progs[2])
		one := table{progs: slices.Clone(progs)}
		p := &Program{f: f}
		if got := p.mergeNotes(&one); got != tt.merged {
			t.Errorf("%s: merged: %t", tt.name, got)
			continue
		}
		if tt.merged {
			i := slices.IndexFunc(one.progs, func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_NOTE })
			want := note(0)
			want.Filesz, want.Memsz = 2*size, 2*size
			if len(one.progs) != 2 || one.progs[i] != want {
				t.Errorf("%s: %+v; want %+v", tt.name, one.progs, want)
			}
		} else if !slices.Equal(one.progs, progs) {
			t.Errorf("%s: %+v; want %+v", tt.name, one.progs, progs)
		}
	}
}

// TestLastSection finds the last section in a segment's memory. Sections may be in any order, or outside the segment.
func TestLastSection(t *testing.T) {
	const alloc = elf.SHF_ALLOC
	for _, tt := range []struct {
		name       string
		flags      elf.SectionFlag
		addr, size uint64
		last       bool
	}{
		{"at the start", alloc, 0x1000, 0x81, true},
		{"ending before the other", alloc, 0x1000, 0x7f, false},
		{"at the last byte", alloc, 0x10ff, 1, true},
		{"before the segment", alloc, 0xfff, 0x200, false},
		{"after the segment", alloc, 0x1100, 8, false},
		{"not loaded", 0, 0x1080, 8, false},
		{"thread-local", alloc | elf.SHF_TLS, 0x1080, 8, false},
	} {
		section := func(flags elf.SectionFlag, addr, size uint64) elffile.Section {
			return elffile.Section{Section64: elf.Section64{Flags: uint64(flags), Addr: addr, Size: size}}
		}
		f := &elffile.File{Sections: []elffile.Section{
			{}, section(alloc, 0x1040, 0x40), section(tt.flags, tt.addr, tt.size), section(alloc, 0x1010, 8),
		}}
		got := (&Program{f: f}).lastSection(&elf.Prog64{Vaddr: 0x1000, Memsz: 0x100})
		if want := map[bool]int{false: 1, true: 2}[tt.last]; got != want {
			t.Errorf("%s: %d, want %d", tt.name, got, want)
		}
	}
}

// TestSymbolValues checks which symbols are addresses in the file, by type and section.
func TestSymbolValues(t *testing.T) {
	sections := []elffile.Section{{}, {}, {Section64: elf.Section64{Flags: uint64(elf.SHF_ALLOC)}}}
	for _, tt := range []struct {
		name    string
		file    elf.Type
		typ     elf.SymType
		section int // index in the file, or 0
		shndx   elf.SectionIndex
		address bool
	}{
		{"a function", elf.ET_DYN, elf.STT_FUNC, 2, 2, true},
		{"an object", elf.ET_DYN, elf.STT_OBJECT, 2, 2, true},
		{"an object that is not loaded", elf.ET_DYN, elf.STT_OBJECT, 1, 1, false},
		{"a label that is not loaded", elf.ET_DYN, elf.STT_NOTYPE, 1, 1, true},
		{"thread-local", elf.ET_DYN, elf.STT_TLS, 2, 2, false},
		{"a file", elf.ET_DYN, elf.STT_FILE, 2, 2, false},
		{"undefined", elf.ET_DYN, elf.STT_NOTYPE, 0, elf.SHN_UNDEF, false},
		{"undefined in a program", elf.ET_EXEC, elf.STT_NOTYPE, 0, elf.SHN_UNDEF, false},
		{"a number in a library", elf.ET_DYN, elf.STT_NOTYPE, 0, elf.SHN_ABS, false},
		{"a number in a program with fixed addresses", elf.ET_EXEC, elf.STT_NOTYPE, 0, elf.SHN_ABS, true},
		{"the same of an object", elf.ET_EXEC, elf.STT_OBJECT, 0, elf.SHN_ABS, true},
	} {
		s := scan{f: &elffile.File{Sections: sections}}
		s.f.Type = uint16(tt.file)
		sym := elffile.Symbol{Section: tt.section}
		sym.Value, sym.Info, sym.Shndx = 0x1234, byte(tt.typ), uint16(tt.shndx)
		if got, want := s.value(&sym), map[bool]uint64{true: 0x1234, false: noValue}[tt.address]; got != want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, want)
		}
	}
}

// TestOverflow checks the largest numbers that fit in the ELF header, and the smallest that are stored in the first
// section header (ELF gABI, "ELF Header": e_shnum, e_shstrndx and e_phnum).
func TestOverflow(t *testing.T) {
	const reserved = int(elf.SHN_LORESERVE)
	for _, tt := range []struct {
		sections, names, progs          int
		shnum, shstrndx, phnum          uint16
		firstSize, firstLink, firstInfo int
	}{
		{reserved - 1, reserved - 2, math.MaxUint16 - 1, uint16(reserved - 1), uint16(reserved - 2), math.MaxUint16 - 1,
			0, 0, 0},
		{reserved, reserved - 1, 3, 0, uint16(reserved - 1), 3, reserved, 0, 0},
		{reserved + 1, reserved, 3, 0, uint16(elf.SHN_XINDEX), 3, reserved + 1, reserved, 0},
		{9, 8, math.MaxUint16, 9, 8, math.MaxUint16, 0, 0, math.MaxUint16},
	} {
		l := &Layout{sections: make([]elf.Section64, tt.sections), shstrndx: uint32(tt.names),
			progs: make([]elf.Prog64, tt.progs)}
		l.sections[0] = elf.Section64{Size: 7, Link: 7, Info: 7} // of the old file
		h := elf.Header64{Shnum: uint16(tt.sections), Shstrndx: uint16(tt.names), Phnum: uint16(tt.progs)}
		l.storeOverflow(&h)
		if h.Shnum != tt.shnum || h.Shstrndx != tt.shstrndx || h.Phnum != tt.phnum || l.sections[0] != (elf.Section64{
			Size: uint64(tt.firstSize), Link: uint32(tt.firstLink), Info: uint32(tt.firstInfo)}) {
			t.Errorf("%+v: header %+v, first section %+v", tt, h, l.sections[0])
		}
	}
}

// TestNext checks where the next part of the file starts: at a section or segment with contents, the end of the head,
// an address in a dynamic entry, or the end of the file. It also checks the alignment of later parts.
func TestNext(t *testing.T) {
	section := func(typ elf.SectionType, off, size uint64) elffile.Section {
		return elffile.Section{Section64: elf.Section64{Type: uint32(typ), Off: off, Size: size}}
	}
	f := &elffile.File{
		Size: 0x1000,
		Sections: []elffile.Section{{}, section(elf.SHT_PROGBITS, 0x100, 0x10), section(elf.SHT_NOBITS, 0x120, 8),
			section(elf.SHT_PROGBITS, 0x128, 0), section(elf.SHT_PROGBITS, 0x118, 1)},
		Progs: []elf.Prog64{
			{Type: uint32(elf.PT_LOAD), Filesz: 0x400}, {Type: uint32(elf.PT_PHDR), Off: 0x130, Filesz: 8},
			{Type: uint32(elf.PT_NOTE), Off: 0x140}, {Type: uint32(elf.PT_NOTE), Off: 0x180, Filesz: 8},
		},
	}
	p := &Program{f: f, page: 0x1000, head: &f.Progs[0], marks: []uint64{0x500, 0x300}}
	for off, want := range map[uint64]uint64{
		0: 0, 1: 0x100, 0x100: 0x100, 0x101: 0x101, 0x10f: 0x10f, 0x110: 0x118, 0x119: 0x180, 0x180: 0x180,
		0x181: 0x300,
		0x300: 0x300, 0x301: 0x400, 0x400: 0x500, 0x501: 0x1000,
	} {
		if got := p.next(off); got != want {
			t.Errorf("after %#x: %#x, want %#x", off, got, want)
		}
	}
	f.Sections[1].Addralign, f.Sections[2].Addralign, f.Sections[3].Addralign = 64, 128, 16
	for off, want := range map[uint64]uint64{0x100: 64, 0x101: 16, 0x128: 16, 0x129: sectionAlign} {
		if got := p.tailAlign(off); got != want {
			t.Errorf("the alignment after %#x is %d, want %d", off, got, want)
		}
	}
	f.Sections = f.Sections[:1]
	if got := p.tailAlign(0); got != sectionAlign {
		t.Errorf("with one section the alignment is %d", got)
	}
	f.Sections = nil
	if got := p.tailAlign(0); got != 1 {
		t.Errorf("without section headers the alignment is %d", got)
	}
	for without, b := range map[bool][]byte{false: read(t, "alloca"), true: patched(t, "alloca", bare)} {
		p := must.Get(NewProgram(elftest.Parse(t, b), Options{}))(t)
		const hash, symbols = 0x278, 0x2b8 // .gnu.hash and .dynsym (readelf)
		if slices.Contains(p.marks, hash) != without || slices.Contains(p.marks, symbols) != without ||
			len(p.marks) > 0 != without {
			t.Errorf("without section headers: %t, dynamic entries lead to %#x", without, p.marks)
		}
		for off, want := range map[uint64]string{0x237: "", 0x238: "PT_INTERP", 0x239: "", 0x254: "PT_NOTE"} {
			if s, ok := p.contentsAt(off); without && (s.Name != want || ok != (want != "")) {
				t.Errorf("at %#x there is %+v; want %s", off, s, want)
			}
		}
	}
}

// TestHarmless checks which symbols are known not to be used by code: local symbols with certain names. Only the names
// of the first 65,536 symbols are examined.
func TestHarmless(t *testing.T) {
	names := []string{"", "__abi_tag", "$x", "other"}
	b := patched(t, "plt", func(p *elftest.Patcher) {
		p.Contents(".strtab", []byte(strings.Join(names, "\x00")+"\x00"))
	})
	f := elftest.Parse(t, b)
	const most = 1 << 16
	for _, tt := range []struct {
		name   string
		bind   elf.SymBind
		typ    elf.SymType
		before int // number of symbols examined before this one
		want   bool
	}{
		{"__abi_tag", elf.STB_LOCAL, elf.STT_OBJECT, 0, true},
		{"__abi_tag", elf.STB_GLOBAL, elf.STT_OBJECT, 0, false},
		{"__abi_tag", elf.STB_LOCAL, elf.STT_OBJECT, most - 1, true},
		{"__abi_tag", elf.STB_LOCAL, elf.STT_OBJECT, most, false},
		{"$x", elf.STB_LOCAL, elf.STT_NOTYPE, 0, true},
		{"$x", elf.STB_LOCAL, elf.STT_FUNC, 0, false},
		{"other", elf.STB_LOCAL, elf.STT_NOTYPE, 0, false},
	} {
		var sym elffile.Symbol
		sym.Name = uint32(strings.Index(strings.Join(names, "\x00"), tt.name))
		sym.Info = byte(tt.bind)<<4 | byte(tt.typ)
		s := scan{f: f, names: tt.before}
		if got := s.harmless(f.Section(".symtab"), &sym); got != tt.want {
			t.Errorf("%s, %v, %v, after %d: %t", tt.name, tt.bind, tt.typ, tt.before, got)
		}
	}
}

// TestFill adjusts sections to the segment of an interpreter whose .bss is stored in the file.
func TestFill(t *testing.T) {
	const alloc, bits, noBits = elf.SHF_ALLOC, elf.SHT_PROGBITS, elf.SHT_NOBITS
	h := filledSegment{elf.Prog64{Off: 0x100, Vaddr: 0x1000, Filesz: 0x80}, 3}
	section := func(typ elf.SectionType, flags elf.SectionFlag, off, addr uint64) elf.Section64 {
		return elf.Section64{Type: uint32(typ), Flags: uint64(flags), Off: off, Addr: addr, Size: 8}
	}
	last := section(bits, alloc, 0x170, 0x1070)
	last.Size = 0x10
	for _, tt := range []struct {
		name      string
		index     int
		old, want elf.Section64
	}{
		{".bss", 2, section(noBits, alloc, 7, 0x1040), section(bits, alloc, 0x140, 0x1040)},
		{"at the start", 2, section(noBits, alloc, 7, 0x1000), section(bits, alloc, 0x100, 0x1000)},
		{"the last section", 3, section(noBits, alloc, 7, 0x1070), last},
		{"data", 2, section(bits, alloc, 0x110, 0x1010), section(bits, alloc, 0x110, 0x1010)},
		{"before it", 3, section(noBits, alloc, 7, 0xff0), section(noBits, alloc, 7, 0xff0)},
		{"after it", 3, section(noBits, alloc, 7, 0x1080), section(noBits, alloc, 7, 0x1080)},
		{"thread-local", 3, section(noBits, alloc|elf.SHF_TLS, 7, 0x1040),
			section(noBits, alloc|elf.SHF_TLS, 7, 0x1040)},
		{"not loaded", 3, section(bits, 0, 7, 0x1040), section(bits, 0, 7, 0x1040)},
	} {
		s := tt.old
		if h.fill(tt.index, &s); s != tt.want {
			t.Errorf("%s: %+v; want %+v", tt.name, s, tt.want)
		}
	}
}

// TestMark marks references to addresses near two adjacent parts, 0x10 to 0x20 and 0x20 to 0x30. The latter is code.
func TestMark(t *testing.T) {
	for _, tt := range []struct {
		first, last uint64
		want        []bool
	}{
		{0x8, 0xf, []bool{false, false, false}}, {0x8, 0x10, []bool{true, false, false}},
		{0x10, 0x1f, []bool{true, false, false}}, {0x18, 0x20, []bool{true, true, false}},
		{0x20, 0x2f, []bool{false, true, false}}, {0x2f, 0x30, []bool{false, true, true}},
		{0x30, 0x38, []bool{false, false, false}}, {0x8, 0x38, []bool{true, true, true}},
	} {
		code := false
		r := references{code: span(0x20, 0x30), refers: func(_, _ uint64) { code = true }}
		r.cut([]elffile.Span{span(0x20, 0x30), span(0x10, 0x20), span(0x40, 0x40)})
		if r.mark(tt.first, tt.last); !slices.Equal(r.hit, tt.want) || code != tt.want[1] {
			t.Errorf("%#x to %#x: %t, code: %t, want %t", tt.first, tt.last, r.hit, code, tt.want)
		}
	}
}
