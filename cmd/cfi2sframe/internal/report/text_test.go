package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/amounts"
)

// TestTextWhole prints everything that a text report can contain.
func TestTextWhole(t *testing.T) {
	c := fullCoverage()
	c.File, c.DebugFile, c.FREs = "a\x1bprog", "prog\n.debug", 1000
	c.Sources = append(c.Sources, report.Source{Name: ".eh_frame", Size: 9, FDEs: 1})
	c.Reasons = append(c.Reasons, report.Reason{Name: "sp-rule", Text: "other words", Functions: 2, Ranges: 3,
		Bytes: 1000, Loss: true})
	c.Reasons = append(c.Reasons, report.Reason{Name: "ra-rule", Text: "more words", Functions: 1, Ranges: 1, Bytes: 2})
	c.Uncovered.Sections = append(c.Uncovered.Sections, coverage.UncoveredSection{Name: ".none"},
		coverage.UncoveredSection{Name: ".more\n", Bytes: 1000})
	c.Uncovered.Bytes = 1005
	c.Uncovered.Functions = append(c.Uncovered.Functions,
		coverage.UncoveredFunction{Begin: 0x2000, Size: 0x10, Bytes: 4})
	c.Uncovered.Omitted = 1
	c.Malformed = report.Malformed{Count: 5, Errors: []string{"first", "second\n"}}
	c.Omitted, c.Notes, c.Padding = 2, []string{"names", "lines"}, 7
	c.Gaps = append(c.Gaps,
		report.Gap{Begin: 0x1010, End: 0x1020, Offset: 0x10, Reason: "outermost", Text: "signal frame"},
		report.Gap{Function: "\x07", Begin: 0x1020, End: 0x1021, Reason: "outermost", Text: "malformed CFI",
			Rule: "instruction 0x3f"},
		report.Gap{Section: ".text.f", Begin: 4, End: 5, Offset: 4, Reason: "sp-rule", Text: "SP", Column: "SP",
			Rule: "u"},
	)
	const (
		head = `"a\x1bprog": 72.50 % of the code is unwindable (29 of 40 bytes)
  SFrame V2 covers 80.00 % of what CFI and instructions describe (24 of 30 bytes, 6 by instructions)
  warning: words
`
		short = `  not covered: 10 bytes in 1 range of 1 function: words
  not covered: 1,000 bytes in 3 ranges of 2 functions: other words
`
		long = short + `  covered without rows: 2 bytes in 1 range of 1 function: more words
`
		sections = "  2 bytes of start-up code of the C library\n" +
			"  1,005 bytes of code have no CFI\n    code-indirect: 8 bytes in 1 range\n"
		uncovered = "    .text: 5 bytes\n    \".more\\n\": 1,000 bytes\n" +
			`    .text+0x4-0xc g(): 8 bytes of 8 without CFI (code-indirect)
    0x2000-0x2010 function: 4 bytes of 16 without CFI
    and 1 more function
`
		stubs = `  3 bytes covered only in topmost frames, with registers other than SP and FP
  7 bytes covered only in topmost frames by linux and perf, with rules for RA or FP that name a register
  5 bytes of PLT stubs without CFI have rows
`
		padding = "  7 bytes of padding are covered by the last rows of functions\n"
		dropped = `  1 FDE of size 0
  2 FDEs of code that is not in the file
  3 FDEs truncated or dropped because of overlaps
`
		facts = `  50 bytes of code are at a different file offset than before: ` +
			`remove the old file from perf's cache (perf buildid-cache --remove FILE)
  amd64, from .debug_frame, .eh_frame of "prog\n.debug": 1 function, 1,000 rows, verified at every pc
  .sframe has 100 bytes, .eh_frame 200, .eh_frame_hdr 12
  merged by: GNU ld 2.46 and later, mold 3
  2 gaps are not listed
  not in this report: names
  not in this report: lines
`
	)
	gaps := []string{
		"    .text+0x1-0xb f()+0x1: words (CFA r10+0)\n",
		"    0x1010-0x1020 function at 0x1000+0x10: signal frame\n",
		"    0x1020-0x1021 \"\\a\"+0x0: malformed CFI (instruction 0x3f)\n",
		"    .text.f+0x4-0x5 function at .text.f+0x0+0x4: SP (SP u)\n",
	}
	malformed := func(n, more int) string {
		return strings.Join([]string{"  malformed CFI: first\n", "  malformed CFI: \"second\\n\"\n"}[:n],
			"") + fmt.Sprintf("  malformed CFI: %d more\n", more)
	}
	for _, tt := range []struct {
		gaps int
		want string
	}{
		{-1, head + long + sections + uncovered + stubs + padding + dropped + malformed(2, 3) + facts +
			strings.Join(gaps, "")},
		{2, head + short + sections + stubs + dropped + malformed(2, 3) + facts + gaps[0] + gaps[3]},
		{1, head + short + sections + stubs + dropped + malformed(1, 4) + facts + gaps[0] +
			"  and 1 more gap (-v lists them)\n"},
		{0, head + short + sections + stubs + dropped + malformed(0, 5) + facts +
			"  and 2 more gaps (-v lists them)\n"},
	} {
		var got bytes.Buffer
		if err := c.Text(&got, tt.gaps); err != nil || got.String() != tt.want {
			t.Errorf("%d gaps at most: %v\n%s\nwant:\n%s", tt.gaps, err, &got, tt.want)
		}
	}
}

