package elffile_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
)

// Symbols of objects made by newObject.
const (
	symText  = 1 + iota // section .text
	symFunc             // .text+0x10
	symData             // section without a base
	symOuter            // undefined
	symAbs
)

// newObject returns an object with these symbols, and an .eh_frame without relocations.
func newObject(m elf.Machine, big bool, frame []byte) *elftest.Object {
	o := elftest.NewObject()
	o.Big, o.Header.Machine, o.Symbols = big, uint16(m), nil
	o.Sections[elftest.ObjFrame].Data, o.Sections[elftest.ObjRela].Data = frame, nil
	data := o.Add(".data", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_WRITE, make([]byte, 16))
	o.Symbol(0, 0, 0, 0)
	o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, elftest.ObjText, 0)
	o.Symbol(elf.STB_LOCAL, elf.STT_FUNC, elftest.ObjText, 0x10)
	o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(data), 0)
	o.Symbol(elf.STB_GLOBAL, elf.STT_NOTYPE, 0, 0)
	o.Symbol(elf.STB_GLOBAL, elf.STT_NOTYPE, uint16(elf.SHN_ABS), 0x1234)
	return o
}

// TestLargeText relocates references to the end of a .text that is almost as large as 32-bit relocations can reach.
func TestLargeText(t *testing.T) {
	const size = 1<<31 - 1<<16
	o := newObject(elf.EM_X86_64, false, make([]byte, 64))
	o.At(elftest.ObjText, elffile.HeaderSize, size)
	o.Rela(elftest.ObjRela, 0, symText, uint32(elf.R_X86_64_PC32), 0)
	o.Rela(elftest.ObjRela, 4, symText, uint32(elf.R_X86_64_PC32), size-16)
	o.Rela(elftest.ObjRela, 8, symText, uint32(elf.R_X86_64_64), size-16)
	o.Rela(elftest.ObjRela, 16, symText, uint32(elf.R_X86_64_32), size-16)
	f := mustOpen(t, o.Bytes())
	text, eh := f.Section(".text"), f.Section(".eh_frame")
	b := must.Get(f.ReadRelocated(eh))(t)
	for _, v := range []struct{ got, want uint64 }{
		{eh.Base + uint64(int32(binary.LittleEndian.Uint32(b))), text.Base},
		{eh.Base + 4 + uint64(int32(binary.LittleEndian.Uint32(b[4:]))), text.Base + size - 16},
		{binary.LittleEndian.Uint64(b[8:]), text.Base + size - 16},
		{uint64(binary.LittleEndian.Uint32(b[16:])), text.Base + size - 16},
	} {
		if v.got != v.want {
			t.Errorf("address %#x; want %#x", v.got, v.want)
		}
	}
	// A sign-extended field cannot hold such a large address.
	o.Rela(elftest.ObjRela, 0, symText, uint32(elf.R_X86_64_32S), size-16)
	f = mustOpen(t, o.Bytes())
	if _, err := f.ReadRelocated(f.Section(".eh_frame")); err == nil ||
		!strings.Contains(err.Error(), "does not fit in 4 bytes") {
		t.Errorf("error is %v", err)
	}
}

