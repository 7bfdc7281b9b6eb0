// Package page has the style, the script and the parts of templates that all pages share. The largest part is a table
// that can be sorted, filtered and paged through.
//
// A page works without a network in any directory. Its names come from files that may be hostile. Without JavaScript it
// shows the first rows of its tables.
package page

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
)

var (
	//go:embed page.css
	style string
	//go:embed page.js
	script string
	//go:embed parts.html.tmpl
	parts string
)

// policy allows the inlined style and script by their hashes: markup in a name can neither run nor load anything. A
// test computes the hashes, so that the program needs no cryptography.
const policy = "default-src 'none'; style-src 'sha256-Q+I6wscG42ZmS9LuUAENajpUuSLzlRgiWsPuOj1uV18='; script-src 'sha256-cD/WPB0AtBwba8VcMNTN0LMPOsNeLFiONIdPizIx0AE='"

// Template returns the template of a page and of the parts.
func Template(text string, funcs template.FuncMap) *template.Template {
	t := template.New("page").Funcs(funcs).Funcs(template.FuncMap{
		"grouped": Grouped,
		"percent": Share,
		"policy":  func() string { return policy },
		"script":  func() template.JS { return template.JS(script) },
		"style":   func() template.CSS { return template.CSS(style) },
	})
	return template.Must(template.Must(t.Parse(parts)).Parse(text))
}

// A Frame has the data of the parts "top" and "end", which every page begins and ends with.
type Frame struct {
	Title string
	Maker string // the name and version of the program
	Data  Data
}

// NewFrame returns the frame of a page without tables.
func NewFrame(title, maker string) Frame {
	return Frame{title, maker, Data{Reasons: map[string]string{}, Tables: map[string][][]string{}}}
}

// A Split says what becomes of code, in bytes: the data of the parts "stack" and "cards".
type Split struct{ Code, Unwindable, NotCovered, NoCFI uint64 }

// NewSplit divides code. What is neither unwindable nor not covered has no CFI.
func NewSplit(code, unwindable, notCovered uint64) Split {
	unwindable = min(unwindable, code)
	notCovered = min(notCovered, code-unwindable)
	return Split{code, unwindable, notCovered, code - unwindable - notCovered}
}

// Add adds what becomes of other code.
func (s *Split) Add(t Split) {
	s.Code += t.Code
	s.Unwindable += t.Unwindable
	s.NotCovered += t.NotCovered
	s.NoCFI += t.NoCFI
}

// Left returns how much of the code cannot be unwound.
func (s Split) Left() uint64 { return s.NotCovered + s.NoCFI }

// Described returns how much of the code has CFI.
func (s Split) Described() uint64 { return s.Unwindable + s.NotCovered }

// Data is the input of the script. Cells are strings: numbers of 64 bits would lose digits.
type Data struct {
	Reasons map[string]string     `json:"reasons"` // texts, by name
	Tables  map[string][][]string `json:"tables"`  // rows of cells, by the table's ID
}

// Add adds the rows of a table, and returns the table with them. Data has the table's reasons.
func (d *Data) Add(t Table, rows [][]string) Table {
	if rows == nil {
		rows = [][]string{}
	}
	d.Tables[t.ID] = rows
	t.data, t.rows = d, rows
	return t
}

// A Table is the data of the part "table".
type Table struct {
	ID, Caption string
	Noun        string // what its rows are
	Columns     []Column
	First       int      // column to begin with
	Reasons     []string // names to choose from, or none
	Short       bool     // there is nothing to filter
	Falling     string   // name of the column by which the rows are sorted, most first, or ""

	data *Data
	rows [][]string
}

// A Column's kind says how it is sorted and shown: text, number, hex, place, rule, and reason (by name). The
// kinds name, file and part are for the subject of a row. After its columns a row can have one more cell: the symbol of
// a name, or the link of a file.
type Column struct{ Name, Kind string }

// Columns returns columns of the given names, each followed by its kind.
func Columns(namesAndKinds ...string) []Column {
	var out []Column
	for i := 0; i < len(namesAndKinds); i += 2 {
		out = append(out, Column{namesAndKinds[i], namesAndKinds[i+1]})
	}
	return out
}

// maxStatic is how many rows there are for a reader without JavaScript.
const maxStatic = 1000

// Static returns the rows for a reader without JavaScript, which the template shows as the script does.
func (t Table) Static() [][]string { return t.rows[:min(len(t.rows), maxStatic)] }

// Extra returns the row's cell after its columns, or "".
func (t Table) Extra(row []string) string {
	if len(row) == len(t.Columns) {
		return ""
	}
	return row[len(t.Columns)]
}

// ReasonText returns the words for a reason's name, or the name.
func (t Table) ReasonText(name string) string { return cmp.Or(t.data.Reasons[name], name) }

// Filtered reports whether readers can filter the rows.
func (t Table) Filtered() bool { return !t.Short && len(t.rows) > 5 }

// Len counts the rows.
func (t Table) Len() int { return len(t.rows) }

// NotStatic counts the rows that a reader without JavaScript does not see.
func (t Table) NotStatic() int { return max(len(t.rows)-maxStatic, 0) }

// A Bar is a reason in the part "bars".
type Bar struct {
	Name, Text string
	Bytes      uint64
	Of         string // in words: number of gaps
}

// A Chart has the bars of reasons, the longest first: the data of the part "bars".
type Chart struct {
	Bars []Bar
	Code uint64
}

// Longest returns the bytes of the longest bar.
func (c Chart) Longest() uint64 { return c.Bars[0].Bytes }

// Chart returns the chart of reasons and code without CFI.
func (s Split) Chart(reasons []Bar) Chart {
	var bars []Bar
	if s.NoCFI > 0 {
		bars = append(bars, Bar{Name: "without", Text: "code without CFI", Bytes: s.NoCFI, Of: "that no CFI describes"})
	}
	bars = append(bars, reasons...)
	slices.SortStableFunc(bars, func(a, b Bar) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return Chart{bars, s.Code}
}

// Share returns a part of a whole in percent. Only nothing is 0, and only all is 100.
func Share(n, whole uint64) string {
	v := ratio(n, whole)
	switch {
	case n >= whole:
		v = 100
	case n > 0 && v < 0.01:
		return "< 0.01 %"
	}
	return Percentage(v)
}

// Percentage returns a number of percent in words: 100 stands for all.
func Percentage(v float64) string { return fmt.Sprintf("%.2f %%", Rounded(v)) }

// Rounded returns a number of percent with two decimals: 100 stands for all.
func Rounded(v float64) float64 {
	if v < 100 {
		v = min(v, 99.99)
	}
	return math.Round(100*v) / 100
}

// ratio returns a part of a whole in percent: of nothing, it is 0.
func ratio(n, whole uint64) float64 { return 100 * float64(n) / float64(max(whole, 1)) }

// Grouped returns a decimal number with commas between the thousands, and anything else as it is.
func Grouped(s string) string {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return s
	}
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
