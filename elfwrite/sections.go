package elfwrite

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// files lays out what follows the new segment, which ends at the given offset of
// the new file: the parts that are not loaded, the section names, the section
// headers, and bytes after everything that the headers know of.
func (p *planner) files(end uint64) error {
	f := p.f
	p.newTail = end + (p.tail-end)%p.tailAlign(p.tail)

	// The section names and headers are written anew after the other parts, and
	// leave nothing behind where they were last.
	cut := p.tail
	for i := range f.Sections {
		if s := &f.Sections[i]; s.HasBytes() && (i != f.Shstrndx || s.Alloc()) && !p.isOld(i) {
			cut = max(cut, s.Off+s.Size)
		}
	}
	for i := range f.Progs {
		if h := &f.Progs[i]; h.Filesz > 0 {
			cut = max(cut, fileSpan(h).end)
		}
	}
	known := cut
	if len(f.Sections) > 0 {
		table := headersOf(f)
		known = max(known, table.end)
		if names := &f.Sections[f.Shstrndx]; f.Shstrndx > 0 && names.HasBytes() {
			known = max(known, sectionSpan(names).end)
		}
		if table.end <= p.loadEnd { // they were in memory, where nobody looks for them
			p.zeros = append(p.zeros, span{p.newOff(table.begin), p.newOff(table.begin) + (table.end - table.begin)})
		}
	}
	if p.headTo > 0 {
		end := fileSpan(&f.Progs[p.head]).end
		p.copies = append(p.copies, extent{end, end, p.loadEnd - end}, extent{0, p.headTo, end})
	} else {
		p.copies = append(p.copies, extent{0, p.front, p.loadEnd})
	}
	p.copies = append(p.copies, extent{p.tail, p.newTail, cut - p.tail})
	if o := p.old; o != nil && o.begin < o.end && o.end <= p.loadEnd {
		p.zeros = append(p.zeros, span{p.newOff(o.begin), p.newOff(o.begin) + (o.end - o.begin)})
	}
	for _, u := range p.units {
		p.moves = append(p.moves, extent{u.begin, u.to, u.end - u.begin})
	}
	at := p.newOff(cut)
	if len(f.Sections) > 0 {
		var err error
		if at, err = p.sectionHeaders(at); err != nil {
			return err
		}
	}
	p.copies = append(p.copies, extent{known, at, f.Size - known})
	return nil
}

// tailAlign returns the largest alignment of the sections from the given file offset
// on, which are not loaded. Without section headers there is nothing that would say it of any.
func (p *planner) tailAlign(from uint64) uint64 {
	if len(p.f.Sections) == 0 {
		return 1
	}
	align := uint64(sectionAlign)
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Off >= from {
			align = max(align, min(validAlign(s.Addralign), p.page))
		}
	}
	return align
}

// newOff returns where the byte at off of the old file is in the new one, for
// those that are not in a unit.
func (p *planner) newOff(off uint64) uint64 {
	switch {
	case off >= p.tail:
		return off - p.tail + p.newTail
	case p.headTo > 0 && off < fileSpan(&p.f.Progs[p.head]).end:
		return off + p.headTo
	}
	return off + p.front
}

// sectionHeaders lays out the section names and headers from the given offset of
// the new file on, and returns where they end.
func (p *planner) sectionHeaders(at uint64) (uint64, error) {
	f := p.f
	names, name, err := p.names()
	if err != nil {
		return 0, err
	}
	order := p.order()
	p.index = make([]uint32, len(f.Sections))
	p.values = make(map[uint32]uint64)
	p.sections = make([]elf.Section64, len(order))
	for i, old := range order {
		if old < 0 {
			p.sections[i].Name = name
			p.setSection(&p.sections[i])
			if p.old != nil && p.old.section > 0 {
				p.index[p.old.section] = uint32(i)
				p.values[uint32(p.old.section)] = p.Addr - p.old.addr
			}
			continue
		}
		p.index[old] = uint32(i)
		s := f.Sections[old].Section64
		if uint64(s.Name) >= f.Sections[f.Shstrndx].Size {
			s.Name = 0 // it must not become the new name
		}
		if u := p.unitAt(sectionSpan(&f.Sections[old])); u != nil && f.Sections[old].HasBytes() {
			s.Off += u.to - u.begin
			s.Addr += u.toAddr - u.addr
			p.values[uint32(old)] = u.toAddr - u.addr
		} else if f.Sections[old].HasBytes() || !f.Sections[old].Alloc() {
			s.Off = p.newOff(s.Off)
		} else {
			s.Off += p.front // .bss keeps its nominal offset
		}
		p.fill(old, &s)
		p.sections[i] = s
	}
	for i := range p.sections {
		s := &p.sections[i]
		s.Link = p.newIndex(s.Link)
		t := elf.SectionType(s.Type)
		if t == elf.SHT_REL || t == elf.SHT_RELA || elf.SectionFlag(s.Flags)&elf.SHF_INFO_LINK != 0 {
			s.Info = p.newIndex(s.Info)
		}
	}
	p.sections[0] = f.Sections[0].Section64
	p.shstrndx = p.newIndex(uint32(f.Shstrndx))
	if names != nil {
		s := &p.sections[p.shstrndx]
		s.Off, s.Size = at, uint64(len(names))
		if off, ok := p.namesBefore(names); p.remove && ok {
			s.Off = p.newOff(off)
		} else {
			at += s.Size
		}
		p.patches = append(p.patches, patch{s.Off, names})
	}
	p.shoff = alignUp(at, tableAlign)
	return p.shoff + uint64(len(p.sections))*elffile.SectionSize, nil
}

