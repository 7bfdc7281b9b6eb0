package elffile

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"
)

// A Symbol is a symbol with its section. Its value is an address even in a relocatable object.
type Symbol struct {
	elf.Sym64
	Section int    // index of its section, or 0 if it is undefined, absolute or common
	Index   uint32 // index in the symbol table
}

// SymbolIndexes returns the index of the SHT_SYMTAB_SHNDX section of a symbol table, or 0. Only files with more than
// 65,279 sections need such a section.
func (f *File) SymbolIndexes(table int) int {
	i := f.indexes[uint32(table)]
	if f.Sections[i].Size/4 < f.Sections[table].Size/SymSize {
		return 0
	}
	return i
}

// Symbols calls fn for each symbol in the tables of type t (SHT_SYMTAB or SHT_DYNSYM), with the table's section.
func (f *File) Symbols(t elf.SectionType, fn func(table *Section, sym Symbol)) error {
	var total uint64
	for i, s := range Each(f.Sections) {
		if elf.SectionType(s.Type) != t {
			continue
		}
		if err := f.addSize(&total, s, "symbol tables"); err != nil {
			return err
		}
		if err := f.symbols(i, fn); err != nil {
			return err
		}
	}
	return nil
}

// symbols calls fn for each symbol of the table with the given section index.
func (f *File) symbols(table int, fn func(table *Section, sym Symbol)) error {
	s := &f.Sections[table]
	wide := f.SymbolIndexes(table)
	index := uint32(0)
	return f.ReadTable("section "+s.Name, s.Off, s.Size, SymSize, func(b []byte, _ uint64) error {
		var indexes []byte
		if wide > 0 {
			var err error
			w := &f.Sections[wide]
			indexes, err = f.ReadAt("section "+w.Name, w.Off+4*uint64(index), uint64(len(b)/SymSize*4))
			if err != nil {
				return err
			}
		}
		for i := range len(b) / SymSize {
			var wideIndex uint32
			if indexes != nil {
				wideIndex = f.Order.Uint32(indexes[4*i:])
			}
			fn(s, f.symbol(b[i*SymSize:], index, wideIndex))
			index++
		}
		return nil
	})
}

// symbol decodes the symbol with the given index, at the start of b. If its st_shndx is SHN_XINDEX, it is in the given
// section.
func (f *File) symbol(b []byte, index, section uint32) Symbol {
	o := f.Order
	s := Symbol{Index: index, Sym64: elf.Sym64{
		Name: o.Uint32(b), Info: b[4], Other: b[5], Shndx: o.Uint16(b[SymShndx:]),
		Value: o.Uint64(b[SymValue:]), Size: o.Uint64(b[16:]),
	}}
	switch index := elf.SectionIndex(s.Shndx); {
	case index < elf.SHN_LORESERVE:
		s.Section = int(s.Shndx)
	case index == elf.SHN_XINDEX:
		s.Section = int(section)
	}
	if s.Section >= len(f.Sections) {
		s.Section = 0
	}
	if s.Section > 0 && f.IsObject() {
		s.Value += f.Sections[s.Section].Base // the value is an offset in the section
	}
	return s
}

// maxName is the maximum size of a symbol name in bytes.
const maxName = 64 << 10

// SymbolName returns the name at an offset in the string table of a symbol table, or "".
func (f *File) SymbolName(table *Section, name uint32) string {
	if int(table.Link) >= len(f.Sections) {
		return ""
	}
	s := &f.Sections[table.Link]
	if uint64(name) >= s.Size || !s.HasBytes() {
		return ""
	}
	for size := uint64(256); ; size *= 16 { // most names are at most 256 bytes long
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

// NamedSymbols is like Symbols, but also passes to fn the bytes of the string table that start at the symbol's name, or
// nil if the name is outside the string table.
func (f *File) NamedSymbols(t elf.SectionType, fn func(sym Symbol, name []byte)) error {
	var of *Section // the symbol table whose string table was read last
	var strings []byte
	var total uint64
	var failed error
	err := f.Symbols(t, func(table *Section, s Symbol) {
		if of != table && int(table.Link) < len(f.Sections) && failed == nil {
			of = table
			if failed = f.addSize(&total, &f.Sections[table.Link], "string tables"); failed == nil {
				strings, failed = f.ReadSection(&f.Sections[table.Link])
			}
		}
		var name []byte
		if of == table && uint64(s.Name) < uint64(len(strings)) {
			name = strings[s.Name:]
		}
		fn(s, name)
	})
	return cmp.Or(err, failed)
}

// FindSymbols returns the defined symbols with the given names in the tables of type SHT_SYMTAB or, in a stripped file,
// SHT_DYNSYM. If several symbols have the same name, it returns the last.
func (f *File) FindSymbols(names ...string) (map[string]Symbol, error) {
	table := elf.SHT_DYNSYM
	if slices.ContainsFunc(f.Sections, func(s Section) bool { return elf.SectionType(s.Type) == elf.SHT_SYMTAB }) {
		table = elf.SHT_SYMTAB
	}
	found := make(map[string]Symbol)
	err := f.NamedSymbols(table, func(s Symbol, b []byte) {
		if s.Shndx == uint16(elf.SHN_UNDEF) {
			return
		}
		for _, name := range names {
			if len(b) > len(name) && b[len(name)] == 0 && string(b[:len(name)]) == name {
				found[name] = s
			}
		}
	})
	return found, err
}