// TestReadRelocated applies each supported relocation type in both byte orders.
func TestReadRelocated(t *testing.T) {
	for _, m := range []struct {
		machine                  elf.Machine
		big                      bool
		abs64, abs32, pc64, pc32 uint32
		other                    uint32 // a 4-byte absolute type, or 0
	}{
		{elf.EM_X86_64, false, uint32(elf.R_X86_64_64), uint32(elf.R_X86_64_32), uint32(elf.R_X86_64_PC64),
			uint32(elf.R_X86_64_PC32), uint32(elf.R_X86_64_32S)},
		{elf.EM_AARCH64, false, uint32(elf.R_AARCH64_ABS64), uint32(elf.R_AARCH64_ABS32), uint32(elf.R_AARCH64_PREL64),
			uint32(elf.R_AARCH64_PREL32), 0},
		{elf.EM_AARCH64, true, uint32(elf.R_AARCH64_ABS64), uint32(elf.R_AARCH64_ABS32), uint32(elf.R_AARCH64_PREL64),
			uint32(elf.R_AARCH64_PREL32), 0},
		{elf.EM_S390, true, uint32(elf.R_390_64), uint32(elf.R_390_32), uint32(elf.R_390_PC64),
			uint32(elf.R_390_PC32), 0},
	} {
		frame := bytes.Repeat([]byte{0xcc}, 64)
		o := newObject(m.machine, m.big, bytes.Clone(frame))
		for _, r := range []struct {
			off      uint64
			sym, typ uint32
			addend   int64
		}{
			{0, symText, m.abs64, 4}, {8, symFunc, m.abs64, -4}, {16, symText, m.pc64, 0}, {24, symFunc, m.pc32, 8},
			{28, symText, m.abs32, 1},
			// A value outside sections with a base, or outside the symbol's section, is not the address of code.
			{32, symData, m.abs64, 7}, {40, symOuter, m.abs64, 9}, {48, symAbs, m.abs64, 11},
			{56, symText, m.other, 2},  // R_*_NONE on other machines
			{60, symText, m.abs32, 65}, // past .text
			{1 << 40, 77, 0, 0},        // R_*_NONE
		} {
			o.Rela(elftest.ObjRela, r.off, r.sym, r.typ, r.addend)
		}
		f := mustOpen(t, o.Bytes())
		text, eh := f.Section(".text").Base, f.Section(".eh_frame").Base
		want := bytes.Clone(frame)
		for off, v := range map[int]uint64{0: text + 4, 8: text + 0x10 - 4, 16: text - (eh + 16), 32: 0, 40: 0, 48: 0} {
			f.Order.PutUint64(want[off:], v)
		}
		for off, v := range map[int]uint64{24: text + 0x10 + 8 - (eh + 24), 28: text + 1, 60: 0} {
			f.Order.PutUint32(want[off:], uint32(v))
		}
		if m.other != 0 {
			f.Order.PutUint32(want[56:], uint32(text+2))
		}
		if got, err := f.ReadRelocated(f.Section(".eh_frame")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: contents\n% x, %v; want\n% x", m.machine, got, err, want)
		}
		if plain, err := f.ReadUncompressed(f.Section(".eh_frame")); err != nil || !bytes.Equal(plain, frame) {
			t.Errorf("%v: the contents in the file are % x (%v)", m.machine, plain, err)
		}
	}
}

// TestTakeBases assigns the addresses of an object's code to the code of its debug file.
func TestTakeBases(t *testing.T) {
	o := elftest.NewObject()
	o.Code(".text.other", 32)
	f := mustOpen(t, o.Bytes())
	for i := range o.Sections {
		if s := &o.Sections[i]; s.Flags&uint64(elf.SHF_EXECINSTR) != 0 {
			s.Type, s.Data = uint32(elf.SHT_NOBITS), nil
			o.At(i, elffile.HeaderSize, f.Sections[i].Size)
		}
	}
	d := mustOpen(t, o.Bytes())
	var code []elffile.Section
	for _, s := range f.Sections {
		if s.IsCode() {
			code = append(code, s)
		}
	}
	d.TakeBases(code)
	for _, name := range []string{".text", ".text.other"} {
		if got, want := d.Section(name).Base, f.Section(name).Base; got != want || want == 0 {
			t.Errorf("%s is at %#x; want %#x", name, got, want)
		}
		if addr := f.Section(name).Base + 8; d.SectionAt(addr) != f.SectionAt(addr) {
			t.Errorf("%#x is in section %d; want %d", addr, d.SectionAt(addr), f.SectionAt(addr))
		}
	}
	if s := d.Section(".eh_frame"); s.Base != 0 {
		t.Errorf(".eh_frame is at %#x", s.Base)
	}
}

