package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/translate"
)

// page returns the HTML report on the files.
func page(t *testing.T, files ...*report.Coverage) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, report.HTML(&b, files, nil, nil, "some <tool>"))
	return b.String()
}

// pageRows returns the rows of a page's table.
func pageRows(t *testing.T, page, table string) [][]string {
	t.Helper()
	_, rest, _ := strings.Cut(page, `<script type="application/json" id="data">`)
	text, _, ok := strings.Cut(rest, "</script>")
	var data struct{ Tables map[string][][]string }
	if err := json.Unmarshal([]byte(text), &data); err != nil || !ok {
		t.Fatalf("no data: %v", err)
	}
	return data.Tables[table]
}

// TestHTMLEscapes expects hostile names to add neither elements nor control characters to the page.
func TestHTMLEscapes(t *testing.T) {
	for _, files := range [][]*report.Coverage{{evilCoverage()}, {evilCoverage(), evilCoverage()}} {
		s := page(t, files...)
		for what, want := range map[string]int{"<script": 2, "</script": 2, "<title>": 1, "<style": 1, "<img": 0,
			"<!--": 0, "\u2028": 0, "\u202e": 0, "\x1b": 0, "\x00": 0} {
			if n := strings.Count(s, what); n != want {
				t.Errorf("%d files: %q occurs %d times; want %d", len(files), what, n, want)
			}
		}
		rows := pageRows(t, s, "gaps")
		if len(rows) != len(files)*len(evil) || rows[0][1] != evil[0] || rows[4][1] != `"a\u2028b\u2029c"` {
			t.Errorf("rows %q", rows)
		}
	}
}

// TestHTMLAlone expects a self-contained page, without inline styles or event handlers.
func TestHTMLAlone(t *testing.T) {
	s := page(t, fullCoverage())
	for _, re := range []string{`https?:`, `\bsrc=`, `<link`, `@import`, `url\([^#]`, ` style=`, ` on[a-z]+=`} {
		if at := regexp.MustCompile(re).FindStringIndex(s); at != nil {
			t.Errorf("%s: %.80q", re, s[at[0]:])
		}
	}
	if !strings.HasPrefix(s, "<!DOCTYPE html>\n<html lang=\"en\">") ||
		!strings.Contains(s, "default-src &#39;none&#39;") {
		t.Errorf("page begins %.300q", s)
	}
}

