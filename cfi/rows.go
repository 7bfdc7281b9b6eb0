package cfi

import (
	"fmt"
	"iter"
	"math"
	"sort"

	"cfi2sframe/internal/arch"
)

// A Row describes the caller's frame for addresses from Begin to End-1.
type Row struct {
	Begin, End uint64 // addresses; End is exclusive
	// Number is the number of the Rules, below Table.NumRules. Rows of a Table with the same number are equivalent,
	// unless an expression reads the pc.
	Number uint32
	*Rules // must not be modified
}

// Rows returns an iterator over the function's rows in address order. They cover the function without gaps, and
// adjacent rows differ. A function with malformed instructions, or a Disputed one, has no rows; see Err.
func (fn *Function) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		x := fn.cie.sec.programs
		steps, start := x.stepsOf(fn), fn.fdeRange().Begin
		front, size := fn.Begin-start, fn.End-start // the function's part of the FDE's range, relative to its start
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

// Steps returns the rows of the function's program, including rows that start after the end of the function. Callers
// must not modify them. If the instructions are malformed or the function is Disputed, the result is empty.
func (fn *Function) Steps() []Step { return fn.cie.sec.programs.stepsOf(fn) }

// Err returns an *Error if the instructions are malformed, the FDE's range is too large or the function is Disputed,
// and nil otherwise.
func (fn *Function) Err() error {
	if fn.Disputed() {
		return &Error{fn.Section(), fn.Offset(), "another FDE has different rows for the same code"}
	}
	e := fn.cie.sec.programs.errs[fn.number()]
	if e != nil {
		return &Error{e.Section, e.Off + uint64(fn.code), e.Msg}
	}
	if whole := fn.fdeRange(); whole.End-whole.Begin > math.MaxUint32 {
		const msg = "FDE covers %d bytes of code; at most 4 GiB - 1 are supported"
		return &Error{fn.Section(), fn.Offset(), fmt.Sprintf(msg, whole.End-whole.Begin)}
	}
	return nil
}

// Len returns the number of functions.
func (t *Table) Len() int { return len(t.functions) }

// At returns the i-th function in address order.
func (t *Table) At(i int) *Function { return &t.functions[i] }

// Shadowed returns the functions whose code, or a part of it, belongs to another FDE of the same source that starts
// first. They have the full ranges of their FDEs.
func (t *Table) Shadowed() []Function { return t.shadowed }

// Functions returns an iterator over the functions in address order. They do not overlap.
func (t *Table) Functions() iter.Seq[*Function] {
	return func(yield func(*Function) bool) {
		for i := range t.functions {
			if !yield(&t.functions[i]) {
				return
			}
		}
	}
}

// Find returns the function that covers pc, or nil.
func (t *Table) Find(pc uint64) *Function {
	i := sort.Search(len(t.functions), func(i int) bool { return t.functions[i].End > pc })
	if i == len(t.functions) || t.functions[i].Begin > pc {
		return nil
	}
	return &t.functions[i]
}

// Lookup returns the row for pc, and whether there is one.
func (t *Table) Lookup(pc uint64) (Row, bool) {
	fn := t.Find(pc)
	if fn == nil {
		return Row{}, false
	}
	x, start := fn.cie.sec.programs, fn.fdeRange().Begin
	steps := x.stepsOf(fn)
	i := sort.Search(len(steps), func(i int) bool { return uint64(steps[i].Off) > pc-start }) - 1
	if i < 0 {
		return Row{}, false
	}
	row := Row{max(start+uint64(steps[i].Off), fn.Begin), fn.End, steps[i].Number, &x.rules[steps[i].Number]}
	if i+1 < len(steps) {
		row.End = min(row.End, start+uint64(steps[i+1].Off))
	}
	return row, true
}

// NumRules returns the number of distinct rules in the file.
func (t *Table) NumRules() int { return len(t.programs.rules) }

// Rules returns the rules with the given number. Callers must not modify them.
func (t *Table) Rules(n uint32) *Rules { return &t.programs.rules[n] }

// Text is like Rules.String, but with the names of the machine's registers: "CFA rbp+16, RA c-8, FP c-16, SP none".
func (t *Table) Text(r *Rules) string { return r.text(arch.Of(t.Machine).Register) }

// NumPrograms returns the number of distinct programs in the file; see Function.Program.
func (t *Table) NumPrograms() int { return len(t.programs.all) }
