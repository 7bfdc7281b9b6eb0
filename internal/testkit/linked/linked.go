// Package linked compares an .sframe that a linker merged from those of objects with the CFI of the linked file, and
// with the result of converting the linked file.
package linked

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"slices"

	"cfi2sframe/cfi"
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
	s, err := section(f)
	return f, s, err
}

func section(f *elffile.File) (*sframe.Section, error) {
	s := f.Section(".sframe")
	if s == nil {
		return nil, fmt.Errorf("the file has no .sframe")
	}
	b, err := f.ReadSection(s)
	if err != nil {
		return nil, err
	}
	return sframe.Decode(b, s.Addr)
}

// Walk calls a function for each address that section a has a row for, with the row of b or, without one, nil.
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

// Function returns the symbol that pc is in, or its section.
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

// A Result is the comparison of a linked file. Sizes are in bytes of code.
type Result struct {
	Version sframe.Version
	FDEs    int
	verify.Result
	Direct uint64 // covered by converting the linked file: with PLT stubs that have no CFI, without padding
	// Wrong are the bytes in mismatches, Missing those of Direct without a row in the linker's section, by function.
	Wrong, Missing map[string]uint64
}

// Check compares the .sframe of a linked file.
func Check(path string) (*Result, error) {
	f, merged, err := Load(path)
	if err != nil {
		return nil, err
	}
	table, err := cfi.Load(f, cfi.Auto, nil)
	if err != nil {
		return nil, err
	}
	v, err := verify.Check(table, merged, f, verify.Options{Keep: 100})
	if err != nil {
		return nil, err
	}
	if v.Total != len(v.Mismatches) {
		return nil, fmt.Errorf("%d mismatches, too many to list; the first is at %v", v.Total, v.Mismatches[0])
	}
	r := &Result{
		Version: merged.Version, FDEs: merged.Len(), Result: *v,
		Wrong: make(map[string]uint64), Missing: make(map[string]uint64),
	}
	for _, m := range v.Mismatches {
		r.Wrong[Function(f, m.Begin)] += m.End - m.Begin
	}
	before, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var after bytes.Buffer
	opt := convert.Options{Version: merged.Version, Force: true, NoPadding: true}
	_, err = convert.Convert(context.Background(), bytes.NewReader(before), int64(len(before)), &after, opt)
	if err != nil {
		return nil, fmt.Errorf("converting the linked file: %w", err)
	}
	direct, err := elffile.New(bytes.NewReader(after.Bytes()), int64(after.Len()))
	if err != nil {
		return nil, err
	}
	want, err := section(direct)
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
