package elfwrite

import (
	"cmp"
	"debug/elf"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
)

// loadAddrs classifies the load addresses (p_paddr) of a file's segments. Boot loaders use these addresses, and so does
// objcopy -O binary, whose output starts at the lowest address.
type loadAddrs uint8

const (
	virtual  loadAddrs = iota // equal to run-time addresses
	absent                    // zero
	physical                  // neither: physical addresses, as in kernels and firmware
)

func loadAddrsOf(f *elffile.File) loadAddrs {
	all, none := true, true
	headers := f.Phoff + uint64(len(f.Progs))*elffile.ProgSize
	for _, h := range elffile.Each(f.Progs) {
		none = none && h.Paddr == 0
		// If a segment contains only headers, GNU ld sets its load address to the preceding page.
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

// physicalAddr returns the load address of the new segment, or 0 if load addresses are not physical. It is the lowest
// address after all contents of other segments that does not overlap their .bss.
func (p *Program) physicalAddr(s *segment) (uint64, error) {
	if p.loadAddrs != physical {
		return 0, nil
	}
	var end uint64
	var others []elffile.Span
	for i, h := range elffile.Each(p.f.Progs) {
		if elf.ProgType(h.Type) != elf.PT_LOAD || h.Memsz == 0 || h == p.own {
			continue
		}
		if h.Paddr > math.MaxUint64-h.Memsz-2*p.page-s.Size() {
			return 0, fmt.Errorf("program header %d: no load addresses left after %#x for another segment",
				i, h.Paddr)
		}
		others = append(others, span(h.Paddr, h.Paddr+h.Memsz))
		if h.Filesz > 0 {
			end = max(end, h.Paddr+h.Filesz)
		}
	}
	slices.SortFunc(others, func(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) })
	after := func(end uint64) uint64 { return elffile.AlignUp(end, p.page) + s.addr%p.page }
	addr := after(end)
	for _, o := range others {
		if o.Overlaps(span(addr, addr+s.Size())) {
			addr = after(o.End)
		}
	}
	return addr, nil
}

// loadAddrIn returns the load address that corresponds to a run-time address in the new file; s is the new segment.
func (p *Program) loadAddrIn(s *segment, addr uint64) uint64 {
	if s.load > 0 && addr >= s.addr {
		return s.load + (addr - s.addr)
	}
	return p.loadAddr(addr)
}

// loadAddr returns the load address for an address in the old file.
func (p *Program) loadAddr(addr uint64) uint64 {
	switch p.loadAddrs {
	case virtual:
		return addr
	case absent:
		return 0
	}
	var in elf.Prog64 // the segment that contains or precedes addr; it may still grow
	for _, h := range elffile.Each(p.f.Progs) {
		if elf.ProgType(h.Type) == elf.PT_LOAD && h.Vaddr <= addr && h.Vaddr >= in.Vaddr {
			in = *h
		}
	}
	return in.Paddr + (addr - in.Vaddr)
}
