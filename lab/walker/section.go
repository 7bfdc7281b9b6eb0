package walker

import (
	"bytes"
	"context"
	"debug/elf"
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

// forms are the forms of sections that readers may meet.
var forms = []form{
	{"V1", convert.Options{Version: sframe.V1}},
	{"V2", convert.Options{Version: sframe.V2}},
	{"V2 with both errata", convert.Options{Version: sframe.V2, PCRel: true, Outermost: true}},
	{"V3", convert.Options{Version: sframe.V3}},
	{"V3 that shares nothing", convert.Options{Version: sframe.V3, Share: convert.ShareOff}},
}

// all returns the sections of a file in every form, and the number of forms that it cannot have.
func all(path string) (found []*section, refused int, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	e, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, 0, err
	}
	for _, f := range forms {
		if f.opt.Version == sframe.V1 && e.Machine == elf.EM_S390 { // has no ABI there
			continue
		}
		f.opt.Force, f.opt.NoVerify, f.opt.Brief = true, true, true
		var out bytes.Buffer
		_, err := convert.Convert(context.Background(), bytes.NewReader(file), int64(len(file)), &out, f.opt)
		if err != nil {
			refused++
			continue
		}
		converted, err := elf.NewFile(bytes.NewReader(out.Bytes()))
		if err != nil {
			return nil, 0, err
		}
		s := converted.Section(sframe.SectionName)
		data, err := s.Data()
		if err != nil {
			return nil, 0, err
		}
		found = append(found, &section{path + " as " + f.name, data, s.Addr})
	}
	return found, refused, nil
}
