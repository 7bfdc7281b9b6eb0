package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// A unit is a part of the file that moves as a whole: a section, or the sections of a PT_NOTE. It is immutable.
type unit struct {
	elffile.Span        // file offsets in the old file
	addr         uint64 // old address
	align        uint64
	section      int     // index of its first section, or -1
	returned     bool    // moved by an earlier run, to the segment added by that run
	located      *dynTag // dynamic entry that locates it; nil for .interp and notes
	notes        bool    // a PT_NOTE locates it
	buildID      bool
	distances    []uint64 // file offsets of note contents that are offsets relative to their own address
}

// A place is the new position of a unit.
type place struct {
	*unit
	off     uint64 // file offset
	newAddr uint64
}

// maxUnits is the maximum number of units that may move. In practice, one or two units move.
const maxUnits = 64

// placeIn returns a place in the first of the spaces in the head that is large enough, and takes it from that space. It
// reports whether there is one. A unit that contains the build-id must also end in the first page of the file.
func (u *unit) placeIn(head *elf.Prog64, spaces []elffile.Span) (place, bool) {
	for i := range spaces {
		addr := elffile.AlignUp(head.Vaddr+(spaces[i].Begin-head.Off), u.align)
		off := head.Off + (addr - head.Vaddr)
		if end := off + u.Size(); end <= spaces[i].End {
			spaces[i].Begin = end
			return place{u, off, addr}, !u.buildID || end <= firstPage
		}
	}
	return place{}, false
}

// contentsAt returns the section at a file offset. In a file without section headers, it returns the contents of
// PT_INTERP or of a PT_NOTE as a section.
func (p *Program) contentsAt(off uint64) (elffile.Section, bool) {
	if i := p.headerAt(off); i >= 0 {
		return p.f.Sections[i], true
	}
	if len(p.f.Sections) > 0 {
		return elffile.Section{}, false
	}
	for _, h := range elffile.Each(p.f.Progs) {
		types := map[elf.ProgType]elf.SectionType{elf.PT_INTERP: elf.SHT_PROGBITS, elf.PT_NOTE: elf.SHT_NOTE}
		if t, ok := types[elf.ProgType(h.Type)]; ok && h.Off == off && h.Filesz > 0 {
			return elffile.Section{Name: elf.ProgType(h.Type).String(), Section64: elf.Section64{
				Type: uint32(t), Flags: uint64(elf.SHF_ALLOC), Addr: h.Vaddr, Off: h.Off, Size: h.Filesz,
				Addralign: h.Align,
			}}, true
		}
	}
	return elffile.Section{}, false
}

// unit returns the movable unit that starts at a file offset in the given PT_LOAD.
func (p *Program) unit(off uint64, load *elf.Prog64, progs []elf.Prog64) (*unit, error) {
	s, ok := p.contentsAt(off)
	if !ok {
		return nil, p.errUnknownAt(off)
	}
	u := &unit{Span: sectionSpan(&s), addr: s.Addr, align: elffile.ValidAlign(s.Addralign), section: p.headerAt(off)}
	if err := p.checkUnit(u, &s, load, progs); err != nil {
		return nil, fmt.Errorf("%s at file offset %#x cannot be moved: %w", s.Name, off, err)
	}
	return u, nil
}

// checkUnit completes u, a unit that starts with section s, and returns an error if code may refer to it.
func (p *Program) checkUnit(u *unit, s *elffile.Section, load *elf.Prog64, progs []elf.Prog64) error {
	const fixed = elf.SHF_WRITE | elf.SHF_EXECINSTR | elf.SHF_TLS
	if u.align > p.page || !s.Alloc() || elf.SectionFlag(s.Flags)&fixed != 0 || s.Addr-load.Vaddr != s.Off-load.Off {
		return errNotFound
	}
	switch {
	case p.isInterp(u.Span):
	case elf.SectionType(s.Type) == elf.SHT_NOTE:
		if err := p.noteUnit(u, progs); err != nil {
			return err
		}
	default:
		for i := range p.tags {
			t := &p.tags[i]
			if t.value != s.Addr {
				continue
			}
			if !t.movable || t.size != 0 && t.size != s.Size {
				return errNotFound
			}
			u.located = t
		}
		if u.located == nil {
			return errNotFound
		}
	}
	if err := p.checkHeaders(u, true); err != nil {
		return err
	}
	return p.checkUnreferenced(span(u.addr, u.addr+u.Size()))
}

// errNotFound is the reason why most sections cannot move.
var errNotFound = errors.New("code refers to it by address, not through a header or a dynamic entry")

// checkHeaders returns an error if headers or dynamic entries refer to u. If u moves, headers that describe parts of it
// are allowed because they are updated.
func (p *Program) checkHeaders(u *unit, moves bool) error {
	for _, t := range p.tags {
		if t.value-u.addr < u.Size() && !(u.located != nil && t.entry == u.located.entry) {
			return fmt.Errorf("dynamic entry %d points into it", t.entry)
		}
	}
	for i, h := range elffile.Each(p.f.Progs) {
		switch t := elf.ProgType(h.Type); t {
		case elf.PT_LOAD, elf.PT_PHDR, elf.PT_NULL, elf.ProgType(sframe.PTGNUSFrame):
		default:
			if h.Filesz > 0 && fileSpan(h).Overlaps(u.Span) && !(moves && u.located == nil && u.Contains(fileSpan(h))) {
				return fmt.Errorf("program header %d (%v) overlaps it", i, t)
			}
		}
	}
	for i, s := range elffile.Each(p.f.Sections) {
		part := i == u.section || moves && u.Contains(sectionSpan(s))
		if s.HasBytes() && s.Size > 0 && sectionSpan(s).Overlaps(u.Span) && !part {
			return fmt.Errorf("section %d (%s) overlaps it", i, s.Name)
		}
	}
	return nil
}

func (p *Program) isInterp(s elffile.Span) bool {
	h := p.f.Prog(elf.PT_INTERP)
	return h != nil && fileSpan(h) == s
}
