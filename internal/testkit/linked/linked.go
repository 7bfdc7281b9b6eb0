// Package linked compares an .sframe that a linker merged with the linked file's CFI, and with that file converted.
package linked

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"slices"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// Open reads a file.
func Open(path string) (*elffile.File, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// Load reads a file and its .sframe.
func Load(path string) (*elffile.File, *sframe.Section, error) {
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	s, err := convert.ReadSection(f)
	return f, s, err
}

// Walk calls fn for each address at which the first section has a row, with that row and the second section's or nil.
func Walk(a, b *sframe.Section, fn func(pc uint64, a, b *sframe.Match)) error {
	for _, d := range a.FDEs() {
		for pc := d.Start; pc < d.End(); pc++ {
			x, found, err := a.Lookup(pc)
			if err != nil {
				return err
			}
			y, other, err := b.Lookup(pc)
			switch {
			case err != nil:
				return err
			case found && other:
				fn(pc, &x, &y)
			case found:
				fn(pc, &x, nil)
			}
		}
	}
	return nil
}

// Function returns the name of the symbol, or else the section, that contains pc.
func Function(f *elffile.File, pc uint64) string {
	name := ""
	_ = f.Symbols(elf.SHT_SYMTAB, func(table *elffile.Section, s elffile.Symbol) {
		if elf.SymType(s.Info&0xf) == elf.STT_FUNC && s.Shndx != 0 && pc >= s.Value && pc-s.Value < s.Size {
			name = f.SymbolName(table, s.Name)
		}
	})
	for i := range f.Sections {
		if s := &f.Sections[i]; name == "" && s.Alloc() && pc >= s.Addr && pc-s.Addr < s.Size {
			name = s.Name
		}
	}
	return name
}

// A Result counts the code that a linked file's .sframe covers, omits or gets wrong. Sizes are in bytes of code.
type Result struct {
	*convert.Comparison
	Direct uint64 // covered by converting the linked file, including PLT stubs without CFI, excluding padding
	// By function: Wrong counts bytes with mismatches, Missing bytes of Direct without a row in the linker's section.
	Wrong, Missing map[string]uint64
}

// Check compares the .sframe of a linked file with its CFI, and with the result of converting the file.
func Check(path string) (*Result, error) {
	f, merged, err := Load(path)
	if err != nil {
		return nil, err
	}
	table, err := convert.LoadCFI(context.Background(), f, convert.Loading{})
	if err != nil {
		return nil, err
	}
	r := &Result{Wrong: make(map[string]uint64), Missing: make(map[string]uint64)}
	if r.Comparison, err = convert.Check(f, merged, table); err != nil {
		return nil, err
	}
	for _, m := range r.Mismatches {
		r.Wrong[Function(f, m.Begin)] += m.End - m.Begin
	}
	var after bytes.Buffer
	opt := convert.Options{Version: merged.Version, Force: true, NoPadding: true}
	if _, err = convert.Convert(context.Background(), f.Contents(), int64(f.Size), &after, opt); err != nil {
		return nil, fmt.Errorf("converting the linked file: %w", err)
	}
	direct, err := elffile.New(bytes.NewReader(after.Bytes()), int64(after.Len()))
	if err != nil {
		return nil, err
	}
	want, err := convert.ReadSection(direct)
	if err != nil {
		return nil, err
	}
	return r, Walk(want, merged, func(pc uint64, a, b *sframe.Match) {
		r.Direct++
		wrong := slices.ContainsFunc(r.Mismatches, func(m verify.Mismatch) bool { return m.Begin <= pc && pc < m.End })
		if !wrong && (b == nil || !merged.ABI.SameRow(a.Row, b.Row)) {
			r.Missing[Function(f, pc)]++
		}
	})
}
