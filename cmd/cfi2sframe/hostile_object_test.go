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
	"cfi2sframe/internal/lab/long"
	"cfi2sframe/sframe"
)

// An object is a relocatable object in the making.
type object struct {
	sections []objectSection
	symbols  []byte // contents of .symtab
	locals   uint32 // its sh_info
	header   elf.Header64
	big      bool
	tail     []byte // behind the section headers
}

type objectSection struct {
	elf.Section64
	name  string
	data  []byte
	fixed bool // Off and Size are set already
}

// Sections of the objects that newObject makes.
const (
	objText = 1 + iota
	objFrame
	objRela
	objSymtab
	objStrtab
	objNames
)

// A byteOrder reads, writes and appends.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

func (o *object) order() byteOrder {
	if o.big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// add appends a section and returns its index.
func (o *object) add(name string, typ elf.SectionType, flags elf.SectionFlag, data []byte) int {
	o.sections = append(o.sections, objectSection{name: name, data: data, Section64: elf.Section64{Type: uint32(typ), Flags: uint64(flags), Addralign: 1}})
	return len(o.sections) - 1
}

// symbol appends a symbol.
func (o *object) symbol(bind elf.SymBind, typ elf.SymType, section uint16, value uint64) int {
	le := o.order()
	b := le.AppendUint32(o.symbols, 0)
	b = append(b, elf.ST_INFO(bind, typ), 0)
	b = le.AppendUint16(b, section)
	b = le.AppendUint64(b, value)
	o.symbols = le.AppendUint64(b, 0)
	return len(o.symbols)/elffile.SymSize - 1
}

// rela appends a relocation to the section with the given index.
func (o *object) rela(section int, off uint64, sym, typ uint32, addend int64) {
	le := o.order()
	s := &o.sections[section]
	s.data = le.AppendUint64(s.data, off)
	s.data = le.AppendUint64(s.data, uint64(sym)<<32|uint64(typ))
	s.data = le.AppendUint64(s.data, uint64(addend))
}

// code adds a section of code with one function.
func (o *object) code(name string, size int) int {
	i := o.add(name, elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, size))
	sym := o.symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(min(i, int(elf.SHN_XINDEX))), 0)
	o.fde(uint32(sym), 0, size)
	return i
}

// record appends a CFI record with a length.
func (o *object) record(frame int, body []byte) int {
	s := &o.sections[frame]
	at := len(s.data)
	s.data = o.order().AppendUint32(s.data, uint32(len(body)))
	s.data = append(s.data, body...)
	return at
}

// cie begins a section of CFI.
func (o *object) cie(frame int) {
	body := append([]byte{0, 0, 0, 0, 1}, "zR\x00\x01\x78\x10\x01\x1b"...)
	o.record(frame, append(body, sound...))
}

// fde appends an FDE for a function at an offset from a symbol.
func (o *object) fde(sym uint32, addend int64, size int) {
	o.fdeIn(objFrame, objRela, sym, addend, size)
}

func (o *object) fdeIn(frame, rela int, sym uint32, addend int64, size int) {
	le := o.order()
	at := len(o.sections[frame].data)
	body := le.AppendUint32(nil, uint32(at+4))
	body = le.AppendUint32(body, 0)
	body = le.AppendUint32(body, uint32(size))
	o.record(frame, append(body, 0, 0x41, 0x0e, 16))
	o.rela(rela, uint64(at+8), sym, uint32(elf.R_X86_64_PC32), addend)
}

// newObject begins an object for amd64 with one function of 64 bytes.
func newObject() *object {
	o := &object{header: elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: elffile.HeaderSize,
		Shentsize: elffile.SectionSize, Shstrndx: objNames,
	}}
	o.add("", elf.SHT_NULL, 0, nil)
	o.add(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 64))
	o.add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
	o.relaOf(".rela.eh_frame", objFrame)
	o.add(".symtab", elf.SHT_SYMTAB, 0, nil)
	o.sections[objSymtab].Link, o.sections[objSymtab].Entsize = objStrtab, elffile.SymSize
	o.add(".strtab", elf.SHT_STRTAB, 0, make([]byte, 1))
	o.add(".shstrtab", elf.SHT_STRTAB, 0, nil)
	o.symbol(0, 0, 0, 0)
	o.symbol(elf.STB_LOCAL, elf.STT_SECTION, objText, 0)
	o.cie(objFrame)
	o.fde(1, 0, 64)
	return o
}

