package report_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
)

// TestDiffText checks the text for each kind of difference.
func TestDiffText(t *testing.T) {
	const head = `old: old.so: 98.08 % of the code is unwindable (99,064 of 101,000 bytes)
new: "new\x1b.so": 99.93 % of the code is unwindable (100,432 of 100,500 bytes)
  ABI: amd64, now aarch64
  format: V2, now V3
  start addresses: from the section, now from their own fields
  FDEs sorted by address: yes, now no
  bytes of .sframe: 20,000, now 1,234,567 (+1,214,567)
  FDEs: 1,200, now 1,100 (-100)
  rows: 5,000, now 5,001 (+1)
  functions described by CFI: 1,201, now 1,203 (+2)
  bytes of code described by CFI: 100,000, now 100,400 (+400)
  bytes of described code covered: 99,000, now 100,400 (+1,400)
  coverage: 99.00 %, now 100.00 %
  bytes of code without CFI covered: 64, now 32 (-32)
  not covered: 1,000 bytes, now 20 (gained 20, lost 1,000): stack realignment
  functions (matched by name): 1,195 with the same rows, 1 with the same rows at different offsets, 2 with ` +
		`different rows, 3 in the old file only, 1,000 in the new file only
`
	changes := []string{
		"    operator<(a&, b&) at 0x1010: the same 3 rows at different offsets, starting at +0x4\n",
		"    function at .text.g+0x8: 1 row, was 0; at +0x0 no caller, was nothing\n",
		"    h at 0x1030: 1 row, was 2; at +0x1 nothing, was CFA sp+8\n",
		"    gone at 0x1040: in the old file only, 1 row\n",
		"    \"\\x1b[2J\" at 0x1050: in the new file only, 2 rows\n",
	}
	const omitted = "  1,001 functions are not listed\n"
	for _, tt := range []struct {
		most int
		want string
	}{
		{-1, head + strings.Join(changes, "") + omitted},
		{5, head + strings.Join(changes, "") + omitted},
		{4, head + strings.Join(changes[:4], "") + "  and 1 more function (-v lists them)\n" + omitted},
		{0, head + "  and 5 more functions (-v lists them)\n" + omitted},
	} {
		var got bytes.Buffer
		if err := fullDiff().Text(&got, tt.most); err != nil || got.String() != tt.want {
			t.Errorf("%d changes at most: %v\n%s\nwant:\n%s", tt.most, err, &got, tt.want)
		}
	}
	side := report.DiffSide{File: "a", ABI: "amd64", Format: 2, Amounts: report.Amounts{Code: 20, Unwindable: 10}}
	const same = "a: 50.00 % of the code is unwindable (10 of 20 bytes)\n"
	for _, tt := range []struct {
		d    report.Diff
		want string
	}{
		{report.Diff{Same: true, SameCode: true, Functions: report.DiffFunctions{Same: 1}},
			"  no difference: 1 function with the same rows\n"},
		{
			report.Diff{SameCode: true, Functions: report.DiffFunctions{Same: 1000, Rows: 1}},
			"  functions (the code is the same): 1,000 with the same rows, 1 with different rows\n",
		},
		{
			report.Diff{SameCode: true, Functions: report.DiffFunctions{Rows: 1}, Omitted: 1,
				Gaps: []report.DiffGap{{Text: "words", Old: 1, Lost: 1}}},
			"  not covered: 1 byte, now 0 (gained 0, lost 1): words\n  functions (the code is the same): 0 with the " +
				"same rows, 1 with different rows\n  1 function is not listed\n",
		},
	} {
		tt.d.Old, tt.d.New = side, side
		var got bytes.Buffer
		if err := tt.d.Text(&got, -1); err != nil || got.String() != "old: "+same+"new: "+same+tt.want {
			t.Errorf("%v\n%s\nwant:\n%s", err, &got, tt.want)
		}
	}
}

// A fullWriter fails like a full disk once the given number of bytes has been written.
type fullWriter struct{ room int }

var errFull = errors.New("disk full")

func (w *fullWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.room)
	w.room -= n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

// TestWriteErrors expects reports in all formats to return a write error, wherever it occurs.
func TestWriteErrors(t *testing.T) {
	d, c := fullDiff(), fullCoverage()
	d.Changes = slices.Repeat(d.Changes, 50) // more than one write
	c.Gaps = slices.Repeat(c.Gaps, 50)
	same := &report.Diff{Same: true}
	kept := &report.Kept{Schema: report.Schema, File: "script", Kept: "not-elf", Why: "words"}
	for name, write := range map[string]func(io.Writer) error{
		"text of a difference":    func(w io.Writer) error { return d.Text(w, -1) },
		"text of no difference":   func(w io.Writer) error { return same.Text(w, -1) },
		"JSON of a difference":    func(w io.Writer) error { return report.WriteJSON(w, d) },
		"text":                    func(w io.Writer) error { return c.Text(w, -1) },
		"JSON":                    func(w io.Writer) error { return report.WriteJSON(w, c) },
		"JSON of a kept file":     func(w io.Writer) error { return report.WriteJSON(w, kept) },
		"HTML":                    func(w io.Writer) error { return report.HTML(w, []*report.Coverage{c}, nil, "") },
		"HTML of several reports": func(w io.Writer) error { return report.HTML(w, []*report.Coverage{c, c}, nil, "") },
	} {
		var whole bytes.Buffer
		if err := write(&whole); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		n := whole.Len()
		for _, room := range []int{0, 1, n / 2, n - 1} {
			if err := write(&fullWriter{room}); !errors.Is(err, errFull) {
				t.Errorf("%s, %d of %d bytes: %v", name, room, n, err)
			}
		}
		if err := write(&fullWriter{n}); err != nil {
			t.Errorf("%s, with room for all: %v", name, err)
		}
	}
}
