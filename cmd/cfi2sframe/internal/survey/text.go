package survey

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Text writes the text report.
func (s *Survey) Text(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, s.title())
	if line := s.headline(); line != "" {
		fmt.Fprintln(out, line)
	}
	for _, t := range s.tables() {
		t.write(out)
	}
	return out.Flush() // returns the first error
}

// write writes the title and the table, with aligned columns. Self-explanatory columns have no heading.
func (t *table) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(w, "  %s\n", t.Note)
	}
	head := make([]string, len(t.Head))
	for i, c := range t.Head {
		if !slices.Contains([]string{"part", "share", "meaning"}, c.Name) {
			head[i] = c.Name
		}
	}
	rows := append([][]string{head}, t.Rows...)
	widths := make([]int, len(head))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		line := ""
		for i, cell := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if t.Head[i].Kind == "number" {
				line += "  " + pad + cell
			} else {
				line += "  " + cell + pad
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}
