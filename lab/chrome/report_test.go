package chrome

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/reports"
	"cfi2sframe/report"
)

// openTab opens a page about the files.
func openTab(t *testing.T, browser context.Context, files ...*report.Coverage) *Tab {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, files); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return Open(t, browser, path)
}

// TestReport uses pages of reports as people do, in Chromium.
func TestReport(t *testing.T) {
	browser := Start(t)
	for _, tt := range []struct {
		name string
		test func(*testing.T, context.Context)
	}{
		{"sort", testSort},
		{"filter", testFilter},
		{"map", testMap},
		{"files", testFiles},
		{"hostile", testHostile},
		{"large", testLarge},
		{"schemes", testSchemes},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, browser) })
	}
}

// choose selects a reason, or "" for all.
func choose(b *Tab, reason string) {
	b.Helper()
	Eval[any](b, fmt.Sprintf(`{ const s = document.querySelector("#gaps select"); s.value = %q; s.dispatchEvent(new Event("change")); s.value }`, reason))
}

// A modelGap is a gap as the table has it: its cells, and what columns are sorted by.
type modelGap struct {
	cells  []string
	symbol string
	gap    *report.Gap
	file   string
}

// has reports whether the row has all words of a text in its cells, but for the file's name, or
// in the symbol.
func (r *modelGap) has(text string) bool {
	all := strings.ToLower(strings.Join(r.cells[1:], "\n") + "\n" + r.symbol)
	lacks := func(word string) bool { return !strings.Contains(all, word) }
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(text)), lacks)
}

var reasonNames = []string{"drap", "cfa-register", "sp-rule", "outermost"}

// modelFile returns the coverage of a file with n gaps, whose columns have all kinds of values
// and some twice, and the rows that the table has to have.
func modelFile(name string, n int) (*report.Coverage, []modelGap) {
	c := reports.Full()
	c.File, c.Omitted, c.Reasons = name, 0, nil
	texts := []string{"stack realignment", "CFA elsewhere", "stack pointer lost", "no caller"}
	for i, reason := range reasonNames {
		c.Reasons = append(c.Reasons, report.Reason{Name: reason, Text: texts[i], Functions: 1, Ranges: n / 4,
			Bytes: uint64(100 * (i + 1)), Format3: uint64(50 * i), Loss: i < 3})
	}
	c.Gaps = make([]report.Gap, n)
	rows := make([]modelGap, n)
	for i := range c.Gaps {
		k := uint64(i*7919) % uint64(n) // in no order
		// Addresses of all lengths; those of a kernel need all 64 bits.
		begin := []uint64{0x40 + k*0x10, 0xffffffff81000000 + k, 0x1fffffffffffff + k}[k%3]
		size := []uint64{1, 9, 10, 4096, 1234567}[k%5]
		g := report.Gap{
			Offset: k * 5, Begin: begin, End: begin + size, Reason: reasonNames[k%4], Text: texts[k%4],
			Column: "CFA", Rule: fmt.Sprintf("r%d+%d", k%13, k%8), Cause: fmt.Sprintf("cause %d", k%6),
			Format3: k%4 > 1, FDE: ".eh_frame+0x18",
		}
		if k%10 > 0 {
			g.Function, g.Symbol = fmt.Sprintf("f%d(int<%d>)", k%50, k), fmt.Sprintf("_Z%dfi", k)
		}
		if k%3 > 0 {
			g.Source, g.Line = fmt.Sprintf("dir/file%d.cc", k%4), int(k%200)+1
		}
		if k%7 == 0 {
			g.Section = ".text.s" + strconv.Itoa(int(k%2))
		}
		c.Gaps[i] = g
		rows[i] = modelGap{modelCells(name, &c.Gaps[i]), g.Symbol, &c.Gaps[i], name}
	}
	return c, rows
}

