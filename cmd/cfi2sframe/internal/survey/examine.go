package survey

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"io"
	"slices"
	"sync"

	"cfi2sframe/cfi"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// largeCFI is the size of CFI, in bytes, above which files are examined one at a time. The parsed CFI takes about three
// times as much memory.
const largeCFI = 8 << 20

// An examiner makes records.
type examiner struct {
	Options
	large sync.Mutex // held while examining a file with more CFI than largeCFI
}

// examineCandidate examines an ELF file, or the ELF files in an archive.
func (e *examiner) examineCandidate(ctx context.Context, c *candidate) ([]*Record, error) {
	if c.err != nil {
		return list(refused(c.name, unreadable, c.err))
	}
	r, info, err := outfile.OpenRegular(c.name) // the file may have been replaced since the walk
	if err != nil {
		return list(refused(c.name, unreadable, err))
	}
	defer r.Close()
	budget := elffile.NewBudget(info.Size())
	if c.archive {
		return e.archive(ctx, budget, r, c.name, info.Size())
	}
	return list(e.examine(budget, r, c.name, info.Size()))
}

func list(r *Record, err error) ([]*Record, error) {
	if err != nil {
		return nil, err
	}
	return []*Record{r}, nil
}

// archive examines the ELF files in an archive.
func (e *examiner) archive(
	ctx context.Context, budget *elffile.Budget, r io.ReaderAt, name string, size int64,
) (all []*Record, err error) {
	a, err := archive.Open(r, size)
	if err == nil {
		err = budget.Spend(archive.CostMember, uint64(len(a.Members)))
	}
	if err != nil {
		return list(refused(name, damaged, err))
	}
	for i := range a.Members {
		m := &a.Members[i]
		contents := a.Contents(i)
		if h, err := peek(contents); m.Special() || err == nil && !h.elf {
			continue
		}
		member := name + "(" + m.Name + ")"
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := budget.Spend(archive.CostHeaders, 1); err != nil {
			r, err := refused(member, damaged, err)
			return append(all, r), err
		}
		r, err := e.examine(budget, contents, member, m.Size)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// examine translates the CFI of an ELF file.
func (e *examiner) examine(budget *elffile.Budget, r io.ReaderAt, name string, size int64) (*Record, error) {
	f, err := elffile.NewIn(budget, r, size)
	if err != nil {
		return refused(name, statusOf(err), err)
	}
	n := cfi.Size(f)
	if n > largeCFI {
		e.large.Lock()
		defer e.large.Unlock()
	}
	if e.Starting != nil {
		e.Starting(n, f.Size)
	}
	record := &Record{File: toUTF8(name)}
	err = record.translate(f, e.Infer)
	status := statusOf(err)
	if failed := f.ReadError(); failed != nil {
		err, status = failed, unreadable
	}
	if err != nil {
		none, err := refused(name, status, err)
		if err == nil {
			none.ABI, none.Code, none.WithoutCFI = record.ABI, record.Code, record.WithoutCFI
		}
		return none, err
	}
	if err := nameFunctions(r, size, record.Worst); outfile.OfMachine(err) {
		return refused(name, unreadable, err)
	}
	return record, nil
}

// nameFunctions looks up the names of the worst functions.
func nameFunctions(r io.ReaderAt, size int64, functions []Function) error {
	if len(functions) == 0 {
		return nil
	}
	f, err := elffile.New(io.NewSectionReader(r, 0, size), size) // with a separate budget
	if err != nil {
		return err
	}
	byAddress := slices.Clone(functions)
	slices.SortFunc(byAddress, func(a, b Function) int { return cmp.Compare(a.gap.Begin, b.gap.Begin) })
	gaps := make([]translate.Gap, len(byAddress))
	for i, fn := range byAddress {
		gaps[i] = fn.gap
	}
	for i, p := range report.Places(f, gaps) {
		at := slices.IndexFunc(functions, func(fn Function) bool { return fn.gap.Begin == byAddress[i].gap.Begin })
		fn := &functions[at]
		fn.Function, fn.Symbol, fn.Section, fn.Begin = toUTF8(p.Function), toUTF8(p.Symbol), toUTF8(p.Section), p.Begin
	}
	return f.ReadError()
}

// translate fills in the record of an ELF file. The error says why there is nothing to translate.
func (r *Record) translate(f *elffile.File, infer bool) error {
	_, abi, err := arch.Find(elf.Machine(f.Machine), f.Order)
	if err != nil {
		return err
	}
	r.ABI = abi.String()
	table, err := convert.LoadCFI(context.Background(), f, convert.Loading{Infer: infer})
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
	r.Code, r.WithoutCFI = report.MeasureCode(f, table, stubs)
	switch {
	case none:
		return err
	case table.Len() == 0 && len(table.Errors) > 0:
		return table.Errors[0]
	case table.Len() == 0:
		return convert.ErrNoCode
	}
	for _, v := range Formats {
		opt := translate.Options{Version: v, Stubs: stubs, Moves: f.Moves, Budget: f.Budget()}
		res, err := translate.Translate(table, opt, translate.Discard())
		if err != nil {
			return err
		}
		r.addVersion(v, res)
	}
	return nil
}

// addVersion adds the coverage of a version.
func (r *Record) addVersion(v sframe.Version, res *translate.Result) {
	outermost := res.Sums[translate.Outermost].Bytes
	amounts := report.NewAmounts(r.Code, report.Amounts{Covered: res.Covered + outermost, PLT: res.Synthesised})
	r.Formats = append(r.Formats, Format{
		Format: v, Whole: uint64(res.Whole), Unwindable: amounts.Unwindable, Described: res.Described,
		Covered: amounts.Covered, Topmost: res.Topmost, Inferred: res.Inferred,
	})
	if v != gapVersion {
		return
	}
	r.Functions, r.Described = uint64(res.Functions), res.Described
	for _, reason := range translate.Reasons() {
		if s, ok := res.Sums[reason]; ok {
			g := Gap{Reason: reason.Name(), Functions: uint64(s.Functions), Ranges: uint64(s.Ranges), Bytes: s.Bytes}
			r.Gaps = append(r.Gaps, g)
		}
	}
	for first := 0; first < len(res.Gaps); {
		end := first + 1
		for end < len(res.Gaps) && res.Gaps[end].Function == res.Gaps[first].Function {
			end++
		}
		r.addFunction(res.Gaps[first:end])
		first = end
	}
}

// maxFunctions is the maximum number of functions listed per file, worst first.
const maxFunctions = 3

// addFunction lists the function that contains the gaps if it is among the worst.
func (r *Record) addFunction(gaps []translate.Gap) {
	first := slices.IndexFunc(gaps, func(g translate.Gap) bool { return g.Reason.Loss() })
	if first < 0 {
		return
	}
	sums := make([]Gap, len(gaps))
	for i := range gaps {
		sums[i] = Gap{Reason: gaps[i].Reason.Name(), Bytes: gaps[i].Size()}
	}
	g := &gaps[first]
	// Copied, because a pointer to the function would keep the whole table in memory.
	begin, end := g.Function.Begin, g.Function.End
	fn := Function{
		Begin: begin, Size: end - begin,
		gap: translate.Gap{Function: &cfi.Function{Begin: begin, End: end}, Begin: g.Begin, End: g.End},
	}
	fn.Lost, fn.Reason = lostCode(sums)
	r.Worst = append(r.Worst, fn)
	slices.SortStableFunc(r.Worst, func(a, b Function) int { return cmp.Compare(b.Lost, a.Lost) })
	r.Worst = r.Worst[:min(len(r.Worst), maxFunctions)]
}
