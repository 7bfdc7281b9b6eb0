package report

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/template"
	"unicode"
	"unicode/utf8"

	"cfi2sframe/internal/page"
)

//go:embed text.tmpl
var textTemplates string

// functions are those of the templates.
var functions = template.FuncMap{
	"add":       func(a, b uint64) uint64 { return a + b },
	"bytes":     bytesOf,
	"changed":   changed,
	"choose":    func(b bool, yes, no string) string { return map[bool]string{true: yes, false: no}[b] },
	"counted":   counted,
	"digits":    Digits,
	"format3":   (*Coverage).format3Share,
	"int":       func(n uint64) int { return int(n) },
	"percent":   Share,
	"plural":    plural,
	"printable": Printable,
	"sub":       func(a, b int) int { return a - b },
	"uint":      func(n int) uint64 { return uint64(n) },
}

// writeText writes what one of the text templates makes of the data.
func writeText(w io.Writer, name string, data any) error {
	t := template.Must(template.New("").Funcs(functions).Parse(textTemplates))
	out := bufio.NewWriter(w)
	if err := t.ExecuteTemplate(out, name, data); err != nil {
		return err
	}
	return out.Flush()
}

// Text writes the coverage for people, with up to the given number of gaps, or all if that is negative.
func (c *Coverage) Text(w io.Writer, gaps int) error {
	listed, errors := first(c.Gaps, gaps), first(c.Malformed.Errors, gaps)
	return writeText(w, "coverage", &struct {
		*Coverage
		Listed           []Gap
		Errors           []string
		More, MoreErrors int
		Verbose          bool
	}{c, listed, errors, len(c.Gaps) - len(listed), c.Malformed.Count - len(errors), gaps < 0})
}

// first returns the first n elements of a list, or all of them if n is negative.
func first[T any](list []T, n int) []T {
	if n < 0 {
		return list
	}
	return list[:min(n, len(list))]
}

// format3Share returns in words how much of a reason's gaps format 3 covers, or "" for nothing.
func (c *Coverage) format3Share(r *Reason) string {
	switch {
	case r.Format3 == 0:
		return ""
	case r.Format3 == r.Bytes:
		return "them"
	case c.atLeast:
		return "at least " + Digits(r.Format3) + " of them"
	}
	return Digits(r.Format3) + " of them"
}

// String returns the gap as the text report has it.
func (g *Gap) String() string {
	s := fmt.Sprintf("%s %s+%#x: %s", rangeOf(g.Section, g.Begin, g.End), g.function(), g.Offset, g.Text)
	if rule := g.rule(); rule != "" {
		s += " (" + rule + ")"
	}
	if line := g.line(); line != "" {
		s += ", " + line
	}
	return s
}

// function returns the name of the gap's function, or its address.
func (g *Gap) function() string {
	if g.Function == "" {
		return fmt.Sprintf("function at %s%#x", inSection(g.Section), g.Begin-g.Offset)
	}
	return Printable(g.Function)
}

// rule returns the rule after its column, if it has one.
func (g *Gap) rule() string { return strings.TrimPrefix(g.Column+" "+g.Rule, " ") }

// line returns the source file and line, if they are known.
func (g *Gap) line() string {
	if g.Source == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", Printable(g.Source), g.Line)
}

// Place returns the function's addresses.
func (f *UncoveredFunction) Place() string { return rangeOf(f.Section, f.Begin, f.Begin+f.Size) }

func rangeOf(section string, begin, end uint64) string {
	return fmt.Sprintf("%s%#x-%#x", inSection(section), begin, end)
}

// inSection returns the text before an address that counts from a section.
func inSection(name string) string {
	if name == "" {
		return ""
	}
	return Printable(name) + "+"
}

// Printable quotes a name that could control a terminal. Some terminals take bytes that are not UTF-8 for controls.
func Printable(name string) string {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
}

// PrintableMessage replaces characters of a message that could control a terminal. Names of sections can be anything.
func PrintableMessage(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// Share returns a part of a whole in percent. It never rounds up to 100.
func Share(part, whole uint64) string {
	if whole == 0 {
		return Percentage(100)
	}
	return Percentage(100 * float64(part) / float64(whole))
}

// Percentage returns a number of percent as reports have it: 100 stands for all.
func Percentage(v float64) string {
	if v < 100 {
		v = min(v, 99.99)
	}
	return fmt.Sprintf("%.2f %%", v)
}

func plural(n int, what string) string { return countOf(uint64(n), what) }

// bytesOf returns a size in words.
func bytesOf(n uint64) string { return countOf(n, "byte") }

func countOf(n uint64, what string) string {
	if n != 1 {
		what += "s"
	}
	return Digits(n) + " " + what
}

// Digits groups a number by thousands.
func Digits(n uint64) string { return page.Grouped(fmt.Sprint(n)) }