// TestFindSymbols looks up symbols by name: of several symbols with the same name, the last is found; undefined symbols
// are ignored.
func TestFindSymbols(t *testing.T) {
	o := elftest.NewObject()
	o.Strings = make([]byte, 2000) // so large that counting them twice would exceed the file size
	for i, name := range []string{"twice", "once", "twice", "prefixed"} {
		o.Function(name, elftest.ObjText, uint64(8*i), 8)
	}
	o.Function("outer", 0, 0, 0)
	for range 2100 { // more than are read at once
		o.Symbol(elf.STB_GLOBAL, elf.STT_NOTYPE, 0, 0)
	}
	o.Sections[elftest.ObjStrtab].Data = o.Strings
	f := mustOpen(t, o.Bytes())
	got, err := f.FindSymbols("once", "twice", "fixed", "prefix", "outer", "nowhere")
	if base := f.Section(".text").Base; err != nil || len(got) != 2 || got["once"].Value != base+8 ||
		got["twice"].Value != base+16 {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range o.Sections { // as in a stripped file
		if o.Sections[i].Type == uint32(elf.SHT_SYMTAB) {
			o.Sections[i].Type = uint32(elf.SHT_DYNSYM)
		}
	}
	if got, err := mustOpen(t, o.Bytes()).FindSymbols("once"); err != nil || len(got) != 1 {
		t.Errorf("in .dynsym: %+v, %v", got, err)
	}
	o.At(elftest.ObjStrtab, 1<<40, 8)
	_, err = mustOpen(t, o.Bytes()).FindSymbols("once")
	expect(t, err, "section .strtab", 1<<40, "8 bytes do not fit in the file")
	o.At(elftest.ObjStrtab, elffile.HeaderSize, 1<<40)
	_, err = mustOpen(t, o.Bytes()).FindSymbols("once")
	expect(t, err, "section .strtab", elffile.HeaderSize, "string tables overlap")
}

// TestBuildID finds the build-id, with and without section headers, and ignores other notes.
func TestBuildID(t *testing.T) {
	const at = 0x254 // file offset of the note, from readelf -ln
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		found  bool
		err    string
	}{
		{"a section", func(*elftest.Patcher) {}, true, ""},
		{"without section headers", noSections, true, ""},
		{"another type", func(p *elftest.Patcher) { p.Put32(at+8, 1) }, false, ""},
		{"another owner", func(p *elftest.Patcher) { copy(p.B[at+12:], "Go\x00\x00") }, false, ""},
		{"contents past the note", func(p *elftest.Patcher) { p.Put32(at+4, 0x1000) }, false, ""},
		{"too many notes", func(p *elftest.Patcher) {
			p.Put64(p.Section(".note.gnu.build-id")+elftest.ShSize, 2<<20)
		}, false, ""},
		{"past the end", func(p *elftest.Patcher) { p.Put64(p.Section(".note.gnu.build-id")+elftest.ShOff, 1<<40) },
			false, "section .note.gnu.build-id at file offset 0x10000000000"},
	} {
		p := elftest.Patch(t.Fatalf, fixture(t, "amd64/plt"))
		tt.change(p)
		id, in, err := mustOpen(t, p.B).BuildID()
		if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
		}
		if found := bytes.Equal(id, p.B[at+16:][:20]); found != tt.found || found && in.Off != at {
			t.Errorf("%s: %x in %+v; found: %t", tt.name, id, in, tt.found)
		}
	}
	// The build-id follows another note that does not end at a multiple of the alignment.
	for align, size := range map[uint64]uint32{8: 4, 1: 5} {
		p := elftest.Patch(t.Fatalf, fixture(t, "amd64/plt"))
		p.Contents(".note.gnu.build-id", slices.Concat(elftest.Note(4, size, 5, "GNU\x00", make([]byte, 8)),
			elftest.Note(4, 1, 3, "GNU\x00", []byte("1"))))
		p.Put64(p.Section(".note.gnu.build-id")+elftest.ShAlign, align)
		if id, _, err := mustOpen(t, p.B).BuildID(); err != nil || string(id) != "1" {
			t.Errorf("aligned to %d bytes: %q, error %v", align, id, err)
		}
	}
}

// noSections removes the section headers.
func noSections(p *elftest.Patcher) {
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
}

// TestBudget spends from a budget, and from a nil budget.
func TestBudget(t *testing.T) {
	b := elffile.NewBudget(10)
	if err := b.Spend(1, 1_200_000_000); err != nil || b.Size() != 10 {
		t.Errorf("%d bytes: %v", b.Size(), err)
	}
	if err := b.Spend(3000, 2); err == nil || !strings.Contains(err.Error(), "input of this size (10 bytes)") {
		t.Errorf("exceeded: %v", err)
	}
	if err := b.Spend(3000, 1); err != nil { // the failed call subtracted nothing
		t.Error(err)
	}
	if f := mustOpen(t, fixture(t, "amd64/plt")); f.Budget().Size() != f.Size || (*elffile.File)(nil).Budget() != nil {
		t.Errorf("the budget of a file of %d bytes is for %d", f.Size, f.Budget().Size())
	}
	var none *elffile.Budget
	if n := elffile.NewBudget(-1).Size(); n != 0 {
		t.Errorf("the size of the input is %d", n)
	}
	if err := none.Spend(1<<20, 1<<60); err != nil || none.Size() < 1<<60 {
		t.Errorf("no budget: %v", err)
	}
}

