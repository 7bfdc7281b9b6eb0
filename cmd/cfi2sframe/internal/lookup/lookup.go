// Package lookup finds the rows for addresses and functions in a file.
package lookup

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/files"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Lookup returns the row of each place: an address in the file, SYMBOL+NUMBER or SECTION+NUMBER. For the place SYMBOL,
// it returns all rows of the function. Rows come from .sframe or, if fromCFI is set, from the CFI.
func Lookup(ctx context.Context, p *files.Program, places []string, fromCFI bool) (*report.Lookup, error) {
	x := &lookup{f: p.File, debug: p.Debug.File(), version: convert.DefaultVersion}
	var err error
	if x.section, err = p.Section(); errors.Is(err, sframe.ErrNone) && !fromCFI {
		return nil, fmt.Errorf("%w; --cfi prints the rows of the CFI", err)
	} else if err != nil && !errors.Is(err, sframe.ErrNone) {
		return nil, err
	}
	if x.section != nil {
		x.version = x.section.Version
		x.section = x.section.Sorted()
	}
	x.table, err = p.CFI(ctx)
	if err != nil && (fromCFI || !errors.Is(err, cfi.ErrNone)) { // .sframe can be read without CFI
		return nil, err
	}
	if _, x.abi, err = arch.Find(elf.Machine(x.f.Machine), x.f.Order); err != nil {
		return nil, err
	}
	sp, fp := x.abi.Register(uint64(x.abi.SP())), x.abi.Register(uint64(x.abi.FP()))
	x.names = strings.NewReplacer(sp, "sp", fp, "fp")
	l := &report.Lookup{Schema: report.Schema, ABI: x.abi.String(), From: "cfi"}
	if !fromCFI {
		l.From, l.Format = sframe.SectionName, int(x.version)
	}
	starts, ends, err := x.resolve(places)
	if err != nil {
		return nil, err
	}
	for i, p := range starts {
		if l.PCs, err = x.addRows(l.PCs, p, ends[i], fromCFI); err != nil {
			return nil, fmt.Errorf("%s: %w", places[i], err)
		}
	}
	if err := x.explainGaps(l.PCs, fromCFI); err != nil {
		return nil, err
	}
	x.makeRelative(l.PCs)
	return l, nil
}

// A lookup finds rows in one file.
type lookup struct {
	f, debug *elffile.File
	section  *sframe.Section // or nil
	version  sframe.Version  // version of the section, or the default version
	table    *cfi.Table      // or nil
	abi      sframe.ABI
	names    *strings.Replacer // replaces the ABI's names of SP and FP
	fde      int               // index of the FDE with the rows fres
	fres     []sframe.FRE      // of the last FDE, or nil
}

// maxRows is the maximum number of rows of one function. Each row is looked up, which takes time proportional to the
// number of rows before it.
const maxRows = 1 << 12

// addRows adds the row of the pc p and, up to the address end, the rows after it.
func (x *lookup) addRows(pcs []report.PC, p report.PC, end uint64, fromCFI bool) ([]report.PC, error) {
	for {
		if err := x.setRow(&p, fromCFI); err != nil {
			return nil, err
		}
		if fn := x.function(p.PC); fn != nil && fn.Inferred() {
			p.Source = cfi.Inferred
		}
		pcs = append(pcs, p)
		next := x.next(&p, fromCFI)
		switch {
		case next <= p.PC || next >= end:
			return pcs, nil
		case len(pcs) >= maxRows:
			return nil, fmt.Errorf("more than %d rows; use an address, or dump", maxRows)
		}
		p = report.PC{PC: next, Function: p.Function, Offset: p.Offset + next - p.PC}
	}
}

// next returns the next pc at which a different row may start, or 0.
func (x *lookup) next(p *report.PC, fromCFI bool) uint64 {
	if p.Row != nil {
		return p.Row.End
	}
	next := uint64(0)
	if !fromCFI {
		i := sort.Search(x.section.Len(), func(i int) bool { return x.section.FDE(i).Start > p.PC })
		if i < x.section.Len() {
			next = x.section.FDE(i).Start
		}
	}
	if row := x.cfiRow(p.PC); row != nil && (next == 0 || row.End < next) {
		next = row.End
	}
	return next
}

