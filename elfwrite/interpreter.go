package elfwrite

import (
	"debug/elf"
	"fmt"

	"cfi2sframe/elffile"
)

// Linux before 6.7 expects the segment with .bss of a program interpreter (ld.so) to be the last one: it clears the
// rest of the page after the highest end of file contents, and leaves other .bss alone. Therefore .bss becomes a part
// of the file, up to the end of its last page, which ld.so also uses, and the new segment ends with a page. Both ends
// are those of sections, .sframe the last of all, because strip and objcopy lay segments out anew by their sections.

// maxFilled is the largest .bss in bytes that becomes a part of the file. That of ld.so has a few hundred.
const maxFilled = 1 << 20

// SizeMultiple returns what must divide the size of f's .sframe, in bytes: that of an interpreter is aligned and ends a
// page.
func SizeMultiple(f *elffile.File) (uint64, error) {
	is, err := isInterpreter(f)
	if err != nil || !is {
		return 1, err
	}
	return sectionAlign, nil
}

// isInterpreter reports whether the file is a shared object with an entry point, without interpreter and libraries.
func isInterpreter(f *elffile.File) (bool, error) {
	if elf.Type(f.Type) != elf.ET_DYN || f.Entry == 0 || f.Prog(elf.PT_INTERP) != nil || f.Prog(elf.PT_DYNAMIC) == nil {
		return false, nil
	}
	values, err := dynamicValues(f)
	_, needs := values[elf.DT_NEEDED]
	staticPIE := elf.DynFlag1(values[elf.DT_FLAGS_1])&elf.DF_1_PIE != 0
	return err == nil && !needs && !staticPIE, err
}

// interpreter is segment for an interpreter.
func (p *planner) interpreter() (uint64, error) {
	h := &p.progs[p.lastLoad()]
	if fileSpan(h).End != p.loadEnd {
		return 0, fmt.Errorf("interpreter whose last segment, at %#x, is not the last one in the file", h.Vaddr)
	}
	if elf.ProgFlag(h.Flags)&elf.PF_W != 0 {
		if n := h.Memsz - h.Filesz; n > maxFilled {
			return 0, fmt.Errorf("interpreter with a .bss of %d bytes, which would become a part of the file; "+
				"at most %d are accepted", n, maxFilled)
		}
		p.bss = p.lastSection(h)
		p.addrEnd = elffile.AlignUp(p.addrEnd, p.page)
		h.Filesz, h.Memsz = p.addrEnd-h.Vaddr, p.addrEnd-h.Vaddr
		p.filled = *h
	}
	// What moved comes first, at the start of a page.
	before := fileSpan(h).End
	p.begin = elffile.AlignUp(before, p.page)
	base := elffile.AlignUp(p.addrEnd, p.page)
	end := p.moveUnits(p.begin, base)
	if p.remove && end == p.begin { // no segment is left, and what comes next needs no page
		p.begin, p.off, p.Addr = before, before, p.addrEnd
		return before, nil
	}
	end = elffile.AlignUp(end+p.Size, p.page)
	p.last, p.off = true, end-p.Size
	p.Addr = base + (p.off - p.begin)
	if p.off%sectionAlign != 0 {
		return 0, fmt.Errorf("interpreter: an .sframe of %d bytes, no multiple of %d, cannot end a page",
			p.Size, sectionAlign)
	}
	if !p.hasMoved() {
		p.begin = p.off
	}
	p.start = p.Addr - (p.off - p.begin)
	return end, nil
}

// lastSection returns the index of the section that ends last in a segment's memory.
func (p *planner) lastSection(h *elf.Prog64) int {
	last, end := 0, uint64(0)
	for i := range p.f.Sections {
		s := &p.f.Sections[i]
		if !s.Alloc() || elf.SectionFlag(s.Flags)&elf.SHF_TLS != 0 || s.Addr < h.Vaddr || s.Addr >= h.Vaddr+h.Memsz {
			continue
		}
		if s.Addr+s.Size >= end {
			last, end = i, s.Addr+s.Size
		}
	}
	return last
}

// fill makes the section s, which has the given index, fit the segment that was filled: zeros become a part of the
// file, and the last section ends with the segment.
func (p *planner) fill(index int, s *elf.Section64) {
	h := &p.filled
	if h.Filesz == 0 || elf.SectionFlag(s.Flags)&(elf.SHF_ALLOC|elf.SHF_TLS) != elf.SHF_ALLOC || s.Addr < h.Vaddr ||
		s.Addr-h.Vaddr >= h.Filesz {
		return
	}
	if elf.SectionType(s.Type) == elf.SHT_NOBITS {
		s.Type, s.Off = uint32(elf.SHT_PROGBITS), h.Off+(s.Addr-h.Vaddr)
	}
	if index == p.bss && index > 0 {
		s.Size = h.Vaddr + h.Filesz - s.Addr
	}
}
