package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
)

// lowestAddr is the lowest address that kernels map for programs (vm.mmap_min_addr).
const lowestAddr = 64 << 10

// A frontPage is a page before everything, for the ELF header and the program headers alone. Addresses below an
// executable with fixed ones are free. The old headers stay, as code may look for notes from __ehdr_start on
// (compiler-rt's profile writer). The notes after the program headers move to the page if they can.
//
// In the file, that page takes the place of the head, which goes after other loaded bytes. If the head has code or
// sections do not end with it, everything moves up by a page instead.
type frontPage struct {
	shift   uint64 // how many bytes everything moves up, or 0
	headOff uint64 // new file offset of the head, or 0
	end     uint64 // where the contents of the page end, if the head moves
}

// insertPage gives the table a page before everything.
func (p *program) insertPage(t *table) error {
	head := p.head
	if head == nil || head.Off != 0 {
		return errors.New("no segment begins with the ELF header, which would load a page before it")
	}
	lower := func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_LOAD && h.Vaddr < head.Vaddr }
	if slices.ContainsFunc(p.f.Progs, lower) {
		return errors.New("a page cannot go before the segment with the ELF header, which is not the lowest one")
	}
	if head.Vaddr < lowestAddr+p.page || head.Vaddr%p.page != 0 {
		return fmt.Errorf("no page is free before address %#x", head.Vaddr)
	}
	if p.loadAddrs == physical {
		return errors.New("load addresses are not those at run time, and what is before them is not known")
	}
	t.off = elffile.HeaderSize
	// The page needs a program header if the head does not follow it in the file.
	end, space := t.end()+elffile.ProgSize, p.headSpace()
	if end <= space && p.notesToPage(t, span(end, space)) == nil {
		t.front = &frontPage{headOff: elffile.AlignUp(p.loadEnd, p.page), end: t.headEnd(end)}
		t.tail = p.alignedTail()
		return nil
	}
	end = t.end()
	if end > p.page {
		return fmt.Errorf("%d bytes of headers do not fit a page", end)
	}
	t.front = &frontPage{shift: p.page}
	return p.notesToPage(t, span(end, p.page))
}

// headSpace returns how many bytes at the start of the file, a page at most, are free if the segment with the ELF
// header moves in the file, or 0 if it cannot. One with code cannot: profilers know code by its file offset.
func (p *program) headSpace() uint64 {
	head := p.head
	end := fileSpan(head).End
	if elf.ProgFlag(head.Flags)&elf.PF_X != 0 || head.Filesz != head.Memsz || end >= p.loadEnd {
		return 0
	}
	space := p.page
	add := func(s elffile.Span) {
		if s.Begin >= end {
			space = min(space, s.Begin)
		} else if s.End > end {
			space = 0
		}
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if h.Filesz > 0 {
			add(fileSpan(h))
		}
		if h != head && elf.ProgType(h.Type) == elf.PT_LOAD && h.Filesz > 0 && h.Off < end {
			space = 0
		}
	}
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Size > 0 {
			add(sectionSpan(s))
		}
	}
	return space
}

// notesToPage moves the notes after the program headers to a part of the page before them.
func (p *program) notesToPage(t *table, space elffile.Span) error {
	t.units = slices.Clone(p.returned)
	for at := p.oldTable().End; len(t.units) < maxUnits; {
		u, err := p.unit(p.next(at), p.head, t.progs)
		if err != nil || u.located != nil {
			break
		}
		t.units = append(t.units, u)
		at = u.End
	}
	head := *p.head
	head.Vaddr -= p.page
	spaces := []elffile.Span{space}
	for _, u := range t.units {
		if !u.put(&head, spaces) && u.buildID {
			return errors.New("the build-id does not fit a page before the program")
		}
	}
	return nil
}

// addPage adds the page to the program headers. Alignments that the shift would break become the page size.
func (m *move) addPage(progs []elf.Prog64) []elf.Prog64 {
	front, p := m.t.front, m.p
	if front == nil {
		return progs
	}
	addr := p.head.Vaddr - p.page
	first := slices.IndexFunc(progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && h.Off == front.shift+front.headOff
	})
	for i := range progs {
		h := &progs[i]
		switch t := elf.ProgType(h.Type); {
		case t == elf.PT_LOAD && (front.shift > 0 || i == first):
			h.Align = min(h.Align, p.page)
		case t == elf.PT_PHDR:
			h.Off, h.Vaddr, h.Paddr = m.t.off, addr+m.t.off, m.loadAddr(addr+m.t.off)
		}
	}
	h := &progs[first]
	if front.shift > 0 {
		h.Off, h.Vaddr, h.Paddr = 0, addr, m.loadAddr(addr)
		h.Filesz, h.Memsz = h.Filesz+front.shift, h.Memsz+front.shift
		return progs
	}
	return slices.Insert(progs, first, elf.Prog64{
		Type: h.Type, Flags: h.Flags, Vaddr: addr, Paddr: m.loadAddr(addr),
		Filesz: front.end, Memsz: front.end, Align: p.page,
	})
}
