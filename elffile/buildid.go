package elffile

import "debug/elf"

// maxNotes bounds the total size in bytes of notes that are read.
const maxNotes = 1 << 20

// noteBuildID is NT_GNU_BUILD_ID, the type of the build-id note.
const noteBuildID = 3

// BuildID returns the build-id and the header of the section that contains it, or nil if there is no build-id. In a
// file without section headers, the returned header describes a PT_NOTE segment.
func (f *File) BuildID() (id []byte, in *elf.Section64, err error) {
	var all []elf.Section64
	var names []string
	for _, s := range Each(f.Sections) {
		if elf.SectionType(s.Type) == elf.SHT_NOTE {
			all, names = append(all, s.Section64), append(names, "section "+s.Name)
		}
	}
	for _, h := range Each(f.Progs) {
		if elf.ProgType(h.Type) == elf.PT_NOTE && len(f.Sections) == 0 {
			names = append(names, "PT_NOTE")
			all = append(all, elf.Section64{Type: uint32(elf.SHT_NOTE), Flags: uint64(elf.SHF_ALLOC),
				Addr: h.Vaddr, Off: h.Off, Size: h.Filesz, Addralign: h.Align})
		}
	}
	left := uint64(maxNotes)
	for i := range all {
		n := &all[i]
		if n.Size > left {
			continue
		}
		left -= n.Size
		b, err := f.ReadAt(names[i], n.Off, n.Size)
		if err != nil {
			return nil, nil, err
		}
		if id := f.findBuildID(b, n.Addralign); id != nil {
			return id, n, nil
		}
	}
	return nil, nil, nil
}

// findBuildID returns the build-id in the notes b (ELF gABI, "Note Section"), or nil.
func (f *File) findBuildID(b []byte, align uint64) []byte {
	if align != 8 {
		align = 4
	}
	for len(b) >= 12 {
		name, desc, typ := uint64(f.Order.Uint32(b)), uint64(f.Order.Uint32(b[4:])), f.Order.Uint32(b[8:])
		at := AlignUp(12+name, align)
		end := at + desc
		if end > uint64(len(b)) {
			return nil
		}
		if typ == noteBuildID && name == 4 && string(b[12:16]) == "GNU\x00" && desc > 0 {
			return b[at:end]
		}
		b = b[min(AlignUp(end, align), uint64(len(b))):]
	}
	return nil
}