// TestRelocationErrors reads objects with relocations and symbols that assemblers do not emit.
func TestRelocationErrors(t *testing.T) {
	const (
		pc32 = uint32(elf.R_X86_64_PC32)
		rela = "section .rela.eh_frame"
		tab  = "section .symtab"
		much = "code and CFI exceed 2 GiB at section "
		size = 22 + 20 // size of .eh_frame in bytes: a CIE and an FDE
	)
	header := func(o *elftest.Object, i int) *elf.Section64 { return &o.Sections[i].Section64 }
	link := func(v uint32) func(*elftest.Object) {
		return func(o *elftest.Object) { header(o, elftest.ObjRela).Link = v }
	}
	symtab := func(off, size uint64) func(*elftest.Object) {
		return func(o *elftest.Object) { o.At(elftest.ObjSymtab, off, size) }
	}
	// addRela appends a relocation to the existing relocation.
	addRela := func(off uint64, sym, typ uint32, addend int64) func(*elftest.Object) {
		return func(o *elftest.Object) { o.Rela(elftest.ObjRela, off, sym, typ, addend) }
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Object)
		where  string
		off    func(f *elffile.File) uint64
		msg    string
	}{
		{"no symbols", link(0), section, shoff, "relocations refer to section 0, which is not a symbol table"},
		{"symbol table index out of range", link(math.MaxUint32), section, shoff,
			"relocations refer to section 4294967295,"},
		{"dynamic symbols", func(o *elftest.Object) { header(o, elftest.ObjSymtab).Type = uint32(elf.SHT_DYNSYM) },
			section, shoff, "relocations refer to section 4,"},
		{"symbols past the end", symtab(1<<20, 48), tab, at(1 << 20), "48 bytes do not fit in the file"},
		{"symbols of 2^63 bytes", symtab(64, 1<<63), tab, at(64), "9223372036854775808 bytes exceed the limit"},
		{"more symbols than the file has bytes", symtab(64, 1<<20), tab, at(64),
			"symbol tables overlap: their total size exceeds the"},
		{"empty symbol table", func(o *elftest.Object) { o.Symbols = nil }, rela, entry(0),
			"relocation at .eh_frame+0x1e uses symbol 1, but the table has only 0"},
		{"symbol table of half a symbol", func(o *elftest.Object) { o.Symbols = o.Symbols[:36] }, rela, entry(0),
			"relocation at .eh_frame+0x1e uses symbol 1, but the table has only 1"},
		{"section indexes past the end", func(o *elftest.Object) {
			i := o.Add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, nil)
			header(o, i).Link = elftest.ObjSymtab
			o.At(i, 1<<50, 8)
		}, "section .symtab_shndx", at(1 << 50), "8 bytes do not fit in the file"},

		{"3 GiB of code in one section", func(o *elftest.Object) { o.At(elftest.ObjText, 64, 3<<30) }, section, shoff,
			much + "1 (.text)"},
		{"2^64-1 bytes of code", func(o *elftest.Object) { o.At(elftest.ObjText, 64, math.MaxUint64) }, section, shoff,
			much + "1 (.text)"},
		{"3 GiB of code in two sections", func(o *elftest.Object) {
			o.At(elftest.ObjText, 64, 3<<29)
			o.At(o.Code(".text.more", 16), 64, 3<<29)
		}, section, shoff, much + "7 (.text.more)"},
		{"after the section", addRela(1000, 1, pc32, 0), rela, entry(1),
			"relocation at .eh_frame+0x3e8 is past the end of the section (42 bytes)"},
		{"at 2^64-2", addRela(math.MaxUint64-1, 1, pc32, 0), rela, entry(1),
			"relocation at .eh_frame+0xfffffffffffffffe is past the end of the section"},
		{"across the end", addRela(size-3, 1, pc32, 0), rela, entry(1),
			"relocation at .eh_frame+0x27 is past the end of the section (42 bytes)"},
		{"unknown type", addRela(0, 1, 0x1234, 0), rela, entry(1), "unknown relocation type 4660 at .eh_frame+0x0"},
		{"a missing symbol", addRela(0, math.MaxUint32, pc32, 0), rela, entry(1),
			"relocation at .eh_frame+0x0 uses symbol 4294967295, but the table has only 2"},
		{"without addends", func(o *elftest.Object) { header(o, elftest.ObjRela).Type = uint32(elf.SHT_REL) },
			rela, entry(0), "relocations without addends (SHT_REL) are not supported"},
		{"compact", func(o *elftest.Object) { header(o, elftest.ObjRela).Type = 0x40000014 },
			rela, entry(0), "compact relocations (SHT_CREL) are not supported; assemble without --crel"},
		{"past the end", func(o *elftest.Object) { o.At(elftest.ObjRela, 1<<40, 24) }, rela, at(1 << 40),
			"24 bytes do not fit in the file"},
		{"of 2^64-1 bytes", func(o *elftest.Object) { o.At(elftest.ObjRela, 1, math.MaxUint64) }, rela, at(1),
			"relocation sections overlap: their total size exceeds the"},
		{"overlapping relocation sections", func(o *elftest.Object) {
			o.Sections[elftest.ObjRela].Data = bytes.Repeat(o.Sections[elftest.ObjRela].Data, 1000)
			i := o.RelaOf(".rela.eh_frame", elftest.ObjFrame)
			o.At(i, 64, 24_000)
		}, rela, at(64), "relocation sections overlap: their total size exceeds the"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := elftest.NewObject()
			tt.change(o)
			b := o.Bytes()
			f, err := open(b)
			if err == nil {
				_, err = f.ReadRelocated(f.Section(".eh_frame"))
			} else {
				f = &elffile.File{Header64: elf.Header64{Shoff: binary.LittleEndian.Uint64(b[elftest.EhShoff:])}}
			}
			expect(t, err, tt.where, tt.off(f), tt.msg)
		})
	}
}

