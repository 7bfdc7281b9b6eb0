package elffile

import (
	"bytes"
	"debug/elf"
)

// Symbols calls fn for every symbol of the tables of type t (SHT_SYMTAB or
// SHT_DYNSYM), with the section of the table. It reads a part of the table at a
// time.
func (f *File) Symbols(t elf.SectionType, fn func(table *Section, sym elf.Sym64)) error {
	const chunk = 1 << 15
	var total uint64
	for i := range f.Sections {
		s := &f.Sections[i]
		if elf.SectionType(s.Type) != t {
			continue
		}
		if s.Size > f.Size || total > f.Size-s.Size {
			return errorf("section "+s.Name, s.Off, "symbol tables overlap, having more than the %d bytes of the file", f.Size)
		}
		total += s.Size
		for off, n := s.Off, s.Size/SymSize; n > 0; {
			k := min(n, chunk)
			b, err := f.ReadAt("section "+s.Name, off, k*SymSize)
			if err != nil {
				return err
			}
			for ; len(b) >= SymSize; b = b[SymSize:] {
				fn(s, elf.Sym64{
					Name: f.Order.Uint32(b), Info: b[4], Other: b[5], Shndx: f.Order.Uint16(b[6:]),
					Value: f.Order.Uint64(b[8:]), Size: f.Order.Uint64(b[16:]),
				})
			}
			off, n = off+k*SymSize, n-k
		}
	}
	return nil
}

// maxName is the longest symbol name that is read, in bytes.
const maxName = 64 << 10

// SymbolName returns the name at the given offset of the string table that
// belongs to a symbol table, or "".
func (f *File) SymbolName(table *Section, name uint32) string {
	if int(table.Link) >= len(f.Sections) {
		return ""
	}
	s := &f.Sections[table.Link]
	if uint64(name) >= s.Size || !s.HasBytes() {
		return ""
	}
	for size := uint64(256); ; size *= 16 {
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
