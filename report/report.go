// Package report says how much of a file's code SFrame describes, and what is
// left out, where, and why: as text for people and as JSON for programs.
package report

import (
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strconv"
	"strings"
	"unicode"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/elffile"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Coverage is what became of one file. All sizes are in bytes. The JSON names are
// stable; new ones may be added.
type Coverage struct {
	File      string    `json:"file"`
	Output    string    `json:"output,omitempty"`
	ABI       string    `json:"abi"`
	Format    int       `json:"format"`
	Sources   []Source  `json:"sources"`
	DebugFile string    `json:"debug_file,omitempty"` // looked into for .debug_frame
	Functions int       `json:"functions"`            // that CFI describes
	FDEs      int       `json:"fdes"`                 // written
	FREs      uint64    `json:"fres"`                 // written
	Described uint64    `json:"described"`            // code that CFI describes
	Covered   uint64    `json:"covered"`              // code that SFrame describes
	Topmost   uint64    `json:"topmost"`              // of that, by registers that are known in the topmost frame only
	Outermost uint64    `json:"outermost"`            // code without a caller, where that is left out
	PLT       uint64    `json:"plt"`                  // PLT stubs without CFI, synthesised from their instructions
	Reasons   []Reason  `json:"gaps_by_reason"`
	Gaps      []Gap     `json:"gaps"`
	Omitted   int       `json:"gaps_omitted"` // gaps that are not listed, because they are too many
	Dropped   Dropped   `json:"dropped"`
	Malformed Malformed `json:"malformed"`
	Size      uint64    `json:"sframe_size"`
	EHFrame   uint64    `json:"eh_frame_size"`
	EHHdr     uint64    `json:"eh_frame_hdr_size"`
	Verified  bool      `json:"verified"`
}

// A Source is a section that CFI came from.
type Source struct {
	Name string `json:"name"`
	Size uint64 `json:"size"`
	FDEs int    `json:"fdes"`
}

// A Reason sums up the gaps of one kind.
type Reason struct {
	Name      string `json:"reason"`
	Text      string `json:"text"`
	Functions int    `json:"functions"`
	Ranges    int    `json:"ranges"`
	Bytes     uint64 `json:"bytes"`
	Loss      bool   `json:"loss"` // false where there is nothing that a stack trace could find
}

// A Gap is a range of code that CFI describes and SFrame does not.
type Gap struct {
	Function string `json:"function,omitempty"`
	Offset   uint64 `json:"offset"` // from the function's start
	Begin    uint64 `json:"begin"`  // address
	End      uint64 `json:"end"`    // address behind the last byte
	Reason   string `json:"reason"`
	Text     string `json:"text"`
	Column   string `json:"column,omitempty"` // CFA, RA, FP or SP
	Rule     string `json:"rule,omitempty"`
	FDE      string `json:"fde"` // where the CFI is
}

// Dropped counts FDEs that describe no code of the file.
type Dropped struct {
	ZeroLength int `json:"zero_length"`
	Discarded  int `json:"discarded"`
	Overlapped int `json:"overlapped"`
}

// Malformed lists records that could not be read; Count has all of them.
type Malformed struct {
	Count  int      `json:"count"`
	Errors []string `json:"errors,omitempty"`
}

// New sums up a translation.
func New(f *elffile.File, t *cfi.Table, abi sframe.ABI, res *translate.Result) *Coverage {
	c := &Coverage{
		ABI: abi.String(), Functions: res.Functions, Described: res.Described, Covered: res.Covered,
		Topmost: res.Topmost, PLT: res.Synthesised, Dropped: Dropped(t.Dropped),
	}
	c.Malformed.Count = t.NumErrors
	for _, e := range t.Errors {
		c.Malformed.Errors = append(c.Malformed.Errors, e.Error())
	}
	for _, s := range t.Sources {
		c.Sources = append(c.Sources, Source(s))
	}
	if s := f.Section(".eh_frame"); s != nil && s.HasBytes() {
		c.EHFrame = s.Size
	}
	if s := f.Section(".eh_frame_hdr"); s != nil && s.HasBytes() {
		c.EHHdr = s.Size
	}
	c.reasons(res)
	names := functionNames(f, res.Gaps)
	words := translate.NewRuleWriter(abi, t.Order)
	c.Gaps = make([]Gap, len(res.Gaps))
	for i := range res.Gaps {
		g := &res.Gaps[i]
		c.Gaps[i] = Gap{
			Function: names[i].name, Offset: g.Begin - names[i].start, Begin: g.Begin, End: g.End,
			Reason: g.Reason.Name(), Text: g.Reason.String(), Column: g.Column.String(), Rule: words.Rule(g),
			FDE: fmt.Sprintf("%s+%#x", g.Function.Section(), g.Function.Offset()),
		}
		if g.Err != nil {
			c.Gaps[i].Rule = g.Err.Error()
		}
	}
	// Functions that realign the stack come first: they are the ones that
	// another version of the format would cover.
	slices.SortStableFunc(c.Gaps, func(a, b Gap) int { return drapFirst(a) - drapFirst(b) })
	return c
}

func drapFirst(g Gap) int {
	if g.Reason == translate.DRAP.Name() {
		return 0
	}
	return 1
}

// reasons lists the sums, in the order of translate.Reasons.
func (c *Coverage) reasons(res *translate.Result) {
	c.Reasons = []Reason{}
	for _, r := range translate.Reasons() {
		s, ok := res.Sums[r]
		if !ok {
			continue
		}
		c.Reasons = append(c.Reasons, Reason{
			Name: r.Name(), Text: r.String(), Functions: s.Functions, Ranges: s.Ranges, Bytes: s.Bytes, Loss: r.Loss(),
		})
		if !r.Loss() {
			c.Outermost += s.Bytes
		}
		c.Omitted += s.Ranges
	}
	c.Omitted -= len(res.Gaps)
}

// A funcName is a function symbol.
type funcName struct {
	name  string
	start uint64
	size  uint64
}

// What is spent on names at most: symbols of hostile files cover everything, and
// have names that end nowhere.
const (
	maxNameSteps = 1 << 26 // pairs of a symbol and a gap
	maxNameBytes = 16 << 20
)

// functionNames finds the symbol of each gap's function. The gaps are sorted by
// address. Where there is none, the start is that of the CFI function.
func functionNames(f *elffile.File, gaps []translate.Gap) []funcName {
	names := make([]funcName, len(gaps))
	type place struct {
		table *elffile.Section
		name  uint32
	}
	places := make([]place, len(gaps))
	for i := range gaps {
		names[i].start = gaps[i].Function.Begin
	}
	steps := maxNameSteps
	for _, t := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		// A damaged symbol table costs names, not the report.
		_ = f.Symbols(t, func(table *elffile.Section, s elffile.Symbol) {
			switch elf.SymType(s.Info & 0xf) {
			case elf.STT_FUNC, elf.STT_GNU_IFUNC, elf.STT_NOTYPE:
			default:
				return
			}
			if s.Shndx == 0 || s.Name == 0 {
				return
			}
			size := max(s.Size, 1) // hand-written code often gives none
			for i := sort.Search(len(gaps), func(i int) bool { return gaps[i].End > s.Value }); i < len(gaps); i++ {
				g := &gaps[i]
				if steps--; g.Function.Begin >= s.Value+size || steps < 0 {
					break // and so are the gaps that follow
				}
				start := s.Value
				inside := g.Begin >= start && g.Begin-start < size || g.Function.Begin == start
				if !inside && places[i].table == nil && start > g.Function.Begin && start < g.Function.End {
					// Unwinders look up the pc before a return address, so the FDE of
					// a signal trampoline begins before the function.
					inside, start = true, g.Function.Begin
				}
				better := places[i].table == nil || start > names[i].start || start == names[i].start && s.Size > names[i].size
				if inside && better {
					places[i], names[i].start, names[i].size = place{table, s.Name}, start, s.Size
				}
			}
		})
	}
	known := make(map[place]string)
	room := maxNameBytes
	for i, p := range places {
		if p.table == nil {
			continue
		}
		name, ok := known[p]
		if !ok && room > 0 {
			name = f.SymbolName(p.table, p.name)
			known[p] = name
			room -= len(name)
		}
		names[i].name = name
	}
	return names
}