func shoff(f *elffile.File) uint64 { return f.Shoff }

func at(off uint64) func(*elffile.File) uint64 {
	return func(*elffile.File) uint64 { return off }
}

// entry returns the file offset of the i-th relocation.
func entry(i uint64) func(*elffile.File) uint64 {
	return func(f *elffile.File) uint64 { return f.Section(".rela.eh_frame").Off + i*elffile.RelaSize }
}

// TestRelocated relocates the start address of the FDE, at .eh_frame+0x1e, against a symbol in .text. The result is the
// distance to .text (psABI, S + A - P), or to address 0 if the target is unknown. Without relocations, the field is
// unchanged.
func TestRelocated(t *testing.T) {
	symbol := func(change func(sym []byte)) func(*elftest.Object) {
		return func(o *elftest.Object) { change(o.Symbols[elffile.SymSize:]) }
	}
	shndx := func(i uint16) func(*elftest.Object) {
		return symbol(func(sym []byte) { binary.LittleEndian.PutUint16(sym[6:], i) })
	}
	addend := func(v uint64) func(*elftest.Object) {
		return func(o *elftest.Object) { binary.LittleEndian.PutUint64(o.Sections[elftest.ObjRela].Data[16:], v) }
	}
	relas := func(change func(*elftest.Section)) func(*elftest.Object) {
		return func(o *elftest.Object) { change(&o.Sections[elftest.ObjRela]) }
	}
	// withIndexes adds an SHT_SYMTAB_SHNDX section, and makes the symbol use it.
	withIndexes := func(table []byte) func(*elftest.Object) {
		return func(o *elftest.Object) {
			shndx(uint16(elf.SHN_XINDEX))(o)
			o.Sections[o.Add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, table)].Link = elftest.ObjSymtab
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Object)
		known  any    // nil if there are no relocations
		after  uint64 // offset from the start of .text
	}{
		{"relocations of nothing", relas(func(s *elftest.Section) { s.Info = math.MaxUint32 }), nil, 0},
		{"relocations of themselves", relas(func(s *elftest.Section) { s.Info = elftest.ObjRela }), nil, 0},
		{"relocations without bytes", relas(func(s *elftest.Section) { s.Type = uint32(elf.SHT_NOBITS) }), nil, 0},
		{"half a relocation", relas(func(s *elftest.Section) { s.Data = s.Data[:12] }), nil, 0},
		{"nothing changed", func(*elftest.Object) {}, true, 0},
		{"symbol value 16", symbol(func(sym []byte) { sym[8] = 16 }), true, 16},
		{"symbol value 2^64-1", symbol(func(sym []byte) { binary.LittleEndian.PutUint64(sym[8:], math.MaxUint64) }),
			false, 0},
		{"undefined", shndx(0), false, 0},
		{"absolute", shndx(uint16(elf.SHN_ABS)), false, 0},
		{"common", shndx(uint16(elf.SHN_COMMON)), false, 0},
		{"in a missing section", shndx(200), false, 0},
		{"SHN_XINDEX without a table", shndx(uint16(elf.SHN_XINDEX)), false, 0},
		{"SHN_XINDEX with a table", withIndexes([]byte{0, 0, 0, 0, elftest.ObjText, 0, 0, 0}), true, 0},
		{"SHN_XINDEX with a table that is too short", withIndexes([]byte{0, 0, 0, 0, elftest.ObjText, 0, 0}), false, 0},
		{"SHN_XINDEX of 2^32-1", withIndexes(bytes.Repeat([]byte{0xff}, 8)), false, 0},
		{"addend 2^63", addend(1 << 63), false, 0},
		{"addend 0x20", addend(0x20), true, 0x20},
		{"another of type none",
			func(o *elftest.Object) { o.Rela(elftest.ObjRela, math.MaxUint64, math.MaxUint32, 0, 0) }, true, 0},
		{"two tables of relocations", func(o *elftest.Object) {
			o.Sections[o.RelaOf(".rela.again", elftest.ObjFrame)].Data = bytes.Clone(o.Sections[elftest.ObjRela].Data)
		}, true, 0},
		{"two symbol tables", func(o *elftest.Object) {
			o.Sections[elftest.ObjRela].Link = uint32(o.Add(".symtab2", elf.SHT_SYMTAB, 0, bytes.Clone(o.Symbols)))
		}, true, 0},
	} {
		o := elftest.NewObject()
		tt.change(o)
		f := mustOpen(t, o.Bytes())
		s, text := f.Section(".eh_frame"), f.Section(".text")
		b, err := f.ReadRelocated(s)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		const field = 0x1e
		want := uint32(0)
		switch tt.known {
		case true:
			want = uint32(tt.after + text.Base - (s.Base + field))
		case false:
			want = uint32(-(s.Base + field))
		}
		if got := binary.LittleEndian.Uint32(b[field:]); got != want {
			t.Errorf("%s: %#x; want %#x", tt.name, got, want)
		}
	}
}