// modelCells returns what the columns of the table have to show.
func modelCells(file string, g *report.Gap) []string {
	section := ""
	if g.Section != "" {
		section = g.Section + "+"
	}
	name, source, format3 := g.Function, "", "not covered"
	if name == "" {
		name = fmt.Sprintf("function at %s0x%x", section, g.Begin-g.Offset)
	}
	if g.Source != "" {
		source = fmt.Sprintf("%s:%d", g.Source, g.Line)
	}
	if g.Format3 {
		format3 = "covered"
	}
	bytes := map[uint64]string{1: "1", 9: "9", 10: "10", 4096: "4,096", 1234567: "1,234,567"}[g.End-g.Begin]
	return []string{
		file, name, fmt.Sprintf("%s0x%x-0x%x", section, g.Begin, g.End), fmt.Sprintf("0x%x", g.Offset), bytes, g.Text,
		g.Column + " " + g.Rule, source, format3, g.Cause,
	}
}

// gapOrders compare gaps by each column of the table.
var gapOrders = []func(a, b *modelGap) int{
	func(a, b *modelGap) int { return cmp.Compare(a.file, b.file) },
	func(a, b *modelGap) int { return cmp.Compare(a.cells[1], b.cells[1]) },
	func(a, b *modelGap) int {
		return cmp.Or(cmp.Compare(a.gap.Section, b.gap.Section), cmp.Compare(a.gap.Begin, b.gap.Begin))
	},
	func(a, b *modelGap) int { return cmp.Compare(a.gap.Offset, b.gap.Offset) },
	func(a, b *modelGap) int { return cmp.Compare(a.gap.End-a.gap.Begin, b.gap.End-b.gap.Begin) },
	func(a, b *modelGap) int { return cmp.Compare(a.gap.Text, b.gap.Text) },
	func(a, b *modelGap) int { return cmp.Compare(a.cells[6], b.cells[6]) },
	func(a, b *modelGap) int {
		return cmp.Or(cmp.Compare(a.gap.Source, b.gap.Source), cmp.Compare(a.gap.Line, b.gap.Line))
	},
	func(a, b *modelGap) int { return cmp.Compare(a.cells[8], b.cells[8]) },
	func(a, b *modelGap) int { return cmp.Compare(a.gap.Cause, b.gap.Cause) },
}

// testSort sorts by every column, up and down, half of them by keyboard.
func testSort(t *testing.T, browser context.Context) {
	first, rows := modelFile("prog", 260)
	second, more := modelFile("lib.so", 90)
	rows = append(rows, more...)
	b := openTab(t, browser, first, second)
	check := func(what string, want []modelGap) {
		t.Helper()
		got := b.Rows("gaps")
		if len(got) != 100 || !slices.Equal(got[0], want[0].cells) || !slices.Equal(got[99], want[99].cells) {
			t.Errorf("%s: %d rows, the first and last\n%q\n%q\nexpected\n%q\n%q", what, len(got), got[0],
				got[len(got)-1], want[0].cells, want[99].cells)
		}
		if got := b.Last("gaps"); !slices.Equal(got, want[len(want)-1].cells) {
			t.Errorf("%s: last row\n%q\nexpected\n%q", what, got, want[len(want)-1].cells)
		}
	}
	check("not sorted", rows)
	for column, compare := range gapOrders {
		button := chromedp.CSS(fmt.Sprintf("#gaps th[data-column='%d'] button", column))
		for _, direction := range []string{"ascending", "descending"} {
			if column%2 == 0 {
				b.Do(chromedp.Click(button))
			} else {
				b.Do(chromedp.Focus(button), chromedp.KeyEvent(kb.Enter))
			}
			want := slices.Clone(rows)
			slices.SortStableFunc(want, func(x, y modelGap) int {
				if direction == "descending" {
					return compare(&y, &x)
				}
				return compare(&x, &y)
			})
			check(fmt.Sprintf("column %d %s", column, direction), want)
			sorted := Eval[[]string](b, `[...document.querySelectorAll("#gaps th[aria-sort]")].map(th => th.getAttribute("aria-sort"))`)
			for i, s := range sorted {
				if (s == direction) != (i == column) || i != column && s != "none" {
					t.Errorf("column %d %s: aria-sort %q", column, direction, sorted)
				}
			}
		}
	}
}

