package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/internal/page"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// A table is what people see of a survey, as text and as HTML.
type table struct {
	Title string
	Note  string
	Head  []page.Column
	Rows  [][]string

	TextOnly bool // the page has the same in another form
}

// newTable returns a table without rows. Columns that begin with # are of numbers.
func newTable(title, note string, columns ...string) table {
	t := table{Title: title, Note: note}
	kinds := map[string]string{"part": "part", "function": "name", "file": "file"}
	for _, c := range columns {
		name, number := strings.CutPrefix(c, "#")
		kind := cmp.Or(kinds[name], "text")
		if number {
			kind = "number"
		}
		t.Head = append(t.Head, page.Column{Name: name, Kind: kind})
	}
	return t
}

// add adds a row. No cell can control a terminal.
func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = report.Printable(cells[i])
	}
	t.Rows = append(t.Rows, cells)
}

// title says in one line what was surveyed.
func (s *Survey) title() string {
	return fmt.Sprintf("Survey: %s ELF files, %s of them with CFI", count(s.Total.Files), count(s.Total.WithCFI))
}

// headline says how much of the code can be unwound.
func (s *Survey) headline() string {
	if s.Total.Code == 0 {
		return ""
	}
	code := report.Amounts{Code: s.Total.Code, Unwindable: s.Total.format(detailed).Unwindable}
	return fmt.Sprintf("Format %d: %v", detailed, &code)
}

// tables returns the survey for people.
func (s *Survey) tables() []table {
	parts := s.rows()
	out := []table{unwindable(parts), occurrence(parts), coverage(parts)}
	for _, p := range parts {
		out = append(out, gaps(&p))
	}
	out = append(out, origins("Languages", s.Languages), origins("Compilers", s.Compilers), notTranslated(parts))
	if n := len(s.Paths) - maxPaths; n > 0 {
		note := fmt.Sprintf("Of %s the %d with most files have rows; there are %s more, which the JSON form has.",
			countOf(len(s.Paths), "path"), maxPaths, count(n))
		for _, i := range []int{0, 1, 2, len(out) - 1} {
			out[i].Note = strings.TrimSpace(out[i].Note + " " + note)
		}
	}
	out = append(out,
		badFiles("Worst files by bytes", s.WorstBytes), badFiles("Worst files by share", s.WorstShare),
		badFunctions(s.WorstFunctions), s.errors(),
	)
	return slices.DeleteFunc(out, func(t table) bool { return len(t.Rows) == 0 })
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

// ofAllCode says what unwindable code is a share of.
const ofAllCode = "Of all code without padding, also that of files without CFI."

func unwindable(parts []Part) table {
	columns := []string{"part", "#bytes of code"}
	for _, v := range Formats {
		columns = append(columns, fmt.Sprintf("#V%d", v))
	}
	t := newTable("Unwindable code", ofAllCode+" V1 is not for s390x, nor for objects.", columns...)
	for _, p := range parts {
		row := []string{p.Name, count(p.Code)}
		for _, v := range Formats {
			row = append(row, shareOf(p.format(v).Unwindable, p.Code))
		}
		if p.Code > 0 {
			t.add(row...)
		}
	}
	return t
}

func occurrence(parts []Part) table {
	t := newTable("Occurrence",
		"Non-SP/FP CFA: one based on another register. DRAP: one that is an expression. PLTs do not count.",
		"part", "#ELF files", "#with CFI", "#non-SP/FP CFA", "#share", "#DRAP", "#share")
	for _, p := range parts {
		of := func(n uint64) string { return count(n) + "/" + count(p.Files) }
		if p.Files > 0 {
			t.add(p.Name, count(p.Files), count(p.WithCFI),
				of(p.OtherCFA), report.Share(p.OtherCFA, p.Files), of(p.DRAP), report.Share(p.DRAP, p.Files))
		}
	}
	return t
}

func coverage(parts []Part) table {
	columns := []string{"part", "#functions", "#bytes"}
	for _, v := range Formats {
		columns = append(columns, fmt.Sprintf("#V%d functions", v), fmt.Sprintf("#V%d bytes", v))
	}
	t := newTable("Coverage",
		"Code that CFI describes, and the part with complete stack traces. V1 supports neither s390x nor objects.",
		append(columns, "#bytes without CFI")...)
	for _, p := range parts {
		row := []string{p.Name, count(p.Functions), count(p.Described)}
		for _, v := range Formats {
			f := p.format(v)
			row = append(row, shareOf(f.Whole, f.Functions), f.share())
		}
		if p.Files > 0 {
			t.add(append(row, count(p.WithoutCFI))...)
		}
	}
	return t
}

// maxOrigins is how many languages and compilers have rows of their own.
const maxOrigins = 30

// origins has the languages or the compilers, those of most files first.
func origins(title string, parts []Part) table {
	note := "As far as files tell by what compilers and libraries leave in them. " +
		"C leaves nothing: it is what others are not."
	if title == "Compilers" {
		note = "As far as files tell: .comment is gone where it was stripped. " +
			"Start files have one of their own, mostly of GCC."
	}
	if len(parts) == 1 && parts[0].Name == unknown {
		return table{}
	}
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(b.Files, a.Files) })
	if n := len(parts) - maxOrigins; n > 0 {
		parts = parts[:maxOrigins]
		note += fmt.Sprintf(" The JSON form has %s more.", count(n))
	}
	t := newTable(title, note,
		"part", "#ELF files", "#with CFI", "#bytes of code", "#V2 unwindable", "#V3 unwindable", "#functions",
		"#bytes", "#V2 bytes", "#V3 bytes", "#bytes without CFI")
	for _, p := range parts {
		v2, v3 := p.format(sframe.V2), p.format(sframe.V3)
		t.add(p.Name, count(p.Files), count(p.WithCFI), count(p.Code), shareOf(v2.Unwindable, p.Code),
			shareOf(v3.Unwindable, p.Code), count(p.Functions), count(p.Described), v2.share(), v3.share(),
			count(p.WithoutCFI))
	}
	return t
}

