package survey

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/plt"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// findings are what a file has: a record, or if it is an archive, several.
type findings struct {
	records   []Record
	functions []BadFunction
	failed    error // of the machine; nothing else counts then
}

// add adds the findings of a member, whose names are relative to name.
func (x *findings) add(name string, member findings) {
	if member.failed != nil {
		x.failed = fmt.Errorf("%s%w", name, member.failed)
	}
	for _, fn := range member.functions {
		fn.File = name + fn.File
		fn.seq += len(x.records)
		addFunction(&x.functions, fn)
	}
	for _, r := range member.records {
		r.File = name + r.File
		x.records = append(x.records, r)
	}
}

// file examines a file on the disk.
func (c *collector) file(ctx context.Context, f *candidate) findings {
	if f.err != nil {
		return refused(f.name, unreadable, f.err)
	}
	r, info, err := outfile.OpenRegular(f.name) // another file may have replaced it
	if err != nil {
		return refused(f.name, unreadable, err)
	}
	defer r.Close()
	budget := elffile.NewBudget(info.Size())
	if f.archive {
		return c.archive(ctx, budget, r, f.name, info.Size())
	}
	return c.examine(budget, r, f.name, info.Size())
}

// archive examines the ELF files in an archive.
func (c *collector) archive(
	ctx context.Context, budget *elffile.Budget, r io.ReaderAt, name string, size int64,
) findings {
	a, err := archive.Open(r, size)
	if err == nil {
		err = budget.Spend(elffile.CostEntry, uint64(len(a.Members)))
	}
	if err != nil {
		return refused(name, damaged, err)
	}
	var all findings
	for i := range a.Members {
		m := &a.Members[i]
		if ctx.Err() != nil {
			break
		}
		contents := a.Contents(i)
		if h, err := peek(contents); m.Special() || err == nil && !h.elf {
			continue
		}
		member := name + "(" + m.Name + ")"
		if err := budget.Spend(elffile.CostHeaders, 1); err != nil {
			all.add("", refused(member, damaged, err))
			break
		}
		all.add("", c.examine(budget, contents, member, m.Size))
	}
	return all
}

// examine translates the CFI of an ELF file.
func (c *collector) examine(budget *elffile.Budget, r io.ReaderAt, name string, size int64) findings {
	f, err := elffile.NewIn(budget, r, size)
	if err != nil {
		return refused(name, statusOf(err), err)
	}
	n := cfi.Size(f)
	if c.Starting != nil {
		c.Starting(n, f.Size)
	}
	n = min(n, maxCFI)
	c.memory.Acquire(context.Background(), int64(n)) // its only error would be that of the context
	defer c.memory.Release(int64(n))
	found := findings{records: []Record{{File: name}}}
	record := &found.records[0]
	err = found.translate(f)
	status := statusOf(err)
	languages, compilers := originOf(f)
	if failed := f.ReadError(); failed != nil {
		err, status, languages, compilers = failed, unreadable, nil, nil
	}
	if err != nil {
		if found = refused(name, status, err); found.failed != nil {
			return found
		}
		found.records[0].ABI = record.ABI
		found.records[0].Code, found.records[0].WithoutCFI = record.Code, record.WithoutCFI
	}
	found.records[0].Languages, found.records[0].Compilers = languages, compilers
	if err := c.name(r, size, found.functions); outfile.OfMachine(err) {
		return refused(name, unreadable, err)
	}
	return found
}

// statusOf returns the status of a file by an error.
func statusOf(err error) convert.Reason {
	if system := (*fs.PathError)(nil); errors.As(err, &system) {
		return unreadable
	}
	if reason := convert.ReasonOf(err); slices.Contains(statuses, reason) {
		return reason
	}
	return damaged
}

// name names the functions that may be among the worst of all.
func (c *collector) name(r io.ReaderAt, size int64, functions []BadFunction) error {
	c.mu.Lock()
	least := uint64(0)
	if all := c.survey.WorstFunctions; len(all) == maxWorst {
		least = all[maxWorst-1].Lost
	}
	c.mu.Unlock()
	var named []*BadFunction
	for i := range functions {
		if functions[i].Lost >= least {
			named = append(named, &functions[i])
		}
	}
	if len(named) == 0 {
		return nil
	}
	f, err := elffile.New(io.NewSectionReader(r, 0, size), size) // with a separate budget
	if err != nil {
		return err
	}
	slices.SortFunc(named, func(a, b *BadFunction) int { return cmp.Compare(a.gap.Begin, b.gap.Begin) })
	gaps := make([]translate.Gap, len(named))
	for i, fn := range named {
		gaps[i] = fn.gap
	}
	for i, p := range report.Places(f, gaps) {
		fn := named[i]
		fn.Function, fn.Symbol, fn.Section, fn.Begin = valid(p.Function), valid(p.Symbol), valid(p.Section), p.Begin
	}
	return f.ReadError()
}

