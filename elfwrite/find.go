package elfwrite

import (
	"fmt"

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
