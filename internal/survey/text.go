package survey

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Forms are the names of the forms that Write knows.
var Forms = []string{"text", "json", "csv", "html"}

// Write writes the survey in the form of the given name.
func (s *Survey) Write(w io.Writer, form string) error {
	switch form {
	case "json":
		return s.JSON(w)
	case "csv":
		return s.CSV(w, nil)
	case "html":
		return s.HTML(w, nil)
	}
	return s.Text(w)
}

// Text writes the survey for people.
func (s *Survey) Text(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintln(out, s.title())
	if only := s.Only(); only != "" {
		fmt.Fprintln(out, only)
	}
	for _, t := range s.tables() {
		t.write(out)
	}
	return out.Flush() // which has the first error
}

// write writes the table below its title.
func (t *table) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", t.Title)
	if t.Note != "" {
		fmt.Fprintf(w, "  %s\n", t.Note)
	}
	t.text(w)
}

// text writes the rows with aligned columns.
func (t *table) text(w io.Writer) {
	head := make([]string, len(t.Head))
	for i, c := range t.Head {
		head[i] = c.Name
	}
	rows := append([][]string{head}, t.Rows...)
	widths := make([]int, len(head))
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			b.WriteString("  ")
			if t.Head[i].Number {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}
