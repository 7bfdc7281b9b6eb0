package elfwrite

import (
	"cmp"
	"debug/elf"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// newHeaders is how many program headers are added: PT_LOAD and PT_GNU_SFRAME.
const newHeaders = 2

// cheapMove is how many bytes move so that every PT_NOTE stays; they leave as many unused. Where it takes more, as in
// static PIEs whose only section of more than some bytes has relocations, PT_NOTEs become one instead: in 6 of 421
// files of Debian 12 and unstable (2026-11-23).
const cheapMove = 16 << 10

// room makes room for the new program headers in their table: p.progs loses what they replace,
// and p.units what has to give way.
func (p *planner) room() error {
	for free := len(p.f.Progs) - len(p.progs); free < newHeaders; free++ {
		i := slices.IndexFunc(p.progs, func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_NULL })
		if i < 0 {
			break
		}
		p.progs = slices.Delete(p.progs, i, i+1)
	}
	own := len(p.units)
	all := p.progs
	var err error
	for _, most := range []uint64{cheapMove, math.MaxUint64} {
		err = nil
		for _, fewer := range []func() bool{
			func() bool { return true }, p.mergeNotes, p.dropDuplicate,
		} {
			p.progs = slices.Clone(all)
			if !fewer() {
				continue
			}
			if p.slack() {
				return nil
			}
			for _, tail := range []span{{}, p.behindHead()} {
				failed := p.repack(tail, most)
				if failed == nil {
					return nil
				}
				p.forget(own)
				err = cmp.Or(err, failed)
			}
		}
	}
	p.progs = all
	if elf.Type(p.f.Type) != elf.ET_EXEC {
		return err
	}
	if why := p.insertFront(); why != nil {
		return fmt.Errorf("%w; and %w", err, why)
	}
	return nil
}

// restore puts what an earlier run moved back to where linkers have it, if that is possible: the program
// headers need less space again.
func (p *planner) restore() {
	own := len(p.units)
	if own > 0 && len(p.f.Sections) > 0 && p.repack(span{}, math.MaxUint64) != nil {
		p.forget(own)
	}
}

// forget forgets the units from the n-th one on, and where the others were put.
func (p *planner) forget(n int) {
	p.units = p.units[:n]
	for _, u := range p.units {
		u.inHead = false
	}
}

// dropDuplicate drops the PT_NOTE that duplicateNote finds, and reports whether there was one.
func (p *planner) dropDuplicate() bool {
	i := p.duplicateNote()
	if i >= 0 {
		p.progs = slices.Delete(p.progs, i, i+1)
	}
	return i >= 0
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
	begin, n := p.f.Phoff, len(p.progs)
	if !p.remove {
		n += newHeaders
	}
	return span{begin, begin + uint64(len(p.f.Progs))*elffile.ProgSize}, span{begin, begin + uint64(n)*elffile.ProgSize}
}

// slack reports whether the table fits where it is: without growing, or into
// unused bytes that belong to nothing.
func (p *planner) slack() bool {
	before, after := p.table()
	if after.end <= before.end {
		return true
	}
	grown := span{before.end, after.end}
	if p.next(before.end) < after.end || !p.free(grown) {
		return false
	}
	if p.head < 0 {
		return true
	}
	h := &p.f.Progs[p.head]
	return fileSpan(h).contains(grown) && p.refersTo(span{h.Vaddr + (grown.begin - h.Off), h.Vaddr + (grown.end - h.Off)}) == nil
}

// free reports whether bytes that are in no section are nobody's. Zeros are: they are padding.
// But without section headers, zeros that are loaded can be anything that is zero.
func (p *planner) free(s span) bool {
	if s.begin >= s.end {
		return true
	}
	loaded := func(h elf.Prog64) bool { return h.Filesz > 0 && fileSpan(&h).overlaps(s) }
	if len(p.f.Sections) == 0 && slices.ContainsFunc(p.f.Progs, loaded) {
		return false
	}
	return p.unused(s)
}