func gaps(p *Part) table {
	t := newTable("Left out in format 2: "+report.Printable(p.Name), "",
		"reason", "#files", "#functions", "#ranges", "#bytes", "meaning")
	for _, g := range p.Gaps {
		if g.Ranges > 0 {
			t.add(g.Reason, count(g.Files), count(g.Functions), count(g.Ranges), count(g.Bytes), g.Text)
		}
	}
	return t
}

func notTranslated(parts []Part) table {
	t := newTable("Files without CFI to be translated", "", "part", "#files", "reason")
	for _, p := range parts {
		for _, r := range p.Refused {
			t.add(p.Name, count(r.Files), r.Text)
		}
		if n := p.Skipped.Objects; n > 0 {
			t.add(p.Name, count(n), "not examined: relocatable object or archive, not asked for")
		}
		if n := p.Skipped.Other; n > 0 {
			t.add(p.Name, count(n), "not examined: not ELF")
		}
	}
	return t
}

func badFiles(title string, files []BadFile) table {
	t := newTable(title,
		"Lost is code without complete stack traces in format 2; the reason is that of most of it.",
		"#lost bytes", "#of", "#share", "reason", "file")
	t.TextOnly = true
	for _, f := range files {
		t.add(count(f.Lost), count(f.Described), report.Share(f.Lost, f.Described), f.Reason, f.File)
	}
	return t
}

func badFunctions(functions []BadFunction) table {
	t := newTable("Worst functions", "", "#lost bytes", "#of", "reason", "file", "function")
	t.Head[2].Kind = "reason"
	for _, f := range functions {
		name := f.Function
		if name == "" && f.Section != "" {
			name = fmt.Sprintf("at %s+%#x", f.Section, f.Begin)
		} else if name == "" {
			name = fmt.Sprintf("at %#x", f.Begin)
		}
		t.add(count(f.Lost), count(f.Size), f.Reason, f.File, short(report.Printable(name)))
	}
	return t
}

func (s *Survey) errors() table {
	t := newTable("Files that are damaged or cannot be read", "", "file", "error")
	for _, e := range s.Errors {
		t.add(e.File, e.Error)
	}
	if s.ErrorsOmitted > 0 {
		t.Note = fmt.Sprintf("The first of %s; the CSV form has all.", count(len(s.Errors)+s.ErrorsOmitted))
	}
	return t
}

// maxName is how much of a function's name a table shows, in characters: C++ has names of thousands.
const maxName = 120

func short(name string) string {
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName-3]) + "..."
	}
	return name
}

// share returns how much code loses nothing.
func (f *Format) share() string {
	return shareOf(f.Covered, f.Described)
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
