package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
)

// largestHead bounds the bytes of the head that moves, because the file grows by them. lld and mold link .rodata into
// the head, which cannot be split: sections cross page boundaries, and tools expect each section in a single segment.
const largestHead = 64 << 10

// lowestAddr is the lowest address at which kernels map programs (vm.mmap_min_addr).
const lowestAddr = 64 << 10

// A frontPage is a page before all segments that contains only the ELF header and the program headers. Addresses below
// an executable with fixed addresses are free. The old headers remain because code may look for notes relative to
// __ehdr_start (compiler-rt's profile writer). Movable notes after the program headers move to the page.
//
// In the file, the page takes the place of the head, which moves to the end of the loaded bytes. If the head contains
// code, is large, or a section crosses its end, everything moves up by a page instead.
type frontPage struct {
	addr    uint64 // address of the page
	shift   uint64 // distance in bytes by which everything moves up, or 0
	headOff uint64 // new file offset of the head, or 0
	end     uint64 // end of the contents of the page, if it is a segment of its own, or 0
}

// largestGap bounds the distance in bytes between an inserted page and the head, if .sframe is placed there.
const largestGap = 64 << 20

// insertPage inserts a page for the table before all segments. The gap to the first of them is as large as possible,
// but not larger than the given number of bytes.
func (p *Program) insertPage(t *table, gap uint64) error {
	head := p.head
	if head == nil || head.Off != 0 {
		return errors.New("no segment starts with the ELF header, so a page before it would not be loaded")
	}
	lower := func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_LOAD && h.Vaddr < head.Vaddr }
	if slices.ContainsFunc(p.f.Progs, lower) {
		return errors.New("cannot insert a page: the segment with the ELF header is not the lowest segment")
	}
	if head.Vaddr < lowestAddr+p.page || head.Vaddr%p.page != 0 {
		return fmt.Errorf("no page is free before address %#x", head.Vaddr)
	}
	if p.loadAddrs == physical {
		return errors.New("cannot insert a page: load addresses differ from run-time addresses, " +
			"and the memory before them may be in use")
	}
	t.off = elffile.HeaderSize
	gap = min(gap, head.Vaddr-p.page-lowestAddr) / p.page * p.page
	t.front = &frontPage{addr: head.Vaddr - p.page - gap}
	// The page needs a program header if the head does not follow it in the file and in memory.
	end, space := t.end()+elffile.ProgSize, p.headSpace()
	if end <= space && p.notesToPage(t, span(end, space)) == nil {
		t.front.headOff, t.front.end = elffile.AlignUp(p.loadEnd, p.page), t.headEnd(end)
		t.tail = p.alignedTail()
		return nil
	}
	if gap == 0 {
		end = t.end()
	}
	if end > p.page {
		return fmt.Errorf("%d bytes of headers do not fit in a page", end)
	}
	t.front.shift = p.page
	err := p.notesToPage(t, span(end, p.page))
	if gap > 0 {
		t.front.end = t.headEnd(end)
	}
	return err
}

// headSpace returns the number of bytes at the start of the file, up to a page, that become free if the segment with
// the ELF header moves in the file. It returns 0 if the segment cannot move, for example because it contains code:
// profilers identify code by file offset.
func (p *Program) headSpace() uint64 {
	head := p.head
	end := fileSpan(head).End
	if elf.ProgFlag(head.Flags)&elf.PF_X != 0 || head.Filesz != head.Memsz || head.Filesz > largestHead ||
		end >= p.loadEnd {
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
	for _, h := range elffile.Each(p.f.Progs) {
		if h.Filesz == 0 {
			continue
		}
		add(fileSpan(h))
		if h != head && elf.ProgType(h.Type) == elf.PT_LOAD && h.Off < end {
			space = 0
		}
	}
	for _, s := range elffile.Each(p.f.Sections) {
		if s.HasBytes() && s.Size > 0 {
			add(sectionSpan(s))
		}
	}
	return space
}

// notesToPage moves the notes that follow the program headers into the given space in the inserted page.
func (p *Program) notesToPage(t *table, space elffile.Span) error {
	units := slices.Clip(p.returned)
	for at := p.oldTable().End; len(units) < maxUnits; {
		u, err := p.unit(p.next(at), p.head, t.progs)
		if err != nil || u.located != nil {
			break
		}
		units = append(units, u)
		at = u.End
	}
	head := *p.head
	head.Vaddr = t.front.addr
	spaces := []elffile.Span{space}
	t.packing = packing{}
	for _, u := range units {
		switch at, ok := u.placeIn(&head, spaces); {
		case ok:
			t.kept = append(t.kept, at)
		case u.buildID:
			return errors.New("the build-id does not fit in the inserted page")
		default:
			t.moved = append(t.moved, u)
		}
	}
	return nil
}

// addPage adds the page to the program headers. Alignments that the shift would violate are reduced to the page size.
func (m *move) addPage(progs []elf.Prog64) []elf.Prog64 {
	front, p := m.t.front, m.p
	if front == nil {
		return progs
	}
	first := slices.IndexFunc(progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && h.Off == front.shift+front.headOff
	})
	for i, h := range elffile.Each(progs) {
		switch t := elf.ProgType(h.Type); {
		case t == elf.PT_LOAD && (front.shift > 0 || i == first):
			h.Align = min(h.Align, p.page)
		case t == elf.PT_PHDR:
			h.Off, h.Vaddr, h.Paddr = m.t.off, front.addr+m.t.off, m.loadAddr(front.addr+m.t.off)
		}
	}
	h := &progs[first]
	if front.end == 0 {
		h.Off, h.Vaddr, h.Paddr = 0, front.addr, m.loadAddr(front.addr)
		h.Filesz, h.Memsz = h.Filesz+front.shift, h.Memsz+front.shift
		return progs
	}
	return slices.Insert(progs, first, elf.Prog64{
		Type: h.Type, Flags: h.Flags, Vaddr: front.addr, Paddr: m.loadAddr(front.addr),
		Filesz: front.end, Memsz: front.end, Align: p.page,
	})
}
