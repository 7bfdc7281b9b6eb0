package survey

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"

	"cfi2sframe/internal/page"
)

// treeOf returns the tree of a page as indented lines: name, files, bytes that cannot be unwound, and bytes of code.
func treeOf(p *place, indent string) string {
	line := fmt.Sprintf("%s%s %d: %d of %d", indent, p.Name, p.Files, p.Code.Left(), p.Code.Code)
	line += "\n"
	for _, q := range p.Below {
		line += treeOf(q, indent+" ")
	}
	return line
}

// coded returns a record of 100 bytes of code. Some cannot be unwound: half of these have CFI.
func coded(file string, left uint64) Record {
	return Record{
		File: file, ABI: "amd64", Functions: 1, Described: 100 - left/2, Code: 100,
		Formats: []Format{{Format: detailed, Unwindable: 100 - left, Covered: 100 - left}},
		Gaps:    []Gap{{Reason: "drap", Functions: 1, Ranges: 1, Bytes: left - left/2}},
	}
}

// TestDirectories sums up directories, the worst first, and names nested ones without other contents together.
func TestDirectories(t *testing.T) {
	records := []Record{
		coded("/usr/lib/a/deep/x", 10), coded("/usr/lib/a/deep/y", 30), coded("/usr/lib/b", 20),
		coded("/usr/bin/\x1b<b>", 90), coded("/usr/p/bin/p", 2), coded("/usr/p/lib/l.a(n.o)", 1),
		{File: "/usr/nothing", Status: "32-bit"},
	}
	for i := range 25 {
		records = append(records, coded(fmt.Sprintf("/usr/many/%02d", i), 1))
	}
	p := surveyOf(Options{}, "/usr", records...).page(nil, "")
	const want = `/usr/ 31: 178 of 3100
 bin/ 1: 90 of 100
  "\x1b<b>" 1: 90 of 100
 lib/ 3: 60 of 300
  a/deep/ 2: 40 of 200
   y 1: 30 of 100
   x 1: 10 of 100
  b 1: 20 of 100
 many/ 25: 25 of 2500
`
	got := treeOf(p.Tree, "")
	if !strings.HasPrefix(got, want) || strings.Count(got, "\n  1") != 10 || strings.Count(got, "\n  0") != 10 ||
		!strings.HasSuffix(got, `  19 1: 1 of 100
  5 others 5: 5 of 500
 p/ 2: 3 of 200
  bin/ 1: 2 of 100
   p 1: 2 of 100
  lib/l.a 1: 1 of 100
   (n.o) 1: 1 of 100
`) {
		t.Errorf("%s\nbegins otherwise than\n%s", got, want)
	}
	if want := (page.Split{Code: 3100, Unwindable: 2922, NotCovered: 102, NoCFI: 76}); p.Tree.Code != want {
		t.Errorf("%+v; want %+v", p.Tree.Code, want)
	}
}

// TestDirectoriesBounded has a name of very many directories, and a directory that is too small to be divided.
func TestDirectoriesBounded(t *testing.T) {
	records := []Record{coded("/small/x", 0), coded("/small/y", 1)}
	deep := "/"
	for i := range 500 {
		deep += fmt.Sprint(i, "/")
		records = append(records, coded(deep+"x", 100))
	}
	got := treeOf(surveyOf(Options{}, "/", records...).page(nil, "").Tree, "")
	if n := strings.Count(got, "\n "); n > 3*maxDepth+maxBelow ||
		strings.Contains(got, strings.Repeat(" ", maxDepth+2)) ||
		!strings.HasSuffix(got, "\n small/ 2: 1 of 200\n") {
		t.Errorf("%d lines: %.5000s", n, got)
	}
}

// TestNoDirectories expects no tree of one file.
func TestNoDirectories(t *testing.T) {
	one := surveyOf(Options{}, "/", coded("/usr/bin/x", 5))
	two := surveyOf(Options{}, "/", coded("/usr/bin/x", 5), coded("/usr/bin/y", 6))
	for want, p := range []*surveyPage{one.page(nil, ""), two.page(nil, "")} {
		if has := len(p.Tree.Below) > 0; has != (want == 1) {
			t.Errorf("page %d has directories: %t", want, has)
		}
	}
}

// visible returns what a page shows, as words with single spaces between.
func visible(page string) string {
	body, _, _ := strings.Cut(page, `<script type="application/json"`)
	text := regexp.MustCompile(`(?s)<style>.*?</style>|<[^>]*>`).ReplaceAllString(body, " ")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}
