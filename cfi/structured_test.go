package cfi_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
)

// FuzzStructured makes files whose meaning is known of the bytes, and expects the rows that they were made to have. The
// last byte says what is damaged then: that costs an error at most, which names the place.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(generate.Seeded(seed, 200+int(seed)), uint64(0))
		f.Add(generate.Seeded(seed, 300), generate.Damage(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte, damage uint64) {
		file := generate.NewFile(generate.From(choices))
		if damage != 0 {
			damaged(t, file, damage)
			return
		}
		x := must.Get(elffile.New(bytes.NewReader(file.Bytes), int64(len(file.Bytes))))(t)
		table := must.Get(cfi.Load(x, cfi.Auto, nil))(t)
		if table.NumErrors > 0 {
			t.Fatalf("%v are reported of a file without mistakes", table.Errors)
		}
		if err := same(table, file.Rows()); err != nil {
			for _, c := range []*generate.CFI{file.CFI, file.Debug} {
				if c != nil {
					t.Logf("debug %t, %v\n%+v\n%+v", c.Debug, c.Code, c.CIEs, c.FDEs)
				}
			}
			t.Fatal(err)
		}
	})
}

// same compares a table with rows that are known.
func same(table *cfi.Table, want []generate.Row) error {
	next := 0 // of want, those whose code was looked at
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
					return fmt.Errorf("the function %#x-%#x has a row at %#x, which was not expected there", fn.Begin,
						fn.End, at)
				}
				w := &want[next]
				if w.End > r.End {
					return fmt.Errorf("the row %#x-%#x ends before %#x", r.Begin, r.End, w.End)
				}
				switch {
				case (w.Rules == nil) != (r.Rules == nil):
					return fmt.Errorf("function at %#x: error %v; a broken one: %t", fn.Begin, fn.Err(), w.Rules == nil)
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
		return fmt.Errorf("nothing is said of the code at %#x", want[next].Begin)
	}
	return nil
}

// equal reports whether rules say the same. Of an expression, the offset does not matter.
func equal(a, b *cfi.Rules) bool {
	x, y := a.CFA, b.CFA
	if x.Rule == cfi.RuleExpression {
		x.Offset, y.Offset = 0, 0
	}
	return cfi.SameRule(&x, &y) && cfi.SameRule(&a.RA, &b.RA) && cfi.SameRule(&a.FP, &b.FP) &&
		cfi.SameRule(&a.SP, &b.SP) &&
		a.RAReg == b.RAReg && a.Sign == b.Sign
}

// damaged changes some bytes of a file. What is read of it then is in order, and what is not has a reason that says
// where.
func damaged(t *testing.T, file *generate.File, damage uint64) {
	b := generate.Damaged(file.Bytes, damage)
	x, err := elffile.New(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		placed(t, err)
		return
	}
	table, err := cfi.Load(x, cfi.Auto, nil)
	if err != nil {
		if !errors.Is(err, cfi.ErrNone) && !strings.Contains(err.Error(), "SFrame is defined for") {
			placed(t, err)
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
	ordered(t, table)
	for fn := range table.Functions() {
		if fn.Err() != nil && !strings.Contains(fn.Err().Error(), fn.Section()+"+0x") {
			t.Errorf("error %v of a function of %s", fn.Err(), fn.Section())
		}
	}
}

// placed expects an error to say where something is wrong.
func placed(t *testing.T, err error) {
	t.Helper()
	var e *elffile.Error
	var c *cfi.Error
	if !errors.As(err, &e) && !errors.As(err, &c) && !strings.Contains(err.Error(), "file offset") {
		t.Errorf("error %q does not say where", err)
	}
}
