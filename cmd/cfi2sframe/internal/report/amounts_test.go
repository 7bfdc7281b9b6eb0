package report

import (
	"slices"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/internal/amounts"
)

// TestSparse expects a warning if more than 5 % of the code has no CFI. The warning for several files must depend on
// their total.
func TestSparse(t *testing.T) {
	file := func(code, bytes, padding, startup uint64, others ...string) *Coverage {
		c := &Coverage{Amounts: amounts.Amounts{Code: code}, Uncovered: coverage.Uncovered{
			Bytes: bytes - padding - startup, Padding: padding, Startup: startup}}
		if w := c.withoutCFIWarning(false); w != "" {
			c.Warnings = append(c.Warnings, w)
		}
		c.Warnings = append(c.Warnings, others...)
		return c
	}
	const advice = " of the code has no CFI: build with -fasynchronous-unwind-tables, write .cfi directives in " +
		"assembly, or use --debug-file"
	for _, tt := range []struct {
		c    *Coverage
		want []string
	}{
		{file(10_000, 500, 0, 0), nil},
		{file(10_000, 1500, 1000, 0), nil},
		{file(10_000, 600, 0, 0), []string{"6.00 %" + advice}},
		{file(256, 256, 0, 0), []string{"100.00 %" + advice}},
		{file(255, 255, 0, 0), nil}, // too few bytes
		{file(0, 600, 0, 0), nil},   // code was not counted
		{file(1000, 900, 100, 750), nil},
		{Sum("", []*Coverage{file(10_000, 5000, 0, 0, "words"), file(10_000, 1000, 0, 0, "words")}),
			[]string{"words", "30.00 %" + advice}},
		{Sum("", []*Coverage{file(10_000, 5000, 0, 0), file(90_000, 0, 0, 0)}), nil},
	} {
		if !slices.Equal(tt.c.Warnings, tt.want) {
			t.Errorf("%d of %d bytes: %q; want %q", tt.c.Uncovered.Bytes, tt.c.Code, tt.c.Warnings, tt.want)
		}
	}
}

// TestInferable expects the warning if more than 1 % of the code has no CFI, with a hint to use --infer unless it was
// used.
func TestInferable(t *testing.T) {
	const advice = " of the code has no CFI: use --infer to derive rows from its instructions, build with " +
		"-fasynchronous-unwind-tables, write .cfi directives in assembly, or use --debug-file"
	const otherwise = " of the code has no CFI: build with -fasynchronous-unwind-tables, write .cfi directives in " +
		"assembly, or use --debug-file"
	refused := []coverage.RefusedCode{{Reason: "code-indirect", Ranges: 1, Bytes: 6000}}
	for _, tt := range []struct {
		bytes, inferred uint64
		refused         []coverage.RefusedCode
		want            string
	}{
		{1000, 0, nil, ""},
		{1001, 0, nil, "1.00 %" + advice},
		{6000, 0, nil, "6.00 %" + advice},
		{6000, 1, nil, "6.00 %" + otherwise},
		{6000, 0, refused, "6.00 %" + otherwise},
		{4000, 0, refused, ""},
	} {
		c := &Coverage{
			Amounts:   amounts.Amounts{Code: 100_000, Inferred: tt.inferred},
			Uncovered: coverage.Uncovered{Bytes: tt.bytes, Refused: tt.refused},
		}
		if got := c.withoutCFIWarning(true); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// TestOfCFI expects bytes whose rows are inferred from instructions to be printed separately.
func TestOfCFI(t *testing.T) {
	for a, want := range map[amounts.Amounts]string{
		{Described: 4000, Covered: 1000}: "SFrame V3 covers 25.00 % of what CFI describes (1,000 of 4,000 bytes)",
		{Described: 4000, Covered: 3000, Inferred: 2500}: "SFrame V3 covers 75.00 % of what CFI and instructions " +
			"describe (3,000 of 4,000 bytes, 2,500 by instructions)",
	} {
		if got := OfCFI(&a, 3); got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

// TestAmounts tests full coverage, files without code, and rows for more bytes than the code has.
func TestAmounts(t *testing.T) {
	for _, tt := range []struct {
		code uint64
		a    amounts.Amounts
		want string
	}{
		{100, amounts.Amounts{Described: 80, Covered: 75, Outermost: 5, PLT: 10},
			"85.00 % of the code is unwindable (85 of 100 bytes)"},
		{100_000, amounts.Amounts{Described: 100_000, Covered: 99_999},
			"99.99 % of the code is unwindable (99,999 of 100,000 bytes)"},
		{1, amounts.Amounts{Covered: 1, PLT: 7}, "100.00 % of the code is unwindable (1 of 1 byte)"},
		{0, amounts.Amounts{Described: 4, Covered: 1}, "25.00 % of what CFI describes is covered"},
	} {
		a := tt.a
		a.SetCode(tt.code)
		if got := Headline(&a); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.a, got, tt.want)
		}
	}
}

// TestNumbers checks the formats of numbers, shares and names. Shares are rounded down, so only the whole is 100 %.
func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		Digits(0): "0", Digits(999): "999", Digits(1000): "1,000", Digits(1234567): "1,234,567",
		Share(0, 0): "100.00 %", Share(1, 1): "100.00 %", Share(999_999, 1_000_000): "99.99 %", Share(1, 3): "33.33 %",
		Printable("name"): "name", Printable("\x1b[2J"): `"\x1b[2J"`,
	} {
		if got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
