package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

	"cfi2sframe/elffile"
)

// An Object is a relocatable object in the making.
type Object struct {
	Sections []objectSection
	Symbols  []byte // contents of .symtab
	Locals   uint32 // its sh_info
	Header   elf.Header64
	Big      bool
	Tail     []byte // after the section headers
}

type objectSection struct {
	elf.Section64
	name  string
	Data  []byte
	fixed bool // Off and Size are set already
}

// Sections of the objects that newObject makes.
const (
	ObjText = 1 + iota
	ObjFrame
	ObjRela
	ObjSymtab
	ObjStrtab
	ObjNames
)

// A byteOrder reads, writes and appends.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

// Order returns the byte order of the object.
func (o *Object) Order() byteOrder {
	if o.Big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Add appends a section and returns its index.
func (o *Object) Add(name string, typ elf.SectionType, flags elf.SectionFlag, data []byte) int {
	o.Sections = append(o.Sections, objectSection{name: name, Data: data, Section64: elf.Section64{Type: uint32(typ), Flags: uint64(flags), Addralign: 1}})
	return len(o.Sections) - 1
}

// Symbol appends a symbol.
func (o *Object) Symbol(bind elf.SymBind, typ elf.SymType, section uint16, value uint64) int {
	le := o.Order()
	b := le.AppendUint32(o.Symbols, 0)
	b = append(b, elf.ST_INFO(bind, typ), 0)
	b = le.AppendUint16(b, section)
	b = le.AppendUint64(b, value)
	o.Symbols = le.AppendUint64(b, 0)
	return len(o.Symbols)/elffile.SymSize - 1
}

// Rela appends a relocation to the section with the given index.
func (o *Object) Rela(section int, off uint64, sym, typ uint32, addend int64) {
	le := o.Order()
	s := &o.Sections[section]
	s.Data = le.AppendUint64(s.Data, off)
	s.Data = le.AppendUint64(s.Data, uint64(sym)<<32|uint64(typ))
	s.Data = le.AppendUint64(s.Data, uint64(addend))
}

// Code adds a section of code with one function.
func (o *Object) Code(name string, size int) int {
	i := o.Add(name, elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, size))
	sym := o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(min(i, int(elf.SHN_XINDEX))), 0)
	o.FDE(uint32(sym), 0, size)
	return i
}

// Record appends a CFI record with a length.
func (o *Object) Record(frame int, body []byte) int {
	s := &o.Sections[frame]
	at := len(s.Data)
	s.Data = o.Order().AppendUint32(s.Data, uint32(len(body)))
	s.Data = append(s.Data, body...)
	return at
}

// CIE begins a section of CFI.
func (o *Object) CIE(frame int) {
	body := append([]byte{0, 0, 0, 0, 1}, "zR\x00\x01\x78\x10\x01\x1b"...)
	o.Record(frame, append(body, Sound...))
}

// FDE appends an FDE for a function at an offset from a symbol.
func (o *Object) FDE(sym uint32, addend int64, size int) {
	o.FDEIn(ObjFrame, ObjRela, sym, addend, size)
}

// FDEIn is FDE for a section of CFI and its relocations.
func (o *Object) FDEIn(frame, rela int, sym uint32, addend int64, size int) {
	le := o.Order()
	at := len(o.Sections[frame].Data)
	body := le.AppendUint32(nil, uint32(at+4))
	body = le.AppendUint32(body, 0)
	body = le.AppendUint32(body, uint32(size))
	o.Record(frame, append(body, 0, 0x41, 0x0e, 16))
	o.Rela(rela, uint64(at+8), sym, uint32(elf.R_X86_64_PC32), addend)
}

// NewObject begins an object for amd64 with one function of 64 bytes.
func NewObject() *Object {
	o := &Object{Header: elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: elffile.HeaderSize,
		Shentsize: elffile.SectionSize, Shstrndx: ObjNames,
	}}
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

// RelaOf adds an empty section of relocations.
func (o *Object) RelaOf(name string, target int) int {
	i := o.Add(name, elf.SHT_RELA, elf.SHF_INFO_LINK, nil)
	s := &o.Sections[i]
	s.Link, s.Info, s.Entsize, s.Addralign = ObjSymtab, uint32(target), elffile.RelaSize, 8
	return i
}

// Bytes returns the object.
func (o *Object) Bytes() []byte {
	le := o.Order()
	o.Sections[ObjSymtab].Data = o.Symbols
	if o.Sections[ObjSymtab].Info == 0 {
		o.Sections[ObjSymtab].Info = max(o.Locals, 1)
	}
	names := []byte{0}
	known := map[string]uint32{"": 0}
	for i := range o.Sections {
		s := &o.Sections[i]
		if _, ok := known[s.name]; !ok {
			known[s.name] = uint32(len(names))
			names = append(append(names, s.name...), 0)
		}
		s.Name = known[s.name]
	}
	if s := &o.Sections[ObjNames]; !s.fixed && s.name == ".shstrtab" {
		s.Data = names
	}
	b := make([]byte, elffile.HeaderSize)
	pad := func() {
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
	}
	for i := range o.Sections {
		s := &o.Sections[i]
		if !s.fixed {
			pad()
			s.Off, s.Size = uint64(len(b)), uint64(len(s.Data))
			b = append(b, s.Data...)
		}
	}
	pad()
	h := o.Header
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	if o.Big {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	h.Shoff, h.Shnum = uint64(len(b)), uint16(len(o.Sections))
	first := &o.Sections[0]
	if len(o.Sections) >= int(elf.SHN_LORESERVE) {
		h.Shnum, first.Size = 0, uint64(len(o.Sections))
	}
	table := make([]elf.Section64, len(o.Sections))
	for i := range table {
		table[i] = o.Sections[i].Section64
	}
	var head, tail bytes.Buffer
	_ = binary.Write(&head, le, &h) // a buffer takes everything
	_ = binary.Write(&tail, le, table)
	copy(b, head.Bytes())
	return append(append(b, tail.Bytes()...), o.Tail...)
}

// At sets where a section is in the file.
func (o *Object) At(section int, off, size uint64) {
	s := &o.Sections[section]
	s.Off, s.Size, s.fixed = off, size, true
}

// BigObject begins an object of a big-endian machine with one function.
func BigObject(m elf.Machine, pc32 uint32) *Object {
	o := NewObject()
	o.Big = true
	o.Header.Machine = uint16(m)
	o.Symbols = nil
	for _, i := range []int{ObjFrame, ObjRela} {
		o.Sections[i].Data = nil
	}
	o.Symbol(0, 0, 0, 0)
	o.Symbol(elf.STB_LOCAL, elf.STT_SECTION, ObjText, 0)
	switch m {
	case elf.EM_S390: // RA in r14; CFA r15+160
		body := append([]byte{0, 0, 0, 0, 1}, "zR\x00\x01\x78\x0e\x01\x1b\x0c\x0f\xa0\x01"...)
		o.Record(ObjFrame, body)
	default: // RA in x30; CFA sp+0
		body := append([]byte{0, 0, 0, 0, 1}, "zR\x00\x04\x78\x1e\x01\x1b\x0c\x1f\x00"...)
		o.Record(ObjFrame, body)
	}
	at := len(o.Sections[ObjFrame].Data)
	body := o.Order().AppendUint32(nil, uint32(at+4))
	body = o.Order().AppendUint64(body, 64)
	o.Record(ObjFrame, append(body, 0))
	o.Rela(ObjRela, uint64(at+8), 1, pc32, 0)
	return o
}
