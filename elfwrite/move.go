package elfwrite

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// A move maps each part of the old file to its position in the new file.
type move struct {
	p       *Program
	t       *table
	seg     *segment
	newTail uint64  // new file offset of contents that are not loaded
	places  []place // all units that move
}

// layout returns the layout of the program with the table and the segment.
func (p *Program) layout(t *table, seg *segment) (*Layout, error) {
	m := &move{p: p, t: t, seg: seg, places: slices.Concat(t.kept, seg.moved)}
	m.newTail = seg.End + (t.tail-seg.End)%p.tailAlign(t.tail)
	l := &Layout{f: p.f, off: seg.off, Size: seg.size, phoff: t.off, StaleHeaders: t.front != nil}
	if !t.isRemoval() {
		l.Addr = seg.sframeAddr()
	}
	if t.front != nil && t.front.shift > 0 {
		for _, c := range p.f.Code() {
			l.MovedCode += c.Filesz
		}
	}
	m.planBytes(l)
	if err := m.placeUnloaded(l); err != nil {
		return nil, err
	}
	l.progs = m.programHeaders(l)
	return l, m.patch(l)
}

// newOff returns the new file offset that corresponds to an old file offset, which must not be in a unit.
func (m *move) newOff(off uint64) uint64 {
	switch front := m.t.front; {
	case off >= m.t.tail:
		return off - m.t.tail + m.newTail
	case front == nil:
		return off
	case front.headOff > 0 && off < fileSpan(m.p.head).End:
		return off + front.headOff
	default:
		return off + front.shift
	}
}

// unitAt returns the unit that contains a part of the old file, or nil.
func (m *move) unitAt(s elffile.Span) *place {
	i := slices.IndexFunc(m.places, func(u place) bool { return s.Begin < s.End && u.Contains(s) })
	if i < 0 {
		return nil
	}
	return &m.places[i]
}

// position returns the new file offset and address of a section or segment of the old file, which is in unit u unless u
// is nil. Without bytes in the file, like .bss, it has only a nominal offset.
func (m *move) position(u *place, off, addr uint64, hasBytes bool) (uint64, uint64) {
	switch {
	case hasBytes && u != nil:
		return off + u.off - u.Begin, addr + u.newAddr - u.addr
	case hasBytes:
		return m.newOff(off), addr
	case m.t.front != nil:
		return off + m.t.front.shift, addr
	}
	return off, addr
}

func (m *move) loadAddr(addr uint64) uint64 { return m.p.loadAddrIn(m.seg, addr) }

// planBytes determines which loaded bytes are copied and which are cleared.
func (m *move) planBytes(l *Layout) {
	p, front := m.p, m.t.front
	switch {
	case front == nil:
		l.copies = []extent{{0, 0, p.loadEnd}}
	case front.headOff > 0:
		end := fileSpan(p.head).End
		l.copies = []extent{{end, end, p.loadEnd - end}, {0, front.headOff, end}}
	default:
		l.copies = []extent{{0, front.shift, p.loadEnd}}
	}
	l.zeros = []elffile.Span{m.t.unused}
	unused := []elffile.Span{oldHeaders(p.f)} // if they are loaded
	if p.old != nil {
		unused = append(unused, p.old.Span)
	}
	for _, s := range unused {
		if s.Begin < s.End && s.End <= p.loadEnd {
			l.zeros = append(l.zeros, span(m.newOff(s.Begin), m.newOff(s.Begin)+s.Size()))
		}
	}
	for _, u := range m.places {
		l.moves = append(l.moves, extent{u.Begin, u.off, u.Size()})
	}
}

// placeUnloaded places the unloaded bytes after the new segment: contents, section names, section headers, and bytes
// that no header describes.
func (m *move) placeUnloaded(l *Layout) error {
	p := m.p
	end, known := l.contentEnds(m.t.tail, p.isOld)
	l.copies = append(l.copies, extent{m.t.tail, m.newTail, end - m.t.tail})
	at := m.newOff(end)
	if len(p.f.Sections) > 0 {
		names, name, err := l.names(sframe.SectionName, m.t.isRemoval(), p.isOld)
		if err != nil {
			return err
		}
		gone := 0
		if p.old != nil {
			gone = p.old.Section
		}
		l.setSections(m.order(), gone, func(i int) elf.Section64 {
			switch {
			case i >= 0:
				return m.section(i)
			case m.t.isRemoval():
				return elf.Section64{}
			}
			return l.sectionHeader(name)
		})
		if off, ok := m.namesBefore(names); ok {
			l.setNames(names, m.newOff(off))
		} else {
			at = l.setNames(names, at)
		}
	}
	l.setHeaders(at, known)
	return nil
}

// namesBefore returns the file offset of a copy of the section names, if it directly follows the section whose header
// precedes that of the names. When .sframe is removed, the names return to where lld and mold place them, before other
// sections.
func (m *move) namesBefore(names []byte) (uint64, bool) {
	before := &m.p.f.Sections[m.p.f.Shstrndx-1]
	at, n := before.Off+before.Size, uint64(len(names))
	if !m.t.isRemoval() || !before.HasBytes() || at < m.t.tail || m.p.next(at) < at+n {
		return 0, false
	}
	b, _ := m.p.f.ReadAt("section names", at, n) // readWhole reports errors
	return at, bytes.Equal(b, names)
}

// section returns the new header of a section.
func (m *move) section(i int) elf.Section64 {
	old := &m.p.f.Sections[i]
	s := old.Section64
	s.Off, s.Addr = m.position(m.unitAt(sectionSpan(old)), s.Off, s.Addr, old.HasBytes() || !old.Alloc())
	m.seg.filled.fill(i, &s)
	return s
}

