package readers

import (
	"context"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/readback"
	"cfi2sframe/padding"
	"cfi2sframe/plt"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// A subject is a converted file, with what is known of it.
type subject struct {
	path    string // of the input
	machine *readback.Reader
	opt     convert.Options
	table   *cfi.Table
	stubs   []plt.Stub
	padding []uint8 // after the functions; that it is padding is checked elsewhere
	gaps    []report.Gap
	bytes   []byte // the section
	addr    uint64
	section *sframe.Section
}

// convertFile converts a file into the folder dir.
func convertFile(path, dir string, opt convert.Options) (*subject, error) {
	opt.Force, opt.Workers = true, 1
	out := filepath.Join(dir, "converted")
	defer os.Remove(out)
	res, err := files.Convert(context.Background(), path, out, files.Options{Options: opt, NoSync: true})
	if err != nil {
		return nil, err
	}
	c := res.Coverage[0]
	if c.Omitted > 0 {
		return nil, fmt.Errorf("%s: %d gaps are not in the report", path, c.Omitted)
	}
	f, err := linked.Open(out)
	if err != nil {
		return nil, err
	}
	s := &subject{path: path, opt: opt, gaps: c.Gaps}
	// The CFI is that of the input, of the source that was converted.
	if s.table, err = cfi.Load(f, opt.Source, nil); err != nil {
		return nil, err
	}
	if s.machine, err = readback.New(s.table.Machine, s.table.Order, nil); err != nil {
		return nil, err
	}
	if s.stubs, err = plt.Find(f, s.table); err != nil {
		return nil, err
	}
	// If it is unknown what refers to the code, no padding is described.
	if code, err := elfwrite.CodeOf(f); err == nil && !s.opt.NoPadding {
		s.padding = padding.Find(f, s.table, s.stubs, code.Referred, 1)
	}
	if s.padding == nil {
		s.padding = make([]uint8, s.table.Len())
	}
	if s.bytes, s.addr, s.section, err = sectionOf(out); err != nil {
		return nil, err
	}
	slices.SortFunc(s.gaps, func(a, b report.Gap) int {
		if a.Begin < b.Begin {
			return -1
		}
		return 1
	})
	return s, nil
}

// sectionOf returns the section of a file, and its address.
func sectionOf(path string) (b []byte, addr uint64, s *sframe.Section, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, 0, nil, err
	}
	defer f.Close()
	section := f.Section(sframe.SectionName)
	if section == nil {
		return nil, 0, nil, fmt.Errorf("%s has no %s", path, sframe.SectionName)
	}
	b, err = section.Data()
	if err != nil {
		return nil, 0, nil, err
	}
	s, err = sframe.Decode(b, section.Addr)
	return b, section.Addr, s, err
}

// pcs returns the pcs to look up, sorted: the first and the last byte of every function, row, gap, hole and stub and their
// neighbours, and in every function so many at random. Without borders there are the latter only.
func (s *subject) pcs(rng *rand.Rand, borders bool, perFunction int) []uint64 {
	var pcs []uint64
	border := func(begin, end uint64) {
		if borders && begin < end {
			pcs = append(pcs, begin-1, begin, end-1, end)
		}
	}
	var last uint64
	for fn := range s.table.Functions() {
		border(fn.Begin, fn.End)
		for r := range fn.Rows() {
			border(r.Begin, r.End)
		}
		for range perFunction {
			pcs = append(pcs, fn.Begin+rng.Uint64N(fn.End-fn.Begin))
		}
		if borders && last != 0 && last < fn.Begin {
			pcs = append(pcs, last+rng.Uint64N(fn.Begin-last)) // its borders are those of functions
		}
		last = fn.End
	}
	for _, g := range s.gaps {
		border(g.Begin, g.End)
	}
	for _, stub := range s.stubs {
		border(stub.Begin, stub.End)
		for pc := stub.Begin; borders && pc < stub.End; pc++ {
			pcs = append(pcs, pc)
		}
	}
	for _, d := range s.section.FDEs() {
		border(d.Start, d.End())
		for pc := d.Start; borders && d.PCMask && pc < min(d.End(), d.Start+1<<12); pc++ {
			pcs = append(pcs, pc)
		}
	}
	slices.Sort(pcs)
	return slices.Compact(pcs)
}

