package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/report"
	"cfi2sframe/translate"
)

// page returns the page about the files.
func page(t *testing.T, files ...*report.Coverage) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, files, "Made by", "some <tool>", "Date", ""); err != nil {
		t.Fatal(err)
	}
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

// TestHTMLEscapes looks for what hostile names would leave on the page; TestBrowser sees whether
// any of it runs.
func TestHTMLEscapes(t *testing.T) {
	for _, files := range [][]*report.Coverage{{evilCoverage()}, {evilCoverage(), evilCoverage()}} {
		s := page(t, files...)
		for what, want := range map[string]int{"<script": 2, "</script": 2, "<title>": 1, "<style": 1, "<img": 0,
			"<!--": 0, "\u2028": 0, "\u202e": 0, "\x1b": 0, "\x00": 0} {
			if n := strings.Count(s, what); n != want {
				t.Errorf("%d files: %q is there %d times, %d expected", len(files), what, n, want)
			}
		}
		rows := pageRows(t, s, "gaps")
		if len(rows) != len(files)*len(evil) || rows[0][1] != evil[0] || rows[4][1] != `"a\u2028b\u2029c"` {
			t.Errorf("rows %q", rows)
		}
	}
}

// TestHTMLAlone checks that the page asks for nothing outside of it.
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

