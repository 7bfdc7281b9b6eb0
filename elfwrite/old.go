package elfwrite

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// An SFrame identifies the headers of a file's .sframe, whichever tool wrote it.
type SFrame struct {
	Section int // index of the section, or 0
	Segment int // index of the PT_GNU_SFRAME with contents in the file, or -1
}

// FindSFrame finds the headers of a file's .sframe. Section and segment may contradict each other. In a file without
// section headers, there is only a segment. More than one section or segment is an error.
func FindSFrame(f *elffile.File) (SFrame, error) {
	segment := -1
	for i, h := range elffile.Each(f.Progs) {
		if h.Type != sframe.PTGNUSFrame || h.Filesz == 0 {
			continue
		}
		if segment >= 0 {
			return SFrame{}, fmt.Errorf("program header table at file offset %#x: program headers %d and %d are both "+
				"PT_GNU_SFRAME, but a file may have only one", f.Phoff, segment, i)
		}
		segment = i
	}
	header := func(i int) (string, uint32) { return f.Sections[i].Name, f.Sections[i].Type }
	section, err := sframe.FindSection(len(f.Sections), header)
	if err != nil {
		return SFrame{}, fmt.Errorf("section header table at file offset %#x: %w", f.Shoff, err)
	}
	return SFrame{section, segment}, nil
}

// old describes an existing .sframe.
type old struct {
	SFrame
	elffile.Span // file offsets; empty if it has no contents
	addr         uint64
}

// findOld returns the existing .sframe, or nil.
func findOld(f *elffile.File) (*old, error) {
	at, err := FindSFrame(f)
	if err != nil {
		return nil, err
	}
	o := &old{SFrame: at}
	switch {
	case o.Section > 0:
		s := &f.Sections[o.Section]
		if o.addr = s.Addr; s.HasBytes() {
			o.Span = sectionSpan(s)
		}
	case o.Segment >= 0 && len(f.Sections) == 0:
		h := &f.Progs[o.Segment]
		o.Span, o.addr = fileSpan(h), h.Vaddr
	default: // ignore a PT_GNU_SFRAME without a section
		return nil, nil
	}
	return o, nil
}

// isOld reports whether a section is the old .sframe.
func (p *Program) isOld(i int) bool { return p.old != nil && i > 0 && i == p.old.Section }

// checkOld rejects an .sframe that is malformed, or to which something refers.
func (p *Program) checkOld() error {
	f, o := p.f, p.old
	if o == nil || o.Begin == o.End {
		return nil
	}
	b, err := f.ReadAt(sframe.SectionName, o.Begin, min(o.Size(), 2))
	if err == nil {
		switch {
		case len(b) < 2 || binary.LittleEndian.Uint16(b) != sframe.Magic && binary.BigEndian.Uint16(b) != sframe.Magic:
			err = fmt.Errorf("it starts with % x instead of the magic number %#x", b, sframe.Magic)
		case f.Entry-o.addr < o.Size():
			err = fmt.Errorf("it contains the entry point %#x", f.Entry)
		default:
			err = p.checkHeaders(&unit{Span: o.Span, addr: o.addr, section: o.Section}, false)
		}
	}
	if err != nil {
		return fmt.Errorf(".sframe at file offset %#x, %d bytes, cannot be replaced or removed: %w",
			o.Begin, o.Size(), err)
	}
	return nil
}

// ownSegment returns a segment that an earlier run added, and the units in it. It is the last PT_LOAD in the file, is
// read-only, and contains nothing else but .sframe. The layout of the segment is computed again, so that converting a
// file twice gives the same result as converting it once.
func (p *Program) ownSegment() (*elf.Prog64, []*unit) {
	f := p.f
	loads := loadsOf(f.Progs)
	last := slices.MaxFunc(loads, func(i, j int) int {
		return cmp.Compare(fileSpan(&f.Progs[i]).End, fileSpan(&f.Progs[j]).End)
	})
	h := &f.Progs[last]
	var end uint64
	for _, i := range loads {
		if i != last {
			end = max(end, fileSpan(&f.Progs[i]).End)
		}
	}
	if len(loads) == 1 || h == p.head || elf.ProgFlag(h.Flags) != elf.PF_R || h.Filesz != h.Memsz ||
		h.Off < end || p.next(end) < h.Off {
		return nil, nil
	}
	var units []*unit
	found := false
	for at := h.Off; at < fileSpan(h).End; {
		next := min(p.next(at), fileSpan(h).End)
		switch {
		case p.old != nil && p.old.Begin == at && p.old.End > at:
			at, found = p.old.End, true
		case next > at && p.unused(span(at, next)):
			at = next
		default:
			u, err := p.unit(at, h, f.Progs)
			if err != nil || u.End > fileSpan(h).End || len(units) == maxUnits {
				return nil, nil // added by another tool
			}
			u.returned = true
			units = append(units, u)
			at, found = u.End, true
		}
	}
	if !found {
		return nil, nil
	}
	return h, units
}

// inPlace returns a layout that overwrites a linker's .sframe with the new section, or nil. The old section must be
// large enough and in a segment that the linker created.
func (p *Program) inPlace(size uint64) *Layout {
	f, o := p.f, p.old
	if o == nil || p.own != nil || o.Segment < 0 || o.Size() < size || o.addr%sectionAlign != 0 {
		return nil
	}
	if !slices.ContainsFunc(f.Progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && fileSpan(&h).Contains(o.Span) &&
			elf.ProgFlag(h.Flags)&(elf.PF_R|elf.PF_W) == elf.PF_R && o.addr-h.Vaddr == o.Begin-h.Off
	}) {
		return nil
	}
	l := Unchanged(f)
	l.Addr, l.Size, l.off = o.addr, size, o.Begin
	if p.isInterpreter { // the end of the last section must not change
		shift := (o.Size() - size) &^ (sectionAlign - 1)
		l.Addr, l.off = o.addr+shift, o.Begin+shift
	}
	l.zeros = []elffile.Span{o.Span}
	l.progs = slices.Clone(f.Progs)
	l.progs[o.Segment] = l.programHeader(p.loadAddr(l.Addr))
	if len(f.Sections) > 0 {
		l.setSections(p.sameOrder(false), o.Section, func(i int) elf.Section64 {
			if i == newSection {
				return l.sectionHeader(f.Sections[o.Section].Section64.Name)
			}
			return f.Sections[i].Section64
		})
	}
	return l
}
