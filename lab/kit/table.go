package kit

import (
	"fmt"
	"io"
	"strings"
)

// A Table writes a Markdown table, row by row.
type Table struct{ w io.Writer }

// NewTable writes the header. Columns whose names start with ">" are right-aligned.
func NewTable(w io.Writer, columns ...string) Table {
	names, rule := make([]any, len(columns)), make([]any, len(columns))
	for i, c := range columns {
		name, number := strings.CutPrefix(c, ">")
		names[i], rule[i] = name, "---"
		if number {
			rule[i] = "---:"
		}
	}
	t := Table{w}
	t.Row(names...)
	t.Row(rule...)
	return t
}

// Row writes a row.
func (t Table) Row(cells ...any) {
	for _, c := range cells {
		fmt.Fprintf(t.w, "| %v ", c)
	}
	fmt.Fprintln(t.w, "|")
}
