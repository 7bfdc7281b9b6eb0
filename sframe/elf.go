package sframe

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
)

// ErrNone is returned for files without an SFrame section.
var ErrNone = errors.New("no .sframe section and no PT_GNU_SFRAME")

// IsHeader reports whether a section header with the given name and type (sh_type) belongs to an SFrame section. The
// name alone suffices because older tools use the type SHT_PROGBITS.
func IsHeader(name string, typ uint32) bool { return typ == SHTGNUSFrame || name == SectionName }

// FindSection returns the index of the SFrame section among n section headers, or 0 if there is none. The
// function header returns the name and type (sh_type) of the i-th section header. If several sections qualify,
// FindSection returns an error.
func FindSection(n int, header func(int) (name string, typ uint32)) (int, error) {
	found := 0
	for i := 1; i < n; i++ { // index 0 is reserved
		if name, typ := header(i); !IsHeader(name, typ) {
			continue
		}
		if found > 0 {
			return 0, fmt.Errorf("sections %d and %d are both %s, but a file may have only one", found, i, SectionName)
		}
		found = i
	}
	return found, nil
}

// Load is like FromELF, but takes an *elffile.File, as package cfi does.
func Load(f interface{ Contents() io.ReaderAt }) (*Section, error) {
	e, err := elf.NewFile(f.Contents())
	if err != nil {
		return nil, err
	}
	return FromELF(e)
}

// FromELF returns the SFrame section of a linked ELF file. It uses the section headers, or PT_GNU_SFRAME if they list
// no SFrame section. Addresses are virtual addresses in the file. It returns ErrNone if the file has no section, and an
// *Error if the section is malformed.
func FromELF(f *elf.File) (*Section, error) {
	if f.Type == elf.ET_REL {
		return nil, errors.New("relocatable object: functions have no addresses yet; link it first")
	}
	header := func(i int) (string, uint32) { return f.Sections[i].Name, uint32(f.Sections[i].Type) }
	i, err := FindSection(len(f.Sections), header)
	if err != nil {
		return nil, err
	}
	if i > 0 {
		s := f.Sections[i]
		if s.Type == elf.SHT_NOBITS {
			return nil, fmt.Errorf("section %d (%s) has no contents in the file", i, s.Name)
		}
		b, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("section %d (%s): %w", i, s.Name, err)
		}
		return Decode(b, s.Addr)
	}
	for _, p := range f.Progs {
		if p.Type == PTGNUSFrame {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, fmt.Errorf("PT_GNU_SFRAME: %w", err)
			}
			return Decode(b, p.Vaddr)
		}
	}
	return nil, ErrNone
}
