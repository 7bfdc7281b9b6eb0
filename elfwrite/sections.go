package elfwrite

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// setSections makes the section header table: header i is that of section order[i] of the old file. Other numbers stand
// for new sections. gone is the old .sframe, or 0; the first new section takes its index.
func (l *Layout) setSections(order []int, gone int, header func(section int) elf.Section64) {
	f := l.f
	l.index, l.values = make([]uint32, len(f.Sections)), make(map[uint32]uint64)
	l.sections = make([]elf.Section64, len(order))
	for i, section := range order {
		s := header(section)
		if section < 0 || section >= len(f.Sections) {
			section = gone
			gone = 0
		} else if s.Name == f.Sections[section].Section64.Name && uint64(s.Name) >= f.Sections[f.Shstrndx].Size {
			s.Name = 0 // it must not become the name of a new section
		}
		if section > 0 {
			l.index[section] = uint32(i)
			if d := s.Addr - f.Sections[section].Addr; d != 0 {
				l.values[uint32(section)] = d
			}
		}
		l.sections[i] = s
	}
	for i := range l.sections[1:] {
		s := &l.sections[i+1]
		s.Link = l.newIndex(s.Link)
		t := elf.SectionType(s.Type)
		if t == elf.SHT_REL || t == elf.SHT_RELA || elf.SectionFlag(s.Flags)&elf.SHF_INFO_LINK != 0 {
			s.Info = l.newIndex(s.Info)
		}
	}
	l.sections[0] = f.Sections[0].Section64
	l.shstrndx = l.newIndex(uint32(f.Shstrndx))
}

// newIndex returns the new index of a section.
func (l *Layout) newIndex(old uint32) uint32 {
	if int(old) < len(l.index) {
		return l.index[old]
	}
	return old
}

// setNames puts the section name table at an offset of the new file, and returns where it ends.
func (l *Layout) setNames(names []byte, off uint64) uint64 {
	s := &l.sections[l.shstrndx]
	s.Off, s.Size = off, uint64(len(names))
	l.patches = append(l.patches, patch{off, names})
	return off + s.Size
}

// setHeaders puts the section headers after an offset of the new file, and the bytes of the old one from known on,
// which belong to nothing, after them.
func (l *Layout) setHeaders(off, known uint64) {
	if len(l.sections) > 0 {
		l.shoff = elffile.AlignUp(off, tableAlign)
		off = l.shoff + uint64(len(l.sections))*elffile.SectionSize
	}
	l.copies = append(l.copies, extent{known, off, l.f.Size - known})
}

// names returns the section name table with a name at its end, unless it is there, and the offset of the name. With
// remove, it is the table without that end, if only removed sections use it.
func (l *Layout) names(name string, remove bool, removed func(section int) bool) ([]byte, uint32, error) {
	names, err := l.f.ReadSection(&l.f.Sections[l.f.Shstrndx])
	if err != nil {
		return nil, 0, err
	}
	entry := []byte(name + "\x00")
	if !remove {
		if i := bytes.Index(names, entry); i > 0 { // 0 is the empty name
			return names, uint32(i), nil
		}
		if n := len(names); n == 0 || names[n-1] != 0 {
			names = append(names, 0)
		}
		return append(names, entry...), uint32(len(names)), nil
	}
	n := len(names) - len(entry)
	if n < 1 || names[n-1] != 0 || !bytes.HasSuffix(names, entry) {
		return names, 0, nil
	}
	for i := range l.f.Sections {
		s := &l.f.Sections[i]
		if !removed(i) && (uint64(s.Section64.Name) >= uint64(n) || s.Link == uint32(l.f.Shstrndx)) {
			return names, 0, nil // a symbol may use it
		}
	}
	return names[:n], 0, nil
}

// contentEnds returns where the sections that stay end, except for the section names, and where everything known from
// headers ends. Neither is before from.
func (l *Layout) contentEnds(from uint64, removed func(section int) bool) (end, known uint64) {
	f := l.f
	end, known = from, max(from, headersOf(f).End)
	for i := range f.Sections {
		s := &f.Sections[i]
		if !s.HasBytes() {
			continue
		}
		known = max(known, sectionSpan(s).End)
		if (i != f.Shstrndx || s.Alloc()) && !removed(i) {
			end = max(end, sectionSpan(s).End)
		}
	}
	for i := range f.Progs {
		if h := &f.Progs[i]; h.Filesz > 0 {
			end, known = max(end, fileSpan(h).End), max(known, fileSpan(h).End)
		}
	}
	return end, known
}

// files lays out the rest of the file after the new segment, which ends at an offset of the new file: sections that are
// not loaded, the section names and headers, and bytes that belong to nothing.
func (p *planner) files(end uint64) error {
	f := p.f
	p.newTail = end + (p.tail-end)%p.tailAlign(p.tail)
	cut, known := p.contentEnds(p.tail, p.isOld)
	if p.headOff > 0 {
		end := fileSpan(&f.Progs[p.head]).End
		p.copies = append(p.copies, extent{end, end, p.loadEnd - end}, extent{0, p.headOff, end})
	} else {
		p.copies = append(p.copies, extent{0, p.shift, p.loadEnd})
	}
	p.copies = append(p.copies, extent{p.tail, p.newTail, cut - p.tail})
	unused := []elffile.Span{headersOf(f)} // if they are loaded
	if p.old != nil {
		unused = append(unused, p.old.Span)
	}
	for _, s := range unused {
		if s.Begin < s.End && s.End <= p.loadEnd {
			p.zeros = append(p.zeros, span(p.newOff(s.Begin), p.newOff(s.Begin)+(s.End-s.Begin)))
		}
	}
	for _, u := range p.units {
		p.moves = append(p.moves, extent{u.Begin, u.off, u.End - u.Begin})
	}
	at := p.newOff(cut)
	if len(f.Sections) > 0 {
		var err error
		if at, err = p.sectionHeaders(at); err != nil {
			return err
		}
	}
	p.setHeaders(at, known)
	return nil
}

