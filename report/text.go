package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"cfi2sframe/internal/page"
)

// Text writes the coverage for people, with up to the given number of gaps, or all if that is negative.
func (c *Coverage) Text(w io.Writer, gaps int) error {
	p := &printer{w: w}
	p.f("%s: %s, SFrame V%d", Printable(c.File), c.ABI, c.Format)
	for i, s := range c.Sources {
		p.f("%s%s", []string{" from ", ", "}[min(i, 1)], s.Name)
	}
	if c.DebugFile != "" {
		p.f(" of %s", Printable(c.DebugFile))
	}
	p.f("\n  %s of code described by CFI, %s covered (%s), in %s and %s\n",
		bytesOf(c.Described), Digits(c.Covered), Share(c.Covered, c.Described), plural(c.Functions, "function"),
		plural(int(c.FREs), "row"))
	p.f("  .sframe has %s", bytesOf(c.Size))
	if c.EHFrame > 0 {
		p.f(", beside %s of .eh_frame and %s of .eh_frame_hdr", Digits(c.EHFrame), Digits(c.EHHdr))
	}
	if c.Verified {
		p.f("; verified against the CFI at every pc")
	}
	p.f("\n")
	if c.MovedCode > 0 {
		p.f("  %s of code %s another place in the file than before: "+
			"let perf forget the old file (perf buildid-cache --remove FILE)\n",
			bytesOf(c.MovedCode), one(c.MovedCode, "has", "have"))
	}
	for _, warning := range c.Warnings {
		p.f("  warning: %s\n", Printable(warning))
	}
	if c.Topmost > 0 {
		p.f("  %s of that in topmost frames only, by other registers than SP and FP\n", bytesOf(c.Topmost))
	}
	if c.PLT > 0 {
		p.f("  %s of PLT stubs without CFI, synthesised from their instructions\n", bytesOf(c.PLT))
	}
	if c.Padding > 0 {
		p.f("  %s of padding after functions, with their last rows\n", bytesOf(c.Padding))
	}
	for _, r := range c.Reasons {
		p.f("  left out: %s in %s of %s: %s",
			bytesOf(r.Bytes), plural(r.Ranges, "range"), plural(r.Functions, "function"), r.Text)
		if r.Format3 > 0 {
			p.f("; --format 3 covers %s", c.format3Share(&r))
		}
		p.f("\n")
	}
	c.textUncovered(p, gaps)
	for _, d := range []struct {
		n    int
		what string
	}{
		{c.Dropped.ZeroLength, "of no code"},
		{c.Dropped.Discarded, "of code that the file does not have"},
		{c.Dropped.Overlapped, "cut because they overlap another one"},
	} {
		if d.n > 0 {
			p.f("  %s %s\n", plural(d.n, "FDE"), d.what)
		}
	}
	errors := first(c.Malformed.Errors, gaps)
	for _, e := range errors {
		p.f("  malformed CFI: %s\n", Printable(e))
	}
	if n := c.Malformed.Count - len(errors); n > 0 {
		p.f("  malformed CFI: %d more\n", n)
	}
	if c.Omitted > 0 {
		p.f("  %s %s not listed\n", plural(c.Omitted, "gap"), one(c.Omitted, "is", "are"))
	}
	for _, note := range c.Notes {
		p.f("  not in this report: %s\n", Printable(note))
	}
	listed := first(c.Gaps, gaps)
	for i := range listed {
		p.f("    %v\n", &listed[i])
		if gaps < 0 {
			p.f("      %s\n", listed[i].Cause)
		}
	}
	if n := len(c.Gaps) - len(listed); n > 0 {
		p.f("  and %s more (-v lists them)\n", plural(n, "gap"))
	}
	return p.err
}

// first returns the first n elements of a list, or all of them if n is negative.
func first[T any](list []T, n int) []T {
	if n < 0 {
		return list
	}
	return list[:min(n, len(list))]
}

// format3Share returns in words how much of a reason's gaps format 3 covers. It covers some.
func (c *Coverage) format3Share(r *Reason) string {
	switch {
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
		s += fmt.Sprintf(" (%s)", rule)
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

// rule returns the rule after its column, if there is one.
func (g *Gap) rule() string {
	if g.Column == "" {
		return g.Rule
	}
	return g.Column + " " + g.Rule
}

// line returns the source file and line, if they are known.
func (g *Gap) line() string {
	if g.Source == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", Printable(g.Source), g.Line)
}

func rangeOf(section string, begin, end uint64) string {
	return fmt.Sprintf("%s%#x-%#x", inSection(section), begin, end)
}

// textUncovered writes where code without CFI is. gaps is that of Text.
func (c *Coverage) textUncovered(p *printer, gaps int) {
	u := &c.Uncovered
	if u.Bytes == 0 {
		return
	}
	p.f("  %s of code without CFI, padding included", bytesOf(u.Bytes))
	separator := ": "
	for _, s := range u.Sections {
		if s.Bytes > 0 {
			p.f("%s%s %s", separator, Printable(s.Name), Digits(s.Bytes))
			separator = ", "
		}
	}
	p.f("\n")
	if gaps >= 0 {
		return
	}
	for _, f := range u.Functions {
		name := cmp.Or(Printable(f.Function), "function")
		p.f("    %s %s: %s of %s without CFI\n",
			rangeOf(f.Section, f.Begin, f.Begin+f.Size), name, bytesOf(f.Bytes), Digits(f.Size))
	}
	if u.Omitted > 0 {
		p.f("    and %s more\n", plural(u.Omitted, "function"))
	}
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

// A printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
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

func plural(n int, what string) string {
	return Digits(uint64(n)) + " " + one(n, what, what+"s")
}

// bytesOf returns a size in words.
func bytesOf(n uint64) string { return Digits(n) + " " + one(n, "byte", "bytes") }

// one returns a word if n is 1, or else its plural.
func one[T int | uint64](n T, word, more string) string {
	if n == 1 {
		return word
	}
	return more
}

// Digits groups a number by thousands.
func Digits(n uint64) string { return page.Grouped(fmt.Sprint(n)) }
