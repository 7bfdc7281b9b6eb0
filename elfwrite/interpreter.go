package elfwrite

import (
	"debug/elf"
	"fmt"

	"cfi2sframe/internal/elffile"
)

// Linux before 6.7 loads the program interpreter (ld.so) by code of its own, which
// takes for granted that the segment with .bss is the last one: it clears the rest
// of the page behind the highest end of file contents, which the new segment
// would not allow, and leaves a .bss that is not the last alone. In an interpreter,
// therefore,
//
//   - .bss becomes a part of the file, up to the end of its last page, because
//     ld.so also uses what is left of that page;
//   - the new segment ends on a page boundary, so that there is nothing to clear,
//     and it does so by the end of a section, because strip cuts off what no
//     section holds.

// IsInterpreter reports whether the file is one that kernels load for others: a
// shared object with an entry point that needs no interpreter and no libraries.
func IsInterpreter(f *elffile.File) (bool, error) {
	dyn := f.Prog(elf.PT_DYNAMIC)
	if elf.Type(f.Type) != elf.ET_DYN || f.Entry == 0 || f.Prog(elf.PT_INTERP) != nil || dyn == nil {
		return false, nil
	}
	b, err := f.ReadAt("PT_DYNAMIC", dyn.Off, dyn.Filesz)
	if err != nil {
		return false, err
	}
	for ; len(b) >= dynSize; b = b[dynSize:] {
		switch value := f.Order.Uint64(b[8:]); elf.DynTag(f.Order.Uint64(b)) {
		case elf.DT_NULL:
			return true, nil
		case elf.DT_NEEDED:
			return false, nil
		case elf.DT_FLAGS_1:
			if elf.DynFlag1(value)&elf.DF_1_PIE != 0 {
				return false, nil // static-pie
			}
		}
	}
	return true, nil
}

// interpreter prepares the last segment of an interpreter for one more behind it,
// and lays that out. It returns where the new segment ends in the file.
func (p *planner) interpreter() (uint64, error) {
	last := -1
	for i := range p.progs {
		if elf.ProgType(p.progs[i].Type) == elf.PT_LOAD {
			if h := &p.progs[i]; last >= 0 && p.progs[last].Memsz > p.progs[last].Filesz {
				return 0, fmt.Errorf("interpreter with a .bss before the segment at %#x, which not all kernels clear", h.Vaddr)
			}
			last = i
		}
	}
	h := &p.progs[last]
	if fileSpan(h).end != p.loadEnd {
		return 0, fmt.Errorf("interpreter whose last segment, at %#x, is not the last one in the file", h.Vaddr)
	}
	h.Filesz = h.Memsz
	p.filled = *h
	first := h.Off + (alignUp(h.Vaddr+h.Memsz, p.page) - h.Vaddr)
	// The end is that of a section whose size is a multiple of the alignment: the
	// last one that moved, if it is, or .sframe.
	for _, last := range []bool{false, true} {
		for off := alignUp(first, sectionAlign); off <= first+p.page; off += sectionAlign {
			if end := p.layOut(off, last); end%p.page == 0 {
				return end, nil
			}
		}
	}
	return 0, fmt.Errorf("interpreter: an .sframe of %d bytes cannot end on a page boundary", p.Size)
}

// fill makes s, a section of zeros in the segment that was filled, a part of the
// file.
func (p *planner) fill(s *elf.Section64) {
	h := &p.filled
	if elf.SectionType(s.Type) == elf.SHT_NOBITS && elf.SectionFlag(s.Flags)&(elf.SHF_ALLOC|elf.SHF_TLS) == elf.SHF_ALLOC &&
		s.Addr >= h.Vaddr && s.Addr-h.Vaddr <= h.Filesz && h.Filesz > 0 {
		s.Type, s.Off = uint32(elf.SHT_PROGBITS), h.Off+(s.Addr-h.Vaddr)
	}
}
