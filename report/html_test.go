package report_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/report"
)

// page returns the page about the files.
func page(t *testing.T, files ...*report.Coverage) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, files); err != nil {
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
			n := strings.Count(s, what)
			if what == "<title>" { // those of pieces of the map are more
				n = strings.Count(s, "<title>SFrame coverage")
			}
			if n != want {
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
	c.Described, c.Covered, c.Outermost, c.Size, c.FREs = 1000000, 999999, 0, 12345, 7654321
	words := []string{
		"Covered 99.99 % 999,999 of 1,000,000 bytes", "ABI amd64", "Format SFrame V2",
		"CFI from .debug_frame, 9 bytes, 1 FDE", "Debug file prog.debug",
		"Written to out", "Functions that CFI describes 1", "FDEs written 1", "FREs written 7,654,321",
		"topmost frames only 3 bytes",
		"Left out for want of a caller 0 bytes", "without a caller 99.99 %", "PLT stubs synthesised 5 bytes",
		"Verified at every pc yes", "FDEs of no code 1",
		"FDEs of code that is not there 2", "FDEs cut for another one 3", "Malformed records 1",
		".debug_frame+0x40: words",
		"12,345 bytes beside 200 of .eh_frame and 12 of .eh_frame_hdr", "Without CFI 8 bytes",
		"words drap 10 bytes in 1 gap of 1 function; --format 3 covers them", "but not listed: 1 gap.",
		"Not listed: 1 function more.",
		".text 0x1000 64 8", "0x1004-0x100c: 8 bytes, code without CFI",
	}
	text := visible(page(t, c))
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in\n%s", w, text)
		}
	}
	if strings.Contains(text, "100.00 %") {
		t.Error("a share is rounded up to 100 %")
	}
	d := fullCoverage()
	d.File = "other"
	text = visible(page(t, c, d))
	for i, w := range words {
		switch { // what is said of all files together
		case i == 0:
			w = "Covered 99.99 % 1,000,019 of 1,000,030 bytes"
		case strings.Contains(w, "not listed: 1 gap"):
			w = "but not listed: 2 gaps."
		case strings.Contains(w, "1 function more"):
			w = "Not listed: 2 functions more."
		}
		if !strings.Contains(text, w) {
			t.Errorf("two files: no %q in\n%s", w, text)
		}
	}
	for _, w := range []string{"SFrame coverage 2 files", "20 bytes in 2 gaps of 2 functions", "prog 99.99 % covered",
		"other 66.67 % covered"} {
		if !strings.Contains(text, w) {
			t.Errorf("two files: no %q in\n%s", w, text)
		}
	}
}

// TestHTMLFixtures writes the pages of all test programs, one by one and together, and of none.
func TestHTMLFixtures(t *testing.T) {
	var all []*report.Coverage
	gaps, functions := 0, 0
	for name, c := range fixtures(t) {
		s := page(t, c)
		if rows := pageRows(t, s, "gaps"); len(rows) != len(c.Gaps) {
			t.Errorf("%s: %d rows for %d gaps", name, len(rows), len(c.Gaps))
		}
		if strings.Count(s, "<figure") != len(c.Uncovered.Sections) {
			t.Errorf("%s: %d sections drawn of %d", name, strings.Count(s, "<figure"), len(c.Uncovered.Sections))
		}
		gaps, functions = gaps+len(c.Gaps), functions+len(c.Uncovered.Functions)
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
		t.Errorf("the policy is\n%s\n%s was expected", got, want)
	}
}
