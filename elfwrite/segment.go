package elfwrite

import (
	"debug/elf"
	"fmt"
	"math"

	"cfi2sframe/elffile"
)

// A segment is the new PT_LOAD, which has .sframe and the units that are not in the head. It may have no bytes.
type segment struct {
	elffile.Span        // in the file
	addr         uint64 // of its start
	load         uint64 // its load address, if such addresses are physical
	off          uint64 // of .sframe in the file
	size         uint64 // of .sframe
	filled       filled
}

// header returns the program header of the segment.
func (p *program) header(s *segment) elf.Prog64 {
	return elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R),
		Off: s.Begin, Vaddr: s.addr, Paddr: p.loadAddrIn(s, s.addr),
		Filesz: s.Size(), Memsz: s.Size(), Align: p.page,
	}
}

// sframeAddr returns the address of .sframe.
func (s *segment) sframeAddr() uint64 { return s.addr + (s.off - s.Begin) }

// loadedEnd returns where the old loaded bytes end in the new file.
func (p *program) loadedEnd(t *table) uint64 {
	switch {
	case t.front == nil:
		return p.loadEnd
	case t.front.headOff > 0:
		return t.front.headOff + fileSpan(p.head).End
	}
	return p.loadEnd + t.front.shift
}

// newSegment lays out the segment with an .sframe of size bytes, which comes first. If .sframe is removed and all units
// are in the head, the segment is empty.
func (p *program) newSegment(t *table, size uint64) (*segment, error) {
	if p.addrEnd > math.MaxUint64-p.page { // to align it would wrap around
		return nil, noAddresses(p.addrEnd)
	}
	if p.isInterpreter {
		return p.interpreterSegment(t, size)
	}
	begin := p.loadedEnd(t)
	if t.removes() && !t.hasMoved() {
		return &segment{Span: span(begin, begin)}, nil
	}
	begin = elffile.AlignUp(begin, sectionAlign)
	s := &segment{off: begin, size: size, addr: elffile.AlignUp(p.addrEnd, p.page) + begin%p.page}
	s.Span = span(begin, t.moveUnits(begin+size, s.addr+size))
	if s.End < s.Begin || s.Size() > math.MaxUint64-s.addr {
		return nil, noAddresses(p.addrEnd)
	}
	var err error
	s.load, err = p.physicalAddr(s)
	return s, err
}

func noAddresses(end uint64) error {
	return fmt.Errorf("no addresses are left after %#x for one more segment", end)
}

// moveUnits puts the units that are not in the head at a file offset and an address, and returns where they end in the
// file.
func (t *table) moveUnits(off, addr uint64) uint64 {
	end := off
	for _, u := range t.units {
		if u.inHead {
			continue
		}
		u.newAddr = elffile.AlignUp(addr+(end-off), u.align)
		u.off = off + (u.newAddr - addr)
		end = u.off + u.Size()
	}
	return end
}
