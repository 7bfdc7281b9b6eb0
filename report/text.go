package report

import (
	"bufio"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"unicode"
	"unicode/utf8"

	"cfi2sframe/internal/page"
	"cfi2sframe/translate"
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
	"plural":    plural,
	"printable": Printable,
	"sub":       func(a, b int) int { return a - b },
	"uint":      func(n int) uint64 { return uint64(n) },
	"wrap":      wrap,
}

// textTemplate has all text templates. Parsing takes longer than the report on a small file.
var textTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).Parse(textTemplates))
})

// writeText writes what one of the text templates makes of the data.
func writeText(w io.Writer, name string, data any) error {
	out := bufio.NewWriter(w)
	if err := textTemplate().ExecuteTemplate(out, name, data); err != nil {
		return err
	}
	return out.Flush()
}

// Text writes the coverage for people, with up to the given number of gaps by which a stack trace loses something, or
// all gaps and more details if that is negative.
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

// losses returns the gaps that are not covered: by the others a stack trace loses nothing.
func (c *Coverage) losses() []Gap {
	loses := make(map[string]bool)
	for _, r := range c.Reasons {
		loses[r.Name] = r.Loss
	}
	return slices.DeleteFunc(slices.Clone(c.Gaps), func(g Gap) bool { return !loses[g.Reason] })
}

// WithFormat3 returns in words how much of the code in gaps format 3 covers, or "" for nothing.
func (c *Coverage) WithFormat3() string {
	var covered, all uint64
	for _, r := range c.Reasons {
		if r.Loss {
			covered += r.Format3
			all += r.Bytes
		}
	}
	return c.format3Part(covered, all, "the other "+bytesOf(all))
}

// String returns the loss in V2 in words.
func (l *Loss) String() string {
	text, separator := "V2 has no form for "+plural(l.Functions, "function"), ": "
	for _, r := range l.Reasons {
		text += separator + r.Text + " " + Digits(uint64(r.Functions))
		separator = ", "
	}
	return text
}

// maxSections bounds the sections in a line of the text report.
const maxSections = 4

// Largest returns the sections with most code without CFI, as the end of a line.
func (c *Coverage) Largest() string {
	some := slices.DeleteFunc(slices.Clone(c.Uncovered.Sections), func(s UncoveredSection) bool {
		return s.WithoutCFI() == 0
	})
	listed := largest(some, maxSections, func(a, b UncoveredSection) int {
		return cmp.Compare(a.WithoutCFI(), b.WithoutCFI())
	})
	text, separator := "", ": "
	for _, s := range listed {
		text += separator + Printable(s.Name) + " " + Digits(s.WithoutCFI())
		separator = ", "
	}
	if n := len(some) - len(listed); n > 0 {
		text += fmt.Sprintf(" and %s more", Digits(uint64(n)))
	}
	return text
}

// wrap returns an indented text in lines of up to 80 columns, if its words allow that.
func wrap(text string) string {
	out, column := "  ", 2
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > 80:
			out, column = out+"\n    ", 4
		default:
			out, column = out+" ", column+1
		}
		out, column = out+word, column+n
	}
	return out
}

// first returns the first n elements of a list, or all of them if n is negative.
func first[T any](list []T, n int) []T {
	if n < 0 {
		return list
	}
	return list[:min(n, len(list))]
}

// format3Share returns in words how much of a reason's gaps format 3 covers, or "" for nothing.
func (c *Coverage) format3Share(r *Reason) string { return c.format3Part(r.Format3, r.Bytes, "them") }

