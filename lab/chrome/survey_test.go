package chrome

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"cfi2sframe/internal/survey"
	"cfi2sframe/lab/product"
	"cfi2sframe/translate"
)

// evil is a name that would run if it were not escaped.
const evil = `</script><script>window.evil = 1</script><img src=x onerror="window.evil=1">`

// surveyOf returns a survey of n files and a damaged one, read from its JSON form. A third of the files is lossless.
func surveyOf(t *testing.T, n int) *survey.Survey {
	t.Helper()
	type object = map[string]any
	var files []object
	var functions, described, withoutCFI, lost uint64
	reasons := []translate.Reason{0, translate.DRAP, translate.CFARegister}
	gaps := make([]struct{ files, bytes uint64 }, len(reasons))
	for i := range n {
		k := uint64(i*7919) % uint64(n) // in no order
		file := object{
			"file": fmt.Sprintf("/usr/bin/a-long-name-of-a-program-%d", k), "abi": "amd64",
			"functions": 10, "described": 1000 + k*k, "code": 1000 + k*k + k, "without_cfi": k,
		}
		covered := 1000 + k*k
		if r := k % 3; r != 0 {
			file["gaps"] = []object{{"reason": reasons[r].Name(), "functions": 1, "ranges": 2, "bytes": k + 1}}
			gaps[r].files++
			gaps[r].bytes += k + 1
			covered -= k + 1
			lost += k + 1
		}
		var formats []object
		for _, v := range []int{1, 2, 3} {
			formats = append(formats, object{"format": v, "covered": covered, "unwindable": covered})
		}
		file["formats"] = formats
		files = append(files, file)
		functions += 10
		described += 1000 + k*k
		withoutCFI += k
	}
	files = append(files, object{"file": evil, "path": 1, "status": "damaged", "error": evil})
	total := object{"files": n, "with_cfi": n, "functions": functions, "described": described,
		"code": described + withoutCFI, "without_cfi": withoutCFI}
	var formats, sums []object
	for _, v := range []int{1, 2, 3} {
		formats = append(formats, object{"format": v, "functions": functions, "described": described,
			"covered": described - lost, "unwindable": described - lost})
	}
	for r := 1; r < len(reasons); r++ {
		sums = append(sums, object{
			"reason": reasons[r].Name(), "text": reasons[r].String(), "loss": true,
			"files": gaps[r].files, "functions": gaps[r].files, "ranges": 2 * gaps[r].files, "bytes": gaps[r].bytes,
		})
	}
	total["formats"], total["gaps"] = formats, sums
	paths := []object{maps.Clone(total), {"name": evil, "files": 1}}
	paths[0]["name"] = "/usr/bin"
	total["files"] = n + 1
	for _, o := range []object{total, paths[1]} {
		o["refused"] = []object{{"reason": "damaged", "text": "damaged file or CFI, or one that is too large",
			"files": 1}}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	err := e.Encode(object{"schema": survey.Schema, "tool": "test", "paths": paths, "total": total})
	for _, f := range files {
		err = errors.Join(err, e.Encode(f))
	}
	name := filepath.Join(t.TempDir(), "survey.json")
	if err := errors.Join(err, os.WriteFile(name, b.Bytes(), 0o666)); err != nil {
		t.Fatal(err)
	}
	s, err := survey.Merge(t.Context(), []string{name}, survey.MergeOptions{Tool: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// writeSurvey writes the page of a survey to a file.
func writeSurvey(t *testing.T, s *survey.Survey, links map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	f, err := os.Create(path)
	if err == nil {
		err = s.HTML(f, links, "")
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSurvey uses the page of a survey in Chromium.
func TestSurvey(t *testing.T) {
	browser := Start(t)
	t.Run("rows", func(t *testing.T) { testFilesTable(t, browser) })
	t.Run("no script", func(t *testing.T) { testNoScript(t, browser) })
	t.Run("parts", func(t *testing.T) { testOtherTables(t, browser) })
}

// testFilesTable sorts and filters the table of files.
func testFilesTable(t *testing.T, browser context.Context) {
	const n = 250
	b := Open(t, browser, writeSurvey(t, surveyOf(t, n),
		map[string]string{"/usr/bin/a-long-name-of-a-program-1": "one.html#file-2"}))
	if Eval[bool](b, `"evil" in window || document.images.length > 0`) {
		t.Error("markup of a name came to life")
	}
	type file struct{ k, left uint64 }
	var want []file
	for k := range uint64(n) {
		f := file{k, k}
		if k%3 > 0 {
			f.left += k + 1
		}
		want = append(want, f)
	}
	check := func(what string, shown int, first, last uint64) {
		t.Helper()
		rows := b.Rows("files")
		got := func(row []string) string { return strings.TrimPrefix(row[0], "/usr/bin/a-long-name-of-a-program-") }
		end := b.Last("files")
		if b.Count("files") != fmt.Sprintf("%d of %d files", shown, n+1) || got(rows[0]) != fmt.Sprint(first) ||
			got(end) != fmt.Sprint(last) {
			t.Errorf("%s: %s, from %s to %s; want %d from %d to %d", what, b.Count("files"), got(rows[0]),
				got(end), shown, first, last)
		}
	}
	slices.SortFunc(want, func(a, b file) int { return cmp.Compare(b.left, a.left) })
	if got := b.Rows("files")[0]; got[2] != fmt.Sprint(want[0].left) {
		t.Errorf("first row %q; want the worst file, with %d bytes that cannot be unwound", got, want[0].left)
	}
	expand := chromedp.CSS("#files .expand input")
	for _, rows := range []int{20, 100, 20} {
		if n := b.Shown("files"); n != rows {
			t.Errorf("%d rows are shown, want %d", n, rows)
		}
		b.Do(chromedp.Click(expand))
	}
	if got := Eval[string](b, `document.querySelector("#files th[aria-sort=descending]").textContent`); got != "Not unwindable" {
		t.Errorf("the table says that it is sorted by %q", got)
	}
	b.Search("files", "program-")
	b.Do(chromedp.Click(chromedp.CSS("#files th[data-column='6'] button"))) // code, by mouse
	check("ascending", n, 0, n-1)
	button := chromedp.CSS("#files th[data-column='6'] button")
	b.Do(chromedp.Focus(button), chromedp.KeyEvent(kb.Enter))
	check("descending", n, n-1, 0)
	Eval[any](b, `{ const s = document.querySelector("#files select"); s.value = "drap"; s.dispatchEvent(new Event("change")); s.value }`)
	check("drap", 83, 247, 1)
	b.Search("files", "program-24")
	check("drap and 24", 3, 247, 241)
	if got := Eval[[]string](b, `[...document.querySelectorAll("#files tbody a")].map(a => a.getAttribute("href"))`); len(got) != 0 {
		t.Errorf("links %q of files without a page", got)
	}
	Eval[any](b, `{ const s = document.querySelector("#files select"); s.value = ""; s.dispatchEvent(new Event("change")); s.value }`)
	b.Search("files", "STACK realignment program-1")
	check("words", 39, 199, 1) // 1, 10 to 19 and 100 to 199, every third
	b.Search("files", "damaged")
	if rows := b.Rows("files"); len(rows) != 1 || rows[0][0] != evil {
		t.Errorf("damaged: %q", rows)
	}
	b.Search("files", "one.html") // where it leads to is not shown
	if got := b.Count("files"); got != fmt.Sprintf("0 of %d files", n+1) {
		t.Error(got)
	}
}

// testNoScript uses a page without its script.
func testNoScript(t *testing.T, browser context.Context) {
	path := writeSurvey(t, surveyOf(t, 250), nil)
	b := Open(t, browser, path)
	off := emulation.SetScriptExecutionDisabledParams{Value: true}
	if _, err := chromedp.Call(b.Ctx, emulation.SetScriptExecutionDisabled, off); err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.Reload())
	b.Await(`document.readyState === "complete" && !document.documentElement.classList.contains("live")`)
	for _, rows := range []int{20, 251, 20} {
		if n := b.Shown("files"); n != rows {
			t.Errorf("%d rows are shown, want %d", n, rows)
		}
		b.Do(chromedp.Click(chromedp.CSS("#files .expand")))
	}
	b.Do(chromedp.Click(chromedp.CSS("#about-table-1 summary")))
	if n := b.Shown("table-1"); n == 0 {
		t.Error("a table does not open")
	}
	b.Widths()
	b.Loaded(path)
}

// testOtherTables uses the other tables, the links at the top, and windows of all sizes.
func testOtherTables(t *testing.T, browser context.Context) {
	const fixtures = "../../testdata/bin/"
	s, err := survey.Run(t.Context(), []string{fixtures + "amd64", fixtures + "s390x"}, survey.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := writeSurvey(t, s, nil)
	b := Open(t, browser, path)
	b.Do(chromedp.Click(chromedp.CSS(".tree details summary"))) // the first one is open
	if n := Eval[int](b, `[...document.querySelectorAll(".tree .row")].filter(r => r.checkVisibility()).length`); n != 1 {
		t.Errorf("%d rows of directories are shown after the first one is closed", n)
	}
	Eval[any](b, `document.querySelectorAll("details").forEach(d => { d.open = true })`)
	b.Widths()
	table := Eval[string](b, `[...document.querySelectorAll(".table")].find(t => t.querySelector("caption").textContent === "Left out in format 2: all").id`)
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

// TestSurveyLink follows a link of a survey to the page of a file.
func TestSurveyLink(t *testing.T) {
	browser := Start(t)
	dir, name := t.TempDir(), "<b>&%41#x"
	b, err := os.ReadFile("../../testdata/bin/amd64/rareg.so")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "cfi2sframe")
	if err := product.Build(program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "survey", "--report-dir", filepath.Join(dir, "pages"), filepath.Join(dir, name))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tab := Open(t, browser, filepath.Join(dir, "pages/index.html"))
	tab.Do(chromedp.Click(chromedp.CSS("#files tbody a")))
	tab.Await(`document.title.startsWith("SFrame coverage of ") && document.title.endsWith("<b>&%41#x")`)
	tab.Widths()
	tab.Forget()
}
