package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// A table is what people see of a survey, as text and as HTML.
type table struct {
	Title string
	Note  string
	Head  []column
	Rows  [][]string

	TextOnly bool // the page has the same in another form
}

// add adds a row.
func (t *table) add(cells ...string) { t.Rows = append(t.Rows, cells) }

// A column is text or numbers.
type column struct {
	Name   string
	Number bool
}

// columnsOf makes columns of names; those that begin with # are of numbers.
func columnsOf(names ...string) []column {
	var out []column
	for _, n := range names {
		name, number := strings.CutPrefix(n, "#")
		out = append(out, column{name, number})
	}
	return out
}

// title says in one line what was surveyed.
func (s *Survey) title() string {
	return fmt.Sprintf("Survey: %s ELF files, %s of them with CFI", count(s.Total.Files), count(s.Total.WithCFI))
}

// tables returns the survey for people.
func (s *Survey) tables() []table {
	parts := s.rows()
	out := []table{occurrence(parts), coverage(parts)}
	for _, p := range parts {
		out = append(out, gaps(&p))
	}
	out = append(out, origins("Languages", s.Languages), origins("Compilers", s.Compilers))
	out = append(out, notTranslated(parts))
	for _, i := range []int{0, 1, len(out) - 1} {
		out[i].Note = strings.TrimSpace(out[i].Note + " " + s.paths())
	}
	out = append(out,
		badFiles("Worst files by bytes", s.WorstBytes), badFiles("Worst files by share", s.WorstShare),
		badFunctions(s.WorstFunctions), s.errors(),
	)
	var full []table
	for _, t := range out {
		if len(t.Rows) > 0 {
			full = append(full, t)
		}
	}
	return full
}

// maxPaths is how many paths have rows of their own.
const maxPaths = 20

// rows returns the paths and the ABIs with CFI, if there are several, and all.
func (s *Survey) rows() []Part {
	var out []Part
	if len(s.Paths) > 1 {
		out = slices.Clone(s.Paths)
		slices.SortStableFunc(out, func(a, b Part) int { return cmp.Compare(b.Files, a.Files) })
		out = out[:min(len(out), maxPaths)]
		slices.SortFunc(out, func(a, b Part) int { return cmp.Compare(a.Name, b.Name) })
	}
	abis := slices.DeleteFunc(slices.Clone(s.ABIs), func(p Part) bool { return p.WithCFI == 0 })
	if len(abis) > 1 {
		out = append(out, abis...)
	}
	return append(out, Part{Name: "all", Sums: s.Total})
}

// paths says that there are more paths than those with rows.
func (s *Survey) paths() string {
	n := len(s.Paths) - maxPaths
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("Of %s the %d with most files have rows; there are %s more, which the JSON form has.",
		countOf(len(s.Paths), "path"), maxPaths, count(n))
}

func occurrence(parts []Part) table {
	t := table{
		Title: "Occurrence",
		Note:  "Non-SP/FP CFA: one based on another register. DRAP: one that is an expression. PLTs do not count.",
		Head:  columnsOf("", "#ELF files", "#with CFI", "#non-SP/FP CFA", "#", "#DRAP", "#"),
	}
	for i := range parts {
		p := &parts[i]
		part := func(n uint64) []string {
			return []string{fmt.Sprintf("%s/%s", count(n), count(p.Files)), report.Share(n, p.Files)}
		}
		row := []string{report.Printable(p.Name), count(p.Files), count(p.WithCFI)}
		if p.Files > 0 {
			t.Rows = append(t.Rows, append(append(row, part(p.OtherCFA)...), part(p.DRAP)...))
		}
	}
	return t
}

func coverage(parts []Part) table {
	t := table{
		Title: "Coverage",
		Note:  "What CFI describes, and of how much of that a stack trace loses nothing. V1 is not for s390x, nor for objects.",
		Head:  columnsOf("", "#functions", "#bytes"),
	}
	for _, v := range Formats {
		t.Head = append(t.Head, columnsOf(fmt.Sprintf("#V%d functions", v), fmt.Sprintf("#V%d bytes", v))...)
	}
	t.Head = append(t.Head, columnsOf("#bytes without CFI")...)
	for i := range parts {
		p := &parts[i]
		row := []string{report.Printable(p.Name), count(p.Functions), count(p.Described)}
		for _, v := range Formats {
			f := p.format(v)
			row = append(row, shareOf(f.Whole, f.Functions), f.share())
		}
		if p.Files > 0 {
			t.Rows = append(t.Rows, append(row, count(p.WithoutCFI)))
		}
	}
	return t
}

// maxOrigins is how many languages and compilers have rows of their own.
const maxOrigins = 30

