package cfi_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
)

// FuzzStructured generates files with known rows, and compares these with the decoded rows. If damage is not 0, some
// bytes are overwritten first: rows may then be wrong or missing, but errors must include their location.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(choice.Seeded(seed, 200+int(seed)), uint64(0))
		f.Add(choice.Seeded(seed, 300), generate.Damage(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte, damage uint64) {
		file := generate.NewFile(choice.From(choices))
		if damage != 0 {
			checkDamaged(t, file, damage)
			return
		}
		x := must.Get(elffile.New(bytes.NewReader(file.Bytes), int64(len(file.Bytes))))(t)
		table := must.Get(cfi.Load(x, cfi.Auto, nil))(t)
		if table.NumErrors > 0 {
			t.Fatalf("errors for a valid file: %v", table.Errors)
		}
		if err := compareRows(table, file.Rows()); err != nil {
			for _, c := range []*generate.CFI{file.CFI, file.Debug} {
				if c != nil {
					t.Logf("debug %t, %v\n%+v\n%+v", c.Debug, c.Code, c.CIEs, c.FDEs)
				}
			}
			t.Fatal(err)
		}
	})
}

// compareRows compares the rows of a table with the expected rows.
func compareRows(table *cfi.Table, want []generate.Row) error {
	next := 0 // index of the first expected row not yet compared
	for fn := range table.Functions() {
		rows := []cfi.Row{{Begin: fn.Begin, End: fn.End}}
		if fn.Err() == nil {
			rows = rows[:0]
			for r := range fn.Rows() {
				rows = append(rows, r)
			}
		}
		for _, r := range rows {
			for at := r.Begin; at < r.End; {
				if next == len(want) || want[next].Begin != at {
					return fmt.Errorf("function %#x-%#x has an unexpected row at %#x", fn.Begin, fn.End, at)
				}
				w := &want[next]
				if w.End > r.End {
					return fmt.Errorf("the row %#x-%#x ends before %#x", r.Begin, r.End, w.End)
				}
				switch {
				case (w.Rules == nil) != (r.Rules == nil):
					return fmt.Errorf("function at %#x: error %v; malformed: %t", fn.Begin, fn.Err(), w.Rules == nil)
				case w.Signal != fn.Signal() || w.KeyB != fn.KeyB():
					return fmt.Errorf("function at %#x: signal frame %t, key B %t; want %t and %t", fn.Begin,
						fn.Signal(), fn.KeyB(), w.Signal, w.KeyB)
				case r.Rules != nil && !equal(r.Rules, w.Rules):
					return fmt.Errorf("at %#x: rules %+v; want %+v", at, *r.Rules, *w.Rules)
				}
				at = w.End
				next++
			}
		}
	}
	if next < len(want) {
		return fmt.Errorf("no function at %#x", want[next].Begin)
	}
	return nil
}

// equal reports whether rules are equivalent. The offset of an expression is ignored.
func equal(a, b *cfi.Rules) bool {
	x, y := a.CFA, b.CFA
	if x.Rule == cfi.RuleExpression {
		x.Offset, y.Offset = 0, 0
	}
	return cfi.SameRule(&x, &y) && cfi.SameRule(&a.RA, &b.RA) && cfi.SameRule(&a.FP, &b.FP) &&
		cfi.SameRule(&a.SP, &b.SP) && a.RAReg == b.RAReg && a.Sign == b.Sign
}

// checkDamaged overwrites some bytes of a file. The decoded rows must be in order, and errors must include their
// location.
func checkDamaged(t *testing.T, file *generate.File, damage uint64) {
	b := generate.Damaged(file.Bytes, damage)
	x, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		checkLocation(t, err)
		return
	}
	table, err := cfi.Load(x, cfi.Auto, nil)
	if err != nil {
		if !errors.Is(err, cfi.ErrNone) && !strings.Contains(err.Error(), "SFrame is defined for") {
			checkLocation(t, err)
		}
		return
	}
	for _, e := range table.Errors {
		size := uint64(0)
		for _, s := range table.Sources {
			if s.Name == e.Section {
				size = max(size, s.Size)
			}
		}
		if e.Section == "" || e.Off > size && !strings.Contains(e.Msg, "past the end") || e.Msg == "" {
			t.Errorf("error %+v of a section of %d bytes", e, size)
		}
	}
	checkOrder(t, table)
	for fn := range table.Functions() {
		if fn.Err() != nil && !strings.Contains(fn.Err().Error(), fn.Section()+"+0x") {
			t.Errorf("error %v of a function of %s", fn.Err(), fn.Section())
		}
	}
}

// checkLocation checks that an error includes its location.
func checkLocation(t *testing.T, err error) {
	t.Helper()
	var e *elffile.Error
	var c *cfi.Error
	if !errors.As(err, &e) && !errors.As(err, &c) && !strings.Contains(err.Error(), "file offset") {
		t.Errorf("error %q has no location", err)
	}
}

// checkOrder checks that functions and their rows are in ascending order, and that rows cover valid functions
// completely.
func checkOrder(t *testing.T, table *cfi.Table) {
	t.Helper()
	end := uint64(0)
	for fn := range table.Functions() {
		if fn.Begin < end || fn.End <= fn.Begin {
			t.Fatalf("function %#x-%#x after one that ends at %#x", fn.Begin, fn.End, end)
		}
		end = fn.End
		at := fn.Begin
		for r := range fn.Rows() {
			if r.Begin != at || r.End <= at || r.End > fn.End {
				t.Fatalf("row %#x-%#x of function %#x-%#x", r.Begin, r.End, fn.Begin, fn.End)
			}
			at = r.End
		}
		if fn.Err() == nil && at != fn.End {
			t.Fatalf("rows of the function %#x-%#x end at %#x", fn.Begin, fn.End, at)
		}
	}
}
