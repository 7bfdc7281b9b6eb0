package report

import (
	"bufio"
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"unicode"
	"unicode/utf8"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/cmd/cfi2sframe/internal/page"
	"cfi2sframe/translate"
)

//go:embed text.tmpl
var textTemplates string

// functions holds the functions that templates can call.
var functions = template.FuncMap{
	"bytes":     bytesOf,
	"choose":    func(b bool, yes, no string) string { return map[bool]string{true: yes, false: no}[b] },
	"digits":    func(n any) string { return page.Grouped(fmt.Sprint(n)) },
	"headline":  Headline,
	"ofCFI":     OfCFI,
	"plural":    plural,
	"printable": Printable,
	"uncovered": uncovered,
	"sub":       func(a, b int) int { return a - b },
}

// textTemplate is parsed once, because parsing takes longer than the report on a small file.
var textTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).Parse(textTemplates))
})

// writeText executes a text template.
func writeText(w io.Writer, name string, data any) error {
	out := bufio.NewWriter(w)
	if err := textTemplate().ExecuteTemplate(out, name, data); err != nil {
		return err
	}
	return out.Flush()
}

// Text writes the text report with up to n gaps that break stack traces, or with all gaps and more details if n is
// negative.
func (c *Coverage) Text(w io.Writer, gaps int) error {
	all := c.Gaps
	if gaps >= 0 {
		all = c.losses()
	}
	listed, errors := first(all, gaps), first(c.Malformed.Errors, gaps)
	return writeText(w, "coverage", &struct {
		*Coverage
		Listed           []Gap
		Errors           []string
		More, MoreErrors int
		Verbose          bool
	}{c, listed, errors, len(all) - len(listed), c.Malformed.Count - len(errors), gaps < 0})
}

// losses returns the gaps that break stack traces.
func (c *Coverage) losses() []Gap {
	return slices.DeleteFunc(slices.Clone(c.Gaps), func(g Gap) bool { return g.Reason == translate.Outermost.Name() })
}

// first returns the first n elements of a list, or all of them if n is negative.
func first[T any](list []T, n int) []T {
	if n < 0 {
		return list
	}
	return list[:min(n, len(list))]
}

// String formats the gap for the text report.
func (g *Gap) String() string {
	s := fmt.Sprintf("%s %s+%#x: %s", rangeOf(g.Section, g.Begin, g.End), g.function(), g.Offset, g.Text)
	if rule := g.rule(); rule != "" {
		s += " (" + rule + ")"
	}
	return s
}

// function returns the name or the address of the function that contains the gap.
func (g *Gap) function() string {
	if g.Function == "" {
		return fmt.Sprintf("function at %s%#x", inSection(g.Section), g.Begin-g.Offset)
	}
	return Printable(g.Function)
}

// rule returns the column and the rule, if any.
func (g *Gap) rule() string { return strings.TrimPrefix(g.Column+" "+g.Rule, " ") }

// Causes returns up to n lines on the largest gaps of the files and, if withoutCFI is set, on code without CFI.
func Causes(files []*Coverage, n int, withoutCFI bool) []string {
	type cause struct {
		bytes uint64
		line  string
	}
	var all []cause
	for _, c := range files {
		add := func(bytes uint64, text string) { all = append(all, cause{bytes, Printable(c.File) + ": " + text}) }
		for _, g := range c.losses() {
			add(g.End-g.Begin, g.String())
		}
		if !withoutCFI {
			continue
		}
		unnamed := c.Uncovered.Bytes
		for _, f := range c.Uncovered.Functions {
			add(f.Bytes, uncovered(&f))
			unnamed -= min(unnamed, f.Bytes)
		}
		for _, s := range c.Uncovered.Sections {
			if s.Bytes > 0 && unnamed > 0 {
				add(s.Bytes, bytesOf(s.Bytes)+" of code without CFI in "+Printable(s.Name))
			}
		}
	}
	slices.SortStableFunc(all, func(a, b cause) int { return cmp.Compare(b.bytes, a.bytes) })
	var lines []string
	for _, c := range first(all, n) {
		lines = append(lines, c.line)
	}
	return lines
}

// uncovered formats a function with code without CFI for the text report.
func uncovered(f *coverage.UncoveredFunction) string {
	s := fmt.Sprintf("%s %s: %s of %s without CFI", placeOf(f), cmp.Or(Printable(f.Function), "function"),
		bytesOf(f.Bytes), Digits(f.Size))
	if f.Reason != "" {
		s += " (" + f.Reason + ")"
	}
	return s
}

// placeOf returns the function's addresses.
func placeOf(f *coverage.UncoveredFunction) string {
	return rangeOf(f.Section, f.Begin, f.Begin+f.Size)
}

func rangeOf(section string, begin, end uint64) string {
	return fmt.Sprintf("%s%#x-%#x", inSection(section), begin, end)
}

// inSection returns the prefix of an address that is relative to a section.
func inSection(name string) string {
	if name == "" {
		return ""
	}
	return Printable(name) + "+"
}

// Printable quotes names with control characters, and with invalid UTF-8, which some terminals interpret as controls.
func Printable(name string) string {
	control := func(r rune) bool { return !unicode.IsPrint(r) }
	if isQuoted(name) || strings.ContainsFunc(name, control) {
		return strconv.Quote(name)
	}
	return name
}

// isQuoted reports whether reports quote a name in all formats: if it is not UTF-8, and, to keep names apart, if it
// starts with a quotation mark.
func isQuoted(name string) bool { return !utf8.ValidString(name) || strings.HasPrefix(name, `"`) }

// PrintableMessage replaces control characters in a message. Names of sections are arbitrary bytes.
func PrintableMessage(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// plural returns a number followed by a noun, such as "2 gaps".
func plural(n any, what string) string {
	number := page.Grouped(fmt.Sprint(n))
	if number != "1" {
		what += "s"
	}
	return number + " " + what
}

// bytesOf formats a size in bytes.
func bytesOf(n uint64) string { return plural(n, "byte") }

// Digits formats a number with thousands separators.
func Digits(n uint64) string { return page.Grouped(fmt.Sprint(n)) }
