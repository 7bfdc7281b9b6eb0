package convert

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/filecopy"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// A Comparison is the result of comparing an .sframe with the CFI of its file. Sizes are in bytes.
type Comparison struct {
	ABI            sframe.ABI
	Version        sframe.Version
	FDEs           int
	FREs           uint64
	Sorted         bool
	verify.Amounts                   // without Code and Unwindable; only rows that agree count
	Mismatches     []verify.Mismatch // by address

	Undescribed bool // some mismatches start in code without CFI
}

// String returns what agrees, without the mismatches.
func (c *Comparison) String() string {
	return fmt.Sprintf("%v, %v, %d FDEs: %d of %d bytes of code agree, mismatches: %d", c.ABI, c.Version, c.FDEs,
		c.Covered, c.Described, len(c.Mismatches))
}

// maxMismatches bounds the number of recorded mismatches.
const maxMismatches = 1 << 16

// Check compares the section s of the file f with the CFI. Mismatches are not an error unless there are too many. In
// that case, the Comparison contains the first of them.
func Check(f *elffile.File, s *sframe.Section, table *cfi.Table) (*Comparison, error) {
	sorted := s.Flags&sframe.FDESorted != 0
	if !sorted {
		s = s.Sorted()
	}
	res, err := verify.Check(table, s, f, verify.Options{Keep: maxMismatches})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(res.Mismatches, func(a, b verify.Mismatch) int { return cmp.Compare(a.Begin, b.Begin) })
	c := &Comparison{
		ABI: s.ABI, Version: s.Version, FDEs: s.Len(), FREs: uint64(s.NumFREs), Sorted: sorted,
		Amounts: res.Amounts, Mismatches: res.Mismatches,
	}
	undescribed := func(m verify.Mismatch) bool { return table.Find(m.Begin) == nil }
	c.Undescribed = slices.ContainsFunc(c.Mismatches, undescribed)
	if res.Ended {
		return c, fmt.Errorf("more than %d mismatches; the first %d are listed, "+
			"and the rest of the code was not compared", res.Total-1, len(res.Mismatches))
	}
	if res.Total > len(res.Mismatches) {
		return c, fmt.Errorf("%d mismatches; the first %d are listed", res.Total, len(res.Mismatches))
	}
	return c, nil
}

// Dump prints the section s of the file f like objdump --sframe. For a bare section, f is nil.
func Dump(w io.Writer, f *elffile.File, s *sframe.Section) error {
	if _, err := fmt.Fprintf(w, "Contents of the SFrame section .sframe:\n"); err != nil {
		return err
	}
	if f == nil || !f.IsObject() {
		return s.Dump(w, nil)
	}
	return s.Dump(w, func(addr uint64) uint64 { return addr - f.Sections[f.SectionAt(addr)].Base })
}

// maxBare is the maximum size of a bare section in bytes.
const maxBare = 1 << 30

// ReadBare decodes a file that consists of a bare section, as produced by objcopy -O binary. It returns nil for other
// files.
func ReadBare(r io.ReaderAt, size int64) (*sframe.Section, error) {
	r = filecopy.Sized(r, size)
	magic := make([]byte, 2)
	n, err := r.ReadAt(magic, 0)
	if err != nil && err != io.EOF {
		return nil, outfile.Plain(err)
	}
	if n < len(magic) || !sframe.IsSection(magic) || size > maxBare {
		return nil, nil
	}
	b, err := io.ReadAll(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, outfile.Plain(err)
	}
	return decode(b, 0)
}
