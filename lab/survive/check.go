package survive

import (
	"debug/elf"
	"fmt"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/image"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/lab/kit"
)

// check returns an error unless a file contains an .sframe that agrees with the CFI of the original. The file may lack
// CFI, because some tools remove .debug_frame. It returns the counts of the comparison.
func check(path string, table *cfi.Table) (kit.Rows, error) {
	f, s, err := linked.Load(path)
	if err != nil {
		return kit.Rows{}, err
	}
	if err := image.Segment(f, nil); err != nil {
		return kit.Rows{}, err
	}
	return kit.CompareRows(table, s, kit.Stubs(f))
}

// contents returns the allocated sections of a file by name, except .sframe and the sections that contain addresses of
// other sections: running the file tests these. Later sections with the same name get suffixes #1, #2...
func contents(path string) (map[string]string, error) {
	f, err := linked.Open(path)
	if err != nil {
		return nil, err
	}
	all := make(map[string]string)
	for i := range f.Sections {
		s := &f.Sections[i]
		typ := elf.SectionType(s.Type)
		if !s.Alloc() || s.Name == ".sframe" || typ == elf.SHT_DYNAMIC || typ == elf.SHT_DYNSYM ||
			typ == elf.SHT_SYMTAB {
			continue
		}
		text := fmt.Sprintf("%d bytes", s.Size)
		if s.HasBytes() {
			b, err := f.ReadSection(s)
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		name := s.Name
		for n := 1; all[name] != ""; n++ {
			name = fmt.Sprint(s.Name, "#", n)
		}
		all[name] = text + "\n"
	}
	return all, nil
}

// A change maps section names to contents before and after a tool runs. A missing section's contents are "".
type change struct{ before, after map[string]string }

// compare returns an error for a section that the tool changes in the converted file, unless it changes the same
// section of the original in the same way.
func compare(original, converted change) error {
	for _, sections := range []map[string]string{converted.before, converted.after} {
		for name := range sections {
			now := converted.after[name]
			switch {
			case converted.before[name] == now:
			case original.before[name] == original.after[name]:
				return fmt.Errorf("section %s is changed, but not in the original", name)
			case original.after[name] != now:
				return fmt.Errorf("section %s is changed in a different way than in the original", name)
			}
		}
	}
	return nil
}