// origins has the languages or the compilers, those of most files first.
func origins(title string, parts []Part) table {
	t := table{
		Title: title,
		Note:  "As far as files tell by what compilers and libraries leave in them. C leaves nothing: it is what others are not.",
		Head:  columnsOf("", "#ELF files", "#with CFI", "#functions", "#bytes", "#V2 bytes", "#V3 bytes", "#bytes without CFI"),
	}
	if title == "Compilers" {
		t.Note = "As far as files tell: .comment is gone where it was stripped. Start files have one of their own, mostly of GCC."
	}
	if len(parts) == 1 && parts[0].Name == unknown {
		return t
	}
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(b.Files, a.Files) })
	if n := len(parts) - maxOrigins; n > 0 {
		parts = parts[:maxOrigins]
		t.Note += fmt.Sprintf(" The JSON form has %s more.", count(n))
	}
	for i := range parts {
		p := &parts[i]
		row := []string{report.Printable(p.Name), count(p.Files), count(p.WithCFI), count(p.Functions), count(p.Described)}
		v2, v3 := p.format(sframe.V2), p.format(sframe.V3)
		row = append(row, v2.share(), v3.share())
		t.Rows = append(t.Rows, append(row, count(p.WithoutCFI)))
	}
	return t
}

func gaps(p *Part) table {
	t := table{
		Title: "Left out in format 2: " + report.Printable(p.Name),
		Head:  columnsOf("reason", "#files", "#functions", "#ranges", "#bytes", ""),
	}
	for _, g := range p.Gaps {
		if g.Ranges > 0 {
			t.Rows = append(t.Rows, []string{
				g.Reason, count(g.Files), count(g.Functions), count(g.Ranges), count(g.Bytes), g.Text,
			})
		}
	}
	return t
}

func notTranslated(parts []Part) table {
	t := table{Title: "Files without CFI to be translated", Head: columnsOf("", "#files", "reason")}
	for i := range parts {
		p := &parts[i]
		for _, r := range p.Refused {
			if r.Files > 0 {
				t.Rows = append(t.Rows, []string{report.Printable(p.Name), count(r.Files), r.Text})
			}
		}
		for _, s := range []struct {
			n    uint64
			what string
		}{
			{p.Skipped.Objects, "relocatable object or archive, not asked for"},
			{p.Skipped.Other, "not ELF"},
		} {
			if s.n > 0 {
				t.Rows = append(t.Rows, []string{report.Printable(p.Name), count(s.n), "not examined: " + s.what})
			}
		}
	}
	return t
}

func badFiles(title string, files []BadFile) table {
	t := table{
		Title: title,
		Note:  "Lost is code of which a stack trace loses something in format 2; the reason is that of most of it.",
		Head:  columnsOf("#lost bytes", "#of", "#", "reason", "file"),

		TextOnly: true,
	}
	for _, f := range files {
		t.Rows = append(t.Rows, []string{
			count(f.Lost), count(f.Described), report.Share(f.Lost, f.Described), f.Reason, report.Printable(f.File),
		})
	}
	return t
}

func badFunctions(functions []BadFunction) table {
	t := table{Title: "Worst functions", Head: columnsOf("#lost bytes", "#of", "reason", "file", "function")}
	for _, f := range functions {
		name := f.Function
		if name == "" {
			name = fmt.Sprintf("at %#x", f.Begin)
			if f.Section != "" {
				name = fmt.Sprintf("at %s+%#x", f.Section, f.Begin)
			}
		}
		t.Rows = append(t.Rows, []string{
			count(f.Lost), count(f.Size), f.Reason, report.Printable(f.File), short(report.Printable(name)),
		})
	}
	return t
}

func (s *Survey) errors() table {
	t := table{Title: "Files that are damaged or cannot be read", Head: columnsOf("file", "error")}
	for _, e := range s.Errors {
		t.Rows = append(t.Rows, []string{report.Printable(e.File), report.Printable(e.Error)})
	}
	if s.ErrorsOmitted > 0 {
		t.Note = fmt.Sprintf("The first of %s; the CSV form has all.", count(len(s.Errors)+s.ErrorsOmitted))
	}
	return t
}

// maxName is how much of a function's name a table shows, in characters: C++ has names of
// thousands.
const maxName = 120

func short(name string) string {
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName-3]) + "..."
	}
	return name
}

// share returns how much code loses nothing.
func (f *Format) share() string {
	if f.Functions == 0 {
		return "-"
	}
	return report.Share(f.Covered+f.Outermost, f.Described)
}

// shareOf returns a share of what can be nothing.
func shareOf(n, of uint64) string {
	if of == 0 {
		return "-"
	}
	return report.Share(n, of)
}

// count writes a number, grouped by thousands.
func count[T int | uint64](n T) string { return report.Digits(uint64(n)) }

// countOf counts things.
func countOf[T int | uint64](n T, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
