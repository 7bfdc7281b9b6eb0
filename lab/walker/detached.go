package walker

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/sframe"
)

// A separation counts what became of files.
type separation struct {
	same    int // attached, with the bytes of the conversion
	without int // detached, but not converted: no space
	reasons map[string]int
}

// detached is all for separate files. They have the rows of conversions, and attached the bytes.
func (n *separation) detached(dir, path string, pcs func(*section) []uint64) (found []*section, refused int, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	separate := filepath.Join(dir, "separate.sframe")
	run := func(opt convert.Options) ([]byte, error) {
		var out bytes.Buffer
		_, err := convert.Convert(context.Background(), bytes.NewReader(file), int64(len(file)), &out, opt)
		return out.Bytes(), err
	}
	e, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, 0, err
	}
	for _, f := range forms {
		if f.opt.Version == sframe.V1 && e.Machine == elf.EM_S390 { // has no ABI there
			continue
		}
		f.opt.Brief = true
		converted, errConverted := run(f.opt)
		f.opt.Detach = true
		alone, err := run(f.opt)
		if err != nil {
			if errConverted == nil {
				return nil, 0, fmt.Errorf("%s is converted, but not detached: %w", f.name, err)
			}
			n.reasons[err.Error()]++
			refused++
			continue
		}
		if err := os.WriteFile(separate, alone, 0o666); err != nil {
			return nil, 0, err
		}
		s, sec, err := sectionIn(path+" detached as "+f.name, alone)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, s)
		if errors.Is(errConverted, elfwrite.ErrNoRoom) {
			n.without++
			continue
		}
		if errConverted != nil {
			return nil, 0, fmt.Errorf("%s is detached, but not converted: %w", f.name, errConverted)
		}
		_, other, err := sectionIn(path, converted)
		if err != nil {
			return nil, 0, err
		}
		for _, pc := range pcs(s) {
			if got, want := lookup(sec, pc), lookup(other, pc); got != want {
				return nil, 0, fmt.Errorf("%s, pc %#x: %v, converted %v", f.name, pc, got, want)
			}
		}
		attached, err := run(convert.Options{Attach: true, SFrame: separate})
		if err != nil {
			return nil, 0, fmt.Errorf("%s: attach: %w", f.name, err)
		}
		if !bytes.Equal(attached, converted) {
			return nil, 0, fmt.Errorf("%s: attached, it has other bytes than converted", f.name)
		}
		n.same++
	}
	return found, refused, nil
}

// sectionIn returns the .sframe of an ELF file, and decoded by sframe.FromELF.
func sectionIn(name string, file []byte) (*section, *sframe.Section, error) {
	e, err := elf.NewFile(bytes.NewReader(file))
	if err != nil {
		return nil, nil, err
	}
	decoded, err := sframe.FromELF(e)
	if err != nil {
		return nil, nil, err
	}
	s := e.Section(sframe.SectionName)
	data, err := s.Data()
	return &section{name, data, s.Addr}, decoded, err
}