// TestObjectBases checks that code and .eh_frame, but no other sections, get addresses, and that these do not overlap.
func TestObjectBases(t *testing.T) {
	o := elftest.NewObject()
	odd := o.Code(".text.odd", 5000)
	o.Sections[odd].Addralign = 3 // not a power of two
	wide := o.Code(".text.wide", 64)
	o.Sections[wide].Addralign = 4096
	huge := o.Code(".text.huge", 64)
	o.Sections[huge].Addralign = 1 << 40
	f := mustOpen(t, o.Bytes())
	based := []int{elftest.ObjText, odd, wide, huge, elftest.ObjFrame}
	var end uint64
	for _, i := range based {
		s := &f.Sections[i]
		if s.Base <= end || s.Base%16 != 0 || i == wide && s.Base%4096 != 0 {
			t.Errorf("section %d (%s) has the address %#x, but the previous one ends at %#x", i, s.Name, s.Base, end)
		}
		for addr, want := range map[uint64]int{s.Base: i, s.Base + s.Size - 1: i, s.Base + s.Size: 0, s.Base - 1: 0} {
			if got := f.SectionAt(addr); got != want {
				t.Errorf("SectionAt(%#x) is %d; want %d", addr, got, want)
			}
		}
		if moves := f.Moves(s.Base); moves == 0 || s.Base%moves != 0 {
			t.Errorf("section %d (%s), at %#x, moves by multiples of %d", i, s.Name, s.Base, moves)
		}
		end = s.Base + s.Size
	}
	if got := f.SectionAt(0); got != 0 {
		t.Errorf("SectionAt(0) is %d", got)
	}
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Base != 0 && s.Name != ".eh_frame" && s.Flags&uint64(elf.SHF_EXECINSTR) == 0 {
			t.Errorf("section %d (%s) has the address %#x", i, s.Name, s.Base)
		}
	}
	for _, tt := range []struct {
		addr, want uint64
	}{
		{f.Sections[elftest.ObjText].Base, 1}, // its sh_addralign
		{f.Sections[odd].Base, 1},
		{f.Sections[wide].Base, 4096},
		{1, 1},
	} {
		if got := f.Moves(tt.addr); got != tt.want {
			t.Errorf("the code at %#x moves by multiples of %d; want %d", tt.addr, got, tt.want)
		}
	}
}

