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
const policy = "default-src 'none'; style-src 'sha256-iRNrY3qUdOUh5772+E27VNeUZmr1DU3H3PgMrD/YnkI='; script-src 'sha256-BmLTQxVzg6s4O5kFShcCN2s909XLAowa8O3V0UQIoHE='"

// Template returns the template of a page and of the parts.
func Template(text string, funcs template.FuncMap) *template.Template {
	t := template.New("page").Funcs(funcs).Funcs(template.FuncMap{
		"grouped": Grouped,
		"policy":  func() string { return policy },
		"script":  func() template.JS { return template.JS(script) },
		"style":   func() template.CSS { return template.CSS(style) },
	})
	return template.Must(template.Must(t.Parse(parts)).Parse(text))
}

// A Frame has the data of the parts "top" and "end", which every page begins and ends with.
type Frame struct {
	Title string
	Data  Data
}

// NewFrame returns the frame of a page without tables.
func NewFrame(title string) Frame {
	return Frame{title, Data{Reasons: map[string]string{}, Tables: map[string][][]string{}}}
}

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

// A Reason is one for gaps, to choose from.
type Reason struct{ Name, Text string }

// A Table is the data of the part "table".
type Table struct {
	ID, Caption string
	Noun        string // what its rows are
	Columns     []Column
	First       int      // column to begin with
	Reasons     []Reason // to choose from, or none
	Short       bool     // there is nothing to filter
	Falling     string   // name of the column by which the rows are sorted, most first, or ""

	data *Data
	rows [][]string
}

// A Column's kind says how it is sorted and shown: text, number, hex, place, rule, source, and reason (by name). The
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

// NotStatic counts the other rows.
func (t Table) NotStatic() int { return max(len(t.rows)-maxStatic, 0) }

// A Bar is a reason in the part "bars", with the lengths of its bar in percent.
type Bar struct {
	Name, Text      string
	Loss            bool
	Stays, Striped  string // the striped part is covered by format 3
	Size, Of, Share string // in words: bytes, number of gaps, and how much format 3 covers, or ""
}

// Part returns a length in percent, for graphics.
func Part(n, whole uint64) string {
	return fmt.Sprintf("%.3f%%", 100*float64(n)/float64(max(whole, 1)))
}

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
