package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"cfi2sframe/elffile"
)

// An Object is an ELF file under construction, usually a relocatable object.
type Object struct {
	Head     []byte // the file before the contents of the sections: nil, or space for the ELF header
	Sections []Section
	Symbols  []byte // contents of .symtab
	Strings  []byte // contents of .strtab, if a symbol has a name
	Locals   uint32 // sh_info of .symtab
	Header   elf.Header64
	Big      bool
	Tail     []byte // after the section headers
}

// A Section is a section header with contents, which are Data unless At sets Off and Size.
type Section struct {
	elf.Section64
	Name  string
	Data  []byte
	fixed bool
}

// Sections of objects made by NewObject.
const (
	ObjText = 1 + iota
	ObjFrame
	ObjRela
	ObjSymtab
	ObjStrtab
	ObjNames
)

// An Order is a byte order.
type Order interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Append appends a fixed-size value.
func Append(b []byte, order Order, v any) []byte {
	b, err := binary.Append(b, order, v)
	if err != nil {
		panic(err)
	}
	return b
}

// Pad appends zeros until the size is a multiple of align.
func Pad(b []byte, align int) []byte {
	for len(b)%align != 0 {
		b = append(b, 0)
	}
	return b
}

// Order returns the byte order of the object.
func (o *Object) Order() Order {
	if o.Big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Add appends a section and returns its index.
func (o *Object) Add(name string, typ elf.SectionType, flags elf.SectionFlag, data []byte) int {
	h := elf.Section64{Type: uint32(typ), Flags: uint64(flags), Addralign: 1}
	o.Sections = append(o.Sections, Section{Section64: h, Name: name, Data: data})
	return len(o.Sections) - 1
}

// Symbol appends a symbol.
func (o *Object) Symbol(bind elf.SymBind, typ elf.SymType, section uint16, value uint64) int {
	o.Symbols = Append(o.Symbols, o.Order(), elf.Sym64{Info: elf.ST_INFO(bind, typ), Shndx: section, Value: value})
	return len(o.Symbols)/elffile.SymSize - 1
}

// Function appends a local function symbol with the given name.
func (o *Object) Function(name string, section int, value, size uint64) {
	o.Symbols = Append(o.Symbols, o.Order(), elf.Sym64{
		Name: uint32(len(o.Strings)), Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_FUNC), Shndx: uint16(section),
		Value: value, Size: size,
	})
	o.Strings = append(append(o.Strings, name...), 0)
}

// Names adds .shstrtab.
func (o *Object) Names() { o.Header.Shstrndx = uint16(o.Add(".shstrtab", elf.SHT_STRTAB, 0, nil)) }

// Rela appends a relocation to the section with the given index.
func (o *Object) Rela(section int, off uint64, sym, typ uint32, addend int64) {
	s := &o.Sections[section]
	s.Data = Append(s.Data, o.Order(), elf.Rela64{Off: off, Info: elf.R_INFO(sym, typ), Addend: addend})
}

// Code adds a section of code with one function.
func (o *Object) Code(name string, size int) int {
	i := o.Add(name, elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, size))
	sym := o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(min(i, int(elf.SHN_XINDEX))), 0)
	o.FDE(uint32(sym), 0, size)
	return i
}

// Record appends a CFI record: its length and its body.
func (o *Object) Record(frame int, body []byte) int {
	s := &o.Sections[frame]
	at := len(s.Data)
	s.Data = append(o.Order().AppendUint32(s.Data, uint32(len(body))), body...)
	return at
}

// CIE starts a section of CFI.
func (o *Object) CIE(frame int) {
	o.Record(frame, append([]byte("\x00\x00\x00\x00\x01zR\x00\x01\x78\x10\x01\x1b"), Sound...))
}

// FDE appends an FDE for a function at an offset from a symbol.
func (o *Object) FDE(sym uint32, addend int64, size int) {
	o.FDEIn(ObjFrame, ObjRela, sym, uint32(elf.R_X86_64_PC32), addend, size, 0x41, 0x0e, 16)
}

// FDEIn is FDE for the given section of CFI and its relocations, which have the given type.
func (o *Object) FDEIn(frame, rela int, sym, typ uint32, addend int64, size int, instructions ...byte) {
	at := len(o.Sections[frame].Data)
	body := Append(nil, o.Order(), []uint32{uint32(at + 4), 0, uint32(size)})
	o.Record(frame, append(append(body, 0), instructions...))
	o.Rela(rela, uint64(at+8), sym, typ, addend)
}

