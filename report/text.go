package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"cfi2sframe/internal/page"
)

// Text writes the coverage for people, with the given number of gaps at most; a
// negative number stands for all.
func (c *Coverage) Text(w io.Writer, gaps int) error {
	p := &printer{w: w}
	p.f("%s: %s, SFrame V%d", printable(c.File), c.ABI, c.Format)
	for i, s := range c.Sources {
		p.f("%s%s", []string{" from ", ", "}[min(i, 1)], s.Name)
	}
	if c.DebugFile != "" {
		p.f(" of %s", printable(c.DebugFile))
	}
	p.f("\n  %s of code described by CFI, %s covered (%s), in %s and %s\n",
		bytesOf(c.Described), digits(c.Covered), percent(c.Covered, c.Described), plural(c.Functions, "function"), plural(int(c.FREs), "row"))
	p.f("  .sframe has %s", bytesOf(c.Size))
	if c.EHFrame > 0 {
		p.f(", beside %s of .eh_frame and %s of .eh_frame_hdr", digits(c.EHFrame), digits(c.EHHdr))
	}
	if c.Verified {
		p.f("; verified against the CFI at every pc")
	}
	p.f("\n")
	if c.MovedCode > 0 {
		p.f("  %s of code %s another place in the file than before: let perf forget the old file (perf buildid-cache --remove FILE)\n",
			bytesOf(c.MovedCode), one(c.MovedCode, "has", "have"))
	}
	for _, warning := range c.Warnings {
		p.f("  warning: %s\n", printable(warning))
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
		p.f("  left out: %s in %s of %s: %s", bytesOf(r.Bytes), plural(r.Ranges, "range"), plural(r.Functions, "function"), r.Text)
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
	for i, e := range c.Malformed.Errors {
		if gaps >= 0 && i == gaps {
			break
		}
		p.f("  malformed CFI: %s\n", printable(e))
	}
	if n := c.Malformed.Count - min(len(c.Malformed.Errors), limit(gaps)); n > 0 {
		p.f("  malformed CFI: %d more\n", n)
	}
	if c.Omitted > 0 {
		p.f("  %s %s not listed\n", plural(c.Omitted, "gap"), one(c.Omitted, "is", "are"))
	}
	for _, note := range c.Notes {
		p.f("  not in this report: %s\n", printable(note))
	}
	for i := range c.Gaps {
		if gaps >= 0 && i == gaps {
			p.f("  and %s more (-v lists them)\n", plural(len(c.Gaps)-i, "gap"))
			break
		}
		g := &c.Gaps[i]
		p.f("    %v\n", g)
		if gaps < 0 {
			p.f("      %s\n", g.Cause)
		}
	}
	return p.err
}

// format3Share returns in words how much of a reason's gaps format 3 covers, if it is anything.
func (c *Coverage) format3Share(r *Reason) string {
	switch {
	case r.Format3 == r.Bytes:
		return "them"
	case c.atLeast:
		return "at least " + digits(r.Format3) + " of them"
	}
	return digits(r.Format3) + " of them"
}

// String returns the gap as the text report has it.
func (g *Gap) String() string {
	name := printable(g.Function)
	if name == "" {
		name = fmt.Sprintf("function at %s%#x", inSection(g.Section), g.Begin-g.Offset)
	}
	s := fmt.Sprintf("%s%#x-%#x %s+%#x: %s", inSection(g.Section), g.Begin, g.End, name, g.Offset, g.Text)
	switch {
	case g.Column != "":
		s += fmt.Sprintf(" (%s %s)", g.Column, g.Rule)
	case g.Rule != "":
		s += fmt.Sprintf(" (%s)", g.Rule)
	}
	if g.Source != "" {
		s += fmt.Sprintf(", %s:%d", printable(g.Source), g.Line)
	}
	return s
}

// textUncovered writes what is known of code without CFI; gaps is that of Text.
func (c *Coverage) textUncovered(p *printer, gaps int) {
	u := &c.Uncovered
	if u.Bytes == 0 {
		return
	}
	p.f("  %s of code without CFI, padding included", bytesOf(u.Bytes))
	separator := ": "
	for _, s := range u.Sections {
		if s.Bytes > 0 {
			p.f("%s%s %s", separator, printable(s.Name), digits(s.Bytes))
			separator = ", "
		}
	}
	p.f("\n")
	if gaps >= 0 {
		return
	}
	for _, f := range u.Functions {
		name := printable(f.Function)
		if name == "" { // there was no room for it
			name = "function"
		}
		p.f("    %s%#x-%#x %s: %s of %s without CFI\n", inSection(f.Section), f.Begin, f.Begin+f.Size, name, bytesOf(f.Bytes), digits(f.Size))
	}
	if u.Omitted > 0 {
		p.f("    and %s more\n", plural(u.Omitted, "function"))
	}
}

// inSection returns what stands before an address that counts from a section.
func inSection(name string) string {
	if name == "" {
		return ""
	}
	return printable(name) + "+"
}

func limit(gaps int) int {
	if gaps < 0 {
		return int(^uint(0) >> 1)
	}
	return gaps
}

// printable quotes a name that would do something to a terminal. Bytes that are no UTF-8 are
// control characters to some.
func printable(name string) string {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(name)
	}
	return name
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

// percent returns a share. It never rounds up to 100.
func percent(part, whole uint64) string {
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
	return digits(uint64(n)) + " " + one(n, what, what+"s")
}

// bytesOf returns a size in words.
func bytesOf(n uint64) string { return digits(n) + " " + one(n, "byte", "bytes") }

// one returns the word for one of something, or that for another number.
func one[T int | uint64](n T, word, more string) string {
	if n == 1 {
		return word
	}
	return more
}

// digits groups a number by thousands.
func digits(n uint64) string { return page.Grouped(fmt.Sprint(n)) }
