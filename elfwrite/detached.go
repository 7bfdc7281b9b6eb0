package elfwrite

import (
	"debug/elf"
	"math"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// PlanDetached finds the layout of another file for the .sframe of f, which does not change. The new file has the note
// with the build-id, a note for Belongs, and the headers of f's loaded sections and segments without their bytes.
// Symbols and debug information of f play no part, so that strip makes no difference.
//
// The address of .sframe is the first page after the last segment of f. Readers that have the section without this file
// know it by that.
func PlanDetached(f *elffile.File, size uint64, opt Options) (l *Layout, err error) {
	defer readWhole(f, &l, &err)
	p := newPlanner(f, size, opt)
	if err := p.kind(); err != nil {
		return nil, err
	}
	at, err := FindSFrame(f)
	if err != nil {
		return nil, err
	}
	if (at.Section > 0 || at.Segment >= 0) && !opt.Force {
		return nil, ErrExists
	}
	_, note, err := f.BuildID()
	if err != nil {
		return nil, err
	}
	proof, err := proofNoteOf(f)
	if err != nil {
		return nil, err
	}
	var noteOff uint64
	p.detached, p.phoff, p.progs = true, elffile.HeaderSize, nil
	for i := range f.Progs {
		if h := f.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD {
			p.addrEnd = max(p.addrEnd, h.Vaddr+h.Memsz)
			h.Off, h.Filesz = h.Vaddr%p.page, 0
			p.progs = append(p.progs, h)
		}
	}
	if p.addrEnd == 0 {
		return nil, errNoLoad
	}
	headers := len(p.progs) + newHeaders + 1 // the note for Belongs
	if note != nil {
		headers++
	}
	end := p.phoff + uint64(headers)*elffile.ProgSize
	if p.addrEnd > math.MaxUint64-p.page-size {
		return nil, p.noAddresses()
	}
	if note != nil {
		noteOff = elffile.AlignUp(end, min(elffile.ValidAlign(note.Addralign), maxNoteAlign))
		p.copies = append(p.copies, extent{note.Off, noteOff, note.Size})
		end = noteOff + note.Size
		p.progs = append(p.progs, elf.Prog64{
			Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: noteOff, Vaddr: note.Addr, Paddr: note.Addr,
			Filesz: note.Size, Memsz: note.Size, Align: note.Addralign,
		})
	}
	proofOff := elffile.AlignUp(end, tableAlign)
	end = proofOff + uint64(len(proof))
	p.patches = append(p.patches, patch{proofOff, proof})
	p.progs = append(p.progs, elf.Prog64{
		Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: proofOff, Filesz: uint64(len(proof)), Align: 4,
	})
	p.off = elffile.AlignUp(end, sectionAlign)
	p.Addr = elffile.AlignUp(p.addrEnd, p.page)
	h := p.programHeader()
	load := h
	load.Type = uint32(elf.PT_LOAD)
	p.progs = append(p.progs, load, h)
	p.detachedSections(note, noteOff, elf.Section64{
		Type: uint32(elf.SHT_NOTE), Off: proofOff, Size: uint64(len(proof)), Addralign: 4,
	}, at.Section)
	return p.Layout, nil
}

// indexed is an empty section. debuginfod (elfutils 0.188) serves a file without code only if the name of a section
// begins with ".debug_".
const indexed = ".debug_sframe"

// detachedSections makes the section headers: those of the notes, of other loaded sections except old, of .sframe and
// of the names.
func (p *planner) detachedSections(note *elf.Section64, noteOff uint64, proof elf.Section64, old int) {
	f := p.f
	var names []byte
	add := func(name string, s elf.Section64) {
		s.Name = uint32(len(names))
		names = append(append(names, name...), 0)
		p.sections = append(p.sections, s)
	}
	add("", elf.Section64{})
	if note != nil && len(f.Sections) == 0 {
		s := *note
		s.Off = noteOff
		add(".note.gnu.build-id", s)
	}
	for i := range f.Sections {
		s := f.Sections[i].Section64
		switch {
		case note != nil && s == *note:
			s.Off = noteOff
		case !f.Sections[i].Alloc() || i == old || f.Sections[i].Name == ".eh_frame": // llvm-readobj -a would read it
			continue
		default:
			const links = elf.SHF_INFO_LINK | elf.SHF_LINK_ORDER | elf.SHF_GROUP | elf.SHF_COMPRESSED
			s.Type, s.Flags, s.Off = uint32(elf.SHT_NOBITS), s.Flags&^uint64(links), p.off
			s.Link, s.Info, s.Entsize = 0, 0, 0
		}
		add(f.Sections[i].Name, s)
	}
	add(proofSection, proof)
	add(sframe.SectionName, p.sectionHeader(0))
	add(indexed, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: p.off + p.Size, Addralign: 1})
	p.shstrndx = uint32(len(p.sections))
	add(".shstrtab", elf.Section64{Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	end := p.setNames(names, p.off+p.Size)
	p.shoff = elffile.AlignUp(end, tableAlign)
}
