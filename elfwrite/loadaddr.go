package elfwrite

import (
	"cmp"
	"debug/elf"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
)

// loadAddrs says what the load addresses (p_paddr) of a file's segments are. Boot loaders go by them, and objcopy -O
// binary, whose output begins with the lowest one.
type loadAddrs uint8

const (
	virtual  loadAddrs = iota // the addresses at run time
	absent                    // zero
	physical                  // others, as those of kernels and firmware
)

func loadAddrsOf(f *elffile.File) loadAddrs {
	all, none := true, true
	headers := f.Phoff + uint64(len(f.Progs))*elffile.ProgSize
	for i := range f.Progs {
		h := &f.Progs[i]
		none = none && h.Paddr == 0
		// GNU ld gives a segment of headers alone the address of the page before.
		alone := h.Off == 0 && h.Filesz == h.Memsz && h.Filesz <= headers
		if elf.ProgType(h.Type) == elf.PT_LOAD && h.Memsz > 0 && !alone {
			all = all && h.Paddr == h.Vaddr
		}
	}
	switch {
	case all:
		return virtual
	case none:
		return absent
	}
	return physical
}

// placeLoad finds the load address of the new segment, which has the given size. Physical ones are as low as possible
// after all bytes of other segments, and in none of their .bss.
func (p *planner) placeLoad(size uint64) error {
	if p.loadAddrs != physical {
		return nil
	}
	var end uint64
	var others []elffile.Span
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if elf.ProgType(h.Type) != elf.PT_LOAD || h.Memsz == 0 || i == p.own {
			continue
		}
		if h.Paddr > math.MaxUint64-h.Memsz-2*p.page-size {
			return fmt.Errorf("program header %d: no load addresses are left after %#x for one more segment",
				i, h.Paddr)
		}
		others = append(others, span(h.Paddr, h.Paddr+h.Memsz))
		if h.Filesz > 0 {
			end = max(end, h.Paddr+h.Filesz)
		}
	}
	slices.SortFunc(others, func(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	after := func(end uint64) uint64 { return elffile.AlignUp(end, p.page) + p.start%p.page }
	p.startLoad = after(end)
	for _, s := range others {
		if s.Overlaps(span(p.startLoad, p.startLoad+size)) {
			p.startLoad = after(s.End)
		}
	}
	return nil
}

// loadAddr returns the load address of something at an address of the new file.
func (p *planner) loadAddr(addr uint64) uint64 {
	switch {
	case p.loadAddrs == virtual:
		return addr
	case p.loadAddrs == absent:
		return 0
	case p.startLoad > 0 && addr >= p.start:
		return p.startLoad + (addr - p.start)
	}
	var in elf.Prog64 // the segment that it is in; one that grows has no larger size yet
	for i := range p.f.Progs {
		if h := &p.f.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD && h.Vaddr <= addr && h.Vaddr >= in.Vaddr {
			in = *h
		}
	}
	return in.Paddr + (addr - in.Vaddr)
}
