package elffile

import "cfi2sframe/sframe"

// An SFrame says where a file has an .sframe, whoever wrote it.
type SFrame struct {
	Section int // the section's index, or 0 if there is none
	Segment int // the index of the PT_GNU_SFRAME with bytes in the file, or -1 if there is none
}

// SFrame finds the file's .sframe: the section by its type or its name, and the segment by its type.
// What they say need not be the same, and files without section headers have a segment at most. It
// is an error if there are two of either.
func (f *File) SFrame() (SFrame, error) {
	found := SFrame{Segment: -1}
	for i := range f.Progs {
		h := &f.Progs[i]
		if h.Type != sframe.PTGNUSFrame || h.Filesz == 0 {
			continue
		}
		if found.Segment >= 0 {
			return SFrame{}, errorf("program header table", f.Phoff, "program headers %d and %d are both PT_GNU_SFRAME; one was expected", found.Segment, i)
		}
		found.Segment = i
	}
	i, err := sframe.FindSection(len(f.Sections), func(i int) (string, uint32) { return f.Sections[i].Name, f.Sections[i].Type })
	if err != nil {
		return SFrame{}, errorf("section header table", f.Shoff, "%v", err)
	}
	found.Section = i
	return found, nil
}
