package cfi

import (
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNumbering checks that rows of a table have the same number if and only if they have the same rules: within a
// function, across functions, across CIEs that encode the rules differently, and across both sections. A function's
// rows must not depend on the functions executed before it.
func TestNumbering(t *testing.T) {
	for _, tt := range []struct {
		target
		sp, fp, ra byte
	}{{amd64, 7, 6, 16}, {aarch64, 31, 29, 30}, {s390x, 15, 11, 14}} {
		testNumbering(t, tt.target, tt.sp, tt.fp, tt.ra)
	}
}

func testNumbering(t *testing.T, tg target, sp, fp, ra byte) {
	r := rand.New(rand.NewPCG(3, 4))
	// Instructions that have the same effect or differ in one field.
	codes := [][]byte{
		{0x0e, 16}, {0x0c, sp, 16}, {0x12, sp, 0x7e}, {0x13, 0x7e}, {0x0c, fp, 16}, {0x0d, fp}, {0x0e, 8}, {0x0e, 24},
		{0x0e, 0x90, 0}, {0x0e, 0x90, 1}, {0x0e, 0x90, 0x81, 1}, {0x0e, 0x90, 0x81, 2}, {0x0c, sp, 0x90, 1},
		{0x0c, sp, 0x90, 2}, {0x0c, sp, 0x90, 0x81, 1}, {0x80 | fp, 0x82, 1}, {0x80 | fp, 0x82, 2}, {0x2f, fp, 0x82, 1},
		{0x2f, fp, 0x82, 2}, {0x2f, fp, 0x82, 0x81, 1}, {0x2f, fp, 0x82, 0x81, 2},
		{0x80 | fp, 2}, {0x05, fp, 2}, {0x11, fp, 2}, {0x2f, fp, 2}, {0x80 | fp, 3}, {0x14, fp, 2}, {0x15, fp, 2},
		{0x09, fp, 2}, {0x09, fp, 3}, {0x07, fp}, {0x08, fp}, {0xc0 | fp}, {0x06, fp},
		{0x14, sp, 2}, {0x80 | sp, 2}, {0x08, sp}, {0x07, ra}, {0x80 | ra, 2}, {0x09, ra, 2}, {0xc0 | ra},
		{0x0a, 0x07, ra, 0x0b},
		{0x0f, 2, 0x77, 8}, {0x0f, 2, 0x77, 16}, {0x0f, 3, 0x77, 8, 0x96}, {0x0f, 0}, {0x10, fp, 2, 0x77, 8},
		{0x16, fp, 2, 0x77, 8}, {0x10, fp, 0}, {0x16, sp, 2, 0x77, 8}, {0x16, ra, 2, 0x77, 8},
	}
	if tg.machine == elf.EM_AARCH64 {
		codes = append(codes, []byte{0x2d}, []byte{0x2c}, []byte{0x07, 34}, []byte{0xc0 | 34})
	}
	cies := [][]byte{
		{1, 0, 1, 0x78, ra, 0x0c, sp, 8, 0x80 | ra, 1},
		{1, 0, 1, 0x78, ra, 0x0c, sp, 8, 0x80 | ra, 1},        // identical, at a different offset
		{1, 0, 1, 0x78, ra, 0x12, sp, 0x7f, 0x11, ra, 1},      // the same rules, encoded differently
		{1, 0, 1, 0x78, fp, 0x0c, sp, 8, 0x80 | fp, 1},        // different return address column
		{3, 0, 1, 0x7c, ra, 0x0c, sp, 8, 0x80 | ra, 2},        // different data alignment
		{1, 0, 1, 0x78, ra, 0x0c, sp, 8},                      // no rule for the return address
		{1, 0, 1, 0x78, 40, 0x0c, sp, 8},                      // the same, with a different column
		{1, 0, 2, 0x78, ra, 0x0c, sp, 8, 0x80 | ra, 1},        // different code alignment
		{1, 0, 1, 0x78, ra, 0x0c, sp, 8, 0x80 | ra, 1, 7, fp}, // more rules
	}
	eh, debug := ehFrame(tg), debugFrame(tg)
	start := uint64(textAddr)
	var alone []*Table
	for _, w := range []*writer{eh, debug} {
		var at []int
		for _, c := range cies {
			at = append(at, w.Shared(c))
		}
		for range 400 {
			var code []byte
			for range 1 + r.IntN(6) {
				code = append(append(code, 0x41), codes[r.IntN(len(codes))]...)
				if r.IntN(2) > 0 {
					code = append(code, codes[r.IntN(len(codes))]...)
				}
			}
			i := r.IntN(len(cies))
			// The cached instructions are followed by padding of different lengths.
			w.Entry(at[i], w.Addresses(start, 0x10), code, make([]byte, r.IntN(10)))
			one := ehFrame(tg)
			one.Entry(one.Shared(cies[i]), one.Addresses(start, 0x10), code)
			alone = append(alone, parse(t, one))
			start += 0x10
		}
	}
	table, err := Parse(tg.machine, tg.order, Section{Source: EHFrame, Data: eh.B, Addr: frameAddr},
		Section{Source: DebugFrame, Data: debug.B})
	if err != nil || table.NumErrors > 0 || table.Len() != len(alone) {
		t.Fatalf("%v: %d functions, errors %v %v", tg.machine, table.Len(), table.Errors, err)
	}
	numbers := make(map[string]uint32)
	words := make(map[uint32]string)
	rows := 0
	for i := range table.Len() {
		fn := table.At(i)
		last := ""
		var got, want []string
		for row := range alone[i].At(0).Rows() {
			want = append(want, fmt.Sprintf("%#x-%#x %#v", row.Begin, row.End, *row.Rules))
		}
		for row := range fn.Rows() {
			rows++
			w := fmt.Sprintf("%#v", *row.Rules)
			got = append(got, fmt.Sprintf("%#x-%#x %s", row.Begin, row.End, w))
			if n, ok := numbers[w]; ok && n != row.Number {
				t.Fatalf("%s has numbers %d and %d", w, n, row.Number)
			}
			if was, ok := words[row.Number]; ok && was != w {
				t.Fatalf("number %d is %s and %s", row.Number, was, w)
			}
			numbers[w], words[row.Number] = row.Number, w
			if int(row.Number) >= table.NumRules() || table.Rules(row.Number) != row.Rules {
				t.Fatalf("number %d of %d", row.Number, table.NumRules())
			}
			if w == last {
				t.Fatalf("function at %#x says %s twice", fn.Begin, w)
			}
			last = w
		}
		if fn.Err() != nil || !slices.Equal(got, want) {
			t.Fatalf("%v: function at %#x: rows %q, error %v, alone %q", tg.machine, fn.Begin, got, fn.Err(), want)
		}
	}
	// The test must compare hundreds of distinct rules.
	if len(numbers) < 200 || rows < 2*len(numbers) {
		t.Errorf("%v: %d rows with %d distinct rules", tg.machine, rows, len(numbers))
	}
}

// TestSameRule compares rules that differ in one field.
func TestSameRule(t *testing.T) {
	base := Rule{Rule: RuleExpression, Reg: 1, Offset: 2, Expression: []byte{3}}
	same := base
	same.Expression = slices.Clone(base.Expression)
	if !SameRule(&base, &same) {
		t.Error("equal rules are not the same")
	}
	for i, change := range []func(*Rule){
		func(r *Rule) { r.Rule = RuleValExpression }, func(r *Rule) { r.Reg = 2 }, func(r *Rule) { r.Offset = 3 },
		func(r *Rule) { r.Expression = []byte{4} }, func(r *Rule) { r.Expression = nil },
	} {
		other := same
		if change(&other); SameRule(&base, &other) {
			t.Errorf("change %d: %+v is the same as %+v", i, other, base)
		}
	}
}
