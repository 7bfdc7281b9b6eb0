package kit

import (
	"cmp"
	"debug/elf"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/readback"
	"cfi2sframe/sframe"
)

// Rows holds the counts of a comparison of a section with CFI. Sizes are in bytes of code.
type Rows struct {
	Functions, PCs                     int // PCs counts compared addresses
	Described, Covered, Padding, Stubs uint64
}

// Add adds the counts of another comparison.
func (r *Rows) Add(other Rows) {
	r.Functions += other.Functions
	r.PCs += other.PCs
	r.Described += other.Described
	r.Covered += other.Covered
	r.Padding += other.Padding
	r.Stubs += other.Stubs
}

// A known is a pair of CFI rules and an SFrame row that were found to be equivalent.
type known struct {
	number       uint32
	row          sframe.Row
	signal, keyB bool
}

// A comparer compares a section with CFI.
type comparer struct {
	Rows
	machine    elf.Machine
	section    *sframe.Section
	reader     *readback.Reader
	boundaries []uint64 // where the section's rows start and end, sorted
	next       int      // the first boundary after the last range
	agreed     map[known]bool
}

// CompareRows compares a section with CFI at every pc. If both are constant over a range, it compares only the first
// and last byte. The comparison shares only the readers of both formats with cfi2sframe. In code without CFI, padding
// may have the row that precedes it, and PLT stubs may have any row.
func CompareRows(table *cfi.Table, s *sframe.Section, stub func(pc uint64) bool) (Rows, error) {
	reader, err := readback.New(table.Machine, table.Order, s)
	if err != nil {
		return Rows{}, err
	}
	c := comparer{
		machine: table.Machine, section: s, reader: reader, boundaries: Boundaries(s, math.MaxUint32),
		agreed: make(map[known]bool),
	}
	if len(c.boundaries) == 0 {
		return Rows{}, nil
	}
	var end uint64 // end of the previous function
	var fact readback.Fact
	var number uint32
	for fn := range table.Functions() {
		if err := c.checkBetween(end, fn.Begin, &fact, number, stub); err != nil {
			return c.Rows, err
		}
		fact = readback.Fact{Signal: fn.Signal(), KeyB: fn.KeyB()}
		end = fn.End
		c.Functions++
		c.Described += fn.End - fn.Begin
		if fn.Err() != nil { // must have no rows
			if err := c.row(fn.Begin, fn.End, &fact, 0, true); err != nil {
				return c.Rows, err
			}
			continue
		}
		for row := range fn.Rows() {
			fact.Rules, number = row.Rules, row.Number
			varies := row.CFA.Rule == cfi.RuleExpression // may depend on the pc
			if err := c.row(row.Begin, row.End, &fact, number, varies); err != nil {
				return c.Rows, err
			}
		}
	}
	return c.Rows, c.checkBetween(end, max(end, c.boundaries[len(c.boundaries)-1]+1), &fact, number, stub)
}

// Boundaries returns where rows of a section start and end, sorted. For a PC-mask FDE, it returns the boundaries of up
// to the given number of blocks. Invalid rows are skipped.
func Boundaries(s *sframe.Section, blocks uint64) []uint64 {
	var boundaries []uint64
	add := func(d *sframe.FDE, at uint64) {
		if at-d.Start < uint64(d.Size) {
			boundaries = append(boundaries, at)
		}
	}
	var fres []sframe.FRE
	for i, d := range s.FDEs() {
		fres, _ = s.FREs(i, fres[:0])
		first, repeat, n := d.Start, uint64(0), uint64(1)
		if d.PCMask && d.RepSize > 0 {
			repeat = uint64(d.RepSize)
			first -= d.Start % repeat
			n = min((d.End()-first+repeat-1)/repeat, blocks)
		}
		boundaries = append(boundaries, d.Start, d.End())
		for block := range n {
			begin := first + block*repeat
			add(&d, begin)
			for _, r := range fres {
				add(&d, begin+uint64(r.Start))
			}
		}
	}
	slices.Sort(boundaries)
	return slices.Compact(boundaries)
}