// newIndex returns the new index of the section with the given old one.
func (p *planner) newIndex(old uint32) uint32 {
	if int(old) < len(p.index) {
		return p.index[old]
	}
	return old
}

// names returns the section name table with .sframe in it, and where that name
// is. The table is nil if there is none to extend.
func (p *planner) names() ([]byte, uint32, error) {
	s := &p.f.Sections[p.f.Shstrndx]
	if p.f.Shstrndx == 0 {
		return nil, 0, nil
	}
	names, err := p.f.ReadSection(s)
	if err != nil {
		return nil, 0, err
	}
	entry := []byte(sframe.SectionName + "\x00")
	if p.remove {
		return p.withoutName(names, entry), 0, nil
	}
	if i := bytes.Index(names, entry); i > 0 { // 0 is the empty name
		return names, uint32(i), nil
	}
	if n := len(names); n == 0 || names[n-1] != 0 {
		names = append(names, 0)
	}
	return append(names, entry...), uint32(len(names)), nil
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

// withoutName takes the name .sframe off the end of the section name table, if it is
// there and nothing else uses it.
func (p *planner) withoutName(names, entry []byte) []byte {
	n := len(names) - len(entry)
	if n < 1 || names[n-1] != 0 || !bytes.HasSuffix(names, entry) {
		return names
	}
	for i := range p.f.Sections {
		s := &p.f.Sections[i]
		if !p.isOld(i) && (uint64(s.Section64.Name) >= uint64(n) || s.Link == uint32(p.f.Shstrndx)) {
			return names // a symbol may use it
		}
	}
	return names[:n]
}

// order returns the old indexes of the sections in their new order, with -1 for
// .sframe. Headers of notes and .interp are in the order of the file, which patchelf
// takes for granted. What dynamic entries locate keeps its place before the sections
// that refer to it: where .dynsym comes late, strip and objcopy order the sections
// anew and leave its section indexes as they were.
func (p *planner) order() []int {
	if len(p.f.Sections)+1 > int(elf.SHN_LORESERVE) {
		return p.plainOrder()
	}
	var head, rest, moved, out []int
	last := 0
	for i := range p.f.Sections {
		s := &p.f.Sections[i]
		if s.Alloc() {
			last = i
		}
		switch u := p.unitAt(sectionSpan(s)); {
		case p.isOld(i):
		case u == nil || !s.HasBytes() || u.dynamic:
			rest = append(rest, i)
		case u.stays:
			head = append(head, i)
		default:
			moved = append(moved, i)
		}
	}
	newOff := func(i int) uint64 {
		s := &p.f.Sections[i]
		if u := p.unitAt(sectionSpan(s)); u != nil && s.HasBytes() {
			return s.Off + u.to - u.begin
		}
		return p.newOff(s.Off)
	}
	byOffset := func(a, b int) int { return cmp.Compare(newOff(a), newOff(b)) }
	slices.SortStableFunc(head, byOffset)
	slices.SortStableFunc(moved, byOffset)
	placed := false
	place := func() {
		switch {
		case placed:
		case p.remove:
			out = append(out, moved...)
		case p.last:
			out = append(append(out, moved...), -1)
		default:
			out = append(append(out, -1), moved...)
		}
		placed = true
	}
	for _, i := range rest {
		s := &p.f.Sections[i]
		for len(head) > 0 && (i > last || s.Alloc() && s.HasBytes() && newOff(i) > newOff(head[0])) {
			out, head = append(out, head[0]), head[1:]
		}
		if i > last {
			place()
		}
		out = append(out, i)
	}
	out = append(out, head...)
	place()
	return out
}

// plainOrder keeps the sections in their order, with .sframe last: an index from
// SHN_LORESERVE on takes another form in symbol tables, and none may get one that
// had none before.
func (p *planner) plainOrder() []int {
	var out []int
	for i := range p.f.Sections {
		if !p.isOld(i) {
			out = append(out, i)
		}
	}
	if !p.remove {
		out = append(out, -1)
	}
	return out
}
