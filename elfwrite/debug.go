package elfwrite

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

// PlanDebug returns the layout of debug file d that matches the current headers of its program: it has the same
// segments, and the same loaded sections at the same addresses, including .sframe without contents. Debuggers and
// eu-unstrip compare the headers of both files. Pass an empty section to Write.
//
// No part of a debug file is loaded, so the whole file gets a new layout. Bytes outside sections are dropped.
func PlanDebug(d, prog *elffile.File) (l *Layout, err error) {
	defer readWhole(d, &l, &err)
	defer readWhole(prog, &l, &err)
	p := &debugPlanner{Layout: &Layout{f: d}, prog: prog, inProg: make(map[int]int)}
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := p.matchSections(); err != nil {
		return nil, err
	}
	if err := p.layOut(); err != nil {
		return nil, err
	}
	return p.Layout, nil
}

// A debugPlanner computes the layout of a debug file.
type debugPlanner struct {
	*Layout
	prog   *elffile.File
	inProg map[int]int // from the index of a loaded section of the debug file to its index in the program
	order  []int       // indexes of the debug file's sections in their new order; newSection is .sframe
	at     int         // index of .sframe in the program, or 0
	gone   int         // index of an old .sframe in the debug file, or 0
}

// check rejects files that do not belong together or have no section headers.
func (p *debugPlanner) check() error {
	d, prog := p.f, p.prog
	switch {
	case d.IsObject() || prog.IsObject():
		return errors.New("relocatable objects are not supported")
	case d.Machine != prog.Machine || d.Order != prog.Order || d.Type != prog.Type:
		return fmt.Errorf("it is for machine %v, %v, ELF type %v, but the program is for %v, %v, %v",
			elf.Machine(d.Machine), d.Order, elf.Type(d.Type),
			elf.Machine(prog.Machine), prog.Order, elf.Type(prog.Type))
	case len(prog.Sections) == 0:
		return errors.New("the program has no section headers")
	case d.Shstrndx == 0:
		return errors.New("it has no section headers with names")
	case len(d.Sections)+1 > int(elf.SHN_LORESERVE) || len(prog.Progs) > maxDebugSegments:
		return fmt.Errorf("too many sections (%d) or segments (%d)", len(d.Sections), len(prog.Progs))
	}
	at, err := FindSFrame(prog)
	if err != nil {
		return err
	}
	old, err := FindSFrame(d)
	if err != nil {
		return err
	}
	p.at, p.gone = at.Section, old.Section
	var sum uint64
	for i := range d.Sections {
		if s := &d.Sections[i]; s.HasBytes() {
			sum += s.Size
		}
	}
	if err := checkSections(d); err != nil || sum > d.Size {
		return cmp.Or(err, errors.New("its sections overlap"))
	}
	return nil
}

// maxDebugSegments bounds the number of segments. Real programs have far fewer.
const maxDebugSegments = 1 << 12

// matchSections pairs the loaded sections of both files by name. All except .sframe must be in both files, with the
// same size.
func (p *debugPlanner) matchSections() error {
	named := make(map[string][]int)
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.Alloc() && i != p.gone {
			named[s.Name] = append(named[s.Name], i)
		}
	}
	p.order = append(p.order, 0)
	for i := range p.prog.Sections {
		s := &p.prog.Sections[i]
		if !s.Alloc() {
			continue
		}
		if i == p.at {
			p.order = append(p.order, newSection)
			continue
		}
		list := named[s.Name]
		if len(list) == 0 {
			return fmt.Errorf("it has no section %s, which the program has at %#x", s.Name, s.Addr)
		}
		if o := &p.f.Sections[list[0]]; o.Size != s.Size && !p.filledPage(o, s) {
			return fmt.Errorf("section %s has %d bytes, but %d in the program", s.Name, o.Size, s.Size)
		}
		p.inProg[list[0]] = i
		p.order = append(p.order, list[0])
		named[s.Name] = list[1:]
	}
	for i := 1; i < len(p.f.Sections); i++ {
		s := &p.f.Sections[i]
		switch _, ok := p.inProg[i]; {
		case ok || i == p.gone:
		case s.Alloc():
			return fmt.Errorf("section %s at %#x is not in the program", s.Name, s.Addr)
		default:
			p.order = append(p.order, i)
		}
	}
	return nil
}