// testFilter filters by text and reason, alone and together, while the table is sorted.
func testFilter(t *testing.T, browser context.Context) {
	c, rows := modelFile("prog", 1234)
	b := openTab(t, browser, c)
	b.Do(chromedp.Click(chromedp.CSS("#gaps th[data-column='3'] button")))
	slices.SortStableFunc(rows, func(x, y modelGap) int { return gapOrders[3](&x, &y) })
	for i, text := range []string{
		"", "f17(", "F17(INT", "0xffffffff8100", "0x1a4", "1,234,567", "pointer lost", "r12+", "file2.cc:17", "covered",
		"cause 3", "_Z123fi",
		"covered cause  file1", ".text.s1+", "not covered cause 1 drap", "nowhere",
	} {
		for _, reason := range []string{"", reasonNames[i%4]} {
			b.Search("gaps", text)
			choose(b, reason)
			var want []modelGap
			for _, r := range rows {
				if (reason == "" || r.gap.Reason == reason) && r.has(text) {
					want = append(want, r)
				}
			}
			number := strconv.Itoa(len(want))
			if len(want) >= 1000 {
				number = number[:1] + "," + number[1:]
			}
			if got := b.Count("gaps"); got != number+" of 1,234 gaps" {
				t.Errorf("%q, %q: %s; %s expected", text, reason, got, number)
			}
			got := b.Rows("gaps")
			if len(got) != min(len(want), 100) {
				t.Errorf("%q, %q: %d rows on the page for %d", text, reason, len(got), len(want))
			} else if len(want) > 0 && (!slices.Equal(got[0], want[0].cells[1:]) ||
				!slices.Equal(b.Last("gaps"), want[len(want)-1].cells[1:])) {
				t.Errorf("%q, %q: first row %q, expected %q", text, reason, got[0], want[0].cells[1:])
			}
		}
	}
}

// testMap moves through the map of the code by keys and by mouse.
func testMap(t *testing.T, browser context.Context) {
	c := reports.Full()
	c.Gaps = []report.Gap{
		{Begin: 0x1400, End: 0x1500, Reason: "drap", Text: "stack realignment"},
		{Begin: 0x1100, End: 0x1200, Reason: "sp-rule", Text: "stack pointer lost"},
	}
	c.Uncovered.Sections = []report.UncoveredSection{
		{Name: ".text", Begin: 0x1000, Size: 0x800, Bytes: 0x180,
			Ranges: []report.UncoveredRange{{Begin: 0x1200, End: 0x1280, Bytes: 0x80},
				{Begin: 0x1600, End: 0x1800, Bytes: 0x100}}},
		{Name: ".fini", Begin: 0x1800, Size: 0x10},
	}
	b := openTab(t, browser, c)
	piece := func() string { return Eval[string](b, `document.querySelector(".piece").value`) }
	want := []string{
		"0x1100-0x1200: 256 bytes, stack pointer lost", "0x1200-0x1280: 128 bytes, code without CFI, or padding",
		"0x1400-0x1500: 256 bytes, stack realignment", "0x1600-0x1800: 256 of 512 bytes, code without CFI, or padding",
	}
	b.Do(chromedp.Focus(chromedp.CSS(".strip")))
	for i, key := range []string{"", kb.ArrowRight, kb.ArrowRight, kb.ArrowRight, kb.ArrowRight, kb.Home, kb.End,
		kb.ArrowLeft} {
		if key != "" {
			b.Do(chromedp.KeyEvent(key))
		}
		if expected := want[[]int{0, 1, 2, 3, 3, 0, 3, 2}[i]]; piece() != expected {
			t.Errorf("step %d: %q, expected %q", i, piece(), expected)
		}
	}
	// Code without CFI hides the colour of covered code.
	covered := b.Colour("covered")
	if n := b.Pixels(".all .without", covered); n > 0 {
		t.Errorf("%d pixels of code without CFI have the colour of covered code", n)
	}
	if n := b.Pixels(".all", covered); n < 1000 {
		t.Errorf("%d pixels of the map have the colour of covered code", n)
	}
	// In the middle of the first gap, in pixels of the strip.
	at := Eval[[]float64](b, `(r => [r.left + r.width * 0x180 / 0x800, r.top + r.height / 2])(document.querySelector(".lane.all").getBoundingClientRect())`)
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
	if piece() != want[0] {
		t.Errorf("mouse: %q", piece())
	}
	if n := Eval[int](b, `document.querySelectorAll(".strip").length`); n != 1 {
		t.Errorf("%d strips can be focused; a section that is all covered has nothing to move to", n)
	}
	if n := Eval[int](b, `document.querySelectorAll(".only .lane").length`); n != 2 {
		t.Errorf("%d lanes for 2 reasons", n)
	}
}

