package elfwrite

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// An SFrame says which headers of a file are those of .sframe, whichever tool wrote it.
type SFrame struct {
	Section int // index of the section, or 0
	Segment int // index of the PT_GNU_SFRAME with bytes in the file, or -1
}

// FindSFrame finds the headers of a file's .sframe. They may contradict each other, and files without section headers
// have a segment only. Two sections or two segments are an error.
func FindSFrame(f *elffile.File) (SFrame, error) {
	segment := -1
	for i := range f.Progs {
		h := &f.Progs[i]
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

// An old is an .sframe that is in the file already.
type old struct {
	section      int // its index, or 0 in a file without section headers
	segment      int // index of its PT_GNU_SFRAME, or -1
	elffile.Span     // in the file; empty if it has no bytes there
	addr         uint64
}

// findOld finds an .sframe that is there already.
func (p *planner) findOld() error {
	f := p.f
	at, err := FindSFrame(f)
	if err != nil {
		return err
	}
	o := &old{section: at.Section, segment: at.Segment}
	switch {
	case o.section > 0:
		s := &f.Sections[o.section]
		if o.addr = s.Addr; s.HasBytes() {
			o.Span = sectionSpan(s)
		}
	case o.segment >= 0 && len(f.Sections) == 0:
		h := &f.Progs[o.segment]
		o.Span, o.addr = fileSpan(h), h.Vaddr
	default: // a PT_GNU_SFRAME without its section is a leftover
		return nil
	}
	if p.old = o; !p.opt.Force {
		return ErrExists
	}
	if err := p.checkOld(); err != nil {
		return fmt.Errorf(".sframe at file offset %#x, %d bytes, cannot be replaced or removed: %w",
			o.Begin, o.End-o.Begin, err)
	}
	return nil
}

// checkOld refuses an .sframe that is not one, or that something refers to.
func (p *planner) checkOld() error {
	f, o := p.f, p.old
	if o.Begin == o.End {
		return nil
	}
	b, err := f.ReadAt(sframe.SectionName, o.Begin, min(o.End-o.Begin, 2))
	if err != nil {
		return err
	}
	if len(b) < 2 || binary.LittleEndian.Uint16(b) != sframe.Magic && binary.BigEndian.Uint16(b) != sframe.Magic {
		return fmt.Errorf("it starts with % x, not with the magic number %#x", b, sframe.Magic)
	}
	if f.Entry-o.addr < o.End-o.Begin {
		return fmt.Errorf("the entry point is %#x", f.Entry)
	}
	return p.checkHeaders(&unit{Span: o.Span, addr: o.addr, section: o.section}, false)
}

// findSegment finds a segment as this package makes it: the last PT_LOAD, read-only, last in the file too, with nothing
// in it but .sframe and what can move. It is laid out anew, so that converting twice gives what converting once gives.
func (p *planner) findSegment() {
	f := p.f
	loads := loadsOf(f.Progs)
	last := loads[len(loads)-1]
	var end uint64
	for _, i := range loads[:len(loads)-1] {
		end = max(end, fileSpan(&f.Progs[i]).End)
	}
	h := &f.Progs[last]
	if len(loads) < 2 || last == p.head || elf.ProgFlag(h.Flags) != elf.PF_R || h.Filesz != h.Memsz ||
		h.Filesz == 0 || h.Off < end || p.next(end) < h.Off {
		return
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
			u, err := p.unit(at, h)
			if err != nil || u.End > fileSpan(h).End || len(units) == maxUnits {
				return // another's segment
			}
			u.returned = true
			units = append(units, u)
			at, found = u.End, true
		}
	}
	if found {
		p.own, p.units = last, units
	}
}

// ownTail returns where bytes that are not loaded begin after the segment of an earlier run, without its padding.
func (p *planner) ownTail() uint64 {
	end := fileSpan(&p.f.Progs[p.own]).End
	tail := p.loadEnd + elffile.AlignUp(end-p.loadEnd, p.tailAlign(end))
	if p.next(end) < tail {
		return end
	}
	return min(tail, p.f.Size)
}

// inPlace reports whether the new .sframe could take the place of the old one: that of a linker, which stays in the
// linker's segment if it is large enough.
func (p *planner) inPlace() bool {
	f, o := p.f, p.old
	if o == nil || p.remove || p.own >= 0 || o.segment < 0 || o.End-o.Begin < p.Size || o.addr%sectionAlign != 0 {
		return false
	}
	if !slices.ContainsFunc(f.Progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && fileSpan(&h).Contains(o.Span) &&
			elf.ProgFlag(h.Flags)&(elf.PF_R|elf.PF_W) == elf.PF_R && o.addr-h.Vaddr == o.Begin-h.Off
	}) {
		return false
	}
	if p.isInterpreter { // whose last section has to end where it did
		p.off = (o.End - o.Begin - p.Size) &^ (sectionAlign - 1)
	}
	p.Addr, p.off = o.addr+p.off, o.Begin+p.off
	p.copies = []extent{{0, 0, f.Size}}
	p.zeros = []elffile.Span{o.Span}
	p.shoff = f.Shoff
	p.progs[o.segment] = p.programHeader()
	if len(f.Sections) > 0 {
		p.setSections(p.sameOrder(), o.section, func(i int) elf.Section64 {
			if i == newSection {
				return p.sectionHeader(f.Sections[o.section].Section64.Name)
			}
			return f.Sections[i].Section64
		})
	}
	return true
}

// isOld reports whether a section is the old .sframe.
func (p *planner) isOld(i int) bool { return p.old != nil && i > 0 && i == p.old.section }

// dropSegments removes the segments of the old .sframe from the program headers.
func (p *planner) dropSegments() {
	p.progs = p.progs[:0]
	for i, h := range p.f.Progs {
		if i != p.own && h.Type != sframe.PTGNUSFrame {
			p.progs = append(p.progs, h)
		}
	}
}

// headersOf returns where the section header table is in the old file.
func headersOf(f *elffile.File) elffile.Span {
	return span(f.Shoff, f.Shoff+uint64(len(f.Sections))*elffile.SectionSize)
}