// relaOf adds an empty section of relocations.
func (o *object) relaOf(name string, target int) int {
	i := o.add(name, elf.SHT_RELA, elf.SHF_INFO_LINK, nil)
	s := &o.sections[i]
	s.Link, s.Info, s.Entsize, s.Addralign = objSymtab, uint32(target), elffile.RelaSize, 8
	return i
}

// bytes returns the object.
func (o *object) bytes() []byte {
	le := o.order()
	o.sections[objSymtab].data = o.symbols
	if o.sections[objSymtab].Info == 0 {
		o.sections[objSymtab].Info = max(o.locals, 1)
	}
	names := []byte{0}
	known := map[string]uint32{"": 0}
	for i := range o.sections {
		s := &o.sections[i]
		if _, ok := known[s.name]; !ok {
			known[s.name] = uint32(len(names))
			names = append(append(names, s.name...), 0)
		}
		s.Name = known[s.name]
	}
	if s := &o.sections[objNames]; !s.fixed && s.name == ".shstrtab" {
		s.data = names
	}
	b := make([]byte, elffile.HeaderSize)
	pad := func() {
		for len(b)%8 != 0 {
			b = append(b, 0)
		}
	}
	for i := range o.sections {
		s := &o.sections[i]
		if !s.fixed {
			pad()
			s.Off, s.Size = uint64(len(b)), uint64(len(s.data))
			b = append(b, s.data...)
		}
	}
	pad()
	h := o.header
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	if o.big {
		h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB)
	}
	h.Shoff, h.Shnum = uint64(len(b)), uint16(len(o.sections))
	first := &o.sections[0]
	if len(o.sections) >= int(elf.SHN_LORESERVE) {
		h.Shnum, first.Size = 0, uint64(len(o.sections))
	}
	table := make([]elf.Section64, len(o.sections))
	for i := range table {
		table[i] = o.sections[i].Section64
	}
	var head, tail bytes.Buffer
	_ = binary.Write(&head, le, &h) // a buffer takes everything
	_ = binary.Write(&tail, le, table)
	copy(b, head.Bytes())
	return append(append(b, tail.Bytes()...), o.tail...)
}

// at sets where a section is in the file.
func (o *object) at(section int, off, size uint64) {
	s := &o.sections[section]
	s.Off, s.Size, s.fixed = off, size, true
}

// bigObject begins an object of a big-endian machine with one function.
func bigObject(m elf.Machine, pc32 uint32) *object {
	o := newObject()
	o.big = true
	o.header.Machine = uint16(m)
	o.symbols = nil
	for _, i := range []int{objFrame, objRela} {
		o.sections[i].data = nil
	}
	o.symbol(0, 0, 0, 0)
	o.symbol(elf.STB_LOCAL, elf.STT_SECTION, objText, 0)
	switch m {
	case elf.EM_S390: // RA in r14; CFA r15+160
		body := append([]byte{0, 0, 0, 0, 1}, "zR\x00\x01\x78\x0e\x01\x1b\x0c\x0f\xa0\x01"...)
		o.record(objFrame, body)
	default: // RA in x30; CFA sp+0
		body := append([]byte{0, 0, 0, 0, 1}, "zR\x00\x04\x78\x1e\x01\x1b\x0c\x1f\x00"...)
		o.record(objFrame, body)
	}
	at := len(o.sections[objFrame].data)
	body := o.order().AppendUint32(nil, uint32(at+4))
	body = o.order().AppendUint64(body, 64)
	o.record(objFrame, append(body, 0))
	o.rela(objRela, uint64(at+8), 1, pc32, 0)
	return o
}