// behindHead returns the bytes of the file after the segment that holds the table, up to the
// next ones that belong to something: the segment could have them, too.
func (p *planner) behindHead() span {
	if p.head < 0 {
		return span{}
	}
	h := &p.f.Progs[p.head]
	if h.Filesz != h.Memsz || elf.ProgFlag(h.Flags)&elf.PF_W != 0 { // what is after data may be in use
		return span{}
	}
	s := span{fileSpan(h).end, min(p.loadEnd, p.next(fileSpan(h).end))}
	for i := range p.f.Progs {
		// What is mapped after it begins with a whole page.
		o := &p.f.Progs[i]
		if page := o.Vaddr &^ (p.page - 1); elf.ProgType(o.Type) == elf.PT_LOAD && o.Vaddr > h.Vaddr {
			s.end = min(s.end, s.begin+page-min(page, h.Vaddr+h.Memsz))
		}
	}
	if !p.unused(s) {
		return span{}
	}
	return s
}

// mergeNotes makes one PT_NOTE of those that lie one after the other and say the same
// together, and reports whether there were such.
func (p *planner) mergeNotes() bool {
	var notes []int // the PT_NOTEs in the order of the file
	for i := range p.progs {
		if elf.ProgType(p.progs[i].Type) == elf.PT_NOTE {
			notes = append(notes, i)
		}
	}
	slices.SortStableFunc(notes, func(i, j int) int { return cmp.Compare(p.progs[i].Off, p.progs[j].Off) })
	var gone []int
	for len(notes) > 1 {
		a, b := &p.progs[notes[0]], &p.progs[notes[1]]
		if !p.adjacentNotes(a, b) {
			notes = notes[1:]
			continue
		}
		a.Filesz, a.Memsz, a.Align = a.Filesz+b.Filesz, a.Memsz+b.Memsz, 4
		gone = append(gone, notes[1])
		notes[1], notes = notes[0], notes[1:]
	}
	slices.Sort(gone)
	for _, i := range slices.Backward(gone) {
		p.progs = slices.Delete(p.progs, i, i+1)
	}
	return len(gone) > 0
}

// adjacentNotes reports whether a and b are PT_NOTEs of which the second one begins where the
// first one ends, if the notes of both are aligned to 4 bytes.
func (p *planner) adjacentNotes(a, b *elf.Prog64) bool {
	if elf.ProgType(a.Type) != elf.PT_NOTE || elf.ProgType(b.Type) != elf.PT_NOTE ||
		a.Filesz == 0 || b.Filesz == 0 || a.Filesz != a.Memsz || b.Filesz != b.Memsz || a.Flags != b.Flags ||
		a.Off+a.Filesz != b.Off || a.Vaddr+a.Filesz != b.Vaddr || a.Paddr-a.Vaddr != b.Paddr-b.Vaddr {
		return false
	}
	for _, h := range []*elf.Prog64{a, b} {
		as, ok := p.notes(fileSpan(h), h.Align)
		if !ok || h.Filesz%4 != 0 {
			return false
		}
		if bs, ok := p.notes(fileSpan(h), 4); !ok || !slices.Equal(as, bs) {
			return false
		}
	}
	return true
}

// unused reports whether the bytes of the file are there, and are zero, or the X that
// patchelf leaves behind where it moved a section away, or old section headers, which
// are written anew elsewhere, as the old .sframe is.
func (p *planner) unused(s span) bool {
	if s.begin >= s.end {
		return true
	}
	b, err := p.f.ReadAt("padding", s.begin, s.end-s.begin)
	if err != nil {
		return false
	}
	anew := []span{headersOf(p.f)}
	if p.old != nil {
		anew = append(anew, p.old.span)
	}
	for _, t := range anew {
		if t.overlaps(s) {
			clear(b[max(t.begin, s.begin)-s.begin : min(t.end, s.end)-s.begin])
		}
	}
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 && c != 'X' })
}

// next returns the file offset of the first thing at or after off: a section, a
// segment, what a dynamic entry points to in a file without section headers, or the
// end of the segment that holds the table. The old .sframe, which goes, is none.
func (p *planner) next(off uint64) uint64 {
	n := p.f.Size
	if p.head >= 0 && fileSpan(&p.f.Progs[p.head]).end > off {
		n = fileSpan(&p.f.Progs[p.head]).end
	}
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Size > 0 && s.Off+s.Size > off && !p.isOld(i) {
			n = min(n, max(s.Off, off))
		}
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if t := elf.ProgType(h.Type); t != elf.PT_PHDR && h.Type != sframe.PTGNUSFrame && h.Filesz > 0 && h.Off >= off && i != p.own {
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
