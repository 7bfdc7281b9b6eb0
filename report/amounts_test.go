package report

import (
	"slices"
	"strings"
	"testing"
)

// TestSparse expects a warning if more than 5 % of the code has no CFI. Sums have other shares than their files.
func TestSparse(t *testing.T) {
	file := func(code, bytes, padding uint64, others ...string) *Coverage {
		c := &Coverage{Amounts: Amounts{Code: code}, Uncovered: Uncovered{Bytes: bytes, Padding: padding}}
		if w := c.sparse(); w != "" {
			c.Warnings = append(c.Warnings, w)
		}
		c.Warnings = append(c.Warnings, others...)
		return c
	}
	const advice = " of the code has no CFI: build with -fasynchronous-unwind-tables, or use --debug-file"
	for _, tt := range []struct {
		c    *Coverage
		want []string
	}{
		{file(100, 5, 0), nil},
		{file(100, 15, 10), nil},
		{file(100, 6, 0), []string{"6.00 %" + advice}},
		{file(0, 6, 0), nil}, // code was not counted
		{Sum("", []*Coverage{file(100, 50, 0, "words"), file(100, 10, 0, "words")}),
			[]string{"words", "30.00 %" + advice}},
		{Sum("", []*Coverage{file(100, 50, 0), file(900, 0, 0)}), nil},
	} {
		if !slices.Equal(tt.c.Warnings, tt.want) {
			t.Errorf("%d of %d bytes: %q; want %q", tt.c.WithoutCFI(), tt.c.Code, tt.c.Warnings, tt.want)
		}
	}
}

// TestAmounts has all, nothing, and rows for more than code.
func TestAmounts(t *testing.T) {
	for _, tt := range []struct {
		code uint64
		a    Amounts
		want string
	}{
		{100, Amounts{Described: 80, Covered: 70, Outermost: 5, PLT: 10},
			"85.00 % of the code is unwindable (85 of 100 bytes)"},
		{100_000, Amounts{Described: 100_000, Covered: 99_999},
			"99.99 % of the code is unwindable (99,999 of 100,000 bytes)"},
		{1, Amounts{Covered: 1, PLT: 7}, "100.00 % of the code is unwindable (1 of 1 byte)"},
		{0, Amounts{Described: 4, Covered: 1}, "25.00 % of what CFI describes is covered"},
	} {
		a := NewAmounts(tt.code, tt.a)
		if got := a.String(); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.a, got, tt.want)
		}
	}
}

// TestWrap breaks lines at words, and never in them.
func TestWrap(t *testing.T) {
	long := strings.Repeat("x", 90)
	for text, want := range map[string]string{
		"":                               "  ",
		"a b":                            "  a b",
		long + " b":                      "  " + long + "\n    b",
		strings.Repeat("x", 76) + " y z": "  " + strings.Repeat("x", 76) + " y\n    z",
		strings.Repeat("ä", 77) + " y":   "  " + strings.Repeat("ä", 77) + "\n    y",
	} {
		if got := wrap(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}