// newSection represents .sframe in the order of sections.
const newSection = -1

// order returns the sections in their new order. Notes and .interp are in file order, as patchelf expects. Other
// sections keep their positions: if .dynsym came later, strip and objcopy would reorder the sections without updating
// the section indexes in it.
func (m *move) order() []int {
	f := m.p.f
	if len(f.Sections) >= int(elf.SHN_LORESERVE) {
		return m.p.sameOrder(m.t.isRemoval())
	}
	var out, head, tail []int
	var last int
	for i, s := range elffile.Each(f.Sections) {
		if s.Alloc() {
			last = i
		}
		switch u := m.unitAt(sectionSpan(s)); {
		case m.p.isOld(i):
		case u == nil || !s.HasBytes() || u.located != nil:
			out = append(out, i)
		case u.off < m.seg.Begin: // in the head
			head = append(head, i)
		default:
			tail = append(tail, i)
		}
	}
	byOffset := func(a, b int) int { return cmp.Compare(m.section(a).Off, m.section(b).Off) }
	slices.SortStableFunc(head, byOffset)
	slices.SortStableFunc(tail, byOffset)
	switch {
	case m.t.isRemoval():
	case m.p.isInterpreter:
		tail = append(tail, newSection)
	default:
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
			return i == newSection || f.Sections[i].Alloc() && f.Sections[i].HasBytes() &&
				m.section(i).Off > m.section(h).Off
		})
	}
	return out
}

// sameOrder returns an order in which the sections of the old file keep their indexes, because indexes of
// SHN_LORESERVE and above are stored outside the symbols (SHT_SYMTAB_SHNDX).
func (p *Program) sameOrder(remove bool) []int {
	out := oldOrder(p.f)
	switch {
	case p.old == nil:
		return append(out, newSection)
	case remove && p.old.Section == len(out)-1:
		return out[:p.old.Section]
	}
	out[p.old.Section] = newSection
	return out
}

// oldOrder returns the indexes of the sections of the old file in ascending order.
func oldOrder(f *elffile.File) []int {
	order := make([]int, len(f.Sections))
	for i := range order {
		order[i] = i
	}
	return order
}

// programHeaders returns the new program header table.
func (m *move) programHeaders(l *Layout) []elf.Prog64 {
	p, t := m.p, m.t
	progs := slices.Clone(t.progs)
	if m.seg.filled.Memsz > 0 {
		progs[lastLoad(progs)] = m.seg.filled.Prog64
	}
	for _, h := range elffile.Each(progs) {
		load := elf.ProgType(h.Type) == elf.PT_LOAD
		if load && t.front == nil && p.head != nil && *h == *p.head && t.headEnd(t.end()) > fileSpan(h).End {
			h.Filesz = t.headEnd(t.end()) - h.Off
			h.Memsz = h.Filesz
		}
		if h.Filesz == 0 && h.Memsz == 0 {
			continue
		}
		u := m.unitAt(fileSpan(h))
		if load { // it contains units, and never moves as one
			u = nil
		}
		if h.Off, h.Vaddr = m.position(u, h.Off, h.Vaddr, h.Filesz > 0); u != nil {
			h.Paddr = m.loadAddr(h.Vaddr)
		}
	}
	progs = m.addPage(progs)
	if m.seg.Size() > 0 {
		at := slices.IndexFunc(progs, func(h elf.Prog64) bool {
			return elf.ProgType(h.Type) == elf.PT_LOAD && h.Vaddr > m.seg.addr
		})
		if at < 0 {
			at = lastLoad(progs) + 1
		}
		progs = slices.Insert(progs, at, p.header(m.seg))
	}
	if !t.isRemoval() {
		progs = append(progs, l.programHeader(m.loadAddr(l.Addr)))
	} else if len(p.f.Sections) == 0 {
		// Without section headers, only PT_NULLs show that the bytes after the table are free for another .sframe.
		progs = append(progs, make([]elf.Prog64, max(0, len(p.f.Progs)-len(progs)))...)
	}
	for _, h := range elffile.Each(progs) {
		if elf.ProgType(h.Type) == elf.PT_PHDR {
			h.Filesz = uint64(len(progs)) * elffile.ProgSize
			h.Memsz = h.Filesz
		}
	}
	if n := len(p.f.Progs) - len(progs); n > 0 {
		end := t.off + uint64(len(p.f.Progs))*elffile.ProgSize
		l.zeros = append(l.zeros, span(end-uint64(n)*elffile.ProgSize, end))
	}
	return progs
}

// lastLoad returns the index of the last PT_LOAD. There is always a PT_LOAD: ownSegment never returns the only PT_LOAD
// of a file.
func lastLoad(progs []elf.Prog64) int {
	loads := loadsOf(progs)
	return loads[len(loads)-1]
}

// patch updates contents that depend on the addresses of units: dynamic entries, and notes that contain an offset
// relative to their own address.
func (m *move) patch(l *Layout) error {
	f := m.p.f
	for _, u := range m.places {
		if u.located != nil {
			value := make([]byte, 8)
			f.Order.PutUint64(value, u.newAddr)
			off := m.newOff(f.Prog(elf.PT_DYNAMIC).Off) + u.located.entry*elffile.DynSize + elffile.DynValue
			l.patches = append(l.patches, patch{off, value})
		}
		for _, off := range u.distances {
			b, err := f.ReadAt("note", off, crashpadSize)
			if err != nil {
				return err
			}
			f.Order.PutUint64(b, f.Order.Uint64(b)-(u.newAddr-u.addr))
			l.patches = append(l.patches, patch{u.off + (off - u.Begin), b})
		}
	}
	return nil
}
