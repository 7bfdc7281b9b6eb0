// Package linked compares an .sframe that a linker merged from those of objects with the CFI of the linked file, and
// with the result of converting the linked file.
package linked

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// A Row holds for the addresses from Begin to End.
type Row struct {
	Begin, End uint64
	FRE        sframe.FRE
}

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

// Rows returns what a section says, by address; blocks of PC-mask FDEs one by one.
func Rows(s *sframe.Section) ([]Row, error) {
	var out []Row
	var fres []sframe.FRE
	for i, d := range s.FDEs() {
		var err error
		if fres, err = s.FREs(i, fres[:0]); err != nil {
			return nil, err
		}
		step := uint64(d.Size)
		if d.PCMask {
			if step = uint64(d.RepSize); step == 0 {
				continue // V1: readers do not agree on what the rows hold for
			}
		}
		if len(fres) == 1 && fres[0].Start == 0 {
			step = uint64(d.Size)
		}
		for block := d.Start; block < d.End(); block += step {
			limit := min(block+step, d.End())
			for j, e := range fres {
				r := Row{block + uint64(e.Start), limit, e}
				if j+1 < len(fres) {
					r.End = min(limit, block+uint64(fres[j+1].Start))
				}
				if r.Begin < r.End {
					out = append(out, r)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Row) int { return cmp.Compare(a.Begin, b.Begin) })
	return out, nil
}

// Walk divides the rows a into parts, each within one row of b or, if b is nil, within none. Both are sorted.
func Walk(a, b []Row, fn func(begin, end uint64, a, b *Row)) {
	for i := range a {
		for pc := a[i].Begin; pc < a[i].End; {
			end := a[i].End
			j := sort.Search(len(b), func(j int) bool { return b[j].End > pc })
			var other *Row
			switch {
			case j == len(b):
			case b[j].Begin <= pc:
				end, other = min(end, b[j].End), &b[j]
			default:
				end = min(end, b[j].Begin)
			}
			fn(pc, end, &a[i], other)
			pc = end
		}
	}
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
	return r, r.compare(f, merged, want)
}

// compare looks for the rows of want in merged.
func (r *Result) compare(f *elffile.File, merged, want *sframe.Section) error {
	theirs, err := Rows(merged)
	if err != nil {
		return err
	}
	ours, err := Rows(want)
	if err != nil {
		return err
	}
	Walk(ours, theirs, func(begin, end uint64, a, b *Row) {
		r.Direct += end - begin
		overlaps := func(m verify.Mismatch) bool { return m.Begin < end && m.End > begin }
		wrong := slices.ContainsFunc(r.Mismatches, overlaps)
		if !wrong && (b == nil || !merged.ABI.SameRow(a.FRE.Row, b.FRE.Row)) {
			r.Missing[Function(f, begin)] += end - begin
		}
	})
	return nil
}
