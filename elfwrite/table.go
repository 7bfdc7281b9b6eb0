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

// cheapMove is how many bytes may move so that every PT_NOTE stays. If more would have to, as in static PIEs whose only
// large section has relocations, PT_NOTEs become one: in 6 of 421 files of Debian 12 and unstable (2026-11-23).
const cheapMove = 16 << 10

// attempts are ways to find space for the new program headers, the best first.
var attempts = []struct {
	reduce func(*planner) bool // makes fewer PT_NOTEs, and reports whether it did; or nil
	grow   bool                // the segment that holds the table may grow
	most   uint64              // bytes that may move
}{
	{nil, false, cheapMove},
	{nil, true, cheapMove},
	{(*planner).mergeNotes, false, cheapMove},
	{(*planner).mergeNotes, true, cheapMove},
	{(*planner).dropDuplicate, false, cheapMove},
	{(*planner).dropDuplicate, true, cheapMove},
	{nil, false, math.MaxUint64},
	{nil, true, math.MaxUint64},
}

// extendTable finds space for the new program headers in their table: p.progs loses what they replace, and p.units gets
// what moves.
func (p *planner) extendTable() error {
	for free := len(p.f.Progs) - len(p.progs); free < newHeaders; free++ {
		i := slices.IndexFunc(p.progs, func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_NULL })
		if i < 0 {
			break
		}
		p.progs = slices.Delete(p.progs, i, i+1)
	}
	all := p.progs
	var first error
	for _, a := range attempts {
		p.progs = slices.Clone(all)
		if a.reduce != nil && !a.reduce(p) {
			continue
		}
		if p.fits() {
			return nil
		}
		var tail elffile.Span
		if a.grow {
			tail = p.afterHead()
		}
		err := p.repack(tail, a.most)
		if err == nil {
			return nil
		}
		p.forget()
		first = cmp.Or(first, err)
	}
	p.progs = all
	if elf.Type(p.f.Type) != elf.ET_EXEC {
		return first
	}
	if err := p.insertPage(); err != nil {
		return fmt.Errorf("%w; and %w", first, err)
	}
	return nil
}

// forget forgets the units of the head, and where the others were put.
func (p *planner) forget() {
	p.units = slices.DeleteFunc(p.units, func(u *unit) bool { return !u.returned })
	for _, u := range p.units {
		u.inHead = false
	}
}

// dropDuplicate drops a PT_NOTE that repeats PT_GNU_PROPERTY, which loaders and kernels read. It reports whether it
// found one.
func (p *planner) dropDuplicate() bool {
	property := p.f.Prog(elf.PT_GNU_PROPERTY)
	n := len(p.progs)
	p.progs = slices.DeleteFunc(p.progs, func(h elf.Prog64) bool {
		return property != nil && elf.ProgType(h.Type) == elf.PT_NOTE && fileSpan(&h) == fileSpan(property) &&
			h.Vaddr == property.Vaddr
	})
	return len(p.progs) < n
}

// table returns where the program headers are, and where they will be.
func (p *planner) table() (before, after elffile.Span) {
	begin, n := p.f.Phoff, len(p.progs)
	if !p.remove {
		n += newHeaders
	}
	return span(begin, begin+uint64(len(p.f.Progs))*elffile.ProgSize), span(begin, begin+uint64(n)*elffile.ProgSize)
}

// fits reports whether the table fits without moving anything: it does not grow, or unused bytes follow.
func (p *planner) fits() bool {
	before, after := p.table()
	if after.End <= before.End {
		return true
	}
	grown := span(before.End, after.End)
	if p.next(before.End) < after.End || !p.free(grown) {
		return false
	}
	if p.head < 0 {
		return true
	}
	h := &p.f.Progs[p.head]
	return fileSpan(h).Contains(grown) &&
		p.refersTo(span(h.Vaddr+(grown.Begin-h.Off), h.Vaddr+(grown.End-h.Off))) == nil
}

// free reports whether bytes that are in no section are padding: zeros. Without section headers, zeros that are loaded
// can be anything that is zero.
func (p *planner) free(s elffile.Span) bool {
	if s.Begin >= s.End {
		return true
	}
	loaded := func(h elf.Prog64) bool { return h.Filesz > 0 && fileSpan(&h).Overlaps(s) }
	if len(p.f.Sections) == 0 && slices.ContainsFunc(p.f.Progs, loaded) {
		return false
	}
	return p.unused(s)
}

