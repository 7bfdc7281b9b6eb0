package elffile

import (
	"bytes"
	"debug/elf"
	"path/filepath"
	"testing"

	"cfi2sframe/internal/testkit/testfile"
)

// FuzzNew decodes arbitrary bytes as an ELF file.
func FuzzNew(f *testing.F) {
	files, err := filepath.Glob("../testdata/bin/*/p*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, path := range files {
		b := testfile.Read(f, path)
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		x, err := New(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for i := range x.Sections {
			s := &x.Sections[i]
			if b, err := x.ReadSection(s); err == nil && uint64(len(b)) != s.Size {
				t.Fatalf("section %d of %d bytes has %d", i, s.Size, len(b))
			}
			if s.Size < 1<<16 {
				_, _ = x.ReadUncompressed(s)
			}
		}
		for _, typ := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
			_ = x.Symbols(typ, func(table *Section, s Symbol) { x.SymbolName(table, s.Name) })
		}
	})
}
