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

// insertPage inserts a page before everything, for the ELF header and the program headers alone. Addresses below an
// executable with fixed ones are free. The old headers stay, as code may look for notes from __ehdr_start on
// (compiler-rt's profile writer). The notes after the program headers move to the page if they can.
//
// In the file, that page takes the place of the head, which goes after other loaded bytes. If the head has code or
// sections do not end with it, everything moves up by a page instead.
func (p *planner) insertPage() error {
	if p.head < 0 || p.f.Progs[p.head].Off != 0 {
		return errors.New("no segment begins with the ELF header, which would load a page before it")
	}
	head := &p.f.Progs[p.head]
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
	table := uint64(elffile.HeaderSize + (len(p.progs)+newHeaders)*elffile.ProgSize)
	p.phoff = elffile.HeaderSize
	// The page needs a program header if the head does not follow it in the file.
	if space := p.headSpace(); table+elffile.ProgSize <= space &&
		p.notesToPage(span(table+elffile.ProgSize, space)) == nil {
		p.headOff, p.pageEnd = elffile.AlignUp(p.loadEnd, p.page), p.headEnd(table+elffile.ProgSize)
		p.tail = p.alignedTail()
		return nil
	}
	p.forget()
	if table > p.page {
		return fmt.Errorf("%d bytes of headers do not fit a page", table)
	}
	p.shift = p.page
	return p.notesToPage(span(table, p.page))
}

// headSpace returns how many bytes at the start of the file, a page at most, are free if the segment with the ELF
// header moves in the file, or 0 if it cannot. One with code cannot: profilers know code by its file offset.
func (p *planner) headSpace() uint64 {
	head := &p.f.Progs[p.head]
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
		if i != p.head && elf.ProgType(h.Type) == elf.PT_LOAD && h.Filesz > 0 && h.Off < end {
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
func (p *planner) notesToPage(space elffile.Span) error {
	before, _ := p.table()
	for at := before.End; len(p.units) < maxUnits; {
		u, err := p.unit(p.next(at), &p.f.Progs[p.head])
		if err != nil || u.located != nil {
			break
		}
		p.units = append(p.units, u)
		at = u.End
	}
	head := p.f.Progs[p.head]
	head.Vaddr -= p.page
	spaces := []elffile.Span{space}
	for _, u := range p.units {
		if !u.put(&head, spaces) && u.buildID {
			return errors.New("the build-id does not fit a page before the program")
		}
	}
	return nil
}

// addPage adds the page to the program headers. Alignments that the shift would break become the page size.
func (p *planner) addPage() {
	if p.shift == 0 && p.headOff == 0 {
		return
	}
	addr := p.f.Progs[p.head].Vaddr - p.page
	first := slices.IndexFunc(p.progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && h.Off == p.shift+p.headOff
	})
	for i := range p.progs {
		h := &p.progs[i]
		switch t := elf.ProgType(h.Type); {
		case t == elf.PT_LOAD && (p.shift > 0 || i == first):
			h.Align = min(h.Align, p.page)
		case t == elf.PT_PHDR:
			h.Off, h.Vaddr, h.Paddr = p.phoff, addr+p.phoff, p.loadAddr(addr+p.phoff)
		}
	}
	h := &p.progs[first]
	if p.shift > 0 {
		h.Off, h.Vaddr, h.Paddr = 0, addr, p.loadAddr(addr)
		h.Filesz, h.Memsz = h.Filesz+p.shift, h.Memsz+p.shift
		return
	}
	page := elf.Prog64{
		Type: h.Type, Flags: h.Flags, Vaddr: addr, Paddr: p.loadAddr(addr),
		Filesz: p.pageEnd, Memsz: p.pageEnd, Align: p.page,
	}
	p.progs = slices.Insert(p.progs, first, page)
}
