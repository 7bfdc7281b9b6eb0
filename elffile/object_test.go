package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"
)

// A rela is a relocation with its parts.
type rela struct {
	off      uint64
	sym, typ uint32
	addend   int64
}

// An object is a relocatable file to be: .text of 64 bytes, .data of 16 bytes, the contents
// of .eh_frame, a symbol table and relocations for .eh_frame.
type object struct {
	order   binary.ByteOrder
	machine elf.Machine
	frame   []byte
	relas   []rela
	typ     elf.SectionType // of the relocations
	link    uint32          // their symbol table; 0 stands for the right one
	copies  int             // headers of relocations, of the same bytes
	text    uint64          // size of .text that its header says, if another one
}

// Section indexes of an object, and symbols.
const (
	objNull = iota
	objText
	objData
	objFrame
	objSymtab
	objRela

	symNull  = 0
	symText  = 1 // the section
	symFunc  = 2 // .text+0x10
	symData  = 3 // the section
	symOuter = 4 // undefined
	symAbs   = 5
	numSyms  = 6
)

// file lays the object out as an assembler does.
func (o *object) file(t *testing.T) *File {
	t.Helper()
	var b bytes.Buffer
	b.Write(make([]byte, HeaderSize))
	put := func(v any) {
		if err := binary.Write(&b, o.order, v); err != nil {
			t.Fatal(err)
		}
	}
	sections := []elf.Section64{{}}
	add := func(typ elf.SectionType, flags elf.SectionFlag, link, info uint32, write func()) {
		for b.Len()%8 != 0 {
			b.WriteByte(0)
		}
		s := elf.Section64{Type: uint32(typ), Flags: uint64(flags), Off: uint64(b.Len()), Link: link, Info: info,
			Addralign: 8}
		write()
		s.Size = uint64(b.Len()) - s.Off
		sections = append(sections, s)
	}
	add(elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 0, 0, func() { b.Write(make([]byte, 64)) })
	add(elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_WRITE, 0, 0, func() { b.Write(make([]byte, 16)) })
	add(elf.SHT_PROGBITS, elf.SHF_ALLOC, 0, 0, func() { b.Write(o.frame) })
	add(elf.SHT_SYMTAB, 0, 0, numSyms, func() {
		sym := func(typ elf.SymType, section uint16, value uint64) {
			put(elf.Sym64{Info: byte(typ), Shndx: section, Value: value})
		}
		sym(elf.STT_NOTYPE, 0, 0)
		sym(elf.STT_SECTION, objText, 0)
		sym(elf.STT_FUNC, objText, 0x10)
		sym(elf.STT_SECTION, objData, 0)
		sym(elf.STT_NOTYPE, 0, 0)
		sym(elf.STT_NOTYPE, uint16(elf.SHN_ABS), 0x1234)
	})
	link := o.link
	if link == 0 {
		link = objSymtab
	}
	typ := o.typ
	if typ == 0 {
		typ = elf.SHT_RELA
	}
	add(typ, elf.SHF_INFO_LINK, link, objFrame, func() {
		for _, r := range o.relas {
			put(elf.Rela64{Off: r.off, Info: elf.R_INFO(r.sym, r.typ), Addend: r.addend})
		}
	})
	for range o.copies {
		sections = append(sections, sections[objRela])
	}
	if o.text > 0 {
		sections[objText].Size = o.text
	}
	names := "\x00.text\x00.data\x00.eh_frame\x00.symtab\x00.rela.eh_frame\x00"
	add(elf.SHT_STRTAB, 0, 0, 0, func() { b.WriteString(names) })
	for i, name := range []string{objText: ".text", objData: ".data", objFrame: ".eh_frame", objSymtab: ".symtab",
		objRela: ".rela.eh_frame"} {
		if name != "" {
			sections[i].Name = uint32(strings.Index(names, "\x00"+name+"\x00") + 1)
		}
	}
	shoff := uint64(b.Len())
	put(sections)
	raw := b.Bytes()
	h := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(o.machine), Version: 1, Shoff: shoff, Ehsize: HeaderSize,
		Shentsize: SectionSize, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.EV_CURRENT)
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	if o.order == binary.BigEndian {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	var head bytes.Buffer
	if err := binary.Write(&head, o.order, h); err != nil {
		t.Fatal(err)
	}
	copy(raw, head.Bytes())
	f, err := New(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestLargeText has nearly as much code as relocations of 32 bits can reach, which describe a
// function at its end, from both sections that speak of code.
func TestLargeText(t *testing.T) {
	const size = 1<<31 - 1<<16
	pc32, abs64, abs32, abs32s := uint32(elf.R_X86_64_PC32), uint32(elf.R_X86_64_64), uint32(elf.R_X86_64_32),
		uint32(elf.R_X86_64_32S)
	o := object{order: binary.LittleEndian, machine: elf.EM_X86_64, frame: make([]byte, 64), text: size, relas: []rela{
		{0, symText, pc32, 0}, {4, symText, pc32, size - 16}, {8, symText, abs64, size - 16},
		{16, symText, abs32, size - 16},
	}}
	f := o.file(t)
	text, eh := &f.Sections[objText], &f.Sections[objFrame]
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
	o.relas = []rela{{0, symText, abs32s, size - 16}}
	f = o.file(t)
	if _, err := f.ReadRelocated(&f.Sections[objFrame]); err == nil ||
		!strings.Contains(err.Error(), "does not fit 4 bytes") {
		t.Errorf("error is %v", err)
	}
}

// TestReadRelocated applies every relocation type that is known, in both byte orders.
func TestReadRelocated(t *testing.T) {
	little, big := binary.ByteOrder(binary.LittleEndian), binary.ByteOrder(binary.BigEndian)
	for _, m := range []struct {
		machine                  elf.Machine
		order                    binary.ByteOrder
		abs64, abs32, pc64, pc32 uint32
		others                   []uint32 // 32 bits, absolute
	}{
		{elf.EM_X86_64, little, uint32(elf.R_X86_64_64), uint32(elf.R_X86_64_32), uint32(elf.R_X86_64_PC64),
			uint32(elf.R_X86_64_PC32), []uint32{uint32(elf.R_X86_64_32S)}},
		{elf.EM_AARCH64, little, uint32(elf.R_AARCH64_ABS64), uint32(elf.R_AARCH64_ABS32), uint32(elf.R_AARCH64_PREL64),
			uint32(elf.R_AARCH64_PREL32), nil},
		{elf.EM_AARCH64, big, uint32(elf.R_AARCH64_ABS64), uint32(elf.R_AARCH64_ABS32), uint32(elf.R_AARCH64_PREL64),
			uint32(elf.R_AARCH64_PREL32), nil},
		{elf.EM_S390, big, uint32(elf.R_390_64), uint32(elf.R_390_32), uint32(elf.R_390_PC64),
			uint32(elf.R_390_PC32), nil},
	} {
		frame := bytes.Repeat([]byte{0xcc}, 64)
		o := &object{order: m.order, machine: m.machine, frame: frame, relas: []rela{
			{0, symText, m.abs64, 4},
			{8, symFunc, m.abs64, -4},
			{16, symText, m.pc64, 0},
			{24, symFunc, m.pc32, 8},
			{28, symText, m.abs32, 1},
			// What is in no section with a base, or not in its symbol's, is no address of code.
			{32, symData, m.abs64, 7},  // a section without a base
			{40, symOuter, m.abs64, 9}, // undefined
			{48, symAbs, m.abs64, 11},  // in no section
			{60, symText, m.abs32, 65}, // at the very end, and beyond .text
			{1 << 40, 77, 0, 0},        // R_*_NONE
		}}
		for _, typ := range m.others {
			o.relas = append(o.relas, rela{56, symText, typ, 2})
		}
		f := o.file(t)
		text, eh := f.Sections[objText].Base, f.Sections[objFrame].Base
		if text == 0 || eh < text+64 || f.Sections[objData].Base != 0 {
			t.Fatalf("%v: bases %#x of .text, %#x of .eh_frame, %#x of .data", m.machine, text, eh,
				f.Sections[objData].Base)
		}
		got, err := f.ReadRelocated(&f.Sections[objFrame])
		if err != nil {
			t.Errorf("%v: %v", m.machine, err)
			continue
		}
		want := bytes.Clone(frame)
		for off, v := range map[int]uint64{0: text + 4, 8: text + 0x10 - 4, 16: text - (eh + 16), 32: 0, 40: 0, 48: 0} {
			m.order.PutUint64(want[off:], v)
		}
		for off, v := range map[int]uint64{24: text + 0x10 + 8 - (eh + 24), 28: text + 1, 60: 0} {
			m.order.PutUint32(want[off:], uint32(v))
		}
		if len(m.others) > 0 {
			m.order.PutUint32(want[56:], uint32(text+2))
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%v: contents\n% x\nexpected\n% x", m.machine, got, want)
		}
		if plain, err := f.ReadUncompressed(&f.Sections[objFrame]); err != nil || !bytes.Equal(plain, frame) {
			t.Errorf("%v: the contents in the file are % x (%v)", m.machine, plain, err)
		}
	}
}

// TestRelocationErrors expects errors that say which relocation is wrong.
func TestRelocationErrors(t *testing.T) {
	abs64, pc32 := uint32(elf.R_X86_64_64), uint32(elf.R_X86_64_PC32)
	for _, tt := range []struct {
		name string
		o    object
		nth  uint64 // the relocation that is wrong
		msg  string
	}{
		{"unknown type", object{relas: []rela{{0, symText, abs64, 0}, {8, symText, uint32(elf.R_X86_64_GOTPCREL), 0}}},
			1, "relocation type 9 of .eh_frame+0x8 is unknown"},
		{"type of another machine", object{relas: []rela{{0, symText, uint32(elf.R_AARCH64_ABS64), 0}}}, 0,
			"relocation type 257"},
		{"behind the end", object{relas: []rela{{64, symText, abs64, 0}}}, 0,
			"relocation of .eh_frame+0x40 is outside its 64 bytes"},
		{"over the end, 8 bytes", object{relas: []rela{{57, symText, abs64, 0}}}, 0,
			"relocation of .eh_frame+0x39 is outside its"},
		{"over the end, 4 bytes", object{relas: []rela{{61, symText, pc32, 0}}}, 0,
			"relocation of .eh_frame+0x3d is outside its"},
		{"offset that overflows", object{relas: []rela{{1<<64 - 1, symText, pc32, 0}}}, 0,
			"relocation of .eh_frame+0xffffffffffffffff is outside its"},
		{"symbol out of range", object{relas: []rela{{0, numSyms, abs64, 0}}}, 0, "uses symbol 6; the table has 6"},
		{"largest symbol", object{relas: []rela{{0, 1<<32 - 1, abs64, 0}}}, 0,
			"uses symbol 4294967295; the table has 6"},
		{"SHT_REL", object{typ: elf.SHT_REL, relas: []rela{{0, symText, abs64, 0}}}, 0,
			"relocations without addends (SHT_REL)"},
		{"no symbol table", object{link: objText, relas: []rela{{0, symText, abs64, 0}}}, 0,
			"section 1, which relocations use for symbols, is not a symbol table"},
		{"symbol table beyond the sections", object{link: 1 << 20, relas: []rela{{0, symText, abs64, 0}}}, 0,
			"section 1048576, which relocations use for symbols"},
	} {
		tt.o.order, tt.o.machine, tt.o.frame = binary.LittleEndian, elf.EM_X86_64, make([]byte, 64)
		f := tt.o.file(t)
		_, err := f.ReadRelocated(&f.Sections[objFrame])
		e, ok := err.(*Error)
		if !ok || !strings.Contains(e.Msg, tt.msg) {
			t.Errorf("%s: error %v; want %q", tt.name, err, tt.msg)
			continue
		}
		want := f.Sections[objRela].Off + tt.nth*RelaSize
		if tt.o.link != 0 {
			want = f.Shoff
		}
		if e.Off != want {
			t.Errorf("%s: error at %#x; want %#x", tt.name, e.Off, want)
		}
	}
}

// TestRelocationTables expects several tables of relocations for a section to be applied,
// but not the same bytes time and again.
func TestRelocationTables(t *testing.T) {
	o := object{order: binary.LittleEndian, machine: elf.EM_X86_64, frame: make([]byte, 64),
		relas: []rela{{0, symText, uint32(elf.R_X86_64_64), 0}}, copies: 1}
	f := o.file(t)
	if _, err := f.ReadRelocated(&f.Sections[objFrame]); err != nil {
		t.Errorf("two tables: %v", err)
	}
	o.copies = 1000
	o.relas = append(o.relas, make([]rela, 10000)...)
	f = o.file(t)
	if _, err := f.ReadRelocated(&f.Sections[objFrame]); err == nil ||
		!strings.Contains(err.Error(), "relocation sections overlap") {
		t.Errorf("1001 tables: %v", err)
	}
}

// TestBases expects addresses in an object that contents can be spoken of with: none is 0,
// none overlap.
func TestBases(t *testing.T) {
	o := object{order: binary.BigEndian, machine: elf.EM_S390, frame: make([]byte, 64)}
	f := o.file(t)
	text, eh := &f.Sections[objText], &f.Sections[objFrame]
	if text.Base%text.Addralign != 0 || text.Base < 1<<16 || eh.Base < text.Base+text.Size {
		t.Errorf(".text at %#x, .eh_frame at %#x", text.Base, eh.Base)
	}
}