// rangeEnd returns the first boundary after pc, up to limit. Each call's pc must be higher than the previous call's.
func (c *comparer) rangeEnd(pc, limit uint64) uint64 {
	for c.next < len(c.boundaries) && c.boundaries[c.next] <= pc {
		c.next++
	}
	if c.next < len(c.boundaries) {
		limit = min(limit, c.boundaries[c.next])
	}
	return limit
}

// row compares the section with one row of CFI.
func (c *comparer) row(begin, end uint64, fact *readback.Fact, number uint32, varies bool) error {
	for begin < end {
		to := c.rangeEnd(begin, end)
		covered, err := c.check(begin, to, fact, number, varies)
		if err != nil {
			return err
		}
		if covered {
			c.Covered += to - begin
		}
		begin = to
	}
	return nil
}

// check compares the rows for the first and the last pc of a range, and reports whether the section covers it.
func (c *comparer) check(begin, end uint64, fact *readback.Fact, number uint32, varies bool) (covered bool, err error) {
	for _, pc := range []uint64{begin, end - 1} {
		c.PCs++
		m, ok, err := c.section.Lookup(pc)
		if err != nil {
			return false, err
		}
		covered = ok
		k := known{number, m.Row, m.FDE.Signal, m.FDE.KeyB}
		if !ok || !varies && c.agreed[k] {
			continue
		}
		found := &readback.FoundRow{Row: m.Row, Signal: m.FDE.Signal, KeyB: m.FDE.KeyB}
		err = c.reader.Compare(pc, fact, found)
		if err != nil && fact.Rules != nil && c.machine == elf.EM_X86_64 && afterRealigned(fact.Rules) {
			rules := *fact.Rules
			rules.FP = cfi.Rule{Rule: cfi.RuleArchitectural}
			err = c.reader.Compare(pc, &readback.Fact{Rules: &rules, Signal: fact.Signal, KeyB: fact.KeyB}, found)
		}
		if err != nil {
			return false, err
		}
		c.agreed[k] = !varies
	}
	return covered, nil
}

// afterRealigned reports whether rules are those of GCC at the end of a function with a realigned stack: rbp has been
// restored, but CFI still says that it is saved where rbp points.
func afterRealigned(r *cfi.Rules) bool {
	return r.CFA.Rule == cfi.RuleCFA && r.FP.Rule == cfi.RuleExpression &&
		slices.Equal(r.FP.Expression, []byte{byte(op.DW_OP_breg6), 0})
}

// checkBetween checks the code between two functions; fact holds the last row of the first.
func (c *comparer) checkBetween(from, to uint64, fact *readback.Fact, number uint32, stub func(pc uint64) bool) error {
	const mostPadding = 64
	for pc := cmp.Or(from, min(to, c.boundaries[0])); pc < to; {
		end := c.rangeEnd(pc, to)
		_, covered, err := c.section.Lookup(pc)
		switch {
		case err != nil:
			return err
		case !covered:
		case stub != nil && stub(pc):
			c.Stubs += end - pc
		case pc != from || end-pc >= mostPadding:
			return fmt.Errorf("rows from %#x to %#x, where there is no CFI", pc, end)
		default:
			if _, err := c.check(pc, end, fact, number, false); err != nil {
				return err
			}
			c.Padding += end - pc
		}
		pc = end
	}
	return nil
}

// Stubs returns a function that reports whether a pc is in a PLT, where sections may have rows for code without CFI.
func Stubs(f *elffile.File) func(pc uint64) bool {
	var plts []elffile.Section
	for _, s := range f.Sections {
		if s.Alloc() && strings.Contains(s.Name, "plt") && elf.SectionFlag(s.Flags)&elf.SHF_EXECINSTR != 0 {
			plts = append(plts, s)
		}
	}
	return func(pc uint64) bool {
		return slices.ContainsFunc(plts, func(s elffile.Section) bool { return pc-s.Addr < s.Size })
	}
}