// testFiles follows links from the table of files.
func testFiles(t *testing.T, browser context.Context) {
	var files []*report.Coverage
	for i := range 3 {
		c := reports.Full()
		c.File, c.Unwindable = fmt.Sprintf("file%d", i), uint64(29-9*i)
		files = append(files, c)
	}
	b := openTab(t, browser, files...)
	shares := []string{"file2 27.50 %", "file1 50.00 %", "file0 72.50 %"}
	for _, step := range []string{"worst first", "ascending", "descending"} {
		for i, row := range b.Rows("files") {
			if got := row[0] + " " + row[1]; got != shares[i] {
				t.Errorf("%s: row %d: %s, expected %s", step, i, got, shares[i])
			}
		}
		b.Do(chromedp.Click(chromedp.CSS("#files th[data-column='1'] button"))) // share
		if step == "ascending" {
			slices.Reverse(shares)
		}
	}
	b.Do(chromedp.Click(chromedp.CSS("#files tbody tr:nth-child(2) a")))
	open := `[...document.querySelectorAll("main > section > details")].filter(d => d.open).map(d => d.querySelector("h3").textContent).join()`
	// The browser tells the page of a new fragment when it gets to it.
	if _, err := chromedp.Run(b.Ctx, chromedp.Poll[bool](open+` === "file1"`,
		chromedp.WithPollingTimeout(10*time.Second))); err != nil {
		t.Errorf("open after the click: %q (%v)", Eval[string](b, open), err)
	}
}

// testHostile opens pages full of markup that would run if it could.
func testHostile(t *testing.T, browser context.Context) {
	for _, files := range [][]*report.Coverage{{reports.EvilCoverage()},
		{reports.EvilCoverage(), reports.EvilCoverage()}} {
		b := openTab(t, browser, files...)
		b.Search("gaps", "x")
		b.Search("gaps", "")
		if Eval[bool](b, `"evil" in window || document.images.length > 0 || document.scripts.length !== 2`) {
			t.Error("markup of a name came to life")
		}
		rows := b.Rows("gaps")
		if got := rows[0][len(rows[0])-9]; got != reports.Evil[0] {
			t.Errorf("first name is %q", got)
		}
	}
}

// testLarge uses a page with 50,000 gaps and as many functions as a report lists.
func testLarge(t *testing.T, browser context.Context) {
	long.Test(t)
	const n = 50000
	c, rows := modelFile("large", n)
	for i := range 10000 {
		c.Uncovered.Functions = append(c.Uncovered.Functions, report.UncoveredFunction{Function: fmt.Sprintf("g%d", i),
			Begin: uint64(i), Size: 9, Bytes: 8})
	}
	b := openTab(t, browser, c)
	if got := b.Count("gaps"); got != "50,000 of 50,000 gaps" {
		t.Error(got)
	}
	if nodes := Eval[int](b, `document.querySelectorAll("*").length`); nodes > 10000 {
		t.Errorf("%d elements", nodes)
	}
	b.Do(chromedp.Click(chromedp.CSS("#gaps th[data-column='2'] button")))
	slices.SortStableFunc(rows, func(x, y modelGap) int { return gapOrders[2](&x, &y) })
	if got := b.Last("gaps"); !slices.Equal(got, rows[n-1].cells[1:]) {
		t.Errorf("last row %q, expected %q", got, rows[n-1].cells[1:])
	}
	b.Search("gaps", "f33( file1.cc")
	want := 0
	for _, r := range rows {
		if r.has("f33( file1.cc") {
			want++
		}
	}
	if got := b.Count("gaps"); strings.ReplaceAll(got, ",", "") != fmt.Sprintf("%d of 50000 gaps", want) {
		t.Errorf("%s, expected %d", got, want)
	}
	b.Search("functions", "g9999")
	if got := b.Count("functions"); got != "1 of 10,001 functions" {
		t.Error(got)
	}
}

