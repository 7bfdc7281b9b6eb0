package verify

import (
	"fmt"
	"math"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// shadowed compares the section with FDEs that share code with an earlier FDE of the same section. Unwinders choose
// different FDEs, so each row must agree with all of them.
func (c *checker) shadowed(s *sframe.Section, f *elffile.File) error {
	all := c.table.Shadowed()
	if len(all) == 0 || s.Len() == 0 {
		return nil
	}
	c.places, c.code = places{f}, codeReader{file: f}
	c.noRules = uint32(c.table.NumRules())
	c.agreed = make([]uint32, c.noRules+1)
	c.segs = segments{reader: s.NewReader(), after: s.Len(), limit: math.MaxUint64, maxRows: math.MaxUint64,
		masked: func(d *sframe.FDE) bool { return !d.Ambiguous() }}
	for i := range all {
		fn := &all[i]
		c.marks, c.proven = marksOf(fn.Signal(), fn.KeyB()), 0
		c.segs.last, c.segs.rows, c.segs.blocks = 0, 0, 0
		first := sort.Search(s.Len(), func(i int) bool {
			d := s.FDE(i)
			return d.End() > fn.Begin
		})
		if first == s.Len() {
			continue
		}
		if d := s.FDE(first); d.Start >= fn.End { // no rows
			continue
		}
		if err := c.segs.load(first); err != nil {
			return err
		}
		owner := sort.Search(c.table.Len(), func(i int) bool { return c.table.At(i).End > fn.Begin })
		rows := uint64(0)
		for row := range rowsOf(fn, c.noRules) {
			rows++
			for ; owner < c.table.Len() && c.table.At(owner).Begin < row.End; owner++ {
				c.fn = c.table.At(owner)
				rows++
				if err := c.compareShared(fn, row); err != nil {
					return err
				}
				if c.fn.End > row.End {
					break
				}
			}
		}
		if err := f.Budget().Spend(costRow, rows+c.segs.rows+c.segs.blocks); err != nil {
			return fmt.Errorf("comparing %d FDEs that overlap others: %w", len(all), err)
		}
	}
	return nil
}

// rowsOf returns the rows of a function. If its CFI is malformed, it has one row without rules.
func rowsOf(fn *cfi.Function, noRules uint32) func(yield func(cfi.Row) bool) {
	if fn.Err() != nil {
		return func(yield func(cfi.Row) bool) { yield(cfi.Row{Begin: fn.Begin, End: fn.End, Number: noRules}) }
	}
	return fn.Rows()
}

// compareShared compares the section with a row of fn in the code that belongs to the current function. Its section has
// precedence over that of fn if they differ.
func (c *checker) compareShared(fn *cfi.Function, row cfi.Row) error {
	if c.fn.Section() != fn.Section() {
		return nil
	}
	begin, end := max(row.Begin, c.fn.Begin), min(row.End, c.fn.End)
	for c.segs.begin < begin {
		if err := c.segs.skip(min(c.segs.end, begin)); err != nil {
			return err
		}
	}
	_, _, err := c.compareRow(begin, end, row.Number)
	return err
}