// JSON writes the coverage as a JSON object.
func (c *Coverage) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}

// Text writes the coverage for people, with the given number of gaps at most; a
// negative number stands for all.
func (c *Coverage) Text(w io.Writer, gaps int) error {
	p := &printer{w: w}
	p.f("%s: %s, SFrame V%d", c.File, c.ABI, c.Format)
	for i, s := range c.Sources {
		p.f("%s%s", []string{" from ", ", "}[min(i, 1)], s.Name)
	}
	if c.DebugFile != "" {
		p.f(" of %s", c.DebugFile)
	}
	p.f("\n  %s bytes of code described by CFI, %s covered (%s), in %s and %s\n",
		digits(c.Described), digits(c.Covered), percent(c.Covered, c.Described), plural(c.Functions, "function"), plural(int(c.FREs), "row"))
	p.f("  .sframe has %s bytes", digits(c.Size))
	if c.EHFrame > 0 {
		p.f(", beside %s of .eh_frame and %s of .eh_frame_hdr", digits(c.EHFrame), digits(c.EHHdr))
	}
	if c.Verified {
		p.f("; verified against the CFI at every pc")
	}
	p.f("\n")
	if c.Topmost > 0 {
		p.f("  %s bytes of that in topmost frames only, by other registers than SP and FP\n", digits(c.Topmost))
	}
	if c.PLT > 0 {
		p.f("  %s bytes of PLT stubs without CFI, synthesised from their instructions\n", digits(c.PLT))
	}
	for _, r := range c.Reasons {
		p.f("  left out: %s bytes in %s of %s: %s\n", digits(r.Bytes), plural(r.Ranges, "range"), plural(r.Functions, "function"), r.Text)
	}
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
		p.f("  malformed CFI: %s\n", e)
	}
	if n := c.Malformed.Count - min(len(c.Malformed.Errors), limit(gaps)); n > 0 {
		p.f("  malformed CFI: %d more\n", n)
	}
	if c.Omitted > 0 {
		p.f("  %s are not listed\n", plural(c.Omitted, "gap"))
	}
	for i := range c.Gaps {
		if gaps >= 0 && i == gaps {
			p.f("  and %s more (-v lists them)\n", plural(len(c.Gaps)-i, "gap"))
			break
		}
		g := &c.Gaps[i]
		name := printable(g.Function)
		if name == "" {
			name = fmt.Sprintf("function at %#x", g.Begin-g.Offset)
		}
		p.f("    %#x-%#x %s+%#x: %s", g.Begin, g.End, name, g.Offset, g.Text)
		switch {
		case g.Column != "":
			p.f(" (%s %s)", g.Column, g.Rule)
		case g.Rule != "":
			p.f(" (%s)", g.Rule)
		}
		p.f("\n")
	}
	return p.err
}

func limit(gaps int) int {
	if gaps < 0 {
		return int(^uint(0) >> 1)
	}
	return gaps
}

// printable quotes a name that would do something to a terminal.
func printable(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
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

// percent never rounds up to 100.
func percent(part, whole uint64) string {
	v := 100.0
	if whole > 0 {
		v = 100 * float64(part) / float64(whole)
	}
	if part < whole {
		v = min(v, 99.99)
	}
	return fmt.Sprintf("%.2f %%", v)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return digits(uint64(n)) + " " + what + "s"
}

// digits groups a number by thousands.
func digits(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
