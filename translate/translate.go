package translate

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/plt"
	"cfi2sframe/sframe"
)

// Options say what to translate to.
type Options struct {
	Version sframe.Version
	// Outermost writes a row without data words where the return address is
	// undefined (errata 2); otherwise such code gets no row.
	Outermost bool
	// Reach limits where functions may start, for versions whose start addresses
	// are 32 bits wide. The zero value is no limit.
	Reach Reach
	// Stubs are PLT stubs that no CFI describes; see package plt.
	Stubs []plt.Stub
	// Budget bounds the work on PLTs. Nil has no bound.
	Budget *elffile.Budget
	// Padding is how many bytes of padding after each of the functions get its last row; see package padding. Nil
	// stands for none.
	Padding []uint8
	// Moves returns by multiples of how many bytes the code at an address may be moved before it
	// runs: a power of two, or 0 for code that stays where it is. Nil stands for any address.
	Moves func(pc uint64) uint64
}

// moves is Moves, if there is one.
func (o *Options) moves(pc uint64) uint64 {
	if o.Moves == nil {
		return 1
	}
	return o.Moves(pc)
}

// A Reach is a range of addresses, Last included.
type Reach struct{ First, Last uint64 }

// ReachOf returns from where to where start addresses have room in a section of version v at
// addr, and no limit where they have 64 bits. With pcrel, or if the version has it so, each one
// counts from its own field: then the section has fdes functions at most, or their number is
// not known and 1 stands for the best case.
func ReachOf(v sframe.Version, addr uint64, pcrel bool, fdes int) Reach {
	l, ok := v.Layout()
	if !ok || l.StartSize == 8 {
		return Reach{}
	}
	const below, above = 1 << 31, 1<<31 - 1 // of an int32
	first, last := addr, addr
	if pcrel || l.PCRel {
		first += uint64(l.HeaderSize)
		last = first + uint64(fdes-1)*uint64(l.FDESize)
	}
	return Reach{First: last - min(last, below), Last: first + min(math.MaxUint64-first, above)}
}

// Has reports whether functions can start at all addresses from first to last.
func (r Reach) Has(first, last uint64) bool {
	return r == Reach{} || r.First <= first && last <= r.Last
}

// A Sink takes functions as they are translated. It must not keep its arguments.
type Sink interface {
	// Row returns a number for the row. Equal rows have the same one, and numbers count from 0.
	Row(sframe.Row) uint32
	// Add adds a function with the rows of the given numbers. What it returns is for Repeat.
	Add(sframe.FDE, []sframe.Ref) (int, error)
	// Repeat adds a function with the rows of the one for which Add returned n. D differs from
	// that call's in Start and Size only, and is no PC-mask FDE.
	Repeat(d sframe.FDE, n int)
}

// Discard returns a Sink for a translation of which only the Result matters.
func Discard() Sink { return make(discard) }

type discard map[sframe.Row]uint32

func (d discard) Row(r sframe.Row) uint32 {
	n, ok := d[r]
	if !ok {
		n = uint32(len(d))
		d[r] = n
	}
	return n
}

func (discard) Add(sframe.FDE, []sframe.Ref) (int, error) { return 0, nil }
func (discard) Repeat(sframe.FDE, int)                    {}

// A Column names the part of a row that a rule is about.
type Column uint8

const (
	ColumnNone Column = iota
	ColumnCFA
	ColumnRA
	ColumnFP
	ColumnSP
)

func (c Column) String() string {
	return [...]string{"", "CFA", "RA", "FP", "SP"}[c]
}

// A Gap is a range of code that CFI describes and SFrame does not.
type Gap struct {
	Function   *cfi.Function
	Begin, End uint64 // addresses, End excluded
	Reason     Reason
	Column     Column   // whose rule is the reason; ColumnNone if no rule is
	Rule       cfi.Rule // that rule
	Err        error    // for Malformed
}