// counts are what lookups came to.
type counts struct {
	files   int
	lookups uint64
	rows    uint64 // found, and right by the CFI
	none    uint64 // not found, where neither the CFI nor a stub is, or the report has a gap
	stubs   uint64 // found, and right by the instructions of PLT stubs
	known   uint64 // wrong in the way of the table
	wrong   uint64
	first   []string       // some of these
	seen    map[*known]hit // by the table of known errors
}

// A hit is how often a known error could have shown, and did.
type hit struct{ could, did uint64 }

const maxFirst = 10

func (c *counts) add(d *counts) {
	c.files += d.files
	c.lookups += d.lookups
	c.rows += d.rows
	c.none += d.none
	c.stubs += d.stubs
	c.known += d.known
	c.wrong += d.wrong
	c.first = append(c.first, d.first[:min(len(d.first), maxFirst-len(c.first))]...)
	for k, h := range d.seen {
		c.note(k, h)
	}
}

func (c *counts) note(k *known, h hit) {
	if c.seen == nil {
		c.seen = make(map[*known]hit)
	}
	sum := c.seen[k]
	c.seen[k] = hit{sum.could + h.could, sum.did + h.did}
}

// A verdict is remembered for all pcs of a row's rules and an answer.
type verdictKey struct {
	rules          uint32
	signal, fnKeyB bool
	answer         answer
}

// A judge compares answers with the CFI, pc by pc in their order.
type judge struct {
	*subject
	lib      *library
	counts   counts
	pcs      []uint64
	next     int // function
	gap      int
	stub     int
	verdicts map[verdictKey]string
	rows     []cfi.Row // of the function before next
	current  *cfi.Function
}

// lookUp asks a library for pcs, and judges what it says. The section is that of the subject, unless a test damages it. An error of type errRefused is for the whole section.
func (s *subject) lookUp(lib *library, section []byte, pcs []uint64) (*counts, error) {
	j := judge{subject: s, lib: lib, pcs: pcs, verdicts: make(map[verdictKey]string)}
	offsets := make([]int64, len(pcs))
	for i, pc := range pcs {
		offsets[i] = int64(pc - s.addr)
	}
	head, err := lib.ask(section, offsets, j.answer)
	if err != nil {
		return nil, err
	}
	want := uint8(s.opt.Version)
	if head.Version != want || int64(head.FixedRA) != s.machine.FixedRA || head.FixedFP != 0 {
		j.wrong(0, fmt.Sprintf("header: version %d, fixed RA %d and FP %d", head.Version, head.FixedRA, head.FixedFP))
	}
	j.counts.files = 1
	j.counts.lookups = uint64(len(pcs))
	return &j.counts, nil
}

func (j *judge) wrong(pc uint64, what string) {
	j.counts.wrong++
	if len(j.counts.first) < maxFirst {
		j.counts.first = append(j.counts.first, fmt.Sprintf("%s: %#x: %s", j.path, pc, what))
	}
}

// answer judges one.
func (j *judge) answer(i int, a *answer) error {
	pc := j.pcs[i]
	kind, what := j.verdict(pc, a)
	for k := range knownErrors {
		e := &knownErrors[k]
		if e.lib != j.lib.name || !e.could(j, pc, a) {
			continue
		}
		h := hit{could: 1}
		if (e.around || what != "") && e.did(j, pc, a) {
			h.did = 1
		}
		j.counts.note(e, h)
		if what != "" && !e.around && h.did == 1 {
			j.counts.known++
			return nil
		}
	}
	if what != "" {
		j.wrong(pc, what)
		return nil
	}
	switch kind {
	case aRow:
		j.counts.rows++
	case aStub:
		j.counts.stubs++
	default:
		j.counts.none++
	}
	return nil
}

// What there should be at a pc.
const (
	nothing = iota
	aRow
	aStub
)

// verdict says what should be found at a pc, and what is wrong with the answer, or "".
func (j *judge) verdict(pc uint64, a *answer) (kind int, what string) {
	row, fn := j.rowAt(pc)
	if row == nil {
		if stub := j.stubAt(pc); stub != nil {
			return aStub, j.compareStub(stub, pc, a)
		}
	}
	gap := j.inGap(pc)
	if row != nil && pc >= fn.End { // in padding, which has the last row unless that depends on the pc
		gap = j.gap > 0 && j.gaps[j.gap-1].End == fn.End || j.readsPC(row)
	}
	if row == nil || gap {
		if a.Flags&found != 0 {
			return nothing, "a row is found, where there should be none"
		}
		return nothing, ""
	}
	if a.Flags&found == 0 {
		return aRow, "no row is found"
	}
	key := verdictKey{row.Number, fn.Signal(), fn.KeyB(), *a}
	if what, ok := j.verdicts[key]; ok {
		return aRow, what
	}
	what = j.compare(row, fn, pc, a)
	if row.CFA.Rule == cfi.RuleCFA && !expression(&row.RA) && !expression(&row.FP) && !expression(&row.SP) {
		j.verdicts[key] = what
	}
	return aRow, what
}

