package walker

import (
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/sframe"
)

// A section is the contents of an .sframe and its address.
type section struct {
	name string
	data []byte
	addr uint64
}

// readSection returns the section of a file.
func readSection(path string) (*section, error) {
	f, _, err := linked.Load(path)
	if err != nil {
		return nil, err
	}
	s := f.Section(sframe.SectionName)
	data, err := f.ReadSection(s)
	return &section{path, data, s.Addr}, err
}
