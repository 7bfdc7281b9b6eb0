package walker

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"

	"cfi2sframe/convert"
	"cfi2sframe/sframe"
)

// A section is the bytes of an .sframe, and where they are in memory.
type section struct {
	name string
	data []byte
	addr uint64
}

// A form is a way to convert a file.
type form struct {
	name string
	opt  convert.Options
}

// forms are all forms of sections that readers may meet.
var forms = []form{
	{"V1", convert.Options{Version: sframe.V1}},
	{"V2", convert.Options{Version: sframe.V2}},
	{"V2 with both errata", convert.Options{Version: sframe.V2, PCRel: true, Outermost: true}},
	{"V3", convert.Options{Version: sframe.V3}},
	{"V3 that shares nothing", convert.Options{Version: sframe.V3, Share: convert.ShareOff}},
}

// knows reports whether the form's version has an ABI for the machine.
func (f *form) knows(m elf.Machine) bool { return f.opt.Version != sframe.V1 || m != elf.EM_S390 }

// converted returns the section that the file gets.
func converted(path string, file []byte, f *form) (*section, error) {
	opt := f.opt
	opt.Force, opt.NoVerify, opt.Brief = true, true, true
	var out bytes.Buffer
	if _, err := convert.Convert(context.Background(), bytes.NewReader(file), int64(len(file)), &out, opt); err != nil {
		return nil, err
	}
	return inFile(path+" as "+f.name, out.Bytes())
}

// inFile returns the section that an ELF file has.
func inFile(name string, file []byte) (*section, error) {
	f, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	s := f.Section(sframe.SectionName)
	if s == nil {
		return nil, fmt.Errorf("%s has no .sframe", name)
	}
	data, err := s.Data()
	return &section{name, data, s.Addr}, err
}

// all returns the sections of a file in every form, and the number of forms that it does not have.
func all(path string) (found []*section, refused int, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	e, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, 0, err
	}
	for i := range forms {
		if !forms[i].knows(e.Machine) {
			continue
		}
		s, err := converted(path, file, &forms[i])
		if err != nil {
			refused++
			continue
		}
		found = append(found, s)
	}
	return found, refused, nil
}