// TestMoves checks that code with fixed addresses does not move, and that the code of other linked files
// moves by whole pages.
func TestMoves(t *testing.T) {
	for name, want := range map[string]uint64{"amd64/static": 0, "amd64/plt": 4096, "amd64/pltlib.so": 4096} {
		if got := mustOpen(t, fixture(t, name)).Moves(0x1000); got != want {
			t.Errorf("%s moves by multiples of %d; want %d", name, got, want)
		}
	}
	p := elftest.Patch(t.Fatalf, elftest.NewObject().Bytes())
	noSections(p)
	if got := mustOpen(t, p.B).Moves(0); got != 1 {
		t.Errorf("an object without sections moves by multiples of %d; want 1", got)
	}
}

// TestSymbolErrors reads symbol tables and names that are missing or malformed.
func TestSymbolErrors(t *testing.T) {
	put := func(section string, field int, v uint64) func(*elftest.Patcher) {
		return func(p *elftest.Patcher) { p.Put64(p.Section(section)+field, v) }
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		off    uint64
		msg    string
	}{
		{"past the end", put(".symtab", elftest.ShOff, 1<<40), 1 << 40, "do not fit in the file"},
		{"larger than the file", put(".symtab", elftest.ShSize, 1<<40), 0,
			"symbol tables overlap: their total size exceeds the"},
	} {
		p := elftest.Patch(t.Fatalf, fixture(t, "amd64/drap2.so"))
		tt.change(p)
		f := mustOpen(t, p.B)
		off := tt.off
		if off == 0 {
			off = f.Section(".symtab").Off
		}
		expect(t, f.Symbols(elf.SHT_SYMTAB, func(*elffile.Section, elffile.Symbol) {}), "section .symtab", off, tt.msg)
	}
	for _, tt := range []struct {
		name   string
		change func(*elftest.Patcher)
		at     uint32
		want   string
	}{
		{"valid", func(*elftest.Patcher) {}, 1, "text"},
		{"in the middle", func(*elftest.Patcher) {}, 3, "xt"},
		{"at the end of the table", func(*elftest.Patcher) {}, 6, ""},
		{"at 2^32-1", func(*elftest.Patcher) {}, math.MaxUint32, ""},
		{"of 1,000 bytes", func(p *elftest.Patcher) {
			p.Contents(".strtab", append(bytes.Repeat([]byte("x"), 1000), 0))
		}, 1, string(bytes.Repeat([]byte("x"), 999))},
		{"of 2 MB", func(p *elftest.Patcher) { p.Contents(".strtab", append(bytes.Repeat([]byte("x"), 2<<20), 0)) }, 1,
			""},
		{"not terminated", func(p *elftest.Patcher) { p.Contents(".strtab", []byte("\x00text")) }, 1, ""},
		{"in a table past the end", put(".strtab", elftest.ShOff, 1<<40), 1, ""},
		{"in a SHT_NOBITS table", func(p *elftest.Patcher) {
			p.Put32(p.Section(".strtab")+elftest.ShType, uint32(elf.SHT_NOBITS))
		}, 1, ""},
		{"without a table", func(p *elftest.Patcher) { p.Put32(p.Section(".symtab")+elftest.ShLink, 1<<31) }, 1, ""},
	} {
		p := elftest.Patch(t.Fatalf, fixture(t, "amd64/drap2.so"))
		p.Contents(".strtab", []byte("\x00text\x00"))
		tt.change(p)
		f := mustOpen(t, p.B)
		if got := f.SymbolName(f.Section(".symtab"), tt.at); got != tt.want {
			t.Errorf("name %s: %.20q; want %.20q", tt.name, got, tt.want)
		}
	}
}

// TestOpen opens a file by name, and closes it; errors contain the name.
func TestOpen(t *testing.T) {
	f := must.Get(elffile.Open("../testdata/bin/amd64/prologue"))(t)
	if b, err := f.ReadSection(f.Section(".text")); err != nil || len(b) != 145 { // according to readelf
		t.Errorf("%d bytes, %v", len(b), err)
	}
	must.Do(t, f.Close())
	if _, err := f.ReadSection(f.Section(".text")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := elffile.Open("object_test.go"); !errors.Is(err, elffile.ErrNotELF) ||
		!strings.HasPrefix(err.Error(), "object_test.go: ") {
		t.Errorf("not ELF: %v", err)
	}
	if _, err := elffile.Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