// Size returns the number of bytes in the gap.
func (g *Gap) Size() uint64 { return g.End - g.Begin }

// maxRows bounds what is kept of one function. The largest real ones have a few
// thousand rows.
const maxRows = 1 << 19

// maxGaps bounds the gaps that are kept; the others are summed up only.
const maxGaps = 1 << 16

// A Sum counts the gaps of one reason.
type Sum struct {
	Functions int
	Ranges    int
	Bytes     uint64
}

// A Result says what became of the CFI. Sizes are in bytes of code.
type Result struct {
	Functions int    // CFI functions; pieces that others leave of one FDE are one, here and below
	Whole     int    // of those, without a gap by which a stack trace loses something
	Described uint64 // code they describe
	Covered   uint64 // code that SFrame describes
	Topmost   uint64 // of that, by rules on other registers than SP and FP, which hold in the topmost frame only
	Gaps      []Gap  // by address, the first maxGaps; adjacent rows with the same rule are one gap
	Sums      map[Reason]Sum
	// Synthesised is code that SFrame describes and CFI does not: PLT stubs.
	Synthesised uint64
	// Padding is padding after functions that SFrame describes and CFI does not.
	Padding uint64
	cuts    map[cfi.FDE]outcome // of FDEs of which others left pieces
}

// An outcome is what became of the function of an FDE.
type outcome struct {
	lossy   bool   // a stack trace loses something by a gap
	reasons uint64 // of its gaps, by bits
}

// Translate translates the table's functions, in their order, into sink.
func Translate(t *cfi.Table, opt Options, sink Sink) (*Result, error) {
	a, abi, err := arch.Find(t.Machine, t.Order)
	if err != nil {
		return nil, err
	}
	codec, err := sframe.NewCodec(opt.Version, abi)
	if err != nil {
		return nil, err
	}
	x := &translator{
		arch: a, opt: opt, codec: codec, layout: codec.Layout(), sink: sink,
		res:   &Result{Functions: t.Len(), Sums: make(map[Reason]Sum)},
		known: make([]known, t.NumRules()), repeat: make([]repeatable, t.NumPrograms()),
	}
	mine := scratches.Get().(*scratch)
	x.scratch = *mine
	defer func() {
		clear(x.gaps[:cap(x.gaps)]) // they refer to the functions
		*mine = x.scratch
		scratches.Put(mine)
	}()
	for i := range t.Len() {
		x.pad = 0
		if opt.Padding != nil {
			x.pad = uint64(opt.Padding[i])
		}
		if err := x.function(t.At(i)); err != nil {
			return nil, err
		}
	}
	if err := x.stubs(opt.Stubs); err != nil {
		return nil, err
	}
	return x.res, nil
}

// Merge returns the Result for a table from those for its parts, in their order.
func Merge(parts []*Result) *Result {
	sum := parts[0]
	for _, p := range parts[1:] {
		sum.Functions += p.Functions
		sum.Whole += p.Whole
		sum.Described += p.Described
		sum.Covered += p.Covered
		sum.Topmost += p.Topmost
		sum.Synthesised += p.Synthesised
		sum.Padding += p.Padding
		sum.Gaps = append(sum.Gaps, p.Gaps[:min(len(p.Gaps), maxGaps-len(sum.Gaps))]...)
		for r, s := range p.Sums {
			t := sum.Sums[r]
			t.Functions += s.Functions
			t.Ranges += s.Ranges
			t.Bytes += s.Bytes
			sum.Sums[r] = t
		}
		for fde, o := range p.cuts {
			sum.piece(fde, o)
		}
	}
	return sum
}

// piece notes what became of a piece that others left of an FDE, which was counted as if there
// were no other piece.
func (r *Result) piece(fde cfi.FDE, o outcome) {
	if r.cuts == nil {
		r.cuts = make(map[cfi.FDE]outcome)
	}
	if before, ok := r.cuts[fde]; ok {
		r.uncount(before, o)
		o.join(before)
	}
	r.cuts[fde] = o
}

