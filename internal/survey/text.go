package survey

import (
	"bufio"
	"fmt"
	"io"
	"slices"
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
		return s.HTML(w, nil, "")
	}
	return s.Text(w)
}

// Text writes the survey for people.
func (s *Survey) Text(w io.Writer) error {
	return writeText(w, []string{s.title(), s.headline(), s.Only()}, s.tables())
}

// writeText writes those lines and tables that are not empty.
func writeText(w io.Writer, lines []string, tables []table) error {
	out := bufio.NewWriter(w)
	for _, line := range lines {
		if line != "" {
			fmt.Fprintln(out, line)
		}
	}
	for _, t := range tables {
		if len(t.Rows) > 0 {
			t.write(out)
		}
	}
	return out.Flush() // which has the first error
}

// write writes the table below its title, with aligned columns. Columns of obvious contents have no names.
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
