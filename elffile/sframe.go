package elffile

import "cfi2sframe/sframe"

// SFrameName is the name of the section that holds SFrame.
const SFrameName = ".sframe"

// isSFrame reports whether the section is an .sframe, by its type or its name: binutils up to 2.44
// gives it the type SHT_PROGBITS.
func (s *Section) isSFrame() bool { return s.Type == sframe.SHTGNUSFrame || s.Name == SFrameName }

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
	for i := range f.Sections {
		if i == 0 || !f.Sections[i].isSFrame() {
			continue
		}
		if found.Section > 0 {
			return SFrame{}, errorf("section header table", f.Shoff, "sections %d and %d are both .sframe; one was expected", found.Section, i)
		}
		found.Section = i
	}
	return found, nil
}
