package survey

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/archive"
	"cfi2sframe/plt"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// findings are what a file has: a record, or if it is an archive or a package, several.
type findings struct {
	records   []Record
	functions worst[BadFunction]
	skipped   Skipped // in a package
}

func newFindings(records ...Record) findings {
	return findings{records: records, functions: worst[BadFunction]{cmp: byLoss}}
}

// add adds the findings of a member, whose names are relative to name.
func (f *findings) add(name string, member findings) {
	for _, fn := range member.functions.list {
		fn.File = name + fn.File
		fn.seq += len(f.records)
		f.functions.add(fn)
	}
	for _, r := range member.records {
		r.File = name + r.File
		f.records = append(f.records, r)
	}
	f.skipped.add(member.skipped)
}

// file examines a file on the disk.
func (c *collector) file(ctx context.Context, f *candidate) findings {
	switch {
	case f.err != nil:
		return newFindings(refused(f.name, unreadable, f.err))
	case f.pack:
		return c.pack(ctx, f.name)
	}
	// Another file may have replaced it, such as a FIFO: opening it must not block.
	r, err := os.OpenFile(f.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return newFindings(refused(f.name, unreadable, err))
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return newFindings(refused(f.name, unreadable, err))
	}
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
		return newFindings(refused(name, damaged, err))
	}
	all := newFindings()
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
			all.records = append(all.records, refused(member, damaged, err))
			break
		}
		all.add("", c.examine(budget, contents, member, m.Size))
	}
	return all
}

// examine translates the CFI of an ELF file.
func (c *collector) examine(budget *elffile.Budget, r io.ReaderAt, name string, size int64) findings {
	h, err := peek(r)
	switch {
	case err != nil:
		return newFindings(refused(name, unreadable, err))
	case h.narrow:
		return newFindings(refused(name, class32, nil))
	}
	f, err := elffile.NewIn(budget, r, size)
	if err != nil {
		why := damaged
		if system := (*fs.PathError)(nil); errors.As(err, &system) {
			why = unreadable
		}
		return newFindings(refused(name, why, err))
	}
	n := cfi.Size(f)
	if c.Starting != nil {
		c.Starting(n, f.Size)
	}
	defer c.budget.take(n)()
	x := examination{file: f, record: Record{File: name}}
	x.functions.cmp = func(a, b *lossyFunction) int { return byLoss(&a.BadFunction, &b.BadFunction) }
	why, err := x.run()
	x.record.Languages, x.record.Compilers = originOf(f)
	if failed := f.ReadError(); failed != nil {
		why, err = unreadable, failed
		x.record.Languages, x.record.Compilers = nil, nil
	}
	if why != "" {
		out := refused(name, why, err)
		out.ABI, out.WithoutCFI = x.record.ABI, x.record.WithoutCFI
		out.Languages, out.Compilers = x.record.Languages, x.record.Compilers
		return newFindings(out)
	}
	found := newFindings(x.record)
	c.name(r, size, x.functions.list)
	for _, fn := range x.functions.list {
		found.functions.add(fn.BadFunction)
	}
	return found
}

// name names the functions that may be among the worst of all.
func (c *collector) name(r io.ReaderAt, size int64, functions []lossyFunction) {
	c.mu.Lock()
	least := uint64(0)
	if all := c.functions.list; len(all) == maxWorst {
		least = all[maxWorst-1].Lost
	}
	c.mu.Unlock()
	var named []*lossyFunction
	for i := range functions {
		if functions[i].Lost >= least {
			named = append(named, &functions[i])
		}
	}
	if len(named) == 0 {
		return
	}
	f, err := elffile.New(io.NewSectionReader(r, 0, size), size) // with a separate budget
	if err != nil {
		return
	}
	slices.SortFunc(named, func(a, b *lossyFunction) int { return cmp.Compare(a.at, b.at) })
	gaps := make([]translate.Gap, len(named))
	for i, fn := range named {
		gaps[i] = fn.gap
	}
	for i, p := range report.Places(f, gaps) {
		fn := named[i]
		fn.Function, fn.Symbol, fn.Section, fn.Begin = valid(p.Function), valid(p.Symbol), valid(p.Section), p.Begin
	}
}

// An examination is the work on one ELF file.
type examination struct {
	file      *elffile.File
	table     *cfi.Table
	stubs     []plt.Stub
	record    Record
	functions worst[lossyFunction]
}

// A lossyFunction has the first gap that loses something, by which its name is found.
type lossyFunction struct {
	BadFunction
	gap translate.Gap
}

