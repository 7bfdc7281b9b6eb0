package elfwrite

import (
	"bytes"
	"debug/elf"
	"slices"

	"cfi2sframe/internal/elffile"
)

// files lays out what follows the new segment, which ends at the given offset of
// the new file: the parts that are not loaded, the section names, the section
// headers, and bytes behind everything that the headers know of.
func (p *planner) files(end uint64) {
	f := p.f
	align := uint64(sectionAlign)
	for i := range f.Sections {
		if s := &f.Sections[i]; s.HasBytes() && s.Off >= p.loadEnd {
			align = max(align, min(validAlign(s.Addralign), p.page))
		}
	}
	p.shift = alignUp(end-p.loadEnd, align)

	// The section names and headers are written anew behind the other parts, and
	// leave nothing behind where they were last.
	table := span{f.Shoff, f.Shoff + uint64(len(f.Sections))*elffile.SectionSize}
	cut := p.loadEnd
	for i := range f.Sections {
		if s := &f.Sections[i]; s.HasBytes() && (i != f.Shstrndx || s.Alloc()) {
			cut = max(cut, s.Off+s.Size)
		}
	}
	for i := range f.Progs {
		cut = max(cut, fileSpan(&f.Progs[i]).end)
	}
	known := cut
	if len(f.Sections) > 0 {
		known = max(known, table.end)
		if names := &f.Sections[f.Shstrndx]; f.Shstrndx > 0 && names.HasBytes() {
			known = max(known, sectionSpan(names).end)
		}
	}
	p.copies = append(p.copies, extent{0, 0, p.loadEnd}, extent{p.loadEnd, p.newOff(p.loadEnd), cut - p.loadEnd})
	for _, u := range p.units {
		p.moves = append(p.moves, extent{u.begin, u.to, u.end - u.begin})
	}
	at := p.newOff(cut)
	if len(f.Sections) > 0 {
		at = p.sectionHeaders(at)
	}
	p.copies = append(p.copies, extent{known, at, f.Size - known})
}

// newOff returns where the byte at off of the old file is in the new one, for
// those that are not in a unit.
func (p *planner) newOff(off uint64) uint64 {
	if off < p.loadEnd {
		return off
	}
	return off + p.shift
}

// sectionHeaders lays out the section names and headers from the given offset of
// the new file on, and returns where they end.
func (p *planner) sectionHeaders(at uint64) uint64 {
	f := p.f
	names, name := p.names()
	order := p.order()
	p.index = make([]uint32, len(f.Sections))
	p.values = make(map[uint32]uint64)
	p.sections = make([]elf.Section64, len(order))
	for i, old := range order {
		if old < 0 {
			p.sections[i].Name = name
			p.setSection(&p.sections[i])
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
			s.Off = p.newOff(s.Off) // .bss keeps its nominal offset
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
		p.patches = append(p.patches, patch{at, names})
		at += uint64(len(names))
	}
	p.shoff = alignUp(at, 8)
	return p.shoff + uint64(len(p.sections))*elffile.SectionSize
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
func (p *planner) names() ([]byte, uint32) {
	s := &p.f.Sections[p.f.Shstrndx]
	if p.f.Shstrndx == 0 {
		return nil, 0
	}
	names, err := p.f.ReadSection(s)
	if err != nil {
		return nil, 0 // New has read it, so this is a race with a writer; the verification tells
	}
	entry := []byte(sectionName + "\x00")
	if i := bytes.Index(names, entry); i > 0 { // 0 is the empty name
		return names, uint32(i)
	}
	if n := len(names); n == 0 || names[n-1] != 0 {
		names = append(names, 0)
	}
	return append(names, entry...), uint32(len(names))
}

// order returns the old indexes of the sections in their new order, with -1 for
// .sframe. The headers of allocated sections stay in the order of the file: some
// tools take that for granted.
func (p *planner) order() []int {
	var head, rest, moved, out []int
	last := 0
	for i := range p.f.Sections {
		s := &p.f.Sections[i]
		if s.Alloc() {
			last = i
		}
	}
	slots := make(map[int]bool) // header places of the sections that stay in the head
	for i := range p.f.Sections {
		s := &p.f.Sections[i]
		switch u := p.unitAt(sectionSpan(s)); {
		case i == p.old && i > 0:
		case u == nil || !s.HasBytes():
			rest = append(rest, i)
		case u.stays:
			head = append(head, i)
			rest = append(rest, i)
			slots[i] = true
		default:
			moved = append(moved, i)
		}
	}
	newOff := func(i int) uint64 {
		s := &p.f.Sections[i]
		u := p.unitAt(sectionSpan(s))
		return s.Off + u.to - u.begin
	}
	byOffset := func(a, b int) int {
		switch x, y := newOff(a), newOff(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(head, byOffset)
	slices.SortStableFunc(moved, byOffset)
	placed := false
	place := func() {
		if !placed {
			if p.last {
				out = append(append(out, moved...), -1)
			} else {
				out = append(append(out, -1), moved...)
			}
			placed = true
		}
	}
	for _, i := range rest {
		if i > last {
			place()
		}
		if slots[i] {
			i, head = head[0], head[1:]
		}
		out = append(out, i)
	}
	place()
	return out
}
