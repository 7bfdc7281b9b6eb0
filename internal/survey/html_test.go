package survey

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"cfi2sframe/internal/lab/chrome"
	"cfi2sframe/translate"
)

// evil is a name that would run if it were not escaped.
const evil = `</script><script>window.evil = 1</script><img src=x onerror="window.evil=1">`

// model returns a survey of n files, of which a third are lossless, and one is refused.
func model(n int) *Survey {
	c := newCollector([]root{{name: "/usr/bin", real: "/usr/bin"}}, Options{})
	for i := range n {
		k := uint64(i*7919) % uint64(n) // in no order
		l := line{
			file: fmt.Sprintf("/usr/bin/a-long-name-of-a-program-%d", k), abi: 3, functions: 10, described: 1000 + k*k, withoutCFI: k,
			formats: make([]Format, len(Formats)),
		}
		if reason := []translate.Reason{0, translate.DRAP, translate.CFARegister}[k%3]; reason != 0 {
			l.gaps = []gapSum{{reason, translate.Sum{Functions: 1, Ranges: 2, Bytes: k + 1}}}
		}
		c.add(&candidate{name: l.file}, []line{l}, nil)
	}
	c.add(&candidate{name: evil}, []line{{file: evil, status: damaged, message: evil}}, nil)
	return c.finish()
}

