package elffile_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
)

// Symbols of objects by newObject.
const (
	symText  = 1 + iota // the section
	symFunc             // .text+0x10
	symData             // a section without a base
	symOuter            // undefined
	symAbs
)

// newObject returns an object with an .eh_frame without relocations, and the symbols above.
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

// TestLargeText has nearly as much code as relocations of 32 bits can reach, which describe a function at its end.
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
	b, err := f.ReadRelocated(eh)
	if err != nil {
		t.Fatal(err)
	}
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
	// An address that a field extends with its sign cannot be that large.
	o.Rela(elftest.ObjRela, 0, symText, uint32(elf.R_X86_64_32S), size-16)
	f = mustOpen(t, o.Bytes())
	if _, err := f.ReadRelocated(f.Section(".eh_frame")); err == nil ||
		!strings.Contains(err.Error(), "does not fit 4 bytes") {
		t.Errorf("error is %v", err)
	}
}

// TestReadRelocated applies every relocation type that is known, in both byte orders.
func TestReadRelocated(t *testing.T) {
	for _, m := range []struct {
		machine                  elf.Machine
		big                      bool
		abs64, abs32, pc64, pc32 uint32
		other                    uint32 // of 4 bytes, absolute; or 0
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
			// What is in no section with a base, or not in its symbol's, is no address of code.
			{32, symData, m.abs64, 7}, {40, symOuter, m.abs64, 9}, {48, symAbs, m.abs64, 11},
			{56, symText, m.other, 2},  // R_*_NONE on other machines
			{60, symText, m.abs32, 65}, // beyond .text
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

// TestTakeBases gives the code of a debug file the addresses of its object.
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

// TestFindSymbols finds symbols by their names: the last of several, and none that is undefined.
func TestFindSymbols(t *testing.T) {
	o := elftest.NewObject()
	o.Strings = []byte("\x00")
	for i, name := range []string{"twice", "once", "twice", "prefixed"} {
		o.Function(name, elftest.ObjText, uint64(8*i), 8)
	}
	o.Function("outer", 0, 0, 0)
	o.Sections[elftest.ObjStrtab].Data = o.Strings
	f := mustOpen(t, o.Bytes())
	got, err := f.FindSymbols("once", "twice", "fixed", "prefix", "outer", "nowhere")
	if base := f.Section(".text").Base; err != nil || len(got) != 2 || got["once"].Value != base+8 ||
		got["twice"].Value != base+16 {
		t.Errorf("%+v, %v", got, err)
	}
	o.At(elftest.ObjStrtab, 1<<40, 8)
	_, err = mustOpen(t, o.Bytes()).FindSymbols("once")
	expect(t, err, "section .strtab", 1<<40, "8 bytes do not fit the file")
	o.At(elftest.ObjStrtab, elffile.HeaderSize, 1<<40)
	_, err = mustOpen(t, o.Bytes()).FindSymbols("once")
	expect(t, err, "section .strtab", elffile.HeaderSize, "string tables overlap")
}

// TestBuildID finds the build-id by section headers and without them, and no other note.
func TestBuildID(t *testing.T) {
	const at = 0x254 // of the note in the file, as readelf -ln prints it
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
		{"contents beyond the note", func(p *elftest.Patcher) { p.Put32(at+4, 0x1000) }, false, ""},
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
}

// noSections removes the section headers.
func noSections(p *elftest.Patcher) {
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
}

// TestBudget spends from a budget, and from none.
func TestBudget(t *testing.T) {
	b := elffile.NewBudget(10)
	if err := b.Spend(1, 1_200_000_000); err != nil || b.Size() != 10 {
		t.Errorf("%d bytes: %v", b.Size(), err)
	}
	if err := b.Spend(3000, 2); err == nil || !strings.Contains(err.Error(), "10 bytes of input") {
		t.Errorf("too much: %v", err)
	}
	if err := b.Spend(3000, 1); err != nil { // nothing was taken before
		t.Error(err)
	}
	var none *elffile.Budget
	if err := none.Spend(1<<20, 1<<60); err != nil || none.Size() < 1<<60 {
		t.Errorf("no budget: %v", err)
	}
}