// filledPage reports whether the size of a section differs because the last section of an interpreter was extended to
// the end of its page.
func (p *debugPlanner) filledPage(o, s *elffile.Section) bool {
	is, err := isInterpreter(p.prog)
	const alike = elf.SHF_WRITE | elf.SHF_ALLOC
	return err == nil && is && !o.HasBytes() && elf.SectionFlag(s.Flags&o.Flags)&alike == alike && s.Addr == o.Addr &&
		(s.Addr+max(s.Size, o.Size))%arch.MinPage == 0
}

// layOut computes the layout of the file.
func (p *debugPlanner) layOut() error {
	f := p.f
	names, name, err := p.names(sframe.SectionName, p.at == 0, func(i int) bool { return i == p.gone })
	if err != nil {
		return err
	}
	p.setSections(p.order, p.gone, func(i int) elf.Section64 {
		if i == newSection {
			s := p.prog.Sections[p.at].Section64
			s.Name, s.Type = name, uint32(elf.SHT_NOBITS)
			return s
		}
		s := f.Sections[i].Section64
		if own, ok := p.inProg[i]; ok {
			s.Addr, s.Size = p.prog.Sections[own].Addr, p.prog.Sections[own].Size
		}
		return s
	})
	p.phoff, p.progs = elffile.HeaderSize, slices.Clone(p.prog.Progs)
	if len(f.Progs) == 0 {
		p.phoff, p.progs = f.Phoff, nil
	}
	p.placeContents(names)
	p.segments()
	return nil
}

// placeContents places the contents of sections one after the other, followed by the section headers.
func (p *debugPlanner) placeContents(names []byte) {
	f := p.f
	var list []int
	for i := range f.Sections {
		if f.Sections[i].HasBytes() && i != p.gone {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b int) int {
		x, y := &f.Sections[a], &f.Sections[b]
		return cmp.Or(cmp.Compare(x.Off, y.Off), cmp.Compare(x.Size, y.Size), cmp.Compare(p.index[a], p.index[b]))
	})
	at := elffile.HeaderSize + uint64(len(p.progs))*elffile.ProgSize
	loaded := at // end of the contents of loaded sections
	for _, i := range list {
		s, to := &f.Sections[i], &p.sections[p.index[i]]
		at = elffile.AlignUp(at, min(elffile.ValidAlign(s.Addralign), firstPage))
		to.Off = at
		if i == f.Shstrndx {
			p.setNames(names, at)
		} else {
			p.copies = append(p.copies, extent{s.Off, at, s.Size})
		}
		at += to.Size
		if s.Alloc() {
			loaded = at
		}
	}
	for i := range p.sections {
		if s := &p.sections[i]; elf.SectionType(s.Type) == elf.SHT_NOBITS {
			s.Off = loaded
		}
	}
	p.shoff = elffile.AlignUp(at, tableAlign)
}

// segments adjusts the program headers to the contents of the debug file, which are usually notes. objcopy clears the
// file sizes of other segments; eu-strip does not.
func (p *debugPlanner) segments() {
	bare := slices.ContainsFunc(p.f.Progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 && h.Filesz == 0
	})
	for i := range p.progs {
		h := &p.progs[i]
		t := elf.ProgType(h.Type)
		if off, ok := p.bytesOf(h); ok && t != elf.PT_LOAD {
			h.Off = off
		} else if bare && t != elf.PT_PHDR || h.Type == sframe.PTGNUSFrame {
			h.Filesz = 0
			table := p.phoff + uint64(len(p.progs))*elffile.ProgSize
			if t == elf.PT_LOAD && h.Off == 0 && h.Memsz >= table {
				h.Filesz = table // readers expect the segment to contain the headers
			}
		}
	}
}

// bytesOf returns the file offset of a segment, if the debug file contains all of its bytes.
func (p *debugPlanner) bytesOf(h *elf.Prog64) (uint64, bool) {
	var off uint64
	end := h.Vaddr
	byAddr := func(a, b elf.Section64) int { return cmp.Compare(a.Addr, b.Addr) }
	for _, s := range slices.SortedFunc(slices.Values(p.sections), byAddr) {
		if elf.SectionFlag(s.Flags)&elf.SHF_ALLOC == 0 || elf.SectionType(s.Type) == elf.SHT_NOBITS || s.Size == 0 ||
			s.Addr < h.Vaddr || s.Addr-h.Vaddr >= h.Filesz {
			continue
		}
		if end == h.Vaddr {
			off = s.Off
		}
		if s.Addr < end || s.Off-off != s.Addr-h.Vaddr {
			return 0, false
		}
		end = s.Addr + s.Size
	}
	return off, end > h.Vaddr && end-h.Vaddr >= h.Filesz
}
