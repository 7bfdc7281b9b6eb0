package elffile

import (
	"debug/elf"

	"cfi2sframe/arch"
)

// Moves returns by multiples of how many bytes the code at an address may be moved before it runs:
// a power of two, or 0 if it stays where it is. Linkers put the sections of an object at
// multiples of their alignment, and loaders what is not linked for fixed addresses on pages.
func (f *File) Moves(addr uint64) uint64 {
	switch elf.Type(f.Type) {
	case elf.ET_EXEC:
		return 0
	case elf.ET_REL:
		if len(f.Sections) == 0 {
			return 1
		}
		s := &f.Sections[f.SectionAt(addr)]
		if a := s.Addralign; a == 0 || a&(a-1) != 0 {
			return 1
		}
		// The base may be aligned to less. And what is aligned to more is on a page in a library.
		return min(s.Addralign, arch.MinPage, max(1, s.Base&-s.Base))
	}
	return arch.MinPage
}