// resolve finds the addresses of all places, the names of their functions, and the addresses up to which rows are
// printed.
func (x *lookup) resolve(places []string) (pcs []report.PC, ends []uint64, err error) {
	ranges, ends := make([]elffile.Span, len(places)), make([]uint64, len(places))
	order := make([]int, len(places))
	for i, place := range places {
		at, err := x.address(place)
		if err != nil {
			return nil, nil, err
		}
		ranges[i], ends[i], order[i] = elffile.Span{Begin: at.Begin, End: at.Begin + 1}, at.End, i
	}
	pcs = make([]report.PC, len(places))
	byAddress := func(i, j int) int { return cmp.Compare(ranges[i].Begin, ranges[j].Begin) }
	slices.SortStableFunc(order, byAddress)
	sorted := make([]elffile.Span, len(places))
	for i, j := range order {
		sorted[i] = ranges[j]
	}
	for i, at := range coverage.Locate(x.f, x.debug, sorted) {
		p := &pcs[order[i]]
		p.PC, p.Function, p.Offset = sorted[i].Begin, at.Function, at.Offset
		if p.Function == "" {
			p.Why = "outside of code" + x.hint(places[order[i]])
		}
	}
	return pcs, ends, nil
}

// address returns the address of a place or, for SYMBOL, the range of the function.
func (x *lookup) address(place string) (elffile.Span, error) {
	at := func(pc uint64) elffile.Span { return elffile.Span{Begin: pc, End: pc} }
	if n, err := strconv.ParseUint(place, 0, 64); err == nil {
		if x.f.IsObject() {
			return at(0), fmt.Errorf("%s: addresses in a relocatable object are relative to a section; use "+
				"SECTION+NUMBER or SYMBOL+NUMBER", place)
		}
		return at(n), nil
	}
	name, offset := place, uint64(0)
	if i := strings.LastIndexByte(place, '+'); i > 0 {
		if n, err := strconv.ParseUint(place[i+1:], 0, 64); err == nil {
			name, offset = place[:i], n
		}
	}
	if s := x.f.Section(name); s != nil {
		return at(s.Base + offset), nil
	}
	found, err := coverage.Find(x.f, x.debug, name)
	if err != nil {
		return at(0), fmt.Errorf("%s: %w", place, err)
	}
	switch _, err := strconv.ParseUint(place, 16, 64); {
	case len(found) == 1 && name != place:
		return at(found[0].Begin + offset), nil
	case len(found) == 1:
		fn := found[0]
		if described := x.function(fn.Begin); fn.Begin == fn.End && described != nil { // a label without a size
			fn.End = described.End
		}
		return fn, nil
	case len(found) > 1:
		return at(0), fmt.Errorf("%d functions are named %q; use %s", len(found), name, x.candidates(found))
	case err == nil:
		return at(0), fmt.Errorf("no function or section is named %q; for an address, use 0x%s", name, place)
	case x.isStripped():
		return at(0), fmt.Errorf("no function or section is named %q, and the file has no symbol table; use an "+
			"address, or --debug-file", name)
	}
	return at(0), fmt.Errorf("no function or section is named %q", name)
}

// maxCandidates is the number of functions of the same name that an error lists.
const maxCandidates = 8

// candidates lists functions of the same name: the place to use, and the name with its parameters.
func (x *lookup) candidates(found []elffile.Span) string {
	var list []string
	shown := found[:min(len(found), maxCandidates)]
	for i, at := range coverage.Locate(x.f, x.debug, shown) {
		place := fmt.Sprintf("%#x", shown[i].Begin)
		if n := x.f.SectionAt(shown[i].Begin); x.f.IsObject() && n > 0 {
			place = fmt.Sprintf("%s+%#x", x.f.Sections[n].Name, shown[i].Begin-x.f.Sections[n].Base)
		}
		list = append(list, fmt.Sprintf("%s (%s)", place, at.Function))
	}
	if len(shown) < len(found) {
		list = append(list, "...")
	}
	return strings.Join(list, ", ")
}

