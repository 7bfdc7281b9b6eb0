package elfwrite

import (
	"debug/elf"
	"math"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// PlanDetached returns the layout of a separate file with the .sframe of f, which is not modified. The new file has the
// build-id note, a note that Belongs checks, and the headers of f's loaded sections and segments without contents. The
// result does not depend on symbols or debug information, so stripping f does not change it.
//
// The address of .sframe is that of the first page after the last segment of f. It tells readers that the section is
// from a separate file.
func PlanDetached(f *elffile.File, size uint64, opt Options) (l *Layout, err error) {
	defer readWhole(f, &l, &err)
	page, err := pageOf(f)
	if err != nil {
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
	l = &Layout{f: f, Size: size, phoff: elffile.HeaderSize}
	var addrEnd uint64
	for i := range f.Progs {
		if h := f.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD {
			addrEnd = max(addrEnd, h.Vaddr+h.Memsz)
			h.Off, h.Filesz = h.Vaddr%page, 0
			l.progs = append(l.progs, h)
		}
	}
	if addrEnd == 0 {
		return nil, errNoLoad
	}
	if addrEnd > math.MaxUint64-page-size {
		return nil, noAddresses(addrEnd)
	}
	headers := len(l.progs) + newHeaders + 1 // 1: a PT_NOTE for the note that Belongs checks
	if note != nil {
		headers++
	}
	end := l.phoff + uint64(headers)*elffile.ProgSize
	if note != nil {
		noteOff = elffile.AlignUp(end, min(elffile.ValidAlign(note.Addralign), maxNoteAlign))
		l.copies = append(l.copies, extent{note.Off, noteOff, note.Size})
		end = noteOff + note.Size
		l.progs = append(l.progs, elf.Prog64{
			Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: noteOff, Vaddr: note.Addr, Paddr: note.Addr,
			Filesz: note.Size, Memsz: note.Size, Align: note.Addralign,
		})
	}
	proofOff := elffile.AlignUp(end, tableAlign)
	end = proofOff + uint64(len(proof))
	l.patches = append(l.patches, patch{proofOff, proof})
	l.progs = append(l.progs, elf.Prog64{
		Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: proofOff, Filesz: uint64(len(proof)), Align: 4,
	})
	l.off = elffile.AlignUp(end, sectionAlign)
	l.Addr = elffile.AlignUp(addrEnd, page)
	h := l.programHeader(l.Addr)
	load := h
	load.Type = uint32(elf.PT_LOAD)
	l.progs = append(l.progs, load, h)
	l.detachedSections(note, noteOff, elf.Section64{
		Type: uint32(elf.SHT_NOTE), Off: proofOff, Size: uint64(len(proof)), Addralign: 4,
	}, at.Section)
	return l, nil
}

// indexed is the name of an empty section. debuginfod (elfutils 0.188) serves a file without code only if some section
// name starts with ".debug_".
const indexed = ".debug_sframe"

// detachedSections creates the section headers: notes, the other loaded sections except the old .sframe, the new
// .sframe, and the section names.
func (l *Layout) detachedSections(note *elf.Section64, noteOff uint64, proof elf.Section64, old int) {
	f := l.f
	var names []byte
	add := func(name string, s elf.Section64) {
		s.Name = uint32(len(names))
		names = append(append(names, name...), 0)
		l.sections = append(l.sections, s)
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
		case !f.Sections[i].Alloc() || i == old || f.Sections[i].Name == ".eh_frame":
			continue // llvm-readobj -a would parse .eh_frame
		default:
			const links = elf.SHF_INFO_LINK | elf.SHF_LINK_ORDER | elf.SHF_GROUP | elf.SHF_COMPRESSED
			s.Type, s.Flags, s.Off = uint32(elf.SHT_NOBITS), s.Flags&^uint64(links), l.off
			s.Link, s.Info, s.Entsize = 0, 0, 0
		}
		add(f.Sections[i].Name, s)
	}
	add(proofSection, proof)
	add(sframe.SectionName, l.sectionHeader(0))
	add(indexed, elf.Section64{Type: uint32(elf.SHT_PROGBITS), Off: l.off + l.Size, Addralign: 1})
	l.shstrndx = uint32(len(l.sections))
	add(".shstrtab", elf.Section64{Type: uint32(elf.SHT_STRTAB), Addralign: 1})
	end := l.setNames(names, l.off+l.Size)
	l.shoff = elffile.AlignUp(end, tableAlign)
}