// format3Part returns in words how much of some code format 3 covers, or "" for nothing. The name stands for all of it.
func (c *Coverage) format3Part(covered, all uint64, name string) string {
	switch {
	case covered == 0:
		return ""
	case covered == all:
		return name
	case c.atLeast:
		return "at least " + Digits(covered) + " of " + name
	}
	return Digits(covered) + " of " + name
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

// Causes returns up to n lines about the largest gaps of files, and with withoutCFI also about code without CFI.
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
		unnamed := c.WithoutCFI()
		for _, f := range c.Uncovered.Functions {
			add(f.Bytes, f.String())
			unnamed -= min(unnamed, f.Bytes)
		}
		for _, s := range c.Uncovered.Sections {
			if bytes := s.WithoutCFI(); bytes > 0 && unnamed > 0 {
				add(bytes, bytesOf(bytes)+" of code without CFI in "+Printable(s.Name))
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

// String returns the function as the text report has it.
func (f *UncoveredFunction) String() string {
	return fmt.Sprintf("%s %s: %s of %s without CFI", f.Place(), cmp.Or(Printable(f.Function), "function"),
		bytesOf(f.Bytes), Digits(f.Size))
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

// A Check is the result of comparing an .sframe with the CFI.
type Check struct {
	Schema int    `json:"schema"`
	File   string `json:"file"`
	ABI    string `json:"abi"`
	Format int    `json:"format"`
	FDEs   int    `json:"fdes"`
	FREs   uint64 `json:"fres"`
	Sorted bool   `json:"sorted"`
	Amounts
	Padding    uint64     `json:"padding,omitempty"` // padding after functions that has their last rows
	Refused    string     `json:"refused,omitempty"` // why Linux refuses the section
	Mismatches []Mismatch `json:"mismatches"`
}

// A Mismatch is a range of code for which the rows differ.
type Mismatch struct {
	Begin    uint64 `json:"begin"`
	End      uint64 `json:"end"`
	Function string `json:"function,omitempty"`
	Offset   uint64 `json:"offset"`
	What     string `json:"what"`
}

// A Removed is a file whose .sframe was removed.
type Removed struct {
	Schema  int    `json:"schema"`
	File    string `json:"file"`
	Output  string `json:"output,omitempty"`
	Removed bool   `json:"removed"` // always true

	Unsigned bool `json:"signature_removed,omitempty"`
}

// maxLineGaps bounds the gaps whose source lines are looked up.
const maxLineGaps = 4096

// sourceLines finds the source file and line of each gap's first instruction, from the debug information of the file
// or of its debug file. Gaps still have addresses, also in an object.
func (c *Coverage) sourceLines(in *Input) {
	gaps := c.Gaps[:min(len(c.Gaps), maxLineGaps)]
	if len(gaps) == 0 {
		return
	}
	err := findSources(in, gaps)
	switch {
	case errors.Is(err, errNoLines):
	case err != nil:
		c.Notes = append(c.Notes, fmt.Sprintf("source lines: %v", err))
	case len(gaps) < len(c.Gaps):
		c.Notes = append(c.Notes, fmt.Sprintf("source lines of %s: those of the first %s are looked up",
			plural(len(c.Gaps)-len(gaps), "gap"), Digits(maxLineGaps)))
	}
}

// findSources fills in the source lines of gaps, which are sorted by address, from the file or from its debug file.
func findSources(in *Input, gaps []Gap) error {
	addrs := make([]uint64, len(gaps))
	for i := range gaps {
		addrs[i] = gaps[i].Begin
	}
	found := func(i int, file string, line int) { gaps[i].Source, gaps[i].Line = file, line }
	err := findLines(in.File, addrs, found)
	if errors.Is(err, errNoLines) && in.Debug != nil {
		err = findLines(in.Debug, addrs, found)
	}
	return err
}

// causes says for each reason why programs have such code.
var causes = map[translate.Reason]string{
	translate.DRAP: "the function realigns the stack for variables of 32 bytes and more (AVX), or " +
		"for -mstackrealign, and finds its frame through memory or another register",
	translate.CFARegister: "code that changes the stack pointer while another register holds the frame: " +
		"hand-written assembly, or stack probing",
	translate.CFAExpression: "the frame has a place that has to be computed: " +
		"hand-written assembly, or vector registers of variable length",
	translate.CFAAddress: "the frame is computed from an address of the code that is known only when it is loaded, " +
		"or linked: hand-written call frame information",
	translate.CFAMissing: "the call frame information is incomplete",
	translate.RARegister: "the return address is taken off the stack for a while, as vfork and unwinders do",
	translate.RAOffset:   "the return address is kept apart from the frame, as in context switches and stack splitting",
	translate.RARule:     "the return address is elsewhere, as in context switches and trampolines",
	translate.RASigned: "the return address is signed with more than the stack pointer " +
		"(-mbranch-protection=pac-ret+pc)",
	translate.FPRegister: "a leaf function keeps the caller's frame pointer in another register",
	translate.FPRule: "the caller's frame pointer is found through the frame pointer itself, as " +
		"in functions that realign the stack, or is computed",
	translate.FPWithoutRA: "a leaf function, or one that does not return, saves the frame pointer alone",
	translate.FPUndefined: "the function does not return to its caller, or uses the frame pointer for something else",
	translate.SPRule: "the caller's stack pointer is set apart from the frame: context switches, longjmp, " +
		"Go on s390x",
	translate.GoStackSwitch: "Go's runtime goes to another stack here, or leaves it",
	translate.GoTable: "the instructions are not proved to make the frame that Go's table says; " +
		"the message says what differs",
	translate.SignalFrame: "a signal handler returns here, or Go's has inserted a call",
	translate.OffsetRange: "a frame of more than 2 GiB, or one that is not aligned as the ABI asks for",
	translate.TooFar:      "the program is larger than 2 GiB, for which there is --format 3",
	translate.TooLarge:    "the function is larger than what its description can hold",
	translate.Outermost:   "the program or a thread starts here",
	translate.OutsideText: "code that runs once, when the kernel or the module starts or ends " +
		"(.init.text, .exit.text), or of another executable segment",
	translate.Malformed: "the call frame information is damaged; the message says where",
}

// isAssembly reports whether a source file is hand-written assembly.
func isAssembly(source string) bool {
	return slices.Contains([]string{".S", ".s", ".asm"}, path.Ext(source))
}

// cause returns why programs have such code. Functions that probe the stack have the frame in one of the registers.
func (g *Gap) cause(reason translate.Reason, probing []string) string {
	inProbing := func(reg string) bool { return strings.HasPrefix(g.Rule, reg+"+") }
	switch {
	case reason == translate.Outermost || reason == translate.SignalFrame || reason == translate.GoStackSwitch:
	case isAssembly(g.Source):
		return "hand-written assembly (" + path.Base(g.Source) + ")"
	case reason == translate.CFARegister && g.Offset > 0 && slices.ContainsFunc(probing, inProbing):
		return "the function probes a large stack frame page by page (-fstack-clash-protection)"
	}
	return causes[reason]
}