// TestHostileObjects has relocatable objects that no assembler makes.
func TestHostileObjects(t *testing.T) {
	const pc32 = uint32(elf.R_X86_64_PC32)
	for _, tt := range []struct {
		name   string
		make   func(o *object)
		patch  func(p *patcher)
		data   func() []byte
		args   []string
		status int
		want   string
		long   bool // it takes long
	}{
		{name: "nothing wrong", make: func(o *object) {}, want: "64 covered"},
		{name: "s390x", data: func() []byte { return bigObject(elf.EM_S390, uint32(elf.R_390_PC32)).bytes() }, want: "64 covered"},
		{name: "aarch64, big-endian", data: func() []byte { return bigObject(elf.EM_AARCH64, uint32(elf.R_AARCH64_PREL32)).bytes() }, want: "64 covered"},
		{name: "amd64, big-endian", data: func() []byte { return bigObject(elf.EM_X86_64, pc32).bytes() }, status: 1, want: "ABI"},
		{name: "format 1", make: func(o *object) {}, args: []string{"--format", "1"}, status: 1, want: "format"},
		{name: "format 3", make: func(o *object) {}, args: []string{"--format", "3"}, want: "64 covered"},

		// Symbol tables.
		{name: "relocations without symbols", make: func(o *object) { o.sections[objRela].Link = 0 }, status: 1, want: "symbol"},
		{name: "relocations with symbols in nothing", make: func(o *object) { o.sections[objRela].Link = math.MaxUint32 }, status: 1, want: "symbol"},
		{name: "relocations with symbols in themselves", make: func(o *object) { o.sections[objRela].Link = objRela }, status: 1, want: "symbol"},
		{name: "relocations with dynamic symbols", make: func(o *object) { o.sections[objSymtab].Type = uint32(elf.SHT_DYNSYM) }, status: 1, want: "symbol"},
		{name: "symbol names in nothing", make: func(o *object) { o.sections[objSymtab].Link = 1 << 31 }, want: "64 covered"},
		{name: "no symbol table", make: func(o *object) { o.sections[objSymtab].Type = uint32(elf.SHT_PROGBITS) }, status: 1, want: "symbol"},
		{name: "empty symbol table", make: func(o *object) { o.symbols = nil }, status: 1, want: "symbol"},
		{name: "symbol table of half a symbol", make: func(o *object) { o.symbols = o.symbols[:36] }, status: 1, want: "symbol"},
		{name: "symbol table past the end", make: func(o *object) { o.at(objSymtab, 1<<20, 48) }, status: 1, want: ".symtab"},
		{name: "symbol table of 2^63 bytes", make: func(o *object) { o.at(objSymtab, 64, 1<<63) }, status: 1, want: ".symtab"},
		{name: "symbol table of 2^40 bytes", make: func(o *object) { o.at(objSymtab, 64, 1<<40) }, status: 1, want: ".symtab"},
		{name: "symbol table without bytes", make: func(o *object) { o.at(objSymtab, math.MaxUint64, math.MaxUint64) }, status: 1, want: ".symtab"},
		{name: "only global symbols", make: func(o *object) { o.symbols[elffile.SymSize+4] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC) }, status: 1, want: "no local symbol"},
		{name: "only weak symbols", make: func(o *object) { o.symbols[elffile.SymSize+4] = elf.ST_INFO(elf.STB_WEAK, elf.STT_FUNC) }, status: 1, want: "no local symbol"},
		{name: "only a TLS symbol", make: func(o *object) { o.symbols[elffile.SymSize+4] = elf.ST_INFO(elf.STB_LOCAL, elf.STT_TLS) }, status: 1, want: "no local symbol"},
		{name: "sh_info of the symbols 2^32-1", make: func(o *object) { o.sections[objSymtab].Info = math.MaxUint32 }, want: "64 covered"},
		{name: "symbol value 2^64-1", make: func(o *object) { binary.LittleEndian.PutUint64(o.symbols[elffile.SymSize+8:], math.MaxUint64) }, want: "kept as it is: the CFI describes no code"},
		{name: "symbol value far behind its section", make: func(o *object) {
			o.code(".text.other", 64)
			binary.LittleEndian.PutUint64(o.symbols[elffile.SymSize+8:], 64+256)
		}, want: "64 covered"},
		{name: "symbol in no section", make: func(o *object) { o.symbols[elffile.SymSize+6] = 0 }, want: "kept as it is: the CFI describes no code"},
		{name: "symbol in a section that is not there", make: func(o *object) { o.symbols[elffile.SymSize+6] = 200 }, want: "kept as it is: the CFI describes no code"},
		{name: "symbol absolute", make: func(o *object) { binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_ABS)) }, want: "kept as it is: the CFI describes no code"},
		{name: "symbol absolute, where the code seems to be", make: func(o *object) {
			binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_ABS))
			binary.LittleEndian.PutUint64(o.sections[objRela].data[16:], 0x10100)
		}, want: "kept as it is: the CFI describes no code"},
		{name: "symbol undefined, the code seems to be at its addend", make: func(o *object) {
			o.fde(0, 0x10100, 64)
			o.sections[objRela].data = o.sections[objRela].data[elffile.RelaSize:]
			o.sections[objFrame].data[8+20+8] = 0
		}, want: "kept as it is: the CFI describes no code"},
		{name: "symbol common", make: func(o *object) { binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_COMMON)) }, want: "kept as it is: the CFI describes no code"},
		{name: "SHN_XINDEX without a table", make: func(o *object) { binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_XINDEX)) }, want: "kept as it is: the CFI describes no code"},
		{name: "SHN_XINDEX with a table", make: func(o *object) {
			binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_XINDEX))
			o.sections[o.add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, []byte{0, 0, 0, 0, objText, 0, 0, 0})].Link = objSymtab
		}, want: "64 covered"},
		{name: "SHN_XINDEX with a table that is too short", make: func(o *object) {
			binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_XINDEX))
			o.sections[o.add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, []byte{0, 0, 0, 0, objText, 0, 0})].Link = objSymtab
		}, want: "kept as it is: the CFI describes no code"},
		{name: "SHN_XINDEX with a table past the end", make: func(o *object) {
			binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_XINDEX))
			i := o.add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, nil)
			o.sections[i].Link = objSymtab
			o.at(i, 1<<50, 8)
		}, status: 1, want: ".symtab_shndx"},
		{name: "SHN_XINDEX of 2^32-1", make: func(o *object) {
			binary.LittleEndian.PutUint16(o.symbols[elffile.SymSize+6:], uint16(elf.SHN_XINDEX))
			o.sections[o.add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, bytes.Repeat([]byte{0xff}, 8))].Link = objSymtab
		}, want: "kept as it is: the CFI describes no code"},
		{name: "two symbol tables", make: func(o *object) {
			i := o.add(".symtab2", elf.SHT_SYMTAB, 0, bytes.Clone(o.symbols))
			o.sections[objRela].Link = uint32(i)
		}, want: "64 covered"},

		// Relocations.
		{name: "relocation behind the section", make: func(o *object) { o.rela(objRela, 1000, 1, pc32, 0) }, status: 1, want: "does not fit the section"},
		{name: "relocation at 2^64-2", make: func(o *object) { o.rela(objRela, math.MaxUint64-1, 1, pc32, 0) }, status: 1, want: "does not fit the section"},
		{name: "relocation over the end", make: func(o *object) { o.rela(objRela, uint64(len(o.sections[objFrame].data)-3), 1, pc32, 0) }, status: 1, want: "does not fit the section"},
		{name: "relocation of unknown type", make: func(o *object) { o.rela(objRela, 0, 1, 0x1234, 0) }, status: 1, want: "relocation type 4660 of .eh_frame+0x0"},
		{name: "relocation of type 2^32-1", make: func(o *object) { o.rela(objRela, 0, 1, math.MaxUint32, 0) }, status: 1, want: "relocation type 4294967295"},
		{name: "relocation of type none anywhere", make: func(o *object) { o.rela(objRela, math.MaxUint64, math.MaxUint32, 0, 0) }, want: "64 covered"},
		{name: "relocation by a symbol that is not there", make: func(o *object) { o.rela(objRela, 0, math.MaxUint32, pc32, 0) }, status: 1, want: "by symbol 4294967295; there are 2"},
		{name: "relocation misaligned", make: func(o *object) { o.rela(objRela, 3, 0, uint32(elf.R_X86_64_32), 0) }, want: "64 covered"},
		{name: "relocation misaligned, over the CIE's length and id", make: func(o *object) { o.rela(objRela, 1, 1, uint32(elf.R_X86_64_64), 0) }, status: 1, want: "no CFI that can be used"},
		{name: "relocation of the CIE's id", make: func(o *object) { o.rela(objRela, 4, 1, uint32(elf.R_X86_64_64), 0) }, status: 1, want: "no CFI that can be used"},
		{name: "relocation of the FDE's length", make: func(o *object) { o.rela(objRela, 20, 1, uint32(elf.R_X86_64_32), 0) }, status: 1, want: ".eh_frame"},
		{name: "relocation with an addend of 2^63", make: func(o *object) { binary.LittleEndian.PutUint64(o.sections[objRela].data[16:], 1<<63) }, want: "kept as it is: the CFI describes no code"},
		{name: "relocation into the next section", make: func(o *object) {
			o.code(".text.other", 64)
			binary.LittleEndian.PutUint64(o.sections[objRela].data[16:], 64+256)
		}, want: "64 covered"},
		{name: "relocations without addends", make: func(o *object) { o.sections[objRela].Type = uint32(elf.SHT_REL) }, status: 1, want: "SHT_RELA was expected"},
		{name: "relocations of half an entry", make: func(o *object) { o.sections[objRela].data = o.sections[objRela].data[:12] }, want: "kept as it is: the CFI describes no code"},
		{name: "relocations past the end", make: func(o *object) { o.at(objRela, 1<<40, 24) }, status: 1, want: ".rela.eh_frame"},
		{name: "relocations of 2^64-1 bytes", make: func(o *object) { o.at(objRela, 1, math.MaxUint64) }, status: 1, want: ".rela.eh_frame"},
		{name: "relocations without bytes", make: func(o *object) {
			o.sections[objRela].Type = uint32(elf.SHT_NOBITS)
		}, want: "kept as it is: the CFI describes no code"},
		{name: "relocations of themselves", make: func(o *object) { o.sections[objRela].Info = objRela }, want: "kept as it is: the CFI describes no code"},
		{name: "relocations of section 2^32-1", make: func(o *object) { o.sections[objRela].Info = math.MaxUint32 }, want: "kept as it is: the CFI describes no code"},
		{name: "relocations that contradict each other", make: func(o *object) {
			o.code(".text.other", 64)
			o.rela(objRela, 20+8, 2, pc32, 0)
		}, want: "covered"},

		// Sections.
		{name: "no section headers", make: func(o *object) {}, patch: func(p *patcher) { p.put64(ehShoff, 0); p.put16(ehShnum, 0) }, want: "kept as it is: no CFI"},
		{name: "section names without an end", make: func(o *object) {}, patch: func(p *patcher) {
			h := p.section(".shstrtab")
			p.b[p.u64(h+shOff)+p.u64(h+shSize)-1] = 'x'
		}, status: 1, want: "does not end in a zero"},
		{name: "no section names", make: func(o *object) { o.header.Shstrndx = 0 }, want: "kept as it is: no CFI"},
		{name: "section names shared with symbols", make: func(o *object) {
			o.header.Shstrndx = objNames
			o.sections[objSymtab].Link = objNames
		}, want: "64 covered"},
		{name: "section names in .text", make: func(o *object) { o.header.Shstrndx = objText }, want: "kept as it is: no CFI"},
		{name: "a program header", make: func(o *object) {}, patch: func(p *patcher) {
			p.put64(ehPhoff, uint64(p.append(make([]byte, elffile.ProgSize))))
			p.put16(ehPhnum, 1)
			p.put16(ehPhentsize, elffile.ProgSize)
		}, status: 1, want: "relocatable object with 1 program headers"},
		{name: "e_phoff without headers", make: func(o *object) { o.header.Phoff = math.MaxUint64 }, want: "64 covered"},
		{name: "a first section that is one", make: func(o *object) {
			o.sections[0].Section64 = elf.Section64{Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR)}
			o.at(0, 64, 1<<40)
		}, want: "64 covered"},
		{name: "a section over the ELF header", make: func(o *object) { o.at(o.add(".comment", elf.SHT_PROGBITS, 0, nil), 0, 100) }, status: 1, want: "section 7 (.comment) at file offset 0x0 overlaps the ELF header"},
		{name: "sh_addr in an object", make: func(o *object) { o.sections[objText].Addr = 1 << 40 }, want: "64 covered"},
		{name: "sh_addralign 2^63", make: func(o *object) { o.sections[objText].Addralign = 1 << 63 }, want: "64 covered"},
		{name: "sh_addralign 3", make: func(o *object) { o.sections[objText].Addralign = 3 }, want: "64 covered"},
		{name: "code past the end", make: func(o *object) { o.at(objText, 1<<40, 64) }, status: 1, want: "section 1 (.text): 64 bytes at file offset 0x10000000000 do not fit"},
		{name: "3 GiB of code in one section", make: func(o *object) { o.at(objText, 64, 3<<30) }, status: 1, want: "sections of code and CFI of more than 2 GiB, up to section 1 (.text)"},
		{name: "2^64-1 bytes of code", make: func(o *object) { o.at(objText, 64, math.MaxUint64) }, status: 1, want: "sections of code and CFI of more than 2 GiB"},
		{name: "20,000 sections of the same megabyte", make: func(o *object) {
			o.sections[objText].data = make([]byte, 1<<20)
			for range 20_000 {
				o.at(o.add(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, nil), 64, 1<<20)
			}
		}, status: 1, want: "sections of code and CFI of more than 2 GiB"},
		{name: "sections of code that overlap in the file", make: func(o *object) {
			i := o.code(".text.same", 64)
			o.at(i, 64, 64)
		}, want: "128 covered"},
		{name: "code without bytes", make: func(o *object) { o.sections[objText].Type = uint32(elf.SHT_NOBITS) }, want: "kept as it is: the CFI describes no code"},
		{name: "code that is not loaded", make: func(o *object) { o.sections[objText].Flags = uint64(elf.SHF_EXECINSTR) }, want: "kept as it is: the CFI describes no code"},
		{name: "function beyond its section", make: func(o *object) { o.fde(1, 32, 1<<20) }, want: "but the executable code there ends at"},
		{name: "function over two sections", make: func(o *object) {
			o.code(".text.other", 4096)
			o.fde(1, 0, 2048)
		}, want: "but the executable code there ends at"},

		// CFI.
		{name: "several .eh_frame", make: func(o *object) {
			text := o.add(".text.other", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 32))
			frame := o.add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
			rela := o.relaOf(".rela.eh_frame", frame)
			o.cie(frame)
			o.fdeIn(frame, rela, uint32(o.symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(text), 0)), 0, 32)
		}, want: "96 covered"},
		{name: ".eh_frame of nothing", make: func(o *object) { o.at(objFrame, 64, 0); o.sections[objRela].data = nil }, want: "kept as it is: the CFI describes no code"},
		{name: ".eh_frame without bytes", make: func(o *object) { o.sections[objFrame].Type = uint32(elf.SHT_NOBITS) }, want: "kept as it is: no CFI"},
		{name: ".eh_frame past the end", make: func(o *object) { o.at(objFrame, 1<<40, 100) }, status: 1, want: "section .eh_frame at file offset 0x10000000000: 100 bytes do not fit"},
		{name: ".eh_frame compressed", make: func(o *object) {
			s := &o.sections[objFrame]
			s.data = compressed(elf.COMPRESS_ZLIB, 1<<20, s.data)
			s.Flags |= uint64(elf.SHF_COMPRESSED)
		}, status: 1, want: "section .eh_frame at file offset"},
		{name: ".eh_frame code, too", make: func(o *object) { o.sections[objFrame].Flags |= uint64(elf.SHF_EXECINSTR) }, want: "64 covered"},
		{name: ".eh_frame not loaded", make: func(o *object) { o.sections[objFrame].Flags = 0 }, want: "64 covered"},
		{name: ".eh_frame and .debug_frame compressed together to nothing", make: func(o *object) {
			o.add(".debug_frame", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, compressed(elf.COMPRESS_ZSTD, 1<<27, nil))
		}, status: 1, want: "section .debug_frame at file offset"},

		// An .sframe that is there.
		{name: ".sframe there", make: func(o *object) { o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32)) }, status: 1, want: "the file has an .sframe section already; --force replaces it"},
		{name: ".sframe there, replaced", make: func(o *object) { o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32)) }, args: []string{"--force"}, want: "64 covered"},
		{name: ".sframe there without bytes, replaced", make: func(o *object) { o.add(".sframe", elf.SHT_NOBITS, elf.SHF_ALLOC, make([]byte, 32)) }, args: []string{"--force"}, status: 1, want: `section 7 is ".sframe" of type SHT_NOBITS`},
		{name: ".sframe that is code, replaced", make: func(o *object) {
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, make([]byte, 32))
		}, args: []string{"--force"}, status: 1, want: "section 7 (.sframe) has the flags SHF_ALLOC+SHF_EXECINSTR and cannot be replaced"},
		{name: ".sframe that the CFI describes, replaced", make: func(o *object) {
			o.code(".sframe", 32)
		}, args: []string{"--force"}, status: 1, want: "sframe"},
		{name: ".sframe not loaded", make: func(o *object) { o.add(".sframe", elf.SHT_PROGBITS, 0, make([]byte, 32)) }, args: []string{"--force"}, status: 1, want: "section 7 (.sframe) has the flags 0x0 and cannot be replaced"},
		{name: ".sframe not loaded, removed", make: func(o *object) { o.add(".sframe", elf.SHT_PROGBITS, 0, make([]byte, 32)) }, args: []string{"--remove"}, status: 1, want: "section 7 (.sframe) has the flags 0x0 and cannot be replaced"},
		{name: ".sframe there, and nothing that could be in it", make: func(o *object) {
			s := &o.sections[objFrame]
			s.data = bytes.ReplaceAll(s.data, sound, []byte{0x0c, 2, 8, 0x90, 1}) // CFA rcx+8
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, status: 1, want: "the file has an .sframe section already; --force replaces it"},
		{name: ".sframe there, and nothing that could be in it, replaced", make: func(o *object) {
			s := &o.sections[objFrame]
			s.data = bytes.ReplaceAll(s.data, sound, []byte{0x0c, 2, 8, 0x90, 1})
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--force"}, want: "0 covered"},
		{name: "two .sframe, replaced", make: func(o *object) {
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--force"}, status: 1, want: ".sframe"},
		{name: "two .sframe, removed", make: func(o *object) {
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--remove"}, status: 1, want: ".sframe"},
		{name: ".sframe of another name, removed", make: func(o *object) {
			o.add(".frames", elf.SectionType(sframe.SHTGNUSFrame), elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--remove"}, status: 1, want: `section 7 is ".frames" of type`},
		{name: ".sframe of another name, replaced", make: func(o *object) {
			o.add(".frames", elf.SectionType(sframe.SHTGNUSFrame), elf.SHF_ALLOC, make([]byte, 32))
		}, args: []string{"--force"}, status: 1, want: `section 7 is ".frames" of type`},
		{name: ".sframe with two sections of relocations, replaced", make: func(o *object) {
			i := o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			for range 2 {
				o.rela(o.relaOf(".rela.sframe", i), 0, 1, pc32, 0)
			}
		}, args: []string{"--force"}, status: 1, want: ".sframe"},
		{name: ".sframe with two sections of relocations, removed", make: func(o *object) {
			i := o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			for range 2 {
				o.rela(o.relaOf(".rela.sframe", i), 0, 1, pc32, 0)
			}
		}, args: []string{"--remove"}, status: 1, want: ".sframe"},
		{name: ".sframe with relocations without addends, replaced", make: func(o *object) {
			i := o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.sections[o.relaOf(".rel.sframe", i)].Type = uint32(elf.SHT_REL)
		}, args: []string{"--force"}, status: 1, want: ".sframe"},
		{name: ".sframe with relocations that also are the symbols", make: func(o *object) {
			o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.sections[objRela].Info = uint32(len(o.sections) - 1)
		}, args: []string{"--remove"}, want: "removed"},
		{name: ".sframe that a symbol is in, removed", make: func(o *object) {
			i := o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.symbol(elf.STB_LOCAL, elf.STT_SECTION, uint16(i), 0)
		}, args: []string{"--remove"}, status: 1, want: "a symbol refers to section 7 (.sframe)"},
		{name: ".sframe in a section group, removed", make: func(o *object) {
			i := o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_GROUP, make([]byte, 32))
			o.add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, byte(i), 0, 0, 0})
		}, args: []string{"--remove"}, status: 1, want: "group"},
		{name: ".sframe in a section group, replaced", make: func(o *object) {
			i := o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_GROUP, make([]byte, 32))
			o.add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, byte(i), 0, 0, 0})
		}, args: []string{"--force"}, status: 1, want: "group"},
		{name: "code in a section group", make: func(o *object) {
			i := o.code(".text.f", 32)
			o.sections[i].Flags |= uint64(elf.SHF_GROUP)
			o.add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, byte(i), 0, 0, 0})
		}, want: "96 covered"},
		{name: "section group of odd size, with members that are not there", make: func(o *object) {
			o.add(".group", elf.SHT_GROUP, 0, []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 9})
		}, want: "64 covered"},
		{name: ".sframe that other sections refer to, removed", make: func(o *object) {
			i := o.add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, make([]byte, 32))
			o.sections[o.add(".meta", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_LINK_ORDER, make([]byte, 32))].Link = uint32(i)
		}, args: []string{"--remove"}, status: 1, want: ".sframe"},
		{name: "the section names are .sframe, removed", make: func(o *object) {
			o.sections[objNames].Type = sframe.SHTGNUSFrame
		}, args: []string{"--remove"}, status: 1, want: `section 6 is ".shstrtab" of type`},
		{name: "the section names are .sframe, replaced", make: func(o *object) {
			o.sections[objNames].Type = sframe.SHTGNUSFrame
		}, args: []string{"--force"}, status: 1, want: `section 6 is ".shstrtab" of type`},
		{name: "the symbols are .sframe, replaced", make: func(o *object) {
			o.sections[objFrame].Type = sframe.SHTGNUSFrame
		}, args: []string{"--force"}, status: 1, want: ".eh_frame"},
		{name: "bytes behind the section headers", make: func(o *object) { o.tail = []byte("behind") }, want: "64 covered"},
		{name: "no .sframe, removed", make: func(o *object) { o.tail = []byte("behind") }, args: []string{"--remove"}},

		// Much of something.
		{name: "70,000 sections of code", long: true, data: func() []byte { return manyCode(70_000).bytes() }, want: "1,120,064 covered"},
		{name: "70,000 sections of code, with gaps", long: true, data: func() []byte {
			o := manyCode(70_000)
			s := &o.sections[objFrame]
			s.data = bytes.ReplaceAll(s.data, []byte{0x41, 0x0e, 16}, []byte{0x41, 0x0d, 2}) // CFA rcx
			return o.bytes()
		}, want: "left out"},
		{name: "60,000 sections .eh_frame", long: true, make: func(o *object) {
			at := len(o.sections[objFrame].data)
			for range 60_000 {
				o.at(o.add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil), 64+64, uint64(at))
			}
		}, want: "64 covered"},
		{name: "60,000 relocation sections of one section", make: func(o *object) {
			for range 20_000 {
				o.rela(objRela, 20+8, 1, pc32, 0)
			}
			n := uint64(len(o.sections[objRela].data))
			for range 60_000 {
				o.at(o.relaOf(".rela.eh_frame", objFrame), 0x100, n)
			}
		}, status: 1, want: "relocations overlap"},
		{name: "a million relocations of one field", long: true, make: func(o *object) {
			s := &o.sections[objRela]
			s.data = bytes.Repeat(s.data, 1_000_000)
		}, want: "64 covered"},
		{name: "30,000 sections .eh_frame with overlapping relocations", make: func(o *object) {
			at := uint64(len(o.sections[objFrame].data))
			o.sections[objRela].data = bytes.Repeat(o.sections[objRela].data, 40_000)
			n := uint64(len(o.sections[objRela].data))
			for range 30_000 {
				i := o.add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
				o.at(i, 64+64, at)
				o.at(o.relaOf(".rela.eh_frame", i), 64+64+48, n)
			}
		}, status: 1, want: "relocations overlap"},
		{name: "20,000 symbol tables of a megabyte", make: func(o *object) {
			at := uint64(len(o.sections[objFrame].data))
			for range 40_000 {
				o.symbol(elf.STB_LOCAL, elf.STT_SECTION, objText, 0)
			}
			for range 20_000 {
				i := o.add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, nil)
				o.at(i, 64+64, at)
				tab := o.add(".symtab", elf.SHT_SYMTAB, 0, nil)
				o.at(tab, 64+64+48+24, uint64(len(o.symbols)))
				r := o.relaOf(".rela.eh_frame", i)
				o.sections[r].Link = uint32(tab)
				o.at(r, 64+64+48, 24)
			}
		}, status: 1, want: "symbol tables overlap"},
		{name: "a million symbols", long: true, make: func(o *object) {
			for range 1_000_000 {
				o.symbols = append(o.symbols, o.symbols[elffile.SymSize:2*elffile.SymSize]...)
			}
		}, want: "64 covered"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				long.Test(t)
			}
			var b []byte
			if tt.data != nil {
				b = tt.data()
			} else {
				o := newObject()
				tt.make(o)
				b = o.bytes()
			}
			if tt.patch != nil {
				p := newPatcher(t.Fatalf, b)
				tt.patch(p)
				b = p.b
			}
			o := convertHostile(t, t.TempDir(), b, tt.args...)
			o.expect(t, tt.status, tt.want)
		})
	}
}

// manyCode returns an object with n more sections of code, with a function of 16 bytes in
// each.
func manyCode(n int) *object {
	o := newObject()
	code := make([]byte, 16)
	shndx := make([]byte, 8, 4*n+8)
	for i := range n {
		index := o.add(fmt.Sprintf(".text.f%d", i), elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, code)
		section := uint16(index)
		if index >= int(elf.SHN_LORESERVE) {
			section = uint16(elf.SHN_XINDEX)
		}
		o.fde(uint32(o.symbol(elf.STB_LOCAL, elf.STT_SECTION, section, 0)), 0, 16)
		shndx = binary.LittleEndian.AppendUint32(shndx, uint32(index))
	}
	o.sections[o.add(".symtab_shndx", elf.SHT_SYMTAB_SHNDX, 0, shndx)].Link = objSymtab
	return o
}

// expect checks the exit status, and that something is printed.
func (o *outcome) expect(t *testing.T, status int, want string) {
	t.Helper()
	if o.status != status || !strings.Contains(o.stderr, want) {
		t.Errorf("exit status %d; %d was expected\n%.2000s\nwhich should contain %q", o.status, status, o.stderr, want)
	}
}
