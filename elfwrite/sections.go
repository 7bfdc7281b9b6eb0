package elfwrite

import (
	"bytes"
	"debug/elf"

	"cfi2sframe/elffile"
)

// setSections creates the section header table. Header i is that of section order[i] of the old file, or of a new
// section if the old file has no such section. The argument gone is the index of the old .sframe, or 0; the first new
// section replaces it.
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
			s.Name = 0 // must not refer to the name of a new section
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

// setNames places the section name table at an offset of the new file, and returns its end.
func (l *Layout) setNames(names []byte, off uint64) uint64 {
	s := &l.sections[l.shstrndx]
	s.Off, s.Size = off, uint64(len(names))
	l.patches = append(l.patches, patch{off, names})
	return off + s.Size
}

// setHeaders places the section headers at the first aligned offset of the new file that is not below off. They are
// followed by those bytes of the old file that no header describes; known is their offset there.
func (l *Layout) setHeaders(off, known uint64) {
	if len(l.sections) > 0 {
		l.shoff = elffile.AlignUp(off, tableAlign)
		off = l.shoff + uint64(len(l.sections))*elffile.SectionSize
	}
	l.copies = append(l.copies, extent{known, off, l.f.Size - known})
	if off != known && !(isAppImage(l.f) && known == oldHeaders(l.f).End) {
		l.Appended = l.f.Size - known - trailingZeros(l.f, known)
	}
}

// isAppImage reports whether f is an AppImage of type 2: its runtime finds the image at the end of the section headers
// (AppImage specification, "Type 2 image format").
func isAppImage(f *elffile.File) bool { return string(f.Ident[8:11]) == "AI\x02" }

// trailingZeros returns the number of zeros at the end of the file, but not before the offset from.
func trailingZeros(f *elffile.File, from uint64) uint64 {
	const most = 64 << 10
	for end := f.Size; end > from; {
		begin := end - min(most, end-from)
		b, err := f.ReadAt("appended data", begin, end-begin)
		if used := bytes.TrimRight(b, "\x00"); err != nil || len(used) > 0 {
			return f.Size - begin - uint64(len(used))
		}
		end = begin
	}
	return f.Size - from
}

// names returns the section name table, with name appended if necessary, and the offset of name. If remove is set, it
// removes name from the table, provided that it is the last name there and only removed sections use it.
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
	shorter := bytes.TrimSuffix(names, entry)
	if !bytes.HasSuffix(shorter, []byte{0}) { // the name is also a suffix of another name
		return names, 0, nil
	}
	for i, s := range elffile.Each(l.f.Sections) {
		if !removed(i) && (uint64(s.Section64.Name) >= uint64(len(shorter)) || s.Link == uint32(l.f.Shstrndx)) {
			return names, 0, nil // a symbol may use the name
		}
	}
	return shorter, 0, nil
}

// contentEnds returns the end of the remaining sections except for the section names, and the end of everything that
// headers describe. Neither is below the argument from.
func (l *Layout) contentEnds(from uint64, removed func(section int) bool) (end, known uint64) {
	f := l.f
	end, known = from, max(from, oldHeaders(f).End)
	for i, s := range elffile.Each(f.Sections) {
		if !s.HasBytes() {
			continue
		}
		known = max(known, sectionSpan(s).End)
		if (i != f.Shstrndx || s.Alloc()) && !removed(i) {
			end = max(end, sectionSpan(s).End)
		}
	}
	for _, h := range elffile.Each(f.Progs) {
		if h.Filesz > 0 {
			end, known = max(end, fileSpan(h).End), max(known, fileSpan(h).End)
		}
	}
	return end, known
}
