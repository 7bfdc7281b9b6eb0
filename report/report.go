// Package report says how much of a file's code SFrame describes. It lists gaps, which are code that CFI describes and
// SFrame does not, with their places and reasons. A Coverage is the model; Text, JSON and HTML write it.
package report

import (
	"fmt"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Schema is the version of the JSON form, which report.schema.json describes. It changes
// when a field changes its meaning or goes; new fields may come without that.
const Schema = 2

// Coverage is the result for one file. All sizes are in bytes.
type Coverage struct {
	Schema    int      `json:"schema"`
	File      string   `json:"file"`
	Kept      string   `json:"kept,omitempty"`     // why the file is unchanged, or ""
	Output    string   `json:"output,omitempty"`   // "" if nothing was written
	BuildID   string   `json:"build_id,omitempty"` // in hexadecimal
	ABI       string   `json:"abi"`
	Format    int      `json:"format"`
	Sources   []Source `json:"sources"`
	DebugFile string   `json:"debug_file,omitempty"` // that .debug_frame came from
	Functions int      `json:"functions"`            // that CFI describes
	FDEs      int      `json:"fdes"`                 // written
	FREs      uint64   `json:"fres"`                 // written
	Amounts
	Topmost   uint64    `json:"topmost"`           // of Covered, by registers that are known in the topmost frame only
	Padding   uint64    `json:"padding,omitempty"` // padding after functions, with their last rows
	Reasons   []Reason  `json:"gaps_by_reason"`
	LostInV2  *Loss     `json:"lost_in_v2,omitempty"` // by readers of V2; nil for nothing
	Gaps      []Gap     `json:"gaps"`
	Omitted   int       `json:"gaps_omitted"` // further gaps, which are not listed
	Uncovered Uncovered `json:"without_cfi"`
	Dropped   Dropped   `json:"dropped"`
	Malformed Malformed `json:"malformed"`
	MovedCode uint64    `json:"moved_code"` // code that has another place in the output than in the file
	Unsigned  bool      `json:"signature_removed,omitempty"`
	Warnings  []string  `json:"warnings,omitempty"` // about the output
	Notes     []string  `json:"notes,omitempty"`    // what the report lacks, and why
	Size      uint64    `json:"sframe_size"`
	EHFrame   uint64    `json:"eh_frame_size"`
	EHHdr     uint64    `json:"eh_frame_hdr_size"`
	Verified  bool      `json:"verified"`
	MergedBy  []string  `json:"merged_by,omitempty"` // linkers that merge the .sframe of the object

	atLeast bool // format 3 may cover more than Reason.Format3 says
}

// A Kept is an unchanged file, or member of an archive, that has no Coverage.
type Kept struct {
	Schema int    `json:"schema"`
	File   string `json:"file"`
	Kept   string `json:"kept"` // the reason by its name
	Why    string `json:"why"`
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
	Format3   uint64 `json:"format3_bytes"` // that format 3 covers, of listed gaps
	Loss      bool   `json:"loss"`          // false if a stack trace loses nothing
}

// A Loss is code with rows that have no form in an older version of the format.
type Loss struct {
	Functions int          `json:"functions"`
	Bytes     uint64       `json:"bytes"`
	Reasons   []LossReason `json:"reasons"`
}

// A LossReason sums up the code of a Loss of one kind.
type LossReason struct {
	Name      string `json:"reason"`
	Text      string `json:"text"`
	Functions int    `json:"functions"`
	Bytes     uint64 `json:"bytes"`
}

// A Gap is a range of code that CFI describes and that has no row.
type Gap struct {
	Function string `json:"function,omitempty"` // as the source has it
	Symbol   string `json:"symbol,omitempty"`   // the mangled name, if it is another
	Offset   uint64 `json:"offset"`             // from the function's start
	Section  string `json:"section,omitempty"`  // in a relocatable object, what Begin and End count from
	Begin    uint64 `json:"begin"`              // address
	End      uint64 `json:"end"`                // address after the last byte
	Source   string `json:"source,omitempty"`   // file that debug information names for the first instruction
	Line     int    `json:"line,omitempty"`
	Reason   string `json:"reason"`
	Text     string `json:"text"`
	Column   string `json:"column,omitempty"` // CFA, RA, FP or SP
	Rule     string `json:"rule,omitempty"`   // in readelf's notation
	Cause    string `json:"cause"`            // why programs have such code
	Format3  bool   `json:"format3"`          // format 3 covers it
	FDE      string `json:"fde"`              // where the CFI is
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

// An Input is what New reports on.
type Input struct {
	File   *elffile.File
	Debug  *elffile.File // with the debug information that was split off, or nil
	Table  *cfi.Table
	ABI    sframe.ABI
	Result *translate.Result
	// Format3 is a translation of at least the functions with gaps to format 3, or nil if Result has that format.
	Format3 *translate.Result
	Stubs   []plt.Stub
	Padding []uint8 // sizes of the padding after functions that is known, as padding.Find returns them, or nil
	// Brief omits names, source lines, and code without CFI, which take longer.
	Brief  bool
	Limits *Limits // of all reports of a run
}

// New sums up a translation.
func New(in Input) *Coverage {
	f, t, res := in.File, in.Table, in.Result
	c := &Coverage{
		Schema: Schema, ABI: in.ABI.String(), Functions: res.Functions,
		Amounts: Amounts{Described: res.Described, Covered: res.Covered, PLT: res.Synthesised},
		Topmost: res.Topmost, Padding: res.Padding,
		Dropped: Dropped(t.Dropped), Sources: []Source{}, Uncovered: noneUncovered(),
	}
	c.Malformed.Count = t.NumErrors
	for _, e := range t.Errors[:take(&in.Limits.errs, len(t.Errors))] {
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
	c.LostInV2 = newLoss(&res.Older)
	c.gaps(&in)
	if w := c.sparse(); w != "" {
		c.Warnings = append(c.Warnings, w)
	}
	return c
}

// WithoutCFI returns how much of the code has no CFI, without start-up code.
func (c *Coverage) WithoutCFI() uint64 {
	return c.Uncovered.Bytes - c.Uncovered.Padding - c.Uncovered.Startup
}

// There is a warning if more code has no CFI than in programs of compilers with CFI, which contain some assembly.
const (
	maxWithoutCFI = 5   // in percent of the code
	minWithoutCFI = 256 // bytes: less is no matter in small programs
)

// tooMuch reports whether n bytes of the code without CFI are worth a warning.
func tooMuch(n, code uint64) bool {
	return n >= minWithoutCFI && code > 0 && percent(n, code) > maxWithoutCFI
}

// sparse returns the warning that much code has no CFI, or "". It has the advice that helps.
func (c *Coverage) sparse() string {
	n := c.WithoutCFI()
	switch {
	case !tooMuch(n, c.Code):
		return ""
	case !tooMuch(c.Uncovered.compiled, c.Code):
		return Share(n, c.Code) + " of the code has no CFI: most of that is assembly without .cfi directives"
	case c.Uncovered.unnamed:
		return Share(n, c.Code) + " of the code has no CFI: assembly needs .cfi directives, other code " +
			"-fasynchronous-unwind-tables; or use --debug-file"
	}
	return Share(n, c.Code) +
		" of the code has no CFI: build with -fasynchronous-unwind-tables, or use --debug-file"
}

// gaps lists the gaps and the code without CFI.
func (c *Coverage) gaps(in *Input) {
	res := in.Result
	gaps := res.Gaps[:take(&in.Limits.gaps, len(res.Gaps))]
	c.Omitted += len(res.Gaps) - len(gaps)
	c.Gaps = make([]Gap, len(gaps))
	words := translate.NewRuleWriter(in.ABI)
	var probing []string
	if a := arch.OfABI(in.ABI); a != nil {
		probing = a.Probing
	}
	var left []translate.Gap // by format 3
	var listed uint64
	if in.Format3 != nil {
		left, listed = in.Format3.Gaps, in.Format3.ListedTo()
	}
	for i := range gaps {
		g := &gaps[i]
		for len(left) > 0 && left[0].End <= g.Begin {
			left = left[1:]
		}
		c.Gaps[i] = Gap{
			Offset: g.Begin - g.Function.Begin, Begin: g.Begin, End: g.End,
			Reason: g.Reason.Name(), Text: g.Reason.String(), Column: g.Column.String(), Rule: words.Rule(g),
			Format3: g.End <= listed && (len(left) == 0 || left[0].Begin >= g.End),
			FDE:     fmt.Sprintf("%s+%#x", g.Function.Section(), g.Function.Offset()),
		}
		if g.Err != nil {
			c.Gaps[i].Rule = g.Err.Error()
		}
		if c.Gaps[i].Format3 {
			j := slices.IndexFunc(c.Reasons, func(r Reason) bool { return r.Name == g.Reason.Name() })
			c.Reasons[j].Format3 += g.Size()
		}
	}
	c.atLeast = len(res.Gaps) > 0 && (c.Omitted > 0 || res.Gaps[len(res.Gaps)-1].End > listed)
	if !in.Brief {
		files := symbolFiles(in.File, in.Debug)
		names := newNamer(in.Limits)
		functions, starts := functionNames(files, gaps, names)
		for i := range gaps {
			g := &c.Gaps[i]
			g.Function, g.Symbol, g.Offset = functions[i].name, functions[i].symbol, g.Begin-starts[i]
		}
		c.sourceLines(in)
		c.Uncovered = findUncovered(in, files, names)
		c.Amounts = NewAmounts(c.Uncovered.code, c.Amounts)
		c.Notes = append(c.Notes, names.notes()...)
	}
	for i := range c.Gaps {
		g := &c.Gaps[i]
		g.Cause = g.cause(gaps[i].Reason, probing)
		size := g.End - g.Begin
		g.Section, g.Begin = sectionRelative(in.File, g.Begin)
		g.End = g.Begin + size
	}
	// Functions that realign the stack come first: another version of the format would cover them.
	rank := map[string]int{translate.DRAP.Name(): -1}
	slices.SortStableFunc(c.Gaps, func(a, b Gap) int { return rank[a.Reason] - rank[b.Reason] })
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
			c.Covered += s.Bytes
		}
		c.Omitted += s.Ranges
	}
	c.Omitted -= len(res.Gaps)
}

// newLoss returns a Loss, or nil for nothing.
func newLoss(l *translate.Loss) *Loss {
	if l.Functions == 0 {
		return nil
	}
	loss := &Loss{Functions: l.Functions, Bytes: l.Bytes}
	for _, r := range translate.Reasons() {
		if s := l.Reasons[r]; s.Bytes > 0 {
			loss.Reasons = append(loss.Reasons, LossReason{r.Name(), r.String(), s.Functions, s.Bytes})
		}
	}
	return loss
}

// Limits say how much may still be added to the lists in all reports of a run together, which are in memory. Names can
// be much longer in a report than in a file: many gaps have the same name, and mangled names abbreviate.
type Limits struct {
	gaps  int
	names int // bytes
	errs  int // malformed records
}

// NewLimits returns the limits before the first file.
func NewLimits() *Limits { return &Limits{gaps: 1 << 16, names: 16 << 20, errs: 1000} }

// Grow adds to the limits for a file of the given size in bytes.
func (l *Limits) Grow(size int64) {
	l.gaps += int(size / 128)
	l.names += int(size / 4)
	l.errs += int(size / 1024)
}

// Full reports whether no more gaps are listed.
func (l *Limits) Full() bool { return l.gaps <= 0 }

// take returns how many of n can be listed, and subtracts them from the limit.
func take(limit *int, n int) int {
	n = min(n, *limit)
	*limit -= n
	return n
}
