// Package lookup finds the rows for addresses and functions in a file.
package lookup

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/files"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// Lookup returns the row of each place: an address in the file, SYMBOL, SYMBOL+NUMBER or SECTION+NUMBER. Rows come from
// .sframe or, if fromCFI is set, from the CFI.
func Lookup(p *files.Program, places []string, fromCFI bool) (*report.Lookup, error) {
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
	x.table, err = p.CFI()
	if err != nil && (fromCFI || !errors.Is(err, cfi.ErrNone)) { // .sframe can be read without CFI
		return nil, err
	}
	_, abi, err := arch.Find(elf.Machine(x.f.Machine), x.f.Order)
	if err != nil {
		return nil, err
	}
	x.words = translate.NewRuleWriter(abi)
	l := &report.Lookup{Schema: report.Schema, ABI: abi.String(), From: "cfi"}
	if !fromCFI {
		l.From, l.Format = sframe.SectionName, int(x.version)
	}
	if err := x.resolve(l, places); err != nil {
		return nil, err
	}
	for i := range l.PCs {
		if err := x.setRow(&l.PCs[i], fromCFI); err != nil {
			return nil, err
		}
		if fn := x.function(l.PCs[i].PC); fn != nil && fn.Inferred() {
			l.PCs[i].Source = cfi.Inferred
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
	words    *translate.RuleWriter
}

// resolve finds the addresses of all places, and the names of their functions.
func (x *lookup) resolve(l *report.Lookup, places []string) error {
	ranges := make([]elffile.Span, len(places))
	order := make([]int, len(places))
	for i, place := range places {
		pc, err := x.address(place)
		if err != nil {
			return err
		}
		ranges[i], order[i] = elffile.Span{Begin: pc, End: pc + 1}, i
	}
	l.PCs = make([]report.PC, len(places))
	byAddress := func(i, j int) int { return cmp.Compare(ranges[i].Begin, ranges[j].Begin) }
	slices.SortStableFunc(order, byAddress)
	sorted := make([]elffile.Span, len(places))
	for i, j := range order {
		sorted[i] = ranges[j]
	}
	for i, at := range report.Locate(x.f, x.debug, sorted) {
		p := &l.PCs[order[i]]
		p.PC, p.Function, p.Offset = sorted[i].Begin, at.Function, at.Offset
		if p.Function == "" {
			p.Why = "outside of code" + x.hint(places[order[i]])
		}
	}
	return nil
}

// address returns the address of a place.
func (x *lookup) address(place string) (uint64, error) {
	if n, err := strconv.ParseUint(place, 0, 64); err == nil {
		if x.f.IsObject() {
			return 0, fmt.Errorf("%s: addresses in a relocatable object are relative to a section; use "+
				"SECTION+NUMBER or "+
				"SYMBOL+NUMBER", place)
		}
		return n, nil
	}
	name, offset := place, uint64(0)
	if i := strings.LastIndexByte(place, '+'); i > 0 {
		if n, err := strconv.ParseUint(place[i+1:], 0, 64); err == nil {
			name, offset = place[:i], n
		}
	}
	if s := x.f.Section(name); s != nil {
		return s.Base + offset, nil
	}
	found, err := report.Find(x.f, x.debug, name)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", place, err)
	}
	switch _, err := strconv.ParseUint(place, 16, 64); {
	case len(found) == 1:
		return found[0] + offset, nil
	case len(found) > 1:
		return 0, fmt.Errorf("%d functions are named %q; use an address or SECTION+NUMBER", len(found), name)
	case err == nil:
		return 0, fmt.Errorf("no function or section is named %q; for an address, use 0x%s", name, place)
	}
	return 0, fmt.Errorf("no function or section is named %q", name)
}

// hint suggests a correction for an address outside of code.
func (x *lookup) hint(place string) string {
	pc, err := strconv.ParseUint(place, 16, 64)
	if err == nil && report.Locate(x.f, nil, []elffile.Span{{Begin: pc, End: pc + 1}})[0].Function != "" {
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
		p.Row.CFA, p.Row.RA, p.Row.FP = x.rule(m.CFA), x.rule(m.RA), x.rule(m.FP)
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

// rule formats a rule. Flexible FDEs refer to SP and FP by number.
func (x *lookup) rule(r sframe.Rule) string {
	switch {
	case r.Base == sframe.Register && r.Reg == x.section.ABI.SP():
		r.Base = sframe.SP
	case r.Base == sframe.Register && r.Reg == x.section.ABI.FP():
		r.Base = sframe.FP
	}
	return r.String()
}

// cfiRow returns the row of the CFI for a pc, or nil.
func (x *lookup) cfiRow(pc uint64) *report.PCRow {
	row, ok := x.table.Lookup(pc)
	if !ok {
		return nil
	}
	rule := func(column translate.Column, rule cfi.Rule) string {
		return x.words.Rule(&translate.Gap{Column: column, Rule: rule})
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
	fres, err := x.section.FREs(x.section.Find(pc), nil)
	for _, fre := range fres {
		if fre.Start > m.Start {
			end = min(end, begin+uint64(fre.Start))
			break
		}
	}
	return max(m.FDE.Start, begin+uint64(m.Start)), end, err
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
		in := func(g translate.Gap) bool { return g.Begin <= p.PC && p.PC < g.End && (p.Row == nil || fromCFI) }
		if j := slices.IndexFunc(gaps, in); j >= 0 {
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
	if rule := x.words.Rule(g); rule != "" {
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