// visible returns what a page shows, without its tags, as words with single spaces between.
func visible(page string) string {
	body, _, _ := strings.Cut(page, `<script type="application/json"`)
	text := regexp.MustCompile(`(?s)<style>.*?</style>|<[^>]*>`).ReplaceAllString(body, " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

// TestHTMLSummary expects every figure of the model on the page.
func TestHTMLSummary(t *testing.T) {
	c := fullCoverage()
	c.Size, c.FREs = 12345, 7654321
	c.Amounts = report.Amounts{
		Code: 1000010, Unwindable: 1000004, Described: 1000000, Covered: 999999, Outermost: 4, PLT: 5,
	}
	words := []string{
		"Unwindable 99.99 % 1,000,004 bytes of 1,000,010 bytes of code Not covered < 0.01 % 1 byte that CFI",
		"No CFI < 0.01 % 5 bytes that no CFI", "Covered, of what CFI describes 99.99 % of 1,000,000 bytes",
		"ABI amd64", "Format SFrame V2", "Warning: words", "Not in this report: words",
		"Build-id c0de", "Made by some <tool>",
		"CFI from .debug_frame, 9 bytes, 1 FDE", "Debug file prog.debug",
		"Written to out", "Functions that CFI describes 1", "FDEs written 1", "FREs written 7,654,321",
		"topmost frames only 3 bytes",
		"Without a caller 4 bytes", "Start-up code of the C library 2 bytes", "PLT stubs synthesised 5 bytes",
		"Verified at every pc yes", "FDEs of no code 1",
		"FDEs of code that the file does not have 2", "FDEs cut because they overlap another one 3",
		"Malformed records 1",
		".debug_frame+0x40: words",
		"12,345 bytes beside 200 of .eh_frame and 12 of .eh_frame_hdr",
		"code without CFI < 0.01 % : 5 bytes that",
		"words drap < 0.01 % : 10 bytes in 1 gap of 1 function; --format 3 covers them", "but not listed: 1 gap.",
		"Not listed: 1 function more.",
		".text 0x1000 64 5 2 3",
	}
	text := visible(page(t, c))
	for _, w := range words {
		if strings.Count(text, w) != 1 {
			t.Errorf("%q is there %d times in\n%s", w, strings.Count(text, w), text)
		}
	}
	if strings.Contains(text, "100.00 %") || strings.Contains(text, "Date") || strings.Contains(text, "Files") {
		t.Errorf("a share is rounded up to 100 %%, or something empty is shown: %s", text)
	}
	d := fullCoverage()
	d.File = "other"
	text = visible(page(t, c, d))
	for i, w := range words {
		switch { // what is said of all files together
		case i == 0:
			w = "Unwindable 99.99 % 1,000,033 bytes of 1,000,050 bytes of code Not covered < 0.01 % 7 bytes that CFI"
		case i == 1:
			w = "No CFI < 0.01 % 10 bytes that no CFI"
		case strings.HasPrefix(w, "code without CFI"):
			w = "code without CFI < 0.01 % : 10 bytes that"
		case strings.Contains(w, "words drap"):
			w = "words drap < 0.01 % : 20 bytes in 2 gaps of 2 functions; --format 3 covers them"
		case strings.Contains(w, "not listed: 1 gap"):
			w = "but not listed: 2 gaps."
		case strings.Contains(w, "1 function more"):
			w = "Not listed: 2 functions more."
		}
		if !strings.Contains(text, w) {
			t.Errorf("two files: no %q in\n%s", w, text)
		}
	}
	for _, w := range []string{"SFrame coverage 2 files", "prog 99.99 % unwindable",
		"other 72.50 % unwindable"} {
		if !strings.Contains(text, w) {
			t.Errorf("two files: no %q in\n%s", w, text)
		}
	}
}

// TestHTMLEmpty expects no rows of zeros and no empty tables for a file without gaps, and no bar for one without code.
func TestHTMLEmpty(t *testing.T) {
	c := &report.Coverage{File: "prog", Amounts: report.Amounts{Code: 9, Unwindable: 9, Described: 9, Covered: 9}}
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
		!strings.Contains(text, "Not covered none SFrame covers all that CFI describes No CFI none CFI describes all but padding") {
		t.Errorf("a file without gaps: %s", text)
	}
}

// TestHTMLWorst expects the files by what cannot be unwound, and the parts about them in their order.
func TestHTMLWorst(t *testing.T) {
	var files []*report.Coverage
	for i, left := range []uint64{1, 50, 7} {
		files = append(files, &report.Coverage{
			File:    fmt.Sprint("file", i),
			Amounts: report.Amounts{Code: 100, Unwindable: 100 - left, Described: 100, Covered: 100 - left},
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

// TestHTMLBars expects bars to be parts of the longest, which has a share of the code. Reasons that lose nothing have
// no bar.
func TestHTMLBars(t *testing.T) {
	c := fullCoverage()
	c.Amounts = report.Amounts{Code: 1000, Unwindable: 700, Described: 900, Covered: 700, Outermost: 100}
	c.Reasons = []report.Reason{
		{Name: "outermost", Text: "start", Bytes: 100, Ranges: 1, Functions: 1},
		{Name: "sp-rule", Text: "sp", Bytes: 50, Ranges: 1, Functions: 1, Loss: true},
		{Name: "drap", Text: "realigned", Bytes: 150, Format3: 30, Ranges: 1, Functions: 1, Loss: true},
		{Name: "ra-rule", Text: "ra", Bytes: 0, Ranges: 1, Functions: 1, Loss: true},
	}
	bars := regexp.MustCompile(`<li class="r-([a-z-]*)">|<svg class="bar" viewBox="0 0 (\d+) 1"|<rect width="(\d+)"`)
	var got []string
	_, s, _ := strings.Cut(page(t, c), `<ul class="bars">`)
	if !strings.Contains(s, "The longest bar is 15.00 % of the code.") {
		t.Error("the scale of the bars is missing")
	}
	s, _, _ = strings.Cut(s, "</ul>")
	for _, m := range bars.FindAllStringSubmatch(s, -1) {
		got = append(got, m[1]+m[2]+m[3])
	}
	const want = "drap 150 150 without 150 100 sp-rule 150 50 ra-rule 150 0"
	if strings.Join(got, " ") != want {
		t.Errorf("%q; want %s", got, want)
	}
}

// TestHTMLFixtures writes the pages of all test programs, one by one and together, and of none.
func TestHTMLFixtures(t *testing.T) {
	var all []*report.Coverage
	gaps, functions := 0, 0
	for name, c := range fixtures(t) {
		s := page(t, c)
		lossy := 0 // gaps that the page has: code without a caller is covered
		for _, g := range c.Gaps {
			if g.Reason != "outermost" {
				lossy++
			}
		}
		if rows := pageRows(t, s, "gaps"); len(rows) != lossy {
			t.Errorf("%s: %d rows for %d gaps", name, len(rows), lossy)
		}
		gaps, functions = gaps+lossy, functions+len(c.Uncovered.Functions)
		all = append(all, c)
	}
	s := page(t, all...)
	for table, want := range map[string]int{"files": len(all), "gaps": gaps, "functions": functions} {
		if rows := pageRows(t, s, table); len(rows) != want || want == 0 {
			t.Errorf("%s: %d rows, %d expected", table, len(rows), want)
		}
	}
	ids := make(map[string]bool)
	for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(s, -1) {
		if ids[m[1]] {
			t.Errorf("id %s is there twice", m[1])
		}
		ids[m[1]] = true
	}
	for i := range all {
		if !ids[fmt.Sprintf("file-%d", i+1)] {
			t.Errorf("file %d has no id", i+1)
		}
	}
	if text := visible(page(t)); !strings.Contains(text, "SFrame coverage of 0 files") {
		t.Errorf("page of no file: %s", text)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestHTMLError(t *testing.T) {
	if err := report.HTML(failingWriter{}, []*report.Coverage{fullCoverage()}); err == nil ||
		!strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}

// TestReasonColours expects a colour for each reason that pages name, in light and dark, that differs from all others
// and from the background. WCAG 2 asks for a contrast of 3. Distances are by CIE76, in which 2 can be seen.
func TestReasonColours(t *testing.T) {
	css, err := os.ReadFile("../internal/page/page.css")
	if err != nil {
		t.Fatal(err)
	}
	type colour struct{ luminance, l, a, b float64 }
	parse := func(hex string) colour {
		var c [3]float64
		for i := range c {
			n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			if c[i] = float64(n) / 255; c[i] <= 0.04045 {
				c[i] /= 12.92
			} else {
				c[i] = math.Pow((c[i]+0.055)/1.055, 2.4)
			}
		}
		curve := func(x, y, z, white float64) float64 { return math.Cbrt((x*c[0] + y*c[1] + z*c[2]) / white) }
		x, y := curve(0.4124, 0.3576, 0.1805, 0.9505), curve(0.2126, 0.7152, 0.0722, 1)
		z := curve(0.0193, 0.1192, 0.9505, 1.089)
		return colour{y * y * y, 116*y - 16, 500 * (x - y), 200 * (y - z)}
	}
	colours := make(map[string][]string) // in light and dark, by reason
	for _, m := range regexp.MustCompile(`\.r-([a-z-]+) \{ --reason: light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\); \}`).
		FindAllStringSubmatch(string(css), -1) {
		colours[m[1]] = m[2:]
	}
	backs := regexp.MustCompile(`--back: (#[0-9a-f]{6});`).FindAllStringSubmatch(string(css), -1)
	for i, reason := range translate.Reasons() {
		if reason.Loss() != (colours[reason.Name()] != nil) {
			t.Fatalf("%s: colours %v", reason.Name(), colours[reason.Name()])
		}
		if !reason.Loss() {
			continue
		}
		for mode, hex := range colours[reason.Name()] {
			one, back := parse(hex), parse(backs[mode][1])
			high, low := max(one.luminance, back.luminance), min(one.luminance, back.luminance)
			if contrast := (high + 0.05) / (low + 0.05); contrast < 3 {
				t.Errorf("%s: %s has a contrast of %.1f", reason.Name(), hex, contrast)
			}
			for _, other := range translate.Reasons()[:i] {
				if other.Loss() {
					two := parse(colours[other.Name()][mode])
					if d := math.Hypot(math.Hypot(one.l-two.l, one.a-two.a), one.b-two.b); d < 20 {
						t.Errorf("%s and %s: %s and %s are %.1f apart", reason.Name(), other.Name(), hex,
							colours[other.Name()][mode], d)
					}
				}
			}
		}
	}
}

// TestPolicy expects that what is inlined has the hashes that the page's policy allows.
func TestPolicy(t *testing.T) {
	b := page(t, fullCoverage())
	_, rest, _ := strings.Cut(b, `http-equiv="Content-Security-Policy" content="`)
	policy, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatal("there is no policy")
	}
	source := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	want := "default-src 'none'; style-src " + source("../internal/page/page.css") + "; script-src " + source("../internal/page/page.js")
	if got := html.UnescapeString(policy); got != want {
		t.Errorf("the policy is\n%s\nwant\n%s", got, want)
	}
}
