package report

import (
	"encoding/hex"
	"fmt"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

const warnStaleHeaders = "code that uses __ehdr_start finds the old program headers, without .sframe; use " +
	"getauxval(AT_PHDR) or dl_iterate_phdr"

// Converted returns the report on a converted file or archive member. The caller sets the file's name.
func Converted(d *convert.Details, limits *Limits) *Coverage {
	f := d.Facts
	c := &Coverage{
		Schema: Schema, Kept: string(f.Stays), ABI: f.ABI.String(), Format: int(f.Format.Version),
		Functions: f.Functions, FDEs: f.FDEs, FREs: f.FREs,
		Amounts: f.Amounts, Restricted: f.Restricted, Sources: []Source{},
		Dropped: Dropped(d.Table.Dropped), Malformed: Malformed{Count: d.Table.NumErrors},
		MovedCode: f.MovedCode, Unsigned: f.Unsigned,
		Size: f.Size, EHFrame: sectionSize(d.File, ".eh_frame"), EHHdr: sectionSize(d.File, ".eh_frame_hdr"),
		Verified: f.Verified,
	}
	if f.Member != "" {
		c.File = "(" + f.Member + ")"
	}
	if id, _, err := d.File.BuildID(); err == nil { // damaged notes are reported elsewhere
		c.BuildID = hex.EncodeToString(id)
	}
	for _, s := range d.Table.Sources {
		c.Sources = append(c.Sources, Source(s))
	}
	if d.Table.Debug {
		c.DebugFile = d.Debug.Path
	}
	for _, e := range d.Table.Errors[:take(&limits.errs, len(d.Table.Errors))] {
		c.Malformed.Errors = append(c.Malformed.Errors, e.Error())
	}
	if d.File.IsObject() {
		c.MergedBy = f.Format.Mergers()
	}
	c.sumReasons(d.Translation)
	c.listGaps(d, limits)
	if w := c.withoutCFIWarning(convert.Infers(d.File)); w != "" {
		c.Warnings = append(c.Warnings, w)
	}
	if s, err := d.Section(); s != nil && err == nil && d.Linux == convert.LinuxUser {
		c.Warnings = append(c.Warnings, LinuxWarnings(d.File, s)...)
	}
	if f.StaleHeaders {
		c.Warnings = append(c.Warnings, warnStaleHeaders)
	}
	return c
}

// LinuxWarnings returns a warning if kernels with a debugging option would reject the section s of the file f.
func LinuxWarnings(f *elffile.File, s *sframe.Section) []string {
	n := convert.CodeSegments(f, s)
	if n < 2 {
		return nil
	}
	return []string{fmt.Sprintf("rows are for %d executable segments: Linux uses them, but rejects the section if "+
		"built with CONFIG_SFRAME_VALIDATION", n)}
}

// sectionSize returns the size of a section in the file, or 0.
func sectionSize(f *elffile.File, name string) uint64 {
	if s := f.Section(name); s != nil && s.HasBytes() {
		return s.Size
	}
	return 0
}

// sumReasons totals the gaps by reason, in the order of translate.Reasons.
func (c *Coverage) sumReasons(res *translate.Result) {
	c.Reasons = []Reason{}
	for _, r := range translate.Reasons() {
		if s, ok := res.Sums[r]; ok {
			c.Reasons = append(c.Reasons, Reason{
				Name: r.Name(), Text: r.String(), Functions: s.Functions, Ranges: s.Ranges, Bytes: s.Bytes,
				Loss: r.Loss(),
			})
			c.Omitted += s.Ranges
		}
	}
}

// listGaps lists the gaps and the code without CFI.
func (c *Coverage) listGaps(d *convert.Details, limits *Limits) {
	gaps := d.Translation.Gaps[:take(&limits.gaps, len(d.Translation.Gaps))]
	c.Omitted -= len(gaps)
	c.Gaps = make([]Gap, len(gaps))
	for i := range gaps {
		g := &gaps[i]
		c.Gaps[i] = Gap{
			Begin: g.Begin, End: g.End, Reason: g.Reason.Name(), Text: g.Reason.String(), Column: g.Column.String(),
			Rule: g.RuleText(d.Facts.ABI), FDE: fmt.Sprintf("%s+%#x", g.Function.Section(), g.Function.Offset()),
		}
		if g.Err != nil {
			c.Gaps[i].Rule = g.Err.Error()
		}
	}
	names := coverage.NewNames(d.File, d.Debug.File(), &limits.names)
	for i, fn := range names.Of(gaps) {
		g := &c.Gaps[i]
		g.Function, g.Symbol, g.Offset = fn.Name, fn.Symbol, g.Begin-fn.Begin
		size := g.End - g.Begin
		g.Section, g.Begin = coverage.SectionRelative(d.File, g.Begin)
		g.End = g.Begin + size
	}
	// Functions that realign the stack come first, because V3 covers them even if this version does not.
	rank := map[string]int{translate.DRAP.Name(): -1}
	slices.SortStableFunc(c.Gaps, func(a, b Gap) int { return rank[a.Reason] - rank[b.Reason] })
	c.Uncovered = names.Uncovered(d)
	c.SetCode(c.Uncovered.Code)
	c.Notes = append(c.Notes, notes(names)...)
}

// notes returns entries for Coverage.Notes about missing names.
func notes(n *coverage.Names) []string {
	var out []string
	if n.Omitted > 0 {
		out = append(out, "names of "+plural(n.Omitted, "function")+", because their total length exceeds the limit")
	}
	if n.Tangled {
		out = append(out, "names of some functions, because symbols overlap too much")
	}
	return out
}

// Compiled programs contain some assembly without CFI. The report warns if a file exceeds these limits.
const (
	maxWithoutCFI = 5   // percentage of the code
	maxInferable  = 1   // likewise, if --infer might derive rows
	minWithoutCFI = 256 // bytes; smaller amounts, as in small programs, cause no warning
)

// withoutCFIWarning returns a warning if too much code has no CFI, otherwise "".
func (c *Coverage) withoutCFIWarning(inferable bool) string {
	n := c.Uncovered.Bytes
	inferable = inferable && c.Uncovered.Refused == nil && c.Inferred == 0
	switch share := amounts.Percent(n, c.Code); {
	case n < minWithoutCFI || c.Code == 0:
	case inferable && share > maxInferable:
		return Share(n, c.Code) + " of the code has no CFI: use --infer to derive rows from its instructions, " +
			"build with -fasynchronous-unwind-tables, write .cfi directives in assembly, or use --debug-file"
	case share > maxWithoutCFI:
		return Share(n, c.Code) + " of the code has no CFI: build with -fasynchronous-unwind-tables, " +
			"write .cfi directives in assembly, or use --debug-file"
	}
	return ""
}

// Checked returns the report on a comparison. debug may be nil. The caller sets the file's name.
func Checked(c *convert.Comparison, f, debug *elffile.File, table *cfi.Table) (*Check, error) {
	stubs, err := plt.Find(f, table)
	if err != nil {
		return nil, err
	}
	code, _ := coverage.MeasureCode(f, table, stubs)
	check := &Check{
		Schema: Schema, ABI: c.ABI.String(), Format: int(c.Version), FDEs: c.FDEs, FREs: c.FREs, Sorted: c.Sorted,
		Amounts: c.Amounts, Mismatches: []Mismatch{},
	}
	check.SetCode(code)
	ranges := make([]elffile.Span, len(c.Mismatches))
	for i, m := range c.Mismatches {
		ranges[i] = elffile.Span{Begin: m.Begin, End: m.End}
	}
	for i, at := range coverage.Locate(f, debug, ranges) {
		m := &c.Mismatches[i]
		check.Mismatches = append(check.Mismatches, Mismatch{
			Begin: m.Begin, End: m.End, Function: at.Function, Offset: at.Offset, What: m.What,
		})
	}
	return check, nil
}

// Contradicted adds to the report the code whose CFI contradicts its instructions, and the number of bytes compared.
func (c *Check) Contradicted(f, debug *elffile.File, list []convert.Contradiction, compared uint64) {
	ranges := make([]elffile.Span, len(list))
	for i, x := range list {
		ranges[i] = elffile.Span{Begin: x.Begin, End: x.End}
	}
	c.Compared = compared
	for i, at := range coverage.Locate(f, debug, ranges) {
		c.Contradictions = append(c.Contradictions, Mismatch{
			Begin: list[i].Begin, End: list[i].End, Function: at.Function, Offset: at.Offset, What: list[i].What,
		})
	}
}