// isStripped reports whether neither the file nor its debug file has a symbol table.
func (x *lookup) isStripped() bool {
	has := func(s elffile.Section) bool { return elf.SectionType(s.Type) == elf.SHT_SYMTAB }
	return !slices.ContainsFunc(x.f.Sections, has) &&
		(x.debug == nil || !slices.ContainsFunc(x.debug.Sections, has))
}

// hint suggests a correction for an address outside of code.
func (x *lookup) hint(place string) string {
	pc, err := strconv.ParseUint(place, 16, 64)
	if err == nil && coverage.Locate(x.f, nil, []elffile.Span{{Begin: pc, End: pc + 1}})[0].Function != "" {
		return fmt.Sprintf("; did you mean %#x?", pc)
	}
	return "; addresses are those in the file, without the load address"
}

// setRow sets p.Row.
func (x *lookup) setRow(p *report.PC, fromCFI bool) error {
	if fromCFI {
		p.Row = x.cfiRow(p.PC)
		return nil
	}
	m, ok, err := x.section.Lookup(p.PC)
	if err != nil || !ok {
		return err
	}
	p.Row = &report.PCRow{Signal: m.FDE.Signal, Outermost: m.Outermost, Signed: m.Signed}
	if p.Row.Begin, p.Row.End, err = x.rangeOf(p.PC, &m); err == nil && !m.Outermost {
		p.Row.CFA, p.Row.RA, p.Row.FP = x.value(m.CFA), x.rule(m.RA), x.rule(m.FP)
	}
	return err
}

// function returns the function that contains a pc, or nil.
func (x *lookup) function(pc uint64) *cfi.Function {
	if x.table == nil {
		return nil
	}
	return x.table.Find(pc)
}

// The words for registers without a value in memory, in rows of .sframe and of the CFI.
const (
	unchanged = "unchanged"
	undefined = "undefined"
)

// rule formats a rule of RA or FP.
func (x *lookup) rule(r sframe.Rule) string {
	text := x.value(r)
	switch {
	case r.Base == sframe.None:
		return unchanged
	case r.Base != sframe.CFA && !r.Deref: // the value of a register
		return strings.TrimSuffix(text, "+0")
	}
	return text
}

// value formats a rule with the ABI's names of registers. Flexible FDEs refer to SP and FP by number.
func (x *lookup) value(r sframe.Rule) string {
	return x.names.Replace(x.abi.RuleText(r))
}

// cfiRule formats a rule of the CFI like a rule of .sframe.
func (x *lookup) cfiRule(g *translate.Gap) string {
	switch r := &g.Rule; {
	case g.Column == translate.ColumnNone:
		return ""
	case r.Rule == cfi.RuleUndefined:
		return undefined
	case r.Rule == cfi.RuleSameVal || r.Rule == cfi.RuleArchitectural:
		return unchanged
	case r.Rule == cfi.RuleOffset:
		return fmt.Sprintf("*(c%+d)", r.Offset)
	case r.Rule == cfi.RuleValOffset:
		return fmt.Sprintf("c%+d", r.Offset)
	}
	return x.names.Replace(g.RuleText(x.abi))
}

// cfiRow returns the row of the CFI for a pc, or nil.
func (x *lookup) cfiRow(pc uint64) *report.PCRow {
	if x.table == nil {
		return nil
	}
	row, ok := x.table.Lookup(pc)
	if !ok {
		return nil
	}
	rule := func(column translate.Column, rule cfi.Rule) string {
		return x.cfiRule(&translate.Gap{Column: column, Rule: rule})
	}
	found := &report.PCRow{
		Begin: row.Begin, End: row.End, CFA: rule(translate.ColumnCFA, row.CFA), RA: rule(translate.ColumnRA, row.RA),
		FP: rule(translate.ColumnFP, row.FP), Signed: row.Sign != cfi.Unsigned, Signal: x.table.Find(pc).Signal(),
	}
	if row.SP.Rule != cfi.RuleArchitectural {
		found.SP = rule(translate.ColumnSP, row.SP)
	}
	return found
}