// readsPC reports whether the CFA of a row is an expression with the pc in it, as that of a PLT.
func (j *judge) readsPC(row *cfi.Row) bool {
	if row.CFA.Rule != cfi.RuleExpression {
		return false
	}
	// The stubs have 16 bytes; the CFA changes at one of them.
	for pc := range uint64(16) {
		a, _ := j.machine.Evaluate(row.CFA.Expression, 0)
		if b, _ := j.machine.Evaluate(row.CFA.Expression, pc); a != b {
			return true
		}
	}
	return false
}

func expression(r *cfi.Rule) bool {
	return r.Rule == cfi.RuleExpression || r.Rule == cfi.RuleValExpression
}

// rowAt returns the row of CFI at a pc, or nil.
func (j *judge) rowAt(pc uint64) (*cfi.Row, *cfi.Function) {
	for j.next < j.table.Len() && j.table.At(j.next).Begin <= pc {
		j.current, j.next, j.rows = j.table.At(j.next), j.next+1, nil
	}
	if j.current == nil || pc >= j.current.End+uint64(j.padding[j.next-1]) || j.current.Err() != nil {
		return nil, nil
	}
	if j.rows == nil {
		j.rows = slices.Collect(j.current.Rows())
	}
	for len(j.rows) > 1 && pc >= j.rows[0].End {
		j.rows = j.rows[1:]
	}
	return &j.rows[0], j.current
}

func (j *judge) stubAt(pc uint64) *plt.Stub {
	for j.stub < len(j.stubs) && j.stubs[j.stub].End <= pc {
		j.stub++
	}
	if j.stub == len(j.stubs) || pc < j.stubs[j.stub].Begin {
		return nil
	}
	return &j.stubs[j.stub]
}

func (j *judge) inGap(pc uint64) bool {
	for j.gap < len(j.gaps) && j.gaps[j.gap].End <= pc {
		j.gap++
	}
	return j.gap < len(j.gaps) && pc >= j.gaps[j.gap].Begin
}

// fdeBefore returns the last FDE of our section that begins at a pc or before it, and its index, or nil.
func (j *judge) fdeBefore(pc uint64) (*sframe.FDE, int) {
	s := j.section
	i := sort.Search(s.Len(), func(i int) bool {
		start, _ := s.Range(i)
		return start > pc
	}) - 1
	if i < 0 {
		return nil, i
	}
	d := s.FDE(i)
	return &d, i
}

// compare compares a row of CFI with an answer.
func (j *judge) compare(row *cfi.Row, fn *cfi.Function, pc uint64, a *answer) string {
	found := readback.Found{Signal: a.FDE&isSignal != 0, KeyB: a.FDE&keyB != 0}
	var err error
	if found.Row, err = j.row(a); err == nil {
		err = j.machine.Compare(pc, &readback.Fact{Rules: row.Rules, Signal: fn.Signal(), KeyB: fn.KeyB()}, &found)
	}
	if err != nil {
		return fmt.Sprintf("%v: %+v", err, *a)
	}
	return ""
}

// compareStub compares a stub with an answer.
func (j *judge) compareStub(stub *plt.Stub, pc uint64, a *answer) string {
	if a.Flags&found == 0 {
		return "no row is found for a stub"
	}
	var s plt.Step
	for _, next := range stub.Steps {
		if stub.Begin+uint64(next.Offset) <= pc {
			s = next
		}
	}
	want := sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: s.CFA}}
	if s.RA != 0 {
		want.RA = sframe.Rule{Base: sframe.CFA, Offset: s.RA, Deref: true}
	}
	got, err := j.row(a)
	if err != nil {
		return err.Error()
	}
	if j.machine.SFrame(&got) != j.machine.SFrame(&want) || got.Signed || got.Outermost {
		return fmt.Sprintf("stub: %+v; %+v was expected", got, want)
	}
	return ""
}
