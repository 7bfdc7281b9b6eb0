package debian

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"cfi2sframe/report"
)

// tables prints what docs/debian.md has, or puts it there.
func tables(s *settings, out io.Writer) error {
	all, err := loadAll(s.results)
	if err != nil {
		return err
	}
	readers, err := lookups(filepath.Join(s.results, "readers.txt"))
	if err != nil {
		return err
	}
	list := []table{
		{"packages", packages(all)},
		{"checks", checks(all)},
		{"coverage", coverage(all)},
		{"reasons", reasons(all)},
		{"gains", gains(all)},
		{"languages", origins(all, "language", "languages")},
		{"compilers", origins(all, "compiler", "compilers")},
		{"causes", causes(all)},
		{"projects", projects(all)},
		{"functions", functions(all)},
		{"without", without(all)},
		{"fixes", covered(all)},
		{"sizes", sizes(all)},
		{"refusals", refusals(all)},
		{"examples", examples(all)},
		{"malformed", malformed(all)},
		{"own", owns(all)},
		{"readers", readers},
	}
	if s.into != "" {
		return update(s.into, list)
	}
	w := bufio.NewWriter(out)
	for _, t := range list {
		fmt.Fprintf(w, "## %s\n\n%s\n", t.name, grid(t.lines))
	}
	return w.Flush()
}

// lookups returns the table that scripts/readers has printed, or that of no look-ups.
func lookups(name string) ([][]string, error) {
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var lines [][]string
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
			if n, err := strconv.ParseUint(cells[i], 10, 64); err == nil {
				cells[i] = digits(n)
			} else if len(lines) == 0 && i > 2 { // after library, format and ABI
				cells[i] = "#" + cells[i]
			}
		}
		lines = append(lines, cells)
	}
	if lines == nil {
		lines = [][]string{nil}
	}
	return lines, nil
}

// A table has a name, by which a document has it.
type table struct {
	name  string
	lines [][]string
}

// update puts tables into a document, each between its name in a comment and the comment "end". All have to be there.
func update(doc string, list []table) error {
	b, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	text := string(b)
	for _, t := range list {
		begin := fmt.Sprintf("<!-- %s -->\n", t.name)
		before, rest, ok := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, "<!-- end -->\n")
		if !ok || !ended {
			return fmt.Errorf("%s: no %sand <!-- end --> after it", doc, begin)
		}
		text = before + begin + grid(t.lines) + "<!-- end -->\n" + after
	}
	return writeFile(doc, []byte(text))
}

// grid makes a table in Markdown. Columns whose name begins with # are of numbers.
func grid(lines [][]string) string {
	if len(lines) == 1 {
		return "None.\n"
	}
	var b strings.Builder
	for i, line := range lines {
		b.WriteByte('|')
		for _, cell := range line {
			cell = strings.ReplaceAll(cell, "|", `\|`)
			if i == 0 {
				cell = strings.TrimPrefix(cell, "#")
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteByte('\n')
		if i > 0 {
			continue
		}
		b.WriteByte('|')
		for _, cell := range line {
			if strings.HasPrefix(cell, "#") {
				b.WriteString(" ---: |")
			} else {
				b.WriteString(" --- |")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func digits[T int | int64 | uint64](n T) string { return report.Digits(uint64(n)) }

// share is a part of a whole in percent, or nothing of nothing.
func share(n, of uint64) string {
	if of == 0 {
		return "-"
	}
	return report.Share(n, of)
}

// code names a function or a file in Markdown.
func code(name string) string {
	if name == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(report.Printable(name), "`", "'") + "`"
}