// tailAlign returns the largest alignment of the sections from a file offset on, which are not loaded.
func (p *planner) tailAlign(from uint64) uint64 {
	if len(p.f.Sections) == 0 {
		return 1
	}
	align := uint64(sectionAlign)
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Off >= from {
			align = max(align, min(elffile.ValidAlign(s.Addralign), p.page))
		}
	}
	return align
}

// newOff returns where the byte at off of the old file is in the new one, if it is in no unit.
func (p *planner) newOff(off uint64) uint64 {
	switch {
	case off >= p.tail:
		return off - p.tail + p.newTail
	case p.headOff > 0 && off < fileSpan(&p.f.Progs[p.head]).End:
		return off + p.headOff
	}
	return off + p.shift
}

// sectionHeaders makes the section headers, with the section names at an offset of the new file, and returns where the
// latter end.
func (p *planner) sectionHeaders(at uint64) (uint64, error) {
	names, name, err := p.names(sframe.SectionName, p.remove, p.isOld)
	if err != nil {
		return 0, err
	}
	gone := 0
	if p.old != nil {
		gone = p.old.section
	}
	p.setSections(p.order(), gone, func(i int) elf.Section64 {
		switch {
		case i >= 0:
			return p.movedSection(i)
		case p.remove:
			return elf.Section64{}
		}
		return p.sectionHeader(name)
	})
	if off, ok := p.namesBefore(names); p.remove && ok {
		p.setNames(names, p.newOff(off))
		return at, nil
	}
	return p.setNames(names, at), nil
}

// movedSection returns the new header of a section.
func (p *planner) movedSection(i int) elf.Section64 {
	old := &p.f.Sections[i]
	s := old.Section64
	switch u := p.unitAt(sectionSpan(old)); {
	case u != nil && old.HasBytes():
		s.Off += u.off - u.Begin
		s.Addr += u.newAddr - u.addr
	case old.HasBytes() || !old.Alloc():
		s.Off = p.newOff(s.Off)
	default:
		s.Off += p.shift // .bss keeps its nominal offset
	}
	p.fill(i, &s)
	return s
}

// namesBefore returns the file offset of a copy of the section names after the section that precedes them by its
// header: they were there before, where lld and mold have them, if others follow.
func (p *planner) namesBefore(names []byte) (uint64, bool) {
	before := &p.f.Sections[p.f.Shstrndx-1]
	at, n := before.Off+before.Size, uint64(len(names))
	if !before.HasBytes() || at < p.tail || p.next(at) < at+n {
		return 0, false
	}
	b, err := p.f.ReadAt("section names", at, n)
	return at, err == nil && bytes.Equal(b, names)
}

// newSection stands for .sframe in the order of sections.
const newSection = -1

// order returns the sections in their new order. Notes and .interp are in the order of the file, as patchelf expects.
// Others keep their places: if .dynsym comes late, strip and objcopy reorder the sections, but not the section indexes
// in it.
func (p *planner) order() []int {
	f := p.f
	if len(f.Sections) >= int(elf.SHN_LORESERVE) {
		return p.sameOrder()
	}
	var out, head, tail []int
	last := 0
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Alloc() {
			last = i
		}
		switch u := p.unitAt(sectionSpan(s)); {
		case p.isOld(i):
		case u == nil || !s.HasBytes() || u.located != nil:
			out = append(out, i)
		case u.inHead:
			head = append(head, i)
		default:
			tail = append(tail, i)
		}
	}
	byOffset := func(a, b int) int { return cmp.Compare(p.movedSection(a).Off, p.movedSection(b).Off) }
	slices.SortStableFunc(head, byOffset)
	slices.SortStableFunc(tail, byOffset)
	if !p.remove && p.last {
		tail = append(tail, newSection)
	} else if !p.remove {
		tail = append([]int{newSection}, tail...)
	}
	insert := func(sections []int, before func(i int) bool) {
		at := slices.IndexFunc(out, before)
		if at < 0 {
			at = len(out)
		}
		out = slices.Insert(out, at, sections...)
	}
	insert(tail, func(i int) bool { return i > last })
	for _, h := range slices.Backward(head) {
		insert([]int{h}, func(i int) bool {
			return i == newSection || i > last || f.Sections[i].Alloc() && f.Sections[i].HasBytes() &&
				p.movedSection(i).Off > p.movedSection(h).Off
		})
	}
	return out
}

// sameOrder returns the order in which no section of the old file gets another index, because symbols have those from
// SHN_LORESERVE on in another place.
func (p *planner) sameOrder() []int {
	out := p.oldOrder()
	switch {
	case p.old == nil:
		return append(out, newSection)
	case p.remove && p.old.section == len(out)-1:
		return out[:p.old.section]
	}
	out[p.old.section] = newSection
	return out
}

// oldOrder returns the sections of the old file in their order.
func (l *Layout) oldOrder() []int {
	order := make([]int, len(l.f.Sections))
	for i := range order {
		order[i] = i
	}
	return order
}