// afterHead returns the unused bytes of the file by which the segment that holds the table can grow.
func (p *planner) afterHead() elffile.Span {
	if p.head < 0 {
		return elffile.Span{}
	}
	h := &p.f.Progs[p.head]
	if h.Filesz != h.Memsz || elf.ProgFlag(h.Flags)&elf.PF_W != 0 { // what is after data may be in use
		return elffile.Span{}
	}
	s := span(fileSpan(h).End, min(p.loadEnd, p.next(fileSpan(h).End)))
	for i := range p.f.Progs {
		// What is mapped after it begins with a whole page.
		o := &p.f.Progs[i]
		if page := o.Vaddr &^ (p.page - 1); elf.ProgType(o.Type) == elf.PT_LOAD && o.Vaddr > h.Vaddr {
			s.End = min(s.End, s.Begin+page-min(page, h.Vaddr+h.Memsz))
		}
	}
	if !p.unused(s) {
		return elffile.Span{}
	}
	return s
}

// mergeNotes makes one PT_NOTE of adjacent ones that have the same notes together, and reports whether it found some.
func (p *planner) mergeNotes() bool {
	n := len(p.progs)
	var last *elf.Prog64
	for _, h := range p.byOffset(elf.PT_NOTE) {
		if last == nil || !p.adjacentNotes(last, h) {
			last = h
			continue
		}
		last.Filesz, last.Memsz, last.Align = last.Filesz+h.Filesz, last.Memsz+h.Memsz, 4
		h.Type = uint32(elf.PT_NULL)
	}
	p.progs = slices.DeleteFunc(p.progs, func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_NULL })
	return len(p.progs) < n
}

// adjacentNotes reports whether the second of two PT_NOTEs begins where the first one ends, and the notes of both are
// aligned to 4 bytes.
func (p *planner) adjacentNotes(a, b *elf.Prog64) bool {
	if a.Filesz == 0 || b.Filesz == 0 || a.Filesz != a.Memsz || b.Filesz != b.Memsz || a.Flags != b.Flags ||
		a.Off+a.Filesz != b.Off || a.Vaddr+a.Filesz != b.Vaddr || a.Paddr-a.Vaddr != b.Paddr-b.Vaddr {
		return false
	}
	for _, h := range []*elf.Prog64{a, b} {
		notes, ok := p.notes(fileSpan(h), h.Align)
		if !ok || h.Filesz%4 != 0 {
			return false
		}
		if aligned, ok := p.notes(fileSpan(h), 4); !ok || !slices.Equal(notes, aligned) {
			return false
		}
	}
	return true
}

// unused reports whether the bytes of the file, except for some parts, are padding: zeros, the X that patchelf leaves
// after moving a section, the old section headers or the old .sframe.
func (p *planner) unused(s elffile.Span, but ...elffile.Span) bool {
	if s.Begin >= s.End {
		return true
	}
	b, err := p.f.ReadAt("padding", s.Begin, s.Size())
	if err != nil {
		return false
	}
	but = append(but, headersOf(p.f))
	if p.old != nil {
		but = append(but, p.old.Span)
	}
	for _, t := range but {
		if t.Overlaps(s) {
			clear(b[max(t.Begin, s.Begin)-s.Begin : min(t.End, s.End)-s.Begin])
		}
	}
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 && c != 'X' })
}

// next returns the file offset of the first section or segment at or after off, or of the end of the segment that holds
// the table. Without section headers, addresses in dynamic entries count as well. The old .sframe does not.
func (p *planner) next(off uint64) uint64 {
	n := p.f.Size
	if p.head >= 0 && fileSpan(&p.f.Progs[p.head]).End > off {
		n = fileSpan(&p.f.Progs[p.head]).End
	}
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Size > 0 && s.Off+s.Size > off && !p.isOld(i) {
			n = min(n, max(s.Off, off))
		}
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if t := elf.ProgType(h.Type); t != elf.PT_PHDR && h.Type != sframe.PTGNUSFrame && h.Filesz > 0 &&
			h.Off >= off && i != p.own {
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
