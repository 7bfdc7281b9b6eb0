package cfi

import (
	"fmt"
	"iter"
	"math"
	"sort"
)

// A Row says how to find the caller's frame at the addresses from Begin to End.
type Row struct {
	Begin, End uint64 // addresses, End excluded
	// Number is that of the Rules: rows of a Table with the same number say the same, unless an
	// expression reads the pc. It is below Table.NumRules.
	Number uint32
	*Rules // which must not be changed
}

// Rows yields the function's rows, by address. They tile its range, and none says what the one before
// it does. A function whose instructions are malformed has none, and Err says why.
func (fn *Function) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		x := fn.cie.sec.programs
		steps, start := x.of(fn), fn.whole().begin
		front, size := fn.Begin-start, fn.End-start // what others left of it, from its start
		if front > 0 {
			i := sort.Search(len(steps), func(i int) bool { return uint64(steps[i].Off) > front })
			steps = steps[max(i, 1)-1:]
		}
		for i := range steps {
			off, next := max(uint64(steps[i].Off), front), size
			if off >= size {
				return
			}
			if i+1 < len(steps) {
				next = min(next, uint64(steps[i+1].Off))
			}
			n := steps[i].Number
			if !yield(Row{start + off, start + next, n, &x.rules[n]}) {
				return
			}
		}
	}
}

// Steps returns the rows of a function that has a Program, including those that begin after its end. The first one
// begins with the function. Callers must not change them. A function whose instructions are malformed has none.
func (fn *Function) Steps() []Step { return fn.cie.sec.programs.of(fn) }

// NumRows returns the number of rows of the function's instructions, including those that begin after its end.
func (fn *Function) NumRows() int { return len(fn.cie.sec.programs.of(fn)) }

// Err returns what is wrong with the function's instructions, or nil: an *Error.
func (fn *Function) Err() error {
	e := fn.cie.sec.programs.errs[fn.number()]
	if e != nil {
		return &Error{e.Section, e.Off + uint64(fn.code), e.Msg}
	}
	if whole := fn.whole(); whole.end-whole.begin > math.MaxUint32 {
		const msg = "FDE of %d bytes of code; less than 4 GiB is supported"
		return &Error{fn.Section(), fn.Offset(), fmt.Sprintf(msg, whole.end-whole.begin)}
	}
	return nil
}

// MinSize returns the size in bytes from which on another function with the same Program has the same
// rows, as far from its start: only the last row ends where the function does. It is 0 if no other
// function has the same rows.
func (fn *Function) MinSize() uint64 {
	steps := fn.cie.sec.programs.of(fn)
	if len(steps) == 0 {
		return 0
	}
	return uint64(steps[len(steps)-1].Off) + 1
}

// Len returns the number of functions.
func (t *Table) Len() int { return len(t.functions) }

// At returns the i-th function by address.
func (t *Table) At(i int) *Function { return &t.functions[i] }

// Functions yields the functions by address. They do not overlap.
func (t *Table) Functions() iter.Seq[*Function] {
	return func(yield func(*Function) bool) {
		for i := range t.functions {
			if !yield(&t.functions[i]) {
				return
			}
		}
	}
}

// Find returns the function that describes pc, or nil.
func (t *Table) Find(pc uint64) *Function {
	i := sort.Search(len(t.functions), func(i int) bool { return t.functions[i].End > pc })
	if i == len(t.functions) || t.functions[i].Begin > pc {
		return nil
	}
	return &t.functions[i]
}

// Lookup returns the row that holds for pc, and whether there is one.
func (t *Table) Lookup(pc uint64) (Row, bool) {
	if fn := t.Find(pc); fn != nil {
		for row := range fn.Rows() {
			if pc < row.End {
				return row, true
			}
		}
	}
	return Row{}, false
}

// NumRules returns how many different rules the rows of the file have.
func (t *Table) NumRules() int { return len(t.programs.rules) }

// Rules returns the rules with the given number, which must not be changed.
func (t *Table) Rules(n uint32) *Rules { return &t.programs.rules[n] }

// NumPrograms returns how many different instructions the functions of the file execute; see
// Function.Program.
func (t *Table) NumPrograms() int { return len(t.programs.all) }

// NumSteps returns how many rows these make: the sum of the Steps of all different programs of the file.
func (t *Table) NumSteps() int { return t.programs.made }