// testSchemes looks at the page in light and dark, on a desk and on a phone.
func testSchemes(t *testing.T, browser context.Context) {
	c, _ := modelFile("a/very/long/name/that/has/no/space/to/break/at/and/is/wider/than/a/phone/libsomething.so.1.2.3",
		300)
	d, _ := modelFile("prog", 20)
	for _, files := range [][]*report.Coverage{{c}, {c, d}} {
		b := openTab(t, browser, files...)
		Eval[any](b, `document.querySelectorAll("details").forEach(d => { d.open = true })`)
		b.Widths()
		bright := map[string]float64{}
		for _, scheme := range []string{"light", "dark"} {
			media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme",
				Value: scheme}}}
			if _, err := chromedp.Call(b.Ctx, emulation.SetEmulatedMedia, media); err != nil {
				t.Fatal(err)
			}
			contrasts(b, scheme)
			for _, width := range []int64{1200, 420, 375, 320} {
				b.Resize(width)
				if n := b.CardColumns(); n != map[bool]int{true: 2, false: 4}[width < 600] {
					t.Errorf("%d cards in a row at %d", n, width)
				}
				if got := Eval[int64](b, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("%s: the page has a width of %d at %d", scheme, got, width)
				}
			}
			bright[scheme] = brightness(b)
		}
		if bright["light"] < 0.8 || bright["dark"] > 0.2 {
			t.Errorf("brightness %v", bright)
		}
	}
}

// brightness returns how bright the page is on average, from 0 to 1, on a picture of it.
func brightness(b *Tab) float64 {
	b.Helper()
	picture := b.Picture()
	var sum float64
	size := picture.Bounds()
	for y := size.Min.Y; y < size.Max.Y; y++ {
		for x := size.Min.X; x < size.Max.X; x++ {
			red, green, blue, _ := picture.At(x, y).RGBA()
			sum += float64(red+green+blue) / (3 * 0xffff)
		}
	}
	return sum / float64(size.Dx()*size.Dy())
}

// contrasts checks the colours of text and of graphics against what they stand on, by the measure
// and limits of WCAG 2.2 (1.4.3 and 1.4.11).
func contrasts(b *Tab, scheme string) {
	b.Helper()
	colours := make(map[string][3]float64)
	text := Eval[string](b, `JSON.stringify(Object.fromEntries([...document.styleSheets[0].cssRules].flatMap(r => r.selectorText === ":root" ? [...r.style].filter(n => n.startsWith("--")) : [])
		.map(n => [n.slice(2), getComputedStyle(document.documentElement).getPropertyValue(n).trim()])))`)
	var hex map[string]string
	if err := json.Unmarshal([]byte(text), &hex); err != nil || len(hex) < 15 {
		b.Fatalf("colours %s: %v", text, err)
	}
	for name, s := range hex {
		n, err := strconv.ParseUint(strings.TrimPrefix(s, "#"), 16, 24)
		if err != nil {
			b.Fatalf("colour %s: %v", name, err)
		}
		colours[name] = [3]float64{float64(n >> 16), float64(n >> 8 & 0xff), float64(n & 0xff)}
	}
	for name := range colours {
		on, limit := []string{"back", "raised"}, 4.5
		switch name {
		case "back", "raised", "covered", "line": // line only separates what is apart without it
			continue
		case "text", "quiet", "link":
		case "good", "poor": // next to each other, with a line between
			limit = 3
		case "edge":
			limit = 3
		default: // reasons, and code without CFI
			on, limit = []string{"back", "raised", "covered"}, 3
		}
		for _, back := range on {
			if c := contrast(colours[name], colours[back]); c < limit {
				b.Errorf("%s: %s on %s has a contrast of %.2f", scheme, name, back, c)
			}
		}
	}
}

// contrast returns the ratio of two colours' luminances.
func contrast(a, b [3]float64) float64 {
	luminance := func(c [3]float64) float64 {
		var l float64
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v := c[i] / 255
			if v <= 0.04045 {
				v /= 12.92
			} else {
				v = math.Pow((v+0.055)/1.055, 2.4)
			}
			l += weight * v
		}
		return l + 0.05
	}
	x, y := luminance(a), luminance(b)
	return max(x, y) / min(x, y)
}