// rangeOf returns the range of code around a pc with the same row.
func (x *lookup) rangeOf(pc uint64, m *sframe.Match) (begin, end uint64, err error) {
	begin, end = m.FDE.Start, m.FDE.End()
	if m.FDE.PCMask {
		if m.FDE.RepSize == 0 { // a single row
			return begin, end, nil
		}
		block := pc - pc%uint64(m.FDE.RepSize)
		end = min(end, block+uint64(m.FDE.RepSize))
		begin = block
	}
	if i := x.section.Find(pc); x.fres == nil || i != x.fde {
		if x.fres, err = x.section.FREs(i, x.fres[:0]); err != nil {
			return 0, 0, err
		}
		x.fde = i
	}
	for _, fre := range x.fres {
		if fre.Start > m.Start {
			end = min(end, begin+uint64(fre.Start))
			break
		}
	}
	return max(m.FDE.Start, begin+uint64(m.Start)), end, nil
}

// explainGaps explains pcs without a row, and CFI rows that SFrame cannot express.
func (x *lookup) explainGaps(pcs []report.PC, fromCFI bool) error {
	wanted := make(map[uint64]bool) // starts of functions
	for _, p := range pcs {
		if fn := x.function(p.PC); fn != nil && (p.Row == nil || fromCFI) {
			wanted[fn.Begin] = true
		}
	}
	var gaps []translate.Gap
	if len(wanted) > 0 {
		part := x.table.Only(func(fn *cfi.Function) bool { return wanted[fn.Begin] })
		res, err := translate.Translate(part, translate.Options{
			Version: x.version, Budget: x.f.Budget(), Moves: x.f.Moves,
		}, translate.Discard())
		if err != nil {
			return err
		}
		gaps = res.Gaps
	}
	for i := range pcs {
		p := &pcs[i]
		j := sort.Search(len(gaps), func(j int) bool { return gaps[j].End > p.PC })
		if j < len(gaps) && gaps[j].Begin <= p.PC && (p.Row == nil || fromCFI) {
			p.Gap = &report.PCGap{Reason: gaps[j].Reason.Name(), Text: x.gapText(&gaps[j])}
		}
		switch {
		case p.Row != nil || p.Why != "":
		case x.table == nil:
			p.Why = "no FDE; the file has no CFI"
		case x.table.Find(p.PC) == nil && fromCFI:
			p.Why = "no CFI describes this code" + x.refusal(p.PC)
		case x.table.Find(p.PC) == nil:
			p.Why = "no FDE; no CFI describes this code" + x.refusal(p.PC)
		case p.Gap != nil:
			p.Why = p.Gap.Text
		default:
			p.Why = fmt.Sprintf("no FDE; the CFI has %v", x.cfiRow(p.PC))
		}
	}
	return nil
}

// refusal returns why the instructions at a pc yield no row.
func (x *lookup) refusal(pc uint64) string {
	for _, r := range x.table.Refused {
		if r.Begin <= pc && pc < r.End {
			return ", and its instructions give no rows (" + r.Reason + ")"
		}
	}
	return ""
}

// gapText returns why SFrame cannot express a row of the CFI.
func (x *lookup) gapText(g *translate.Gap) string {
	text := fmt.Sprintf("cannot be expressed in SFrame V%d: %v", x.version, g.Reason)
	if rule := x.cfiRule(g); rule != "" {
		text += fmt.Sprintf(" (%v %s)", g.Column, rule)
	}
	if g.Err != nil {
		text += ": " + g.Err.Error()
	}
	return text
}

// makeRelative makes addresses in a relocatable object relative to their sections.
func (x *lookup) makeRelative(pcs []report.PC) {
	for i := range pcs {
		p := &pcs[i]
		n := x.f.SectionAt(p.PC)
		if !x.f.IsObject() || n == 0 {
			continue
		}
		s := &x.f.Sections[n]
		p.Section = s.Name
		p.PC -= s.Base
		if p.Row != nil {
			p.Row.Begin -= s.Base
			p.Row.End -= s.Base
		}
	}
}
