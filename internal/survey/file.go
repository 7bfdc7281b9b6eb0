package survey

import (
	"bytes"
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
	"unicode/utf8"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/archive"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/plt"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// A status says what a file is for the survey.
type status uint8

const (
	statusCFI  status = iota // it has CFI that describes code
	noCFI                    // neither .eh_frame nor .debug_frame
	noCode                   // CFI, but of no code that is in the file
	class32                  // a 32-bit file
	machine                  // another machine or byte order
	damaged                  // the file or its CFI cannot be read as what it is
	unreadable               // the system does not give it

	firstRefusal = noCFI
)

// A refusal is how a status is called.
type refusal struct{ name, text string }

// refusals are by status. The names are stable: they appear in reports for programs.
var refusals = [...]refusal{
	statusCFI:  {"cfi", "CFI that describes code"},
	noCFI:      {"no-cfi", "no CFI: neither .eh_frame nor .debug_frame"},
	noCode:     {"no-code", "CFI that describes no code of the file"},
	class32:    {"32-bit", "32-bit file"},
	machine:    {"machine", "machine without an SFrame ABI"},
	damaged:    {"damaged", "damaged file or CFI, or one that is too large"},
	unreadable: {"unreadable", "file or folder that cannot be read"},
}

// A line is what is kept of a file. What is new in it has to be in entry, too, and in what reads and writes that.
type line struct {
	path       int32 // index of the given path
	part       int32 // where several surveys are merged, index of that it comes from
	seq        int32 // place in what it is in on the disk
	file       string
	disk       string // the same, or the archive that it is in
	status     status
	message    string // for damaged and unreadable
	abi        sframe.ABI
	origin     origin
	drap       bool
	otherCFA   bool
	functions  int
	described  uint64
	withoutCFI uint64
	formats    []Format // those of Formats, the functions and bytes of one that is not for the file being 0
	gaps       []gapSum // in format 2, by reason
}

// A gapSum sums up a file's gaps of one reason.
type gapSum struct {
	reason translate.Reason
	translate.Sum
}

// lost returns how much code lies in gaps by which a stack trace loses something, and the
// reason of most of them.
func (l *line) lost() (uint64, translate.Reason) {
	var sum lossSum
	for _, g := range l.gaps {
		sum.add(g.reason, g.Bytes)
	}
	return sum.total, sum.main
}

// A lossSum sums up what is lost.
type lossSum struct {
	total uint64
	main  translate.Reason // that most is lost by
	by    map[translate.Reason]uint64
}

func (s *lossSum) add(r translate.Reason, bytes uint64) {
	if !r.Loss() {
		return
	}
	if s.by == nil {
		s.by = make(map[translate.Reason]uint64)
	}
	s.total += bytes
	s.by[r] += bytes
	if s.by[r] > s.by[s.main] || s.by[r] == s.by[s.main] && r < s.main {
		s.main = r
	}
}

// A unit is an ELF file, or one in an archive.
type unit struct {
	file      string // that is on the disk
	inner     string // if that is a package, the name in there
	member    string // of an archive, or ""
	off, size int64  // where it is in there
}

func (u *unit) name() string {
	name := u.file
	if u.inner != "" {
		name += "!" + u.inner
	}
	if u.member != "" {
		name += "(" + u.member + ")"
	}
	return name
}

// A function is one of the worst functions, before anyone has asked for its name.
type function struct {
	unit
	place string        // of what is on the disk; see root
	seq   int           // place of its file in what that is in on the disk
	gap   translate.Gap // where it loses something first
	lost  uint64
	main  translate.Reason
	at    *report.Place // what it is called, if that is known already
}

// byLoss puts first the function of which most is lost. Of those of which as much is, the first are those of the first place: by
// their names they would have another order in a survey that gives another name to one of the paths.
func byLoss(a, b *function) int {
	return cmp.Or(
		cmp.Compare(b.lost, a.lost), cmp.Compare(a.place, b.place),
		cmp.Compare(a.seq, b.seq), cmp.Compare(a.gap.Begin, b.gap.Begin),
	)
}

// file examines a file, or the members of an archive. The functions are its worst.
func (c *collector) file(ctx context.Context, f *candidate) ([]line, []function) {
	if f.err != nil {
		return []line{refused(f.name, unreadable, f.err)}, nil
	}
	// Whatever took the file's place meanwhile must not be waited for.
	r, err := os.OpenFile(f.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return []line{refused(f.name, unreadable, err)}, nil
	}
	defer r.Close()
	info, err := r.Stat()
	if err != nil {
		return []line{refused(f.name, unreadable, err)}, nil
	}
	u, budget := unit{file: f.name, size: info.Size()}, elffile.NewBudget(info.Size())
	if f.archive {
		return c.archive(ctx, budget, r, u)
	}
	l, functions := c.examine(budget, r, u)
	return []line{l}, functions
}

// archive examines the ELF files in an archive.
func (c *collector) archive(ctx context.Context, budget *elffile.Budget, r io.ReaderAt, u unit) ([]line, []function) {
	a, err := archive.Open(r, u.size)
	if err == nil {
		err = budget.Spend(elffile.CostEntry, uint64(len(a.Members)))
	}
	if err != nil {
		return []line{refused(u.name(), damaged, err)}, nil
	}
	var lines []line
	all := worst[function]{max: c.worst, cmp: byLoss}
	for i := range a.Members {
		m := &a.Members[i]
		if ctx.Err() != nil {
			break
		}
		contents := a.Contents(i)
		if h, err := peek(contents); m.Special() || err == nil && !h.elf {
			continue
		}
		member := unit{u.file, u.inner, m.Name, m.Off, m.Size}
		if err := budget.Spend(elffile.CostHeaders, 1); err != nil {
			lines = append(lines, refused(member.name(), damaged, err))
			break
		}
		l, functions := c.examine(budget, contents, member)
		lines = append(lines, l)
		for _, f := range functions {
			f.seq = len(lines) - 1
			all.add(f)
		}
	}
	return lines, all.list()
}

// refused returns the line of a file that was refused.
func refused(name string, why status, err error) line {
	l := line{file: name, status: why}
	if why == damaged || why == unreadable {
		l.message = valid(outfile.Plain(err).Error())
	}
	return l
}

// valid returns what JSON can have of a text, so that it is the same in all forms.
func valid(text string) string { return strings.ToValidUTF8(text, string(utf8.RuneError)) }

// examine translates the CFI of an ELF file. The functions are its worst.
func (c *collector) examine(budget *elffile.Budget, r io.ReaderAt, u unit) (line, []function) {
	h, err := peek(r)
	switch {
	case err != nil:
		return refused(u.name(), unreadable, err), nil
	case h.narrow:
		return refused(u.name(), class32, nil), nil
	}
	f, err := elffile.NewIn(budget, r, u.size)
	if err != nil {
		why := damaged
		if system := (*fs.PathError)(nil); errors.As(err, &system) {
			why = unreadable
		}
		return refused(u.name(), why, err), nil
	}
	n := cfi.Size(f)
	if c.starting != nil {
		c.starting(n, f.Size)
	}
	defer c.budget.take(n)()
	x := examination{unit: u, file: f, line: line{file: u.name()}, worst: worst[function]{max: c.worst, cmp: byLoss}}
	why, err := x.run()
	x.line.origin = originOf(f)
	if failed := f.ReadError(); failed != nil {
		why, err = unreadable, failed
		x.line.origin = origin{} // what could not be read has said nothing
	}
	if why != statusCFI {
		l := refused(u.name(), why, err)
		l.abi, l.origin, l.withoutCFI = x.line.abi, x.line.origin, x.line.withoutCFI
		return l, nil
	}
	return x.line, x.worst.list()
}

// An examination is the work on one ELF file.
type examination struct {
	unit
	file  *elffile.File
	table *cfi.Table
	stubs []plt.Stub
	line  line
	worst worst[function]
}

// run fills in the line, or says why the file is refused.
func (x *examination) run() (status, error) {
	var err error
	f := x.file
	if _, x.line.abi, err = arch.Find(elf.Machine(f.Machine), f.Order); err != nil {
		return machine, err
	}
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
	x.line.withoutCFI = report.BytesWithoutCFI(f, x.table, x.stubs)
	switch {
	case none:
		return noCFI, nil
	case x.table.Len() == 0 && len(x.table.Errors) > 0:
		return damaged, x.table.Errors[0]
	case x.table.Len() == 0:
		return noCode, nil
	}
	x.line.drap, x.line.otherCFA = patterns(f, x.table)
	x.line.formats = make([]Format, len(Formats))
	for i, v := range Formats {
		if l, _ := v.Layout(); !slices.Contains(l.ABIs, x.line.abi) || !l.Objects && f.IsObject() {
			continue // nothing is written in that version
		}
		opt := translate.Options{Version: v, Stubs: x.stubs, Reach: x.reach(v), Moves: f.Moves}
		res, err := translate.Translate(x.table, opt, translate.Discard())
		if err == nil {
			err = f.Budget().Spend(elffile.CostVarying, res.Work())
		}
		if err != nil {
			return damaged, err
		}
		x.add(i, res)
	}
	return statusCFI, nil
}

// reach returns what a section of version v would reach. It is only looked for where that may be
// less than all of the code; a file that has no room for a section is none to be measured by it.
func (x *examination) reach(v sframe.Version) translate.Reach {
	const near = 1 << 30 // bytes; no file is so large that the section is as far away for want of a nearer place
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

// add adds what became of the CFI in the version with the given index in Formats.
func (x *examination) add(i int, res *translate.Result) {
	x.line.formats[i] = Format{
		Format: Formats[i], Functions: res.Functions, Whole: res.Whole, Described: res.Described,
		Covered: res.Covered, Outermost: res.Sums[translate.Outermost].Bytes, Topmost: res.Topmost,
	}
	if i != detailed {
		return
	}
	x.line.functions, x.line.described = res.Functions, res.Described
	for _, r := range translate.Reasons() {
		if s, ok := res.Sums[r]; ok {
			x.line.gaps = append(x.line.gaps, gapSum{r, s})
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

// function adds a function, whose gaps are given, to the worst ones.
func (x *examination) function(gaps []translate.Gap) {
	var sum lossSum
	for i := range gaps {
		sum.add(gaps[i].Reason, gaps[i].Size())
	}
	if sum.total == 0 {
		return
	}
	g := &gaps[0]
	for !g.Reason.Loss() {
		gaps = gaps[1:]
		g = &gaps[0]
	}
	// The function itself refers to the whole table, which is not to be kept.
	fn := &cfi.Function{Begin: g.Function.Begin, End: g.Function.End}
	x.worst.add(function{
		unit: x.unit, gap: translate.Gap{Function: fn, Begin: g.Begin, End: g.End}, lost: sum.total, main: sum.main,
	})
}

// named finds out what the functions are called, file by file.
func named(functions []function) []BadFunction {
	out := make([]BadFunction, len(functions))
	files := make(map[unit][]int) // of indexes of functions
	for i := range functions {
		f := &functions[i]
		fn := f.gap.Function
		out[i] = BadFunction{
			File: f.unit.name(), Begin: fn.Begin, Size: fn.End - fn.Begin, Lost: f.lost, Reason: f.main.Name(),

			disk: f.unit.file,
		}
		if f.at != nil {
			out[i].called(f.at)
			continue
		}
		files[f.unit] = append(files[f.unit], i)
	}
	for u, list := range files {
		slices.SortFunc(list, func(a, b int) int { return cmp.Compare(functions[a].gap.Begin, functions[b].gap.Begin) })
		gaps := make([]translate.Gap, len(list))
		for i, j := range list {
			gaps[i] = functions[j].gap
		}
		for i, p := range u.places(gaps) {
			out[list[i]].called(&p)
		}
	}
	return out
}

// places returns where the gaps of a file are, or nothing: the file may have gone meanwhile.
func (u *unit) places(gaps []translate.Gap) []report.Place {
	r, err := os.OpenFile(u.file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer r.Close()
	return u.placesIn(r, gaps)
}

// patterns reports whether there are rows whose CFA is an expression, and rows whose CFA is
// based on another register than SP and FP. Those of PLTs do not count: on some machines GNU ld
// writes an expression for every PLT. Without section headers that tells them.
func patterns(f *elffile.File, t *cfi.Table) (drap, otherCFA bool) {
	plts := pltSections(f)
	a := arch.Of(t.Machine)
	ofPLT := func(cfa []byte) bool { return len(a.PLTCFA) > 0 && bytes.HasPrefix(cfa, a.PLTCFA) }
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
