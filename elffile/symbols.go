package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// A Symbol is a symbol with its section. Its value is an address, also in a relocatable object.
type Symbol struct {
	elf.Sym64
	Section int    // index of its section, or 0 if it is undefined, absolute or common
	Index   uint32 // in the table
}

// SymbolIndexes returns the index of the SHT_SYMTAB_SHNDX section of a symbol table, or 0. Only files with more than
// 65,279 sections need one.
func (f *File) SymbolIndexes(table int) int {
	i := f.indexes[uint32(table)]
	if f.Sections[i].Size/4 < f.Sections[table].Size/SymSize {
		return 0
	}
	return i
}

// Symbols calls fn for every symbol of the tables of type t (SHT_SYMTAB or SHT_DYNSYM), with the table's section.
func (f *File) Symbols(t elf.SectionType, fn func(table *Section, sym Symbol)) error {
	var total uint64
	for i := range f.Sections {
		s := &f.Sections[i]
		if elf.SectionType(s.Type) != t {
			continue
		}
		if s.Size > f.Size || total > f.Size-s.Size {
			return errorf("section "+s.Name, s.Off,
				"symbol tables overlap: together they are larger than the file of %d bytes", f.Size)
		}
		total += s.Size
		if err := f.symbols(i, fn); err != nil {
			return err
		}
	}
	return nil
}

// symbols calls fn for every symbol of the table with the given section index.
func (f *File) symbols(table int, fn func(table *Section, sym Symbol)) error {
	const chunk = 1 << 11 // symbols that are read at a time; they fit the processor's cache
	s := &f.Sections[table]
	wide := f.SymbolIndexes(table)
	num := s.Size / SymSize
	if err := f.fits("section "+s.Name, s.Off, num*SymSize); err != nil {
		return err
	}
	b := make([]byte, min(num, chunk)*SymSize)
	for first := uint64(0); first < num; first += chunk {
		n := min(num-first, chunk)
		b = b[:n*SymSize]
		if err := f.ReadInto("section "+s.Name, b, s.Off+first*SymSize); err != nil {
			return err
		}
		var indexes []byte
		if wide > 0 {
			var err error
			w := &f.Sections[wide]
			if indexes, err = f.ReadAt("section "+w.Name, w.Off+4*first, 4*n); err != nil {
				return err
			}
		}
		for j := range n {
			fn(s, f.symbol(b[j*SymSize:], indexes, uint32(first), uint32(j)))
		}
	}
	return nil
}

// symbol decodes the symbol at the start of b, the j-th after first.
func (f *File) symbol(b, indexes []byte, first, j uint32) Symbol {
	s := Symbol{Index: first + j, Sym64: elf.Sym64{Info: b[4], Other: b[5]}}
	if o := binary.LittleEndian; f.Order == o { // faster than calls through an interface
		s.Name, s.Shndx, s.Value, s.Size = o.Uint32(b), o.Uint16(b[SymShndx:]), o.Uint64(b[SymValue:]), o.Uint64(b[16:])
	} else {
		o := f.Order
		s.Name, s.Shndx, s.Value, s.Size = o.Uint32(b), o.Uint16(b[SymShndx:]), o.Uint64(b[SymValue:]), o.Uint64(b[16:])
	}
	switch index := elf.SectionIndex(s.Shndx); {
	case index < elf.SHN_LORESERVE:
		s.Section = int(s.Shndx)
	case index == elf.SHN_XINDEX && indexes != nil:
		s.Section = int(f.Order.Uint32(indexes[4*j:]))
	}
	if s.Section >= len(f.Sections) {
		s.Section = 0
	}
	if s.Section > 0 && f.IsObject() {
		s.Value += f.Sections[s.Section].Base // it is an offset in the section
	}
	return s
}

// maxName is the size of the longest symbol name in bytes.
const maxName = 64 << 10

// SymbolName returns the name at an offset of the string table of a symbol table, or "".
func (f *File) SymbolName(table *Section, name uint32) string {
	if int(table.Link) >= len(f.Sections) {
		return ""
	}
	s := &f.Sections[table.Link]
	if uint64(name) >= s.Size || !s.HasBytes() {
		return ""
	}
	for size := uint64(256); ; size *= 16 { // most names fit 256 bytes
		n := min(size, s.Size-uint64(name))
		b, err := f.ReadAt("section "+s.Name, s.Off+uint64(name), n)
		if err != nil {
			return ""
		}
		if i := bytes.IndexByte(b, 0); i >= 0 {
			return string(b[:i])
		}
		if n < size || size >= maxName {
			return ""
		}
	}
}