// NewObject returns an amd64 object with one function of 64 bytes.
func NewObject() *Object {
	h := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Shstrndx: ObjNames}
	o := &Object{Header: h}
	o.Add("", elf.SHT_NULL, 0, nil)
	o.Add(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 64))
	o.Add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
	o.RelaOf(".rela.eh_frame", ObjFrame)
	o.Add(".symtab", elf.SHT_SYMTAB, 0, nil)
	o.Sections[ObjSymtab].Link, o.Sections[ObjSymtab].Entsize = ObjStrtab, elffile.SymSize
	o.Add(".strtab", elf.SHT_STRTAB, 0, make([]byte, 1))
	o.Add(".shstrtab", elf.SHT_STRTAB, 0, nil)
	o.Symbol(0, 0, 0, 0)
	o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, ObjText, 0)
	o.CIE(ObjFrame)
	o.FDE(1, 0, 64)
	return o
}

// RelaOf adds an empty relocation section.
func (o *Object) RelaOf(name string, target int) int {
	i := o.Add(name, elf.SHT_RELA, elf.SHF_INFO_LINK, nil)
	s := &o.Sections[i]
	s.Link, s.Info, s.Entsize, s.Addralign = ObjSymtab, uint32(target), elffile.RelaSize, 8
	return i
}

// Bytes returns the file.
func (o *Object) Bytes() []byte {
	names := Names(o.Sections)
	b := bytes.Clone(o.Head)
	if b == nil {
		b = make([]byte, elffile.HeaderSize)
	}
	for i := range o.Sections {
		s := &o.Sections[i]
		switch {
		case s.Name == ".symtab":
			s.Data, s.Info = o.Symbols, max(s.Info, o.Locals, 1)
		case s.Name == ".shstrtab":
			s.Data = names
		}
		if !s.fixed {
			b = Pad(b, 8)
			s.Off, s.Size = uint64(len(b)), uint64(len(s.Data))
			b = append(b, s.Data...)
		}
	}
	return append(Encode(b, o.Order(), o.Header, o.Sections), o.Tail...)
}

// Names sets the name offsets in section headers, and returns the contents of .shstrtab.
func Names(sections []Section) []byte {
	names := []byte{0}
	offsets := map[string]uint32{"": 0}
	for i := range sections {
		s := &sections[i]
		if _, ok := offsets[s.Name]; !ok {
			offsets[s.Name] = uint32(len(names))
			names = append(append(names, s.Name...), 0)
		}
		s.Section64.Name = offsets[s.Name]
	}
	return names
}

// Encode appends the section headers, if any, to a file's contents, and writes h at the start.
func Encode(b []byte, order Order, h elf.Header64, sections []Section) []byte {
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	if order == binary.BigEndian {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	h.Version, h.Ehsize = 1, elffile.HeaderSize
	if len(sections) > 0 {
		b = Pad(b, 8)
		h.Shoff, h.Shentsize, h.Shnum = uint64(len(b)), elffile.SectionSize, uint16(len(sections))
		if len(sections) >= int(elf.SHN_LORESERVE) {
			h.Shnum, sections[0].Size = 0, uint64(len(sections))
		}
	}
	for i := range sections {
		b = Append(b, order, &sections[i].Section64)
	}
	copy(b, Append(nil, order, &h))
	return b
}

// At sets the section's offset and size.
func (o *Object) At(section int, off, size uint64) {
	s := &o.Sections[section]
	s.Off, s.Size, s.fixed = off, size, true
}

// BigObject returns an object with one function for a big-endian machine.
func BigObject(m elf.Machine, pc32 uint32) *Object {
	o := NewObject()
	o.Big = true
	o.Header.Machine = uint16(m)
	o.Symbols = nil
	o.Sections[ObjFrame].Data, o.Sections[ObjRela].Data = nil, nil
	o.Symbol(0, 0, 0, 0)
	o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, ObjText, 0)
	cie := "zR\x00\x04\x78\x1e\x01\x1b\x0c\x1f\x00" // RA in x30; CFA sp+0
	if m == elf.EM_S390 {
		cie = "zR\x00\x01\x78\x0e\x01\x1b\x0c\x0f\xa0\x01" // RA in r14; CFA r15+160
	}
	o.Record(ObjFrame, append([]byte{0, 0, 0, 0, 1}, cie...))
	o.FDEIn(ObjFrame, ObjRela, 1, pc32, 0, 64)
	return o
}
