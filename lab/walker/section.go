package walker

import (
	"debug/elf"
	"os"

	"cfi2sframe/sframe"
)

// A section is the bytes of an .sframe, and where they are in memory.
type section struct {
	name string
	data []byte
	addr uint64
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
	return &section{path, data, s.Addr}, err
}
