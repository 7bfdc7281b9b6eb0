package elfwrite

import (
	"cmp"
	"debug/elf"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
)

// A segment is the new PT_LOAD. It contains .sframe and the units outside the head, and may be empty.
type segment struct {
	elffile.Span        // file offsets
	addr         uint64 // start address
	load         uint64 // load address, if load addresses are physical
	off          uint64 // file offset of .sframe
	size         uint64 // size of .sframe
	moved        []place
	filled       filledSegment
}

// header returns the program header of the segment.
func (p *Program) header(s *segment) elf.Prog64 {
	return elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R),
		Off: s.Begin, Vaddr: s.addr, Paddr: p.loadAddrIn(s, s.addr),
		Filesz: s.Size(), Memsz: s.Size(), Align: p.page,
	}
}

// sframeAddr returns the address of .sframe.
func (s *segment) sframeAddr() uint64 { return s.addr + (s.off - s.Begin) }

// loadedEnd returns the end of the old loaded bytes in the new file.
func (p *Program) loadedEnd(t *table) uint64 {
	switch {
	case t.front == nil:
		return p.loadEnd
	case t.front.headOff > 0:
		return t.front.headOff + fileSpan(p.head).End
	}
	return p.loadEnd + t.front.shift
}

// newSegment lays out the segment, which starts with an .sframe of the given size. If .sframe is removed and
// all units are in the head, the segment is empty.
func (p *Program) newSegment(t *table, size uint64) (*segment, error) {
	if p.addrEnd > math.MaxUint64-p.page { // aligning it would overflow
		return nil, noAddresses(p.addrEnd)
	}
	if p.isInterpreter {
		return p.interpreterSegment(t, size)
	}
	begin := p.loadedEnd(t)
	if t.isRemoval() && len(t.moved) == 0 {
		return &segment{Span: span(begin, begin)}, nil
	}
	begin = elffile.AlignUp(begin, sectionAlign)
	s := &segment{off: begin, size: size, addr: elffile.AlignUp(p.addrEnd, p.page) + begin%p.page}
	s.Span = span(begin, s.place(t.moved, begin+size, s.addr+size))
	if s.Size() > math.MaxUint64-s.addr {
		return nil, noAddresses(p.addrEnd)
	}
	if p.isFar(s) {
		if addr, ok := p.gapFor(t, s); ok {
			s.addr = addr
			s.place(t.moved, begin+size, s.addr+size)
		}
	}
	var err error
	s.load, err = p.physicalAddr(s)
	return s, err
}

// isFar reports whether 32-bit start addresses in the segment do not reach all code, although they should.
func (p *Program) isFar(s *segment) bool {
	const reach = 1 << 31
	code := codeOf(p.f)
	return p.near && p.loadAddrs != physical && code.Begin < code.End &&
		max(s.addr+s.Size(), code.End)-min(s.addr, code.Begin) > reach
}

// gapFor returns an address for the segment at the end of a gap between other segments, near the code.
func (p *Program) gapFor(t *table, s *segment) (uint64, bool) {
	var end uint64
	if t.front != nil {
		end = t.front.addr + p.page
	}
	loads := loadsOf(t.progs)
	slices.SortStableFunc(loads, func(i, j int) int { return cmp.Compare(t.progs[i].Vaddr, t.progs[j].Vaddr) })
	for _, i := range loads {
		h := &t.progs[i]
		near, size := *s, elffile.AlignUp(s.Begin%p.page+s.Size(), p.page) // in whole pages
		near.addr = h.Vaddr/p.page*p.page - size + s.Begin%p.page
		if end > 0 && h.Vaddr >= size && near.addr >= elffile.AlignUp(end, p.page) && !p.isFar(&near) {
			return near.addr, true
		}
		end = max(end, h.Vaddr+h.Memsz)
	}
	return 0, false
}

// nearTable returns a table and a segment near the code, which follows an inserted page. Without such a segment, it
// returns nil.
func (p *Program) nearTable(size uint64) (*table, *segment) {
	t := p.newTable()
	t.added = newHeaders
	if elf.Type(p.f.Type) != elf.ET_EXEC || p.insertPage(t, largestGap) != nil {
		return nil, nil
	}
	s, err := p.newSegment(t, size)
	if err != nil || p.isFar(s) {
		return nil, nil
	}
	return t, s
}

func noAddresses(end uint64) error {
	return fmt.Errorf("no addresses left after %#x for another segment", end)
}

// place places the units one after the other, starting at file offset off and address addr. It returns their end in the
// file.
func (s *segment) place(units []*unit, off, addr uint64) uint64 {
	end := off
	s.moved = nil
	for _, u := range units {
		at := elffile.AlignUp(addr+(end-off), u.align)
		s.moved = append(s.moved, place{u, off + (at - addr), at})
		end = off + (at - addr) + u.Size()
	}
	return end
}
