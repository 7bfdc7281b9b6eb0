package walker

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strings"

	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// A section is the bytes of an .sframe, and where they are in memory.
type section struct {
	name string
	data []byte
	addr uint64
}

// forms are the flags for the forms of sections that readers may meet.
var forms = []string{
	"--format 1", "--format 2", "--format 2 --pcrel --outermost", "--format 3", "--format 3 --share off",
}

// A converter makes sections of files, in a directory with a cfi2sframe.
type converter struct{ program, dir string }

// sections returns the sections of a file in every form, and the number of forms that it cannot have.
func (c *converter) sections(path string) (found []*section, refused int, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	out := filepath.Join(c.dir, "converted")
	for _, form := range forms {
		if form == "--format 1" && f.Machine == elf.EM_S390 { // V1 has no ABI for it
			continue
		}
		flags := append(strings.Fields(form), "--force", "--no-verify")
		report, err := kit.Convert(c.program, path, out, flags...)
		if err != nil {
			return nil, 0, err
		}
		if report.Kept != "" {
			refused++
			continue
		}
		s, err := read(out)
		if err != nil {
			return nil, 0, err
		}
		s.name = path + " by " + form
		found = append(found, s)
	}
	return found, refused, nil
}

// read returns the section of a file.
func read(path string) (*section, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	s := f.Section(sframe.SectionName)
	if s == nil {
		return nil, os.ErrNotExist
	}
	data, err := s.Data()
	return &section{data: data, addr: s.Addr}, err
}
