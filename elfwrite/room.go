package elfwrite

import (
	"debug/elf"
	"fmt"
	"slices"

	"cfi2sframe/internal/elffile"
)

// room makes room for PT_LOAD and PT_GNU_SFRAME in the program header table: p.progs
// loses what they replace, and p.units what has to give way.
func (p *planner) room() error {
	for free := len(p.f.Progs) - len(p.progs); free < 2; free++ {
		i := slices.IndexFunc(p.progs, func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_NULL })
		if i < 0 {
			break
		}
		p.progs = slices.Delete(p.progs, i, i+1)
	}
	if p.slack() {
		return nil
	}
	if i := p.duplicateNote(); i >= 0 {
		p.progs = slices.Delete(p.progs, i, i+1)
		if p.slack() {
			return nil
		}
	}
	own := len(p.units)
	err := p.repack()
	if err != nil && elf.Type(p.f.Type) == elf.ET_EXEC {
		p.units = p.units[:own]
		if why := p.insertFront(); why != nil {
			return fmt.Errorf("%w; and %w", err, why)
		}
		return nil
	}
	return err
}

// duplicateNote returns the index of a PT_NOTE that repeats PT_GNU_PROPERTY, or -1.
// Who wants the property finds it through the latter.
func (p *planner) duplicateNote() int {
	prop := p.f.Prog(elf.PT_GNU_PROPERTY)
	if prop == nil {
		return -1
	}
	return slices.IndexFunc(p.progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_NOTE && h.Off == prop.Off && h.Filesz == prop.Filesz && h.Vaddr == prop.Vaddr
	})
}

// table returns where the program headers are, and where they will be.
func (p *planner) table() (before, after span) {
	begin := p.f.Phoff
	return span{begin, begin + uint64(len(p.f.Progs))*elffile.ProgSize},
		span{begin, begin + uint64(len(p.progs)+2)*elffile.ProgSize}
}

// slack reports whether the table fits where it is: without growing, or into
// unused bytes that belong to nothing.
func (p *planner) slack() bool {
	before, after := p.table()
	if after.end <= before.end {
		return true
	}
	grown := span{before.end, after.end}
	if p.head >= 0 && !fileSpan(&p.f.Progs[p.head]).contains(grown) {
		return false
	}
	if p.next(before.end) < after.end {
		return false
	}
	return p.unused(grown)
}

// unused reports whether the bytes of the file are there, and are zero, or the X that
// patchelf leaves behind where it moved a section away, or old section headers, which
// are written anew elsewhere.
func (p *planner) unused(s span) bool {
	b, err := p.f.ReadAt("padding", s.begin, s.end-s.begin)
	if err != nil {
		return false
	}
	if t := headersOf(p.f); t.overlaps(s) {
		clear(b[max(t.begin, s.begin)-s.begin : min(t.end, s.end)-s.begin])
	}
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 && c != 'X' })
}

// next returns the file offset of the first thing at or behind off: a section, a
// segment, what a dynamic entry points to in a file without section headers, or the
// end of the segment that holds the table.
func (p *planner) next(off uint64) uint64 {
	n := p.f.Size
	if p.head >= 0 && fileSpan(&p.f.Progs[p.head]).end > off {
		n = fileSpan(&p.f.Progs[p.head]).end
	}
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Size > 0 && s.Off+s.Size > off {
			n = min(n, max(s.Off, off))
		}
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if t := elf.ProgType(h.Type); t != elf.PT_PHDR && h.Filesz > 0 && h.Off >= off && i != p.own {
			n = min(n, h.Off)
		}
	}
	for _, mark := range p.marks {
		if mark >= off {
			n = min(n, mark)
		}
	}
	return n
}

// lowestAddr is how far down a program may reach: kernels do not map lower
// addresses for programs (vm.mmap_min_addr).
const lowestAddr = 64 << 10

// insertFront makes room by a page in front of everything. The ELF header and the
// program headers get it to themselves; a copy of the old ones stays where it was, as
// __ehdr_start may be used. Addresses below the program must be free, which they are in
// an executable with fixed ones. The notes behind the program headers move with them, as
// far as that is possible: the build-id has to be in the first page.
func (p *planner) insertFront() error {
	if p.head < 0 || p.f.Progs[p.head].Off != 0 {
		return fmt.Errorf("no segment begins with the ELF header, so that a page in front would be loaded")
	}
	head := &p.f.Progs[p.head]
	for i := range p.f.Progs {
		if h := &p.f.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD && h.Vaddr < head.Vaddr {
			return fmt.Errorf("the segment with the ELF header is not the lowest one, so that a page in front has no place")
		}
	}
	if head.Vaddr < lowestAddr+p.page || head.Vaddr%p.page != 0 {
		return fmt.Errorf("there is no room for a page in front of address %#x", head.Vaddr)
	}
	if size := uint64(elffile.HeaderSize + (len(p.progs)+2)*elffile.ProgSize); size > p.page {
		return fmt.Errorf("%d bytes of headers do not fit a page", size)
	}
	p.front, p.phoff = p.page, elffile.HeaderSize
	return p.notesToFront()
}

// notesToFront moves the notes behind the program headers into the page in front.
func (p *planner) notesToFront() error {
	tags, err := p.dynamicTags()
	if err != nil {
		return err
	}
	before, _ := p.table()
	for at := before.end; len(p.units) < maxUnits; {
		u, err := p.unit(p.next(at), &p.f.Progs[p.head], tags)
		if err != nil || !u.small {
			break // and so it stays
		}
		p.units = append(p.units, u)
		at = u.end
	}
	head := p.f.Progs[p.head]
	head.Vaddr -= p.front
	room := span{elffile.HeaderSize + uint64(len(p.progs)+2)*elffile.ProgSize, p.page}
	if !p.pack(&head, room) {
		return fmt.Errorf("the build-id has no room in a page in front")
	}
	return nil
}

// lowerHead makes the first segment begin with the page in front. Alignments that
// the shift by that page would break become the page size.
func (p *planner) lowerHead() {
	if p.front == 0 {
		return
	}
	lowered := false
	for i := range p.progs {
		h := &p.progs[i]
		switch elf.ProgType(h.Type) {
		case elf.PT_LOAD:
			if h.Off == p.front && !lowered {
				h.Off, h.Vaddr, h.Paddr = 0, h.Vaddr-p.front, h.Paddr-p.front
				h.Filesz, h.Memsz = h.Filesz+p.front, h.Memsz+p.front
				lowered = true
			}
			h.Align = min(h.Align, p.page)
		case elf.PT_PHDR:
			h.Off = p.phoff
			h.Vaddr = p.f.Progs[p.head].Vaddr - p.front + p.phoff
			h.Paddr = h.Vaddr
		}
	}
}
