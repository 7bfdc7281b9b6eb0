// Package page contains the style, script and template parts that all HTML pages share, such as a table that can be
// sorted, filtered and paged.
//
// A page is self-contained: it needs no network. Names come from files that may be hostile. Without JavaScript, a page
// shows the first rows of each table.
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

// policy allows the inlined style and script by hash, so that markup in a name can neither run nor load anything. A
// test checks the hashes.
const policy = "default-src 'none'; style-src 'sha256-oIVKFwhX4bFe6vu9lsdy4Rlw9GbZrFwDEQ1AebgZtUg='; script-src " +
	"'sha256-IA1KWvjnsDCsRgm+/i5y4URyYhWk6+Op7HQnVMrDl9s='"

// Template parses a page together with the shared parts.
func Template(text string, funcs template.FuncMap) *template.Template {
	t := template.New("page").Funcs(funcs).Funcs(template.FuncMap{
		"grouped": Grouped,
		"percent": Share,
		"policy":  func() string { return policy },
		"scaled":  scaled,
		"script":  func() template.JS { return template.JS(script) },
		"style":   func() template.CSS { return template.CSS(style) },
		"value":   func(share string) string { return strings.TrimSuffix(share, " %") },
	})
	return template.Must(template.Must(t.Parse(parts)).Parse(text))
}

// A Frame holds the data of the parts "top" and "end", which start and end every page.
type Frame struct {
	Title string
	Maker string // the name and version of the program
	Data  Data
}

// NewFrame returns the frame of a page without tables.
func NewFrame(title, maker string) Frame {
	return Frame{title, maker, Data{Reasons: map[string]string{}, Tables: map[string][][]string{}}}
}

// A Split divides code, in bytes, by its coverage: the data of the parts "stack" and "cards".
type Split struct{ Code, Unwindable, NotCovered, NoCFI uint64 }

// NewSplit returns the Split for the given numbers of bytes. Code in neither category has no CFI.
func NewSplit(code, unwindable, notCovered uint64) Split {
	unwindable = min(unwindable, code)
	notCovered = min(notCovered, code-unwindable)
	return Split{code, unwindable, notCovered, code - unwindable - notCovered}
}

// Left returns the bytes of code that cannot be unwound.
func (s Split) Left() uint64 { return s.NotCovered + s.NoCFI }

// Described returns the bytes of code with CFI.
func (s Split) Described() uint64 { return s.Unwindable + s.NotCovered }

// Data is the JSON input of the page's script. Cells are strings because JavaScript numbers cannot hold 64 bits.
type Data struct {
	Reasons map[string]string     `json:"reasons"` // texts, by name
	Tables  map[string][][]string `json:"tables"`  // rows of cells, by the table's ID
}

// Add adds the rows of a table, and returns the table with them. d.Reasons must contain the reasons in the rows.
func (d *Data) Add(t Table, rows [][]string) Table {
	if rows == nil {
		rows = [][]string{}
	}
	d.Tables[t.ID] = rows
	t.data, t.rows = d, rows
	return t
}

// A Table holds the data for the part "table".
type Table struct {
	ID, Caption string
	Noun        string // plural noun for the rows
	Columns     []Column
	First       int      // index of the first column to show
	Reasons     []string // choices of the filter, if any
	Short       bool     // too short to need a filter
	Falling     string   // name of the column by which the rows are sorted in descending order, or ""

	data *Data
	rows [][]string
}

// A Column's kind says how it is sorted and shown: text, number, share (a percentage with a bar), hex, place, rule, and
// reason (by name). A column of the kind "name" or "file" holds the subject of its row. A row may have an extra cell at
// the end: the symbol for a name, or the link to a file.
type Column struct{ Name, Kind string }

// Columns returns columns from pairs of a name and a kind.
func Columns(namesAndKinds ...string) []Column {
	var out []Column
	for i := 0; i < len(namesAndKinds); i += 2 {
		out = append(out, Column{namesAndKinds[i], namesAndKinds[i+1]})
	}
	return out
}

// maxStatic is the maximum number of rows that are visible without JavaScript.
const maxStatic = 1000

// Static returns the rows that the template writes, for browsers without JavaScript.
func (t Table) Static() [][]string { return t.rows[:min(len(t.rows), maxStatic)] }

// Extra returns the extra cell of a row, or "".
func (t Table) Extra(row []string) string {
	if len(row) == len(t.Columns) {
		return ""
	}
	return row[len(t.Columns)]
}

// ReasonText returns the text for the reason with this name or, if there is no text, the name.
func (t Table) ReasonText(name string) string { return cmp.Or(t.data.Reasons[name], name) }

// Filtered reports whether the page offers a filter for the rows.
func (t Table) Filtered() bool { return !t.Short && len(t.rows) > 5 }

// Len counts the rows.
func (t Table) Len() int { return len(t.rows) }

// NotStatic returns the number of rows that are hidden without JavaScript.
func (t Table) NotStatic() int { return max(len(t.rows)-maxStatic, 0) }

// A Bar shows the bytes of a single reason in the part "bars".
type Bar struct {
	Name, Text string
	Bytes      uint64
	Of         string // description of these bytes
}

// A Chart holds the bars of reasons, the longest first: the data of the part "bars".
type Chart struct {
	Bars []Bar
	Code uint64
}

// Longest returns the number of bytes that the longest bar represents.
func (c Chart) Longest() uint64 { return c.Bars[0].Bytes }

// Chart returns a chart of the given reasons, with another bar for code without CFI.
func (s Split) Chart(reasons []Bar) Chart {
	var bars []Bar
	if s.NoCFI > 0 {
		bars = append(bars, Bar{Name: "without", Text: "code without CFI", Bytes: s.NoCFI, Of: "that no CFI describes"})
	}
	bars = append(bars, reasons...)
	slices.SortStableFunc(bars, func(a, b Bar) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return Chart{bars, s.Code}
}

// Share formats n/whole in percent. Only zero is shown as 0, and only the whole as 100.
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

// Percentage formats a percentage. Only exactly 100 is shown as 100.
func Percentage(v float64) string { return fmt.Sprintf("%.2f %%", Rounded(v)) }

// Rounded rounds a percentage to two decimals. It never rounds up to 100.
func Rounded(v float64) float64 {
	if v < 100 {
		v = min(v, 99.99)
	}
	return math.Round(100*v) / 100
}

// ratio returns n/whole in percent, or 0 if both are 0.
func ratio(n, whole uint64) float64 { return 100 * float64(n) / float64(max(whole, 1)) }

// scaled returns n as a length in a drawing in which whole has the length 1000. Browsers cannot draw lengths above
// 33,554,431.
func scaled(n, whole uint64) string { return fmt.Sprintf("%.2f", 10*ratio(n, whole)) }

// Grouped adds thousands separators to a decimal number. Other text is unchanged.
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
