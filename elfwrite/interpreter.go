package elfwrite

import (
	"debug/elf"
	"fmt"

	"cfi2sframe/elffile"
)

// Linux before 6.7 expects the segment with .bss of a program interpreter (ld.so) to be the last segment: it clears the
// rest of the page after the highest end of file contents, and no other .bss. Therefore .bss is stored in the file up
// to the end of its last page (ld.so allocates from the rest of it), and the new segment ends at a page boundary. Each
// of these segments ends with a section, the new segment with .sframe, because strip and objcopy compute segments from
// sections.

// maxFilled is the maximum size in bytes of a .bss that is stored in the file. The .bss of ld.so is a few hundred bytes
// long.
const maxFilled = 1 << 20

// SizeMultiple returns the number of bytes that must divide the size of f's .sframe: in an interpreter, .sframe is
// aligned and ends at a page boundary.
func SizeMultiple(f *elffile.File) (uint64, error) {
	is, err := isInterpreter(f)
	if err != nil || !is {
		return 1, err
	}
	return sectionAlign, nil
}

// isInterpreter reports whether the file is a shared object with an entry point, but without an interpreter or
// libraries.
func isInterpreter(f *elffile.File) (bool, error) {
	if elf.Type(f.Type) != elf.ET_DYN || f.Entry == 0 || f.Prog(elf.PT_INTERP) != nil || f.Prog(elf.PT_DYNAMIC) == nil {
		return false, nil
	}
	values, err := dynamicValues(f)
	_, needs := values[elf.DT_NEEDED]
	staticPIE := elf.DynFlag1(values[elf.DT_FLAGS_1])&elf.DF_1_PIE != 0
	return err == nil && !needs && !staticPIE, err
}

// A filledSegment is the segment of an interpreter whose .bss is stored in the file.
type filledSegment struct {
	elf.Prog64     // new header
	last       int // index of its last section
}

// interpreterSegment is like newSegment, for an interpreter.
func (p *Program) interpreterSegment(t *table, size uint64) (*segment, error) {
	h := t.progs[lastLoad(t.progs)]
	if fileSpan(&h).End != p.loadEnd {
		return nil, fmt.Errorf("interpreter: the last segment, at %#x, is not the last in the file", h.Vaddr)
	}
	s := &segment{size: size}
	base := elffile.AlignUp(p.addrEnd, p.page)
	if elf.ProgFlag(h.Flags)&elf.PF_W != 0 {
		if n := h.Memsz - h.Filesz; n > maxFilled {
			return nil, fmt.Errorf("interpreter: the .bss of %d bytes, which must be stored in the file, "+
				"exceeds the limit of %d", n, maxFilled)
		}
		h.Filesz, h.Memsz = base-h.Vaddr, base-h.Vaddr
		s.filled = filledSegment{h, p.lastSection(&h)}
	}
	before := fileSpan(&h).End
	if t.isRemoval() && len(t.moved) == 0 { // nothing follows
		s.Span = span(before, before)
		return s, nil
	}
	// Moved units come first, at the start of a page.
	begin := elffile.AlignUp(before, p.page)
	end := elffile.AlignUp(s.place(t.moved, begin, base)+size, p.page)
	s.off = end - size
	if s.off%sectionAlign != 0 {
		return nil, fmt.Errorf("interpreter: .sframe of %d bytes cannot end at a page boundary: "+
			"its size is not a multiple of %d", size, sectionAlign)
	}
	s.Span, s.addr = span(begin, end), base
	if len(t.moved) == 0 {
		s.Span, s.addr = span(s.off, end), base+(s.off-begin)
	}
	return s, nil
}

// lastSection returns the index of the section with the highest end address in a segment.
func (p *Program) lastSection(h *elf.Prog64) int {
	last, end := 0, uint64(0)
	for i, s := range elffile.Each(p.f.Sections) {
		if !s.Alloc() || elf.SectionFlag(s.Flags)&elf.SHF_TLS != 0 || s.Addr < h.Vaddr || s.Addr >= h.Vaddr+h.Memsz {
			continue
		}
		if s.Addr+s.Size >= end {
			last, end = i, s.Addr+s.Size
		}
	}
	return last
}

// fill adjusts section s, which has the given index, to the segment: zeros are stored in the file, and the last section
// ends with the segment.
func (h *filledSegment) fill(index int, s *elf.Section64) {
	if elf.SectionFlag(s.Flags)&(elf.SHF_ALLOC|elf.SHF_TLS) != elf.SHF_ALLOC || s.Addr < h.Vaddr ||
		s.Addr-h.Vaddr >= h.Filesz {
		return
	}
	if elf.SectionType(s.Type) == elf.SHT_NOBITS {
		s.Type, s.Off = uint32(elf.SHT_PROGBITS), h.Off+(s.Addr-h.Vaddr)
	}
	if index == h.last {
		s.Size = h.Vaddr + h.Filesz - s.Addr
	}
}