// run fills in the record, or says why the file is refused.
func (x *examination) run() (status, error) {
	f := x.file
	_, abi, err := arch.Find(elf.Machine(f.Machine), f.Order)
	if err != nil {
		return machine, err
	}
	x.record.ABI = abi.String()
	x.table, err = cfi.Load(f, cfi.Auto, nil)
	none := errors.Is(err, cfi.ErrNone)
	if none {
		x.table = &cfi.Table{Machine: elf.Machine(f.Machine), Order: f.Order}
	} else if err != nil {
		return damaged, err
	}
	if x.stubs, err = plt.Find(f, x.table); err != nil {
		return damaged, err
	}
	x.record.WithoutCFI = report.BytesWithoutCFI(f, x.table, x.stubs)
	switch {
	case none:
		return noCFI, nil
	case x.table.Len() == 0 && len(x.table.Errors) > 0:
		return damaged, x.table.Errors[0]
	case x.table.Len() == 0:
		return noCode, nil
	}
	x.record.DRAP, x.record.OtherCFA = patterns(f, x.table)
	for _, v := range Formats {
		if l, _ := v.Layout(); !slices.Contains(l.ABIs, abi) || !l.Objects && f.IsObject() {
			continue // nothing is written in that version
		}
		opt := translate.Options{Version: v, Stubs: x.stubs, Reach: x.reach(v), Moves: f.Moves, Budget: f.Budget()}
		res, err := translate.Translate(x.table, opt, translate.Discard())
		if err != nil {
			return damaged, err
		}
		x.add(v, res)
	}
	return "", nil
}

// reach returns which code a section of version v would reach. If all of it, or if the file has no space for a
// section, it is unbounded.
func (x *examination) reach(v sframe.Version) translate.Reach {
	const near = 1 << 30 // bytes; larger than any file, so that the section is nearer than that
	var end uint64
	for i := range x.file.Progs {
		if h := &x.file.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD {
			end = max(end, h.Vaddr+h.Memsz)
		}
	}
	if x.file.IsObject() || end-x.table.At(0).Begin < near {
		return translate.Reach{}
	}
	l, err := elfwrite.Plan(x.file, 0, elfwrite.Options{Force: true})
	if err != nil {
		return translate.Reach{}
	}
	return translate.ReachOf(v, l.Addr, false, 1)
}

// add adds what became of the CFI in a version.
func (x *examination) add(v sframe.Version, res *translate.Result) {
	x.record.Formats = append(x.record.Formats, Format{
		Format: v, Whole: uint64(res.Whole), Covered: res.Covered,
		Outermost: res.Sums[translate.Outermost].Bytes, Topmost: res.Topmost,
	})
	if v != detailed {
		return
	}
	x.record.Functions, x.record.Described = uint64(res.Functions), res.Described
	for _, r := range translate.Reasons() {
		if s, ok := res.Sums[r]; ok {
			g := Gap{Reason: r.Name(), Functions: uint64(s.Functions), Ranges: uint64(s.Ranges), Bytes: s.Bytes}
			x.record.Gaps = append(x.record.Gaps, g)
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
func (x *examination) function(gaps []translate.Gap) {
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
	fn := lossyFunction{gap: translate.Gap{Function: &cfi.Function{Begin: begin, End: end}, Begin: g.Begin, End: g.End}}
	fn.File, fn.Begin, fn.Size, fn.at = x.record.File, begin, end-begin, g.Begin
	if fn.Lost, fn.Reason = lost(sums, losses); fn.Lost > 0 {
		x.functions.add(fn)
	}
}

// patterns reports whether a CFA is an expression, and whether a CFA is based on another register than SP and FP.
// PLTs do not count: on some machines GNU ld writes an expression for every PLT. Without section headers that
// identifies them.
func patterns(f *elffile.File, t *cfi.Table) (drap, otherCFA bool) {
	plts := pltSections(f)
	a := arch.Of(t.Machine)
	ofPLT := func(cfa []byte) bool { _, ok := a.PushAt(cfa); return ok }
	for fn := range t.Functions() {
		if inSections(plts, fn.Begin) {
			continue
		}
		for row := range fn.Rows() {
			switch rule := &row.CFA; rule.Rule {
			case cfi.RuleExpression:
				drap = drap || len(f.Sections) > 0 || !ofPLT(rule.Expression)
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

func pltSections(f *elffile.File) []*elffile.Section {
	var out []*elffile.Section
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Base > 0 && (strings.HasPrefix(s.Name, ".plt") || strings.HasPrefix(s.Name, ".iplt")) {
			out = append(out, s)
		}
	}
	return out
}

func inSections(sections []*elffile.Section, addr uint64) bool {
	for _, s := range sections {
		if addr >= s.Base && addr-s.Base < s.Size {
			return true
		}
	}
	return false
}