// write writes the page to a file.
func write(t *testing.T, s *Survey, links map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(path)
	if err == nil {
		err = s.HTML(f, links)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestRow expects each figure of a file below the name that the table has for it.
func TestRow(t *testing.T) {
	l := line{
		file: "/usr/bin/x", abi: 3, origin: origin{[]string{"C++", "Rust"}, []string{"rustc 1.85"}}, functions: 10, described: 1000, withoutCFI: 77,
		drap: true, otherCFA: true, formats: make([]Format, len(Formats)),
		gaps: []gapSum{{translate.DRAP, translate.Sum{Functions: 1, Ranges: 2, Bytes: 250}}},
	}
	l.formats[len(Formats)-1] = Format{Format: Formats[len(Formats)-1], Described: 1000, Covered: 900, Outermost: 60}
	want := map[string]string{
		"File": "/usr/bin/x", "ABI": "amd64", "Language": "C++ + Rust", "Compiler": "rustc 1.85", "Described": "1000", "Lost": "250", "Share": "25.00 %",
		"Mostly by": "drap", "Lost in format 3": "40", "Without CFI": "77", "Remarks": "DRAP; non-SP/FP CFA",
	}
	row := l.row(map[string]string{"/usr/bin/x": "x.html"})
	if len(row) != len(fileColumns)+1 || len(fileColumns) != len(want) || row[len(fileColumns)] != "x.html" {
		t.Errorf("%d cells below %d names: %q", len(row), len(fileColumns), row)
	}
	for i, c := range fileColumns {
		if row[i] != want[c.Name] {
			t.Errorf("%s: %q; %q was expected", c.Name, row[i], want[c.Name])
		}
	}
}

// TestBrowser uses the page of a survey in Chromium.
func TestBrowser(t *testing.T) {
	browser := chrome.Start(t)
	t.Run("rows", func(t *testing.T) { testRows(t, browser) })
	t.Run("parts", func(t *testing.T) { testParts(t, browser) })
}

// testRows sorts and filters the table of files.
func testRows(t *testing.T, browser context.Context) {
	const n = 250
	b := chrome.Open(t, browser, write(t, model(n), map[string]string{"/usr/bin/a-long-name-of-a-program-1": "one.html#file-2"}))
	if chrome.Eval[bool](b, `"evil" in window || document.images.length > 0`) {
		t.Error("markup of a name came to life")
	}
	type file struct{ k, lost uint64 }
	var want []file
	for k := range uint64(n) {
		f := file{k: k}
		if k%3 > 0 {
			f.lost = k + 1
		}
		want = append(want, f)
	}
	check := func(what string, shown int, first, last uint64) {
		t.Helper()
		rows := b.Rows("files")
		got := func(row []string) string { return strings.TrimPrefix(row[0], "/usr/bin/a-long-name-of-a-program-") }
		end := b.Last("files")
		if b.Count("files") != fmt.Sprintf("%d of %d files shown", shown, n+1) || got(rows[0]) != fmt.Sprint(first) || got(end) != fmt.Sprint(last) {
			t.Errorf("%s: %s, from %s to %s; %d from %d to %d were expected", what, b.Count("files"), got(rows[0]), got(end), shown, first, last)
		}
	}
	slices.SortFunc(want, func(a, b file) int { return cmp.Compare(b.lost, a.lost) })
	if got := b.Rows("files")[0]; got[5] != fmt.Sprint(want[0].lost) {
		t.Errorf("first row %q: the worst was expected, which loses %d bytes", got, want[0].lost)
	}
	if got := chrome.Eval[string](b, `document.querySelector("#files th[aria-sort=descending]").textContent`); got != "Lost" {
		t.Errorf("the table says that it is sorted by %q", got)
	}
	b.Search("files", "program-")
	b.Do(chromedp.Click(chromedp.CSS("#files th[data-column='9'] button"))) // without CFI, by mouse
	check("ascending", n, 0, n-1)
	button := chromedp.CSS("#files th[data-column='9'] button")
	b.Do(chromedp.Focus(button), chromedp.KeyEvent(kb.Enter))
	check("descending", n, n-1, 0)
	chrome.Eval[any](b, `{ const s = document.querySelector("#files select"); s.value = "drap"; s.dispatchEvent(new Event("change")); s.value }`)
	check("drap", 83, 247, 1)
	b.Search("files", "program-24")
	check("drap and 24", 3, 247, 241)
	if got := chrome.Eval[[]string](b, `[...document.querySelectorAll("#files tbody a")].map(a => a.getAttribute("href"))`); len(got) != 0 {
		t.Errorf("links %q of files without a page", got)
	}
	chrome.Eval[any](b, `{ const s = document.querySelector("#files select"); s.value = ""; s.dispatchEvent(new Event("change")); s.value }`)
	b.Search("files", "STACK realignment program-1")
	check("words", 39, 199, 1) // 1, 10 to 19 and 100 to 199, every third
	b.Search("files", "damaged")
	if rows := b.Rows("files"); len(rows) != 1 || rows[0][0] != evil {
		t.Errorf("damaged: %q", rows)
	}
	b.Search("files", "one.html") // where it leads to is not shown
	if got := b.Count("files"); got != fmt.Sprintf("0 of %d files shown", n+1) {
		t.Error(got)
	}
}

// testParts uses the other tables, the links at the top, and windows of all sizes.
func testParts(t *testing.T, browser context.Context) {
	path := write(t, run(t, Options{}, fixtures+"amd64", fixtures+"s390x"), nil)
	b := chrome.Open(t, browser, path)
	b.Widths()
	table := chrome.Eval[string](b, `[...document.querySelectorAll(".table")].find(t => t.querySelector("caption").textContent === "Left out in format 2: all").id`)
	column := chromedp.CSS("#" + table + " th[data-column='4'] button")
	for _, sign := range []int{1, -1} {
		b.Do(chromedp.Click(column))
		var sizes []int
		for _, row := range b.Rows(table) {
			n, err := strconv.Atoi(strings.ReplaceAll(row[4], ",", ""))
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, n)
		}
		if len(sizes) < 5 || !slices.IsSortedFunc(sizes, func(a, b int) int { return sign * cmp.Compare(a, b) }) {
			t.Errorf("sizes of gaps %d after a click, %d", sizes, sign)
		}
	}
	// A link to a part leads there, also after the page is loaded again.
	b.Do(chromedp.Click(chromedp.CSS("nav li:last-child a")))
	there := `Math.abs(document.querySelector(location.hash || "x-none")?.getBoundingClientRect().bottom ?? 9999) < innerHeight`
	for range 2 {
		b.Await(there)
		b.Do(chromedp.Reload())
	}
	b.Loaded(path)
}

// TestWithoutScript expects the rows in the markup: the first ones of a large table, in its order.
func TestWithoutScript(t *testing.T) {
	s := model(1200)
	b, err := os.ReadFile(write(t, s, map[string]string{s.byLoss()[0].file: "a page.html#file-1"}))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), `<div class="table" id="files"`)
	text, _, _ = strings.Cut(text, "</table>")
	rows := regexp.MustCompile(`(?s)<tr><th scope="row" class="file">(.*?)</th>(.*?)</tr>`).FindAllStringSubmatch(text, -1)
	if len(rows) != 1000 || !strings.Contains(string(b), "And 201 rows more.") {
		t.Fatalf("%d rows", len(rows))
	}
	if want := `<a href="a%20page.html#file-1">` + s.WorstBytes[0].File + "</a>"; rows[0][1] != want {
		t.Errorf("first row %s, %s expected", rows[0][1], want)
	}
	if !strings.Contains(rows[0][2], `<td class="number">1,200</td>`) || !strings.Contains(rows[0][2], "CFA based on a register other than SP and FP</td>") {
		t.Errorf("cells of the first row: %s", rows[0][2])
	}
	if rows[999][1] == rows[998][1] || strings.Contains(text, "<script") {
		t.Error("rows are there twice, or names are not escaped")
	}
}