// uncount takes back what was counted twice, for two pieces of an FDE.
func (r *Result) uncount(a, b outcome) {
	r.Functions--
	if !a.lossy || !b.lossy {
		r.Whole--
	}
	for both := a.reasons & b.reasons; both != 0; both &= both - 1 {
		reason := Reason(bits.TrailingZeros64(both))
		s := r.Sums[reason]
		s.Functions--
		r.Sums[reason] = s
	}
}

// join makes o the outcome of two pieces of an FDE.
func (o *outcome) join(p outcome) {
	o.lossy = o.lossy || p.lossy
	o.reasons |= p.reasons
}

type translator struct {
	arch   *arch.Arch
	opt    Options
	codec  *sframe.Codec
	layout *sframe.Layout
	sink   Sink
	res    *Result

	fn   *cfi.Function // the current one
	pad  uint64        // bytes of padding after it
	row  cfi.Row       // the current one
	open bool          // the last run takes more rows
	scratch

	known  []known      // by the numbers of rules
	lost   []Gap        // what rules become that have no form
	top    []bool       // by the numbers of the sink's rows: registers other than SP and FP are needed
	repeat []repeatable // by the numbers of programs
	pcRead bool         // a rule of the current function depends on the pc
}

// A scratch is what becomes of the current function, until all of its rows are known to be sound. One
// translator after the other uses it: an archive may have tens of thousands of members.
type scratch struct {
	runs  []run
	refs  []sframe.Ref
	gaps  []Gap
	steps []sframe.Ref
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

// A run is an FDE in the making.
type run struct {
	begin, end  uint64
	first, last int // its rows in refs
	rep         uint8
	topmost     uint64 // bytes for which registers other than SP and FP are needed
	handle      int    // that the sink returned for it
}

func (x *translator) function(fn *cfi.Function) error {
	x.fn, x.open, x.pcRead = fn, false, false
	x.runs, x.refs, x.gaps = x.runs[:0], x.refs[:0], x.gaps[:0]
	x.res.Described += fn.End - fn.Begin
	if end := fn.End + x.pad; !x.opt.Reach.Has(fn.Begin, end-1) || end-fn.Begin > math.MaxUint32 {
		x.pad = 0
	}
	switch {
	case fn.Signal() && !x.layout.Signal:
		x.gap(fn.Begin, fn.End, Gap{Reason: SignalFrame})
	case !x.opt.Reach.Has(fn.Begin, fn.End-1): // parts of it may start anywhere
		x.gap(fn.Begin, fn.End, Gap{Reason: TooFar})
	case fn.End-fn.Begin > math.MaxUint32:
		x.gap(fn.Begin, fn.End, Gap{Reason: TooLarge})
	default:
		n := fn.Program()
		if n >= 0 {
			if r := &x.repeat[n]; r.run > 0 && fn.End-fn.Begin > uint64(r.above) {
				x.again(int(r.run - 1))
				return nil
			}
		}
		if err := x.translateRows(); err != nil {
			return err
		}
		if err := x.commit(); err != nil {
			return err
		}
		if n >= 0 && fn.MinSize() <= fn.End-fn.Begin {
			x.repeat[n] = x.repeatable()
		}
		return nil
	}
	return x.commit()
}

// translateRows translates the rows of the current function.
func (x *translator) translateRows() error {
	fn := x.fn
	switch err := fn.Err(); {
	case fn.NumRows() >= maxRows:
		x.gap(fn.Begin, fn.End, Gap{Reason: TooLarge})
	case err != nil:
		x.gap(fn.Begin, fn.End, Gap{Reason: Malformed, Err: err})
	case fn.Program() < 0 || !x.simple(fn.Steps()):
		for x.row = range fn.Rows() {
			if err := x.translate(); err != nil {
				return err
			}
		}
	}
	return nil
}

// simple translates the current function, which is not cut, if each of its rows is known to have a form
// that holds for any frame. Most functions are such ones.
func (x *translator) simple(steps []cfi.Step) bool {
	fn, refs := x.fn, x.refs
	size := fn.End - fn.Begin
	for i := range steps {
		s := &steps[i]
		if uint64(s.Off) >= size {
			break
		}
		k := &x.known[s.Number]
		if k.is != asRow || x.top[k.n] {
			return false
		}
		refs = append(refs, sframe.Ref{Start: s.Off, Row: k.n})
	}
	x.refs = refs
	x.runs = append(x.runs, run{begin: fn.Begin, end: fn.End, last: len(refs)})
	return true
}

// A repeatable is a function that became one FDE, without anything that has to be counted
// or that depends on the pc.
type repeatable struct {
	run   uint32 // what the sink returned for it, plus 1; 0: none has its rows for certain
	above uint32 // another function that has its rows has more bytes than that
}

// repeatable returns the part of the current function that others may repeat.
func (x *translator) repeatable() repeatable {
	if len(x.runs) != 1 || len(x.gaps) > 0 || x.pcRead || x.runs[0].topmost > 0 {
		return repeatable{}
	}
	return repeatable{uint32(x.runs[0].handle) + 1, uint32(x.fn.MinSize() - 1)}
}

// again adds the current function with the rows that another one has.
func (x *translator) again(handle int) {
	fn := x.fn
	x.res.Covered += fn.End - fn.Begin
	x.res.Padding += x.pad
	x.res.Whole++
	x.sink.Repeat(sframe.FDE{Start: fn.Begin, Size: uint32(fn.End - fn.Begin + x.pad), KeyB: fn.KeyB(),
		Signal: fn.Signal()}, handle)
}

// commit hands the current function over.
func (x *translator) commit() error {
	for i := range x.runs {
		r := &x.runs[i]
		d := sframe.FDE{Start: r.begin, Size: uint32(r.end - r.begin + x.after(r)), PCMask: r.rep > 0, RepSize: r.rep,
			KeyB: x.fn.KeyB(), Signal: x.fn.Signal()}
		var err error
		if r.handle, err = x.sink.Add(d, x.refs[r.first:r.last]); err != nil {
			return err
		}
		x.res.Covered += r.end - r.begin
		x.res.Padding += x.after(r)
		x.res.Topmost += r.topmost
	}
	drap := slices.ContainsFunc(x.gaps, func(g Gap) bool { return g.Reason == DRAP })
	var o outcome
	for _, g := range x.gaps {
		// The register that a DRAP function keeps its argument pointer in is
		// the CFA's base at its start and end.
		if drap && g.Reason == CFARegister {
			g.Reason = DRAP
		}
		s := x.res.Sums[g.Reason]
		if o.reasons>>g.Reason&1 == 0 {
			s.Functions++
		}
		o.join(outcome{g.Reason.Loss(), 1 << g.Reason})
		s.Ranges++
		s.Bytes += g.Size()
		x.res.Sums[g.Reason] = s
		if len(x.res.Gaps) < maxGaps {
			x.res.Gaps = append(x.res.Gaps, g)
		}
	}
	if !o.lossy {
		x.res.Whole++
	}
	if x.fn.Program() < 0 {
		x.res.piece(x.fn.FDE(), o)
	}
	return nil
}

// after returns how many bytes of padding get the last row of a run. That of a block holds for the blocks only, and one
// that depends on the pc for its own.
func (x *translator) after(r *run) uint64 {
	if r.end != x.fn.End || r.rep > 0 || x.pcRead {
		return 0
	}
	return x.pad
}

// gap adds a gap, and ends the run of rows before it.
func (x *translator) gap(begin, end uint64, g Gap) {
	x.open = false
	g.Function, g.Begin, g.End = x.fn, begin, end
	if n := len(x.gaps); n > 0 {
		p := &x.gaps[n-1]
		if p.End == begin && p.Reason == g.Reason && p.Column == g.Column && cfi.SameRule(&p.Rule, &g.Rule) {
			p.End = end
			return
		}
	}
	x.gaps = append(x.gaps, g)
}

// number returns the number that the sink has for a row.
func (x *translator) number(r sframe.Row) uint32 {
	n := x.sink.Row(r)
	for len(x.top) <= int(n) {
		x.top = append(x.top, false)
	}
	x.top[n] = r.CFA.Base == sframe.Register || r.RA.Base == sframe.Register || r.FP.Base == sframe.Register
	return n
}

// add adds a row of the given number to the last run, or to a new one.
func (x *translator) add(begin, end uint64, row uint32) {
	if !x.open {
		x.runs = append(x.runs, run{begin: begin, first: len(x.refs)})
		x.open = true
	}
	r := &x.runs[len(x.runs)-1]
	if x.top[row] {
		r.topmost += end - begin
	}
	x.refs = append(x.refs, sframe.Ref{Start: uint32(begin - r.begin), Row: row})
	r.end, r.last = end, len(x.refs)
}

// A known is what rules become: a program has many rows, and few rules that differ.
type known struct {
	is kind
	n  uint32 // the number of the sink's row, an index of translator.lost, or what arch.PushAt returns
}

type kind uint8

const (
	unseen kind = iota
	asRow
	asGap
	asPLT // it depends on the pc
)

// translate translates the current row.
func (x *translator) translate() error {
	r, k := &x.row, &x.known[x.row.Number]
	if k.is == unseen {
		*k = x.first()
	}
	switch k.is {
	case asRow:
		x.add(r.Begin, r.End, k.n)
	case asGap:
		x.gap(r.Begin, r.End, x.lost[k.n])
	case asPLT:
		x.pcRead = true
		return x.plt(uint64(k.n))
	}
	return nil
}

// first translates the rules of the current row.
func (x *translator) first() known {
	r := &x.row
	if r.CFA.Rule == cfi.RuleExpression && r.RA.Rule != cfi.RuleUndefined {
		if at, ok := x.arch.PushAt(r.CFA.Expression); ok {
			return known{asPLT, uint32(at)}
		}
	}
	e, g := x.form(x.cfa())
	if g.Reason != 0 {
		x.lost = append(x.lost, g)
		return known{asGap, uint32(len(x.lost) - 1)}
	}
	return known{asRow, x.number(e)}
}

// cfa returns the CFA of the current row.
func (x *translator) cfa() value {
	switch rule := &x.row.CFA; rule.Rule {
	case cfi.RuleCFA:
		return value{base: ofReg, reg: rule.Reg, off: rule.Offset}
	case cfi.RuleExpression:
		return evaluate(rule.Expression, value{}, x.arch.PC)
	case cfi.RuleUndefined:
		return value{base: undefined}
	}
	return value{}
}

// register returns what a rule says of register reg, in terms of the CFA where
// that is the same.
func (x *translator) register(rule *cfi.Rule, reg uint64, cfa value) value {
	var v value
	switch rule.Rule {
	case cfi.RuleArchitectural, cfi.RuleSameVal:
		return value{base: ofReg, reg: reg}
	case cfi.RuleUndefined:
		return value{base: undefined}
	case cfi.RuleRegister:
		v = value{base: ofReg, reg: rule.Reg}
	case cfi.RuleOffset:
		return value{base: ofCFA, off: rule.Offset, deref: true}
	case cfi.RuleValOffset:
		return value{base: ofCFA, off: rule.Offset}
	case cfi.RuleExpression, cfi.RuleValExpression:
		v = evaluate(rule.Expression, value{base: ofCFA}, x.arch.PC)
		if rule.Rule == cfi.RuleExpression {
			v = load(v)
		}
	}
	switch {
	case v == cfa && v.base == ofReg:
		return value{base: ofCFA}
	case v.base == ofReg && v.reg == reg && !v.deref && v.off == 0:
		return v // unchanged, which needs no rule
	case v.base == ofReg && cfa.base == ofReg && v.reg == cfa.reg && !cfa.deref:
		v.base, v.reg, v.off = ofCFA, 0, v.off-cfa.off
	}
	return v
}

// form finds the SFrame form of the current row, whose CFA is given, or the gap
// that it is.
func (x *translator) form(cfa value) (e sframe.Row, g Gap) {
	r := &x.row
	if r.RA.Rule == cfi.RuleUndefined {
		if x.layout.Outermost || x.opt.Outermost {
			return sframe.Row{Outermost: true}, Gap{}
		}
		return e, Gap{Reason: Outermost, Column: ColumnRA, Rule: r.RA}
	}
	if r.Sign > cfi.Signed {
		return e, Gap{Reason: RASigned}
	}
	e.Signed = r.Sign == cfi.Signed
	ra := x.register(&r.RA, r.RAReg, cfa)
	if ra == (value{base: ofReg, reg: r.RAReg}) && !x.staysIn(r.RAReg) {
		ra = value{}
	}
	fp := x.register(&r.FP, x.arch.FP, cfa)
	// Each rule on its own has to have a form, and then the row as a whole.
	var reason Reason
	if e.CFA, reason = x.cfaRule(cfa); reason != 0 {
		return e, Gap{Reason: reason, Column: ColumnCFA, Rule: r.CFA}
	}
	if e.RA, reason = x.raRule(ra); reason != 0 {
		return e, Gap{Reason: reason, Column: ColumnRA, Rule: r.RA}
	}
	if e.FP, reason = x.fpRule(fp); reason != 0 {
		return e, Gap{Reason: reason, Column: ColumnFP, Rule: r.FP}
	}
	if !x.spImplied(cfa) {
		return e, Gap{Reason: SPRule, Column: ColumnSP, Rule: r.SP}
	}
	if x.codec.Default(&e) {
		return e, Gap{}
	}
	flexible := e
	flexible.RA, flexible.FP = byRegister(e.RA, e.CFA), byRegister(e.FP, e.CFA)
	if x.codec.Flexible(&flexible) {
		return flexible, Gap{}
	}
	return e, x.whyNot(e)
}

// staysIn reports whether a return address that has no rule can be in the register.
func (x *translator) staysIn(reg uint64) bool {
	return x.arch.FixedRA == 0 && reg != x.arch.SP && reg != x.arch.PC
}

// byRegister says a value relative to the CFA by the register that the CFA is relative
// to: the CFA plus an offset, not loaded, has no form.
func byRegister(r, cfa sframe.Rule) sframe.Rule {
	sum := int64(r.Offset) + int64(cfa.Offset)
	if r.Base != sframe.CFA || r.Deref || cfa.Deref || !fits(sum) {
		return r
	}
	return sframe.Rule{Base: cfa.Base, Reg: cfa.Reg, Offset: int32(sum)}
}

func fits(off int64) bool { return off == int64(int32(off)) }

// spImplied reports whether the caller's SP is what SFrame implies.
func (x *translator) spImplied(cfa value) bool {
	r := &x.row.SP
	switch r.Rule {
	case cfi.RuleArchitectural:
		return true
	case cfi.RuleOffset, cfi.RuleRegister, cfi.RuleSameVal:
		if x.arch.SavesSP {
			return true
		}
	}
	v := x.register(r, x.arch.SP, cfa)
	if x.arch.CallerSP == 0 && v == cfa {
		return true
	}
	return v == value{base: ofCFA, off: x.arch.CallerSP}
}

// rule returns the SFrame rule for a value that is relative to the CFA or to a register, or the
// reason why its numbers have no room: register and computed are those for a register's number,
// where the value is that register's, and where it is not.
func (x *translator) rule(v value, register, computed Reason) (sframe.Rule, Reason) {
	r := sframe.Rule{Offset: int32(v.off), Deref: v.deref}
	switch {
	case !fits(v.off):
		return sframe.Rule{}, OffsetRange
	case v.base == ofCFA:
		r.Base = sframe.CFA
	case v.reg == x.arch.SP:
		r.Base = sframe.SP
	case v.reg == x.arch.FP:
		r.Base = sframe.FP
	case v.reg <= math.MaxUint16:
		r.Base, r.Reg = sframe.Register, uint16(v.reg)
	case v.deref:
		return sframe.Rule{}, computed
	default:
		return sframe.Rule{}, register
	}
	return r, 0
}

func (x *translator) cfaRule(v value) (sframe.Rule, Reason) {
	switch v.base {
	case undefined:
		return sframe.Rule{}, CFAMissing
	case ofReg:
		return x.rule(v, CFARegister, CFAExpression)
	}
	return sframe.Rule{}, CFAExpression
}

func (x *translator) raRule(v value) (sframe.Rule, Reason) {
	switch {
	case x.arch.FixedRA != 0 && v == value{base: ofCFA, off: x.arch.FixedRA, deref: true}:
		return sframe.Rule{}, 0
	case x.arch.FixedRA == 0 && v == value{base: ofReg, reg: x.arch.RA}:
		return sframe.Rule{}, 0
	case v.base != ofCFA && v.base != ofReg:
		return sframe.Rule{}, RARule
	case v.off != 0:
		return x.rule(v, RARule, RARule)
	}
	return x.rule(v, RARegister, RARule)
}

func (x *translator) fpRule(v value) (sframe.Rule, Reason) {
	switch {
	case v == value{base: ofReg, reg: x.arch.FP}:
		return sframe.Rule{}, 0
	case v.base == undefined:
		return sframe.Rule{}, FPUndefined
	case v.base != ofCFA && v.base != ofReg:
		return sframe.Rule{}, FPRule
	case v.off != 0:
		return x.rule(v, FPRule, FPRule)
	}
	return x.rule(v, FPRegister, FPRule)
}

// whyNot names the rule for which the row has no form in this version, although
// each of its rules can be written down.
func (x *translator) whyNot(e sframe.Row) Gap {
	r := &x.row
	gap := func(reason Reason, c Column, rule cfi.Rule) Gap { return Gap{Reason: reason, Column: c, Rule: rule} }
	isReg := func(v sframe.Rule) bool { return v.Base != sframe.CFA && !v.Deref && v.Offset == 0 }
	// The first rule without which the rest of the row would have a form.
	ra, fp := e.RA, e.FP
	e.RA, e.FP = sframe.Rule{}, sframe.Rule{}
	if !x.codec.Default(&e) {
		switch {
		case e.CFA.Deref && e.CFA.Base == sframe.FP:
			return gap(DRAP, ColumnCFA, r.CFA)
		case e.CFA.Deref:
			return gap(CFAExpression, ColumnCFA, r.CFA)
		case e.CFA.Base == sframe.Register:
			return gap(CFARegister, ColumnCFA, r.CFA)
		}
		return gap(OffsetRange, ColumnCFA, r.CFA)
	}
	e.RA = ra
	if !x.codec.Default(&e) {
		switch {
		case isReg(ra):
			return gap(RARegister, ColumnRA, r.RA)
		case ra.Base == sframe.CFA && ra.Deref:
			return gap(RAOffset, ColumnRA, r.RA)
		}
		return gap(RARule, ColumnRA, r.RA)
	}
	switch {
	case isReg(fp):
		return gap(FPRegister, ColumnFP, r.FP)
	case fp.Base == sframe.CFA && fp.Deref && fp.Offset&1 == 0:
		return gap(FPWithoutRA, ColumnFP, r.FP)
	}
	return gap(FPRule, ColumnFP, r.FP)
}
