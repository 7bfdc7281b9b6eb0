package survey

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"cfi2sframe/cmd/cfi2sframe/internal/page"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/sframe"
)

// A table is part of the text report and, unless TextOnly is set, of the HTML page.
type table struct {
	Title string
	Note  string
	Head  []page.Column
	Rows  [][]string

	TextOnly bool // the page shows it in a different form
}

// newTable returns an empty table. Columns that start with # are numeric.
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

// add adds a row. It quotes cells that contain control characters, which could affect a terminal.
func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = report.Printable(cells[i])
	}
	t.Rows = append(t.Rows, cells)
}

// title summarizes what was surveyed, on one line.
func (s *Survey) title() string {
	return fmt.Sprintf("Survey: %s ELF files, %s of them with CFI", count(s.Total.Files), count(s.Total.WithCFI))
}

// headline returns a line with the share of unwindable code.
func (s *Survey) headline() string {
	if s.Total.Code == 0 {
		return ""
	}
	f := format(s.Total.Formats, gapVersion)
	code := report.Amounts{Code: s.Total.Code, Unwindable: f.Unwindable}
	line := fmt.Sprintf("Format %d: %v", gapVersion, &code)
	if f.Inferred > 0 {
		line += fmt.Sprintf("; %s inferred from instructions", countOf(f.Inferred, "byte"))
	}
	return line
}

// tables returns the tables that are not empty.
func (s *Survey) tables() []table {
	out := []table{s.coverage(), s.gaps(), s.notExamined(), s.worstFiles(), s.worstFunctions(), s.errors()}
	return slices.DeleteFunc(out, func(t table) bool { return len(t.Rows) == 0 })
}

// coverage has a row for all files together and, if there are several ABIs, a row for each ABI.
func (s *Survey) coverage() table {
	t := newTable("Coverage", "Unwindable code is a share of all code except padding, including files without CFI.",
		"part", "#ELF files", "#with CFI", "#bytes of code", "#V2 unwindable", "#V3 unwindable", "#functions",
		"#bytes with CFI", "#V2 covers", "#V3 covers", "#bytes without CFI")
	parts := slices.DeleteFunc(slices.Clone(s.ABIs), func(p Part) bool { return p.WithCFI == 0 })
	if len(parts) == 1 {
		parts = nil
	}
	for _, p := range append(parts, Part{Name: "all", Sums: s.Total}) {
		if p.Files == 0 {
			continue
		}
		v2, v3 := format(p.Formats, sframe.V2), format(p.Formats, sframe.V3)
		t.add(p.Name, count(p.Files), count(p.WithCFI), count(p.Code), shareOf(v2.Unwindable, p.Code),
			shareOf(v3.Unwindable, p.Code), count(p.Functions), count(p.Described), shareOf(v2.Covered, v2.Described),
			shareOf(v3.Covered, v3.Described), count(p.WithoutCFI))
	}
	return t
}

func (s *Survey) gaps() table {
	t := newTable(fmt.Sprintf("Gaps in format %d", gapVersion), "", "reason", "#files", "#functions", "#ranges",
		"#bytes", "meaning")
	for i := range s.Total.Gaps {
		g := &s.Total.Gaps[i]
		if g.Ranges > 0 {
			t.add(g.Reason, count(g.Files), count(g.Functions), count(g.Ranges), count(g.Bytes), g.reason().String())
		}
	}
	return t
}

func (s *Survey) notExamined() table {
	t := newTable("Files without CFI to translate", "", "#files", "reason")
	for _, r := range s.Total.Refused {
		t.add(count(r.Files), statusText(r.Status))
	}
	if n := s.Skipped.Objects; n > 0 {
		t.add(count(n), "relocatable object or archive, without --objects")
	}
	if n := s.Skipped.Other; n > 0 {
		t.add(count(n), "not an ELF file")
	}
	return t
}

// maxWorst is the maximum length of the lists of the worst files, of the worst functions and of errors.
const maxWorst = 20

func (s *Survey) worstFiles() table {
	t := newTable("Worst files", fmt.Sprintf("Lost bytes are code without complete stack traces in format %d; the "+
		"reason is the most frequent one.", gapVersion), "#lost bytes", "#of", "#share", "reason", "file")
	t.TextOnly = true
	for _, r := range s.Worst[:min(len(s.Worst), maxWorst)] {
		lost, reason := r.lostCode()
		t.add(count(lost), count(r.Described), report.Share(lost, r.Described), reason, r.File)
	}
	return t
}

func (s *Survey) worstFunctions() table {
	t := newTable("Worst functions", "", "#lost bytes", "#of", "reason", "file", "function")
	t.Head[2].Kind = "reason"
	for _, f := range s.Functions[:min(len(s.Functions), maxWorst)] {
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
	omitted := 0
	for _, r := range s.Files {
		switch {
		case r.Error == "":
		case len(t.Rows) < maxWorst:
			t.add(r.File, r.Error)
		default:
			omitted++
		}
	}
	if omitted > 0 {
		t.Note = fmt.Sprintf("The first %d of %s; the JSON report lists all.", maxWorst, count(maxWorst+omitted))
	}
	return t
}

// maxName is the maximum length of function names in tables, in characters. C++ names can be thousands of characters
// long.
const maxName = 120

func short(name string) string {
	if r := []rune(name); len(r) > maxName {
		return string(r[:maxName-3]) + "..."
	}
	return name
}

// shareOf is like report.Share, but returns "-" if the whole is 0.
func shareOf(n, of uint64) string {
	if of == 0 {
		return "-"
	}
	return report.Share(n, of)
}

// count formats a number with thousands separators.
func count[T int | uint64](n T) string { return report.Digits(uint64(n)) }

// countOf returns a number followed by a noun, such as "2 files".
func countOf[T int | uint64](n T, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}