// translate fills in the record of an ELF file. An error says why there is nothing to translate.
func (x *findings) translate(f *elffile.File) error {
	record := &x.records[0]
	_, abi, err := arch.Find(elf.Machine(f.Machine), f.Order)
	if err != nil {
		return err
	}
	record.ABI = abi.String()
	table, err := convert.LoadCFI(f, cfi.Auto, nil)
	none := errors.Is(err, cfi.ErrNone)
	if none {
		table = &cfi.Table{Machine: elf.Machine(f.Machine), Order: f.Order}
	} else if err != nil {
		return err
	}
	stubs, errStubs := plt.Find(f, table)
	if errStubs != nil {
		return errStubs
	}
	record.Code, record.WithoutCFI = report.MeasureCode(f, table, stubs)
	switch {
	case none:
		return err
	case table.Len() == 0 && len(table.Errors) > 0:
		return table.Errors[0]
	case table.Len() == 0:
		return convert.ErrNoCode
	}
	record.DRAP, record.OtherCFA = patterns(table)
	for _, v := range Formats {
		if l, _ := v.Layout(); !slices.Contains(l.ABIs, abi) || !l.Objects && f.IsObject() {
			continue // nothing is written in that version
		}
		opt := translate.Options{Version: v, Stubs: stubs, Moves: f.Moves, Budget: f.Budget()}
		res, err := translate.Translate(table, opt, translate.Discard())
		if err != nil {
			return err
		}
		x.addVersion(v, res)
	}
	return nil
}

// addVersion adds what became of the CFI in a version.
func (x *findings) addVersion(v sframe.Version, res *translate.Result) {
	record := &x.records[0]
	outermost := res.Sums[translate.Outermost].Bytes
	amounts := report.NewAmounts(record.Code, report.Amounts{Covered: res.Covered + outermost, PLT: res.Synthesised})
	record.Formats = append(record.Formats, Format{
		Format: v, Whole: uint64(res.Whole), Unwindable: amounts.Unwindable, Covered: amounts.Covered,
		Outermost: outermost, Topmost: res.Topmost,
	})
	if v != detailed {
		return
	}
	record.Functions, record.Described = uint64(res.Functions), res.Described
	for _, r := range translate.Reasons() {
		if s, ok := res.Sums[r]; ok {
			g := Gap{Reason: r.Name(), Functions: uint64(s.Functions), Ranges: uint64(s.Ranges), Bytes: s.Bytes}
			record.Gaps = append(record.Gaps, g)
		}
	}
	for first := 0; first < len(res.Gaps); {
		end := first + 1
		for end < len(res.Gaps) && res.Gaps[end].Function == res.Gaps[first].Function {
			end++
		}
		x.function(res.Gaps[first:end])
		first = end
	}
}

// function adds the function of some gaps to the worst ones, if they lose something.
func (x *findings) function(gaps []translate.Gap) {
	first := slices.IndexFunc(gaps, func(g translate.Gap) bool { return g.Reason.Loss() })
	if first < 0 {
		return
	}
	var sums []Gap
	for i := range gaps {
		gapOf(&sums, gaps[i].Reason.Name()).Bytes += gaps[i].Size()
	}
	g := &gaps[first]
	// The function itself refers to the whole table, which must not stay in memory.
	begin, end := g.Function.Begin, g.Function.End
	fn := BadFunction{
		File: x.records[0].File, Begin: begin, Size: end - begin,
		gap: translate.Gap{Function: &cfi.Function{Begin: begin, End: end}, Begin: g.Begin, End: g.End},
	}
	if fn.Lost, fn.Reason = lost(sums, losses); fn.Lost > 0 {
		addFunction(&x.functions, fn)
	}
}

// patterns reports whether a CFA is an expression, other than those of GNU ld for PLTs, and whether a CFA is based on
// another register than SP and FP.
func patterns(t *cfi.Table) (drap, otherCFA bool) {
	a := arch.Of(t.Machine)
	for fn := range t.Functions() {
		for row := range fn.Rows() {
			switch rule := &row.CFA; rule.Rule {
			case cfi.RuleExpression:
				if _, ofPLT := a.PushAt(rule.Expression); !ofPLT {
					drap = true
				}
			case cfi.RuleCFA:
				otherCFA = otherCFA || rule.Reg != a.SP && rule.Reg != a.FP
			}
		}
		if drap && otherCFA {
			break
		}
	}
	return drap, otherCFA
}