// visible returns the text that a page shows, with single spaces between words.
func visible(page string) string {
	body, _, _ := strings.Cut(page, `<script type="application/json"`)
	text := regexp.MustCompile(`(?s)<style>.*?</style>|<[^>]*>`).ReplaceAllString(body, " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

// TestHTMLSummary expects the page to contain every figure of the report.
func TestHTMLSummary(t *testing.T) {
	c := fullCoverage()
	c.Size, c.FREs = 12345, 7654321
	c.Amounts = amounts.Amounts{
		Code: 1000010, Unwindable: 1000004, Described: 1000000, Covered: 999999, Outermost: 4, PLT: 5,
	}
	words := []string{
		"Unwindable 99.99 % 1,000,004 bytes of 1,000,010 bytes of code Not covered < 0.01 % 1 byte that CFI",
		"No CFI < 0.01 % 5 bytes that no CFI", "Coverage of code with CFI 99.99 % of 1,000,000 bytes",
		"ABI amd64", "Format SFrame V2", "Warning: words", "Not in this report: words",
		"Build-id c0de", "Made by some <tool>",
		"CFI from .debug_frame, 9 bytes, 1 FDE", "Debug file prog.debug",
		"Written to out", "Functions that CFI describes 1", "FDEs written 1", "FREs written 7,654,321",
		"only in topmost frames 3 bytes",
		"Code without a caller 4 bytes", "Start-up code of the C library 2 bytes",
		"PLT stubs without CFI that have rows 5 bytes",
		"Verified at every pc yes", "FDEs of size 0 1",
		"FDEs of code that is not in the file 2", "FDEs truncated or dropped because of overlaps 3",
		"Malformed records 1",
		".debug_frame+0x40: words",
		"12,345 bytes (.eh_frame 200, .eh_frame_hdr 12)",
		"code without CFI < 0.01 % : 5 bytes that",
		"words drap < 0.01 % : 10 bytes in 1 gap of 1 function", "but not listed: 1 gap.",
		"Not listed: 1 more function.",
		".text 0x1000 64 5 2 3",
	}
	text := visible(page(t, c))
	for _, w := range words {
		if strings.Count(text, w) != 1 {
			t.Errorf("%q occurs %d times in\n%s", w, strings.Count(text, w), text)
		}
	}
	if strings.Contains(text, "100.00 %") || strings.Contains(text, "Files") {
		t.Errorf("a share is rounded up to 100 %%, or something empty is shown: %s", text)
	}
	d := fullCoverage()
	d.File = "other"
	text = visible(page(t, c, d))
	for i, w := range words {
		switch { // figures for all files together
		case i == 0:
			w = "Unwindable 99.99 % 1,000,033 bytes of 1,000,050 bytes of code Not covered < 0.01 % 7 bytes that CFI"
		case i == 1:
			w = "No CFI < 0.01 % 10 bytes that no CFI"
		case strings.HasPrefix(w, "code without CFI"):
			w = "code without CFI < 0.01 % : 10 bytes that"
		case strings.Contains(w, "words drap"):
			w = "words drap < 0.01 % : 20 bytes in 2 gaps of 2 functions"
		case strings.Contains(w, "not listed: 1 gap"):
			w = "but not listed: 2 gaps."
		case strings.Contains(w, "1 more function"):
			w = "Not listed: 2 more functions."
		}
		if !strings.Contains(text, w) {
			t.Errorf("two files: no %q in\n%s", w, text)
		}
	}
	for _, w := range []string{"SFrame coverage 2 files", "prog 99.99 % unwindable", "other 72.50 % unwindable"} {
		if !strings.Contains(text, w) {
			t.Errorf("two files: no %q in\n%s", w, text)
		}
	}
}

// TestHTMLFailed expects a table of files with errors, even if there are no others.
func TestHTMLFailed(t *testing.T) {
	failed := []*report.Failed{report.NewFailed("a\xfe", errors.New("is cut")), report.NewFailed("b<", errors.New("x"))}
	for _, files := range [][]*report.Coverage{nil, {fullCoverage()}} {
		var b bytes.Buffer
		must.Do(t, report.HTML(&b, files, failed, nil, ""))
		want := [][]string{{`"a\xfe"`, "is cut"}, {"b<", "x"}}
		if got := pageRows(t, b.String(), "failed"); !reflect.DeepEqual(got, want) {
			t.Errorf("%d files: rows %q, want %q", len(files), got, want)
		}
		if text := visible(b.String()); !strings.Contains(text, `Failed Files with errors`) {
			t.Errorf("%d files: no table in %s", len(files), text)
		}
	}
}

// TestHTMLEmpty expects no rows of zeros and no empty tables for a file without gaps, and no bar for a file without
// code.
func TestHTMLEmpty(t *testing.T) {
	c := &report.Coverage{File: "prog", Amounts: amounts.Amounts{Code: 9, Unwindable: 9, Described: 9, Covered: 9}}
	for _, files := range [][]*report.Coverage{{c}, {c, c}, {{File: "none"}}, nil} {
		s := page(t, files...)
		text := visible(s)
		for _, empty := range []string{"Gaps", "0.01 %", "FDEs", "FREs", " of 0 b", "PLT", "Code without CFI"} {
			if strings.Contains(text, empty) {
				t.Errorf("%d files: %q is shown: %s", len(files), empty, text)
			}
		}
		if strings.Contains(s, "<table") != (len(files) > 1) {
			t.Errorf("%d files: a table is missing, or empty: %s", len(files), text)
		}
		if has := strings.Contains(s, `class="stack"`); has != (len(files) > 0 && files[0] == c) {
			t.Errorf("%d files: the bar is shown: %t", len(files), has)
		}
	}
	if text := visible(page(t, c)); !strings.Contains(text, "Unwindable 100.00 %") ||
		!strings.Contains(text, "Not covered none SFrame covers all that CFI describes No CFI none CFI describes all "+
			"but padding") {
		t.Errorf("a file without gaps: %s", text)
	}
}

// TestHTMLWorst expects the file with the most code that is not unwindable to be listed first. Links to the files'
// sections must be numbered in input order.
func TestHTMLWorst(t *testing.T) {
	var files []*report.Coverage
	for i, left := range []uint64{1, 50, 7} {
		files = append(files, &report.Coverage{
			File:    fmt.Sprint("file", i),
			Amounts: amounts.Amounts{Code: 100, Unwindable: 100 - left, Described: 100, Covered: 100 - left},
		})
	}
	var got []string
	s := page(t, files...)
	for _, row := range pageRows(t, s, "files") {
		got = append(got, strings.Join([]string{row[0], row[1], row[2], row[3], row[4], row[5], row[len(row)-1]}, " "))
	}
	want := "file1 50.00 % 50 50 0 100 #file-2, file2 93.00 % 7 7 0 100 #file-3, file0 99.00 % 1 1 0 100 #file-1"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q; want %s", got, want)
	}
	why, table := strings.Index(s, `id="reasons"`), strings.Index(s, `id="all-files"`)
	if why < 0 || table < why {
		t.Errorf("the reasons are at %d, the files at %d", why, table)
	}
}

// TestHTMLBars expects bars to be scaled to the longest, and the page to state what share of the code the longest bar
// represents. Reasons that lose no code have no bar.
func TestHTMLBars(t *testing.T) {
	c := fullCoverage()
	c.Amounts = amounts.Amounts{Code: 1000, Unwindable: 700, Described: 900, Covered: 700, Outermost: 100}
	c.Reasons = []report.Reason{
		{Name: "outermost", Text: "start", Bytes: 100, Ranges: 1, Functions: 1},
		{Name: "sp-rule", Text: "sp", Bytes: 50, Ranges: 1, Functions: 1, Loss: true},
		{Name: "drap", Text: "realigned", Bytes: 150, Ranges: 1, Functions: 1, Loss: true},
		{Name: "ra-rule", Text: "ra", Bytes: 0, Ranges: 1, Functions: 1, Loss: true},
	}
	bars := regexp.MustCompile(`<li class="r-([a-z-]*)">|<svg class="bar" viewBox="0 0 (\d+) 1"|<rect width="([\d.]+)"`)
	var got []string
	_, s, _ := strings.Cut(page(t, c), `<ul class="bars">`)
	if !strings.Contains(s, "The longest bar is 15.00 % of the code.") {
		t.Error("the scale of the bars is missing")
	}
	s, _, _ = strings.Cut(s, "</ul>")
	for _, m := range bars.FindAllStringSubmatch(s, -1) {
		got = append(got, m[1]+m[2]+m[3])
	}
	const want = "drap 1000 1000.00 without 1000 666.67 sp-rule 1000 333.33 ra-rule 1000 0.00"
	if strings.Join(got, " ") != want {
		t.Errorf("%q; want %s", got, want)
	}
}

// TestReasonColours expects reasons that lose code to have distinct colours, in light and dark, and others to have
// none.
func TestReasonColours(t *testing.T) {
	css := testfile.Read(t, "../page/page.css")
	reasons := make(map[string]string) // by the colours for light and dark mode
	colours := regexp.MustCompile(`\.r-([a-z-]+) \{ --reason: light-dark\((#[0-9a-f]{6}, #[0-9a-f]{6})\); \}`)
	for _, m := range colours.FindAllStringSubmatch(string(css), -1) {
		if other, ok := reasons[m[2]]; ok {
			t.Errorf("%s and %s have the same colours", other, m[1])
		}
		reasons[m[2]] = m[1]
	}
	for _, r := range translate.Reasons() {
		if has := slices.Contains(slices.Collect(maps.Values(reasons)), r.Name()); has != r.Loss() {
			t.Errorf("cmd/cfi2sframe/internal/page/page.css: %s has colours: %t, want %t", r.Name(), has, r.Loss())
		}
	}
}