// TestCauses lists the largest gaps in which stack traces lose frames, and code without CFI: by function, and by
// section if functions do not account for all of it.
func TestCauses(t *testing.T) {
	c := fullCoverage()
	c.Reasons = append(c.Reasons, report.Reason{Name: "outermost"})
	c.Gaps = append(c.Gaps, report.Gap{Begin: 0x100, End: 0x200, Reason: "outermost"})
	partly := &report.Coverage{File: "partly"}
	partly.Uncovered.Bytes = 7
	partly.Uncovered.Sections = []coverage.UncoveredSection{{Name: ".text", Bytes: 7}}
	partly.Uncovered.Functions = []coverage.UncoveredFunction{{Function: "f", Begin: 16, Size: 6, Bytes: 6}}
	stripped := &report.Coverage{File: "s\n"}
	stripped.Uncovered.Bytes, stripped.Uncovered.Startup = 9, 9
	stripped.Uncovered.Sections = []coverage.UncoveredSection{{Name: ".init", Startup: 9},
		{Name: ".text", Bytes: 9}}
	gap, function := "prog: .text+0x1-0xb f()+0x1: words (CFA r10+0)",
		"prog: .text+0x4-0xc g(): 8 bytes of 8 without CFI (code-indirect)"
	section := `"s\n": 9 bytes of code without CFI in .text`
	for _, tt := range []struct {
		n          int
		withoutCFI bool
		want       []string
	}{
		{9, false, []string{gap}},
		{9, true, []string{gap, section, function, "partly: 7 bytes of code without CFI in .text",
			"partly: 0x10-0x16 f: 6 bytes of 6 without CFI"}},
		{1, true, []string{gap}},
	} {
		if got := report.Causes([]*report.Coverage{c, stripped, partly}, tt.n, tt.withoutCFI); !slices.Equal(got,
			tt.want) {
			t.Errorf("%d, %t: %q; want %q", tt.n, tt.withoutCFI, got, tt.want)
		}
	}
}

// TestTextNothing expects no lines for empty items.
func TestTextNothing(t *testing.T) {
	c := &report.Coverage{File: "prog", ABI: "s390x", Format: 3, Functions: 2, FREs: 1,
		Amounts: amounts.Amounts{Described: 8, Covered: 8}}
	const want = `prog: 100.00 % of what CFI describes is covered
  SFrame V3 covers 100.00 % of what CFI describes (8 of 8 bytes)
  s390x: 2 functions, 1 row
  .sframe has 0 bytes
`
	var got bytes.Buffer
	if err := c.Text(&got, -1); err != nil || got.String() != want {
		t.Errorf("%v\n%s\nwant:\n%s", err, &got, want)
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
	c := fullCoverage()
	c.Gaps = slices.Repeat(c.Gaps, 50) // more than one write
	one := []*report.Coverage{c}
	kept := &report.Kept{Schema: report.Schema, File: "script", Kept: "not-elf", Why: "words"}
	for name, write := range map[string]func(io.Writer) error{
		"text":                    func(w io.Writer) error { return c.Text(w, -1) },
		"JSON":                    func(w io.Writer) error { return report.WriteJSON(w, c) },
		"JSON of a kept file":     func(w io.Writer) error { return report.WriteJSON(w, kept) },
		"HTML":                    func(w io.Writer) error { return report.HTML(w, one, nil, nil, "") },
		"HTML of several reports": func(w io.Writer) error { return report.HTML(w, append(one, c), nil, nil, "") },
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
