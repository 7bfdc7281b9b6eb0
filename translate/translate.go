package translate

import (
	"math"
	"math/bits"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

// Options control the translation.
type Options struct {
	Version sframe.Version
	// Outermost emits a row without data words where the return address is undefined (errata 2); otherwise such code
	// gets no row.
	Outermost bool
	// Reach limits the start addresses of functions, for versions with 32-bit start addresses. The zero value means no
	// limit.
	Reach Reach
	// Stubs are PLT stubs without CFI.
	Stubs []Stub
	// Budget bounds the work on PLTs. Nil means no bound.
	Budget *elffile.Budget
	// Padding is, for each function, the number of padding bytes after it that get its last row.
	// Nil means none.
	Padding []uint8
	// Plain prohibits flexible FDEs (V3).
	Plain bool
	// NoPCMask emits rows for each entry of a PLT instead of PC-mask FDEs.
	NoPCMask bool
	// Code returns n bytes of code at an address, or nil. If Code is nil, epilogues are translated according to the
	// CFI; see epilogue.
	Code func(addr, n uint64) []byte
	// Outside reports whether the function at an address gets no rows because readers of the section never look it up.
	// A nil Outside excludes no function.
	Outside func(pc uint64) bool
	// Moves returns the alignment in bytes that a linker or loader preserves when it moves the code at an address: a
	// power of two, or 0 if the code does not move. A nil Moves means an alignment of 1.
	Moves func(pc uint64) uint64
}

// alignment returns the result of Moves, or 1 if Moves is nil.
func (o *Options) alignment(pc uint64) uint64 {
	if o.Moves == nil {
		return 1
	}
	return o.Moves(pc)
}

// A Reach is a range of addresses. Last is inclusive.
type Reach struct{ First, Last uint64 }

// ReachOf returns the range of start addresses that a section of version v at addr can encode. 64-bit start addresses
// have no limit. If start addresses are relative to their own fields (with pcrel, or if the version requires it), the
// range shrinks with the number of FDEs. If that number is not yet known, use 1, the best case.
func ReachOf(v sframe.Version, addr uint64, pcrel bool, fdes int) Reach {
	l, ok := v.Layout()
	if !ok || l.StartSize == 8 {
		return Reach{}
	}
	const below, above = 1 << 31, 1<<31 - 1 // range of int32
	first, last := addr, addr
	if pcrel || l.PCRel {
		first += uint64(l.HeaderSize)
		last = first + uint64(fdes-1)*uint64(l.FDESize)
	}
	return Reach{First: last - min(last, below), Last: first + min(math.MaxUint64-first, above)}
}

// Has reports whether the range contains all addresses from first to last.
func (r Reach) Has(first, last uint64) bool {
	return r == Reach{} || r.First <= first && last <= r.Last
}

// A Sink receives translated functions. It must not keep its arguments.
type Sink interface {
	// Row returns the number by which Add refers to a row. Equal rows have the same number; numbers start at 0.
	Row(sframe.Row) uint32
	// Add adds a function whose rows have the given numbers. It returns a handle for Repeat.
	Add(sframe.FDE, []sframe.Ref) (int, error)
	// Repeat adds a function with the same rows as the function for which Add returned n. The two
	// FDEs differ only in Start and Size, and are not PC-mask FDEs.
	Repeat(d sframe.FDE, n int)
}

// Discard returns a Sink that discards the rows, for callers that need only the Result.
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

// A Column identifies the part of a row to which a rule applies.
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

// A Gap is a range of code with CFI but without SFrame rows.
type Gap struct {
	Function   *cfi.Function
	Begin, End uint64 // addresses; End is exclusive
	Reason     Reason
	Column     Column   // column of the rule that causes the gap, or ColumnNone
	Rule       cfi.Rule // that rule
	Err        error    // for Malformed and GoTable
}

// Size returns the number of bytes in the gap.
func (g *Gap) Size() uint64 { return g.End - g.Begin }

// maxRows bounds the number of rows of a function. The largest real functions have a few thousand rows.
const maxRows = 1 << 19

// maxGaps bounds Result.Gaps. Further gaps are only counted.
const maxGaps = 1 << 16

// A Sum counts the gaps that have the same reason.
type Sum struct {
	Functions int
	Ranges    int
	Bytes     uint64
}

// A Result holds the gaps and counts of a translation. Sizes are in bytes of code.
type Result struct {
	Functions int // number of functions with CFI; all parts of an FDE count as one
	Amounts
	Restricted
	Gaps []Gap // the first maxGaps gaps in address order; adjacent rows with the same rule are one gap
	Sums map[Reason]Sum
	cuts map[cfi.FDE]reasonSet // reasons of gaps in FDEs that overlap others
}

// A reasonSet is a bit set of Reasons.
type reasonSet uint64

// Translate translates the table's functions in order and passes them to sink.
func Translate(t *cfi.Table, opt Options, sink Sink) (*Result, error) {
	a, abi, err := arch.Find(t.Machine, t.Order)
	if err != nil {
		return nil, err
	}
	codec, err := sframe.NewCodec(opt.Version, abi)
	if err != nil {
		return nil, err
	}
	v2, err := sframe.NewCodec(sframe.V2, abi)
	if err != nil {
		return nil, err
	}
	x := &translator{
		arch: a, opt: opt, codec: codec, v2: v2, layout: codec.Layout(), sink: sink,
		res:          &Result{Functions: t.Len(), Sums: make(map[Reason]Sum)},
		translations: make([]translation, t.NumRules()), repeat: make([]repeatable, t.NumPrograms()),
	}
	for i := range t.Len() {
		var pad uint64
		if opt.Padding != nil {
			pad = uint64(opt.Padding[i])
		}
		if err := x.function(t.At(i), pad); err != nil {
			return nil, err
		}
	}
	if err := x.translateStubs(opt.Stubs); err != nil {
		return nil, err
	}
	return x.res, nil
}

// Merge merges the Results for the parts of a table, in order.
func Merge(parts []*Result) *Result {
	sum := parts[0]
	for _, p := range parts[1:] {
		sum.Functions += p.Functions
		sum.Amounts.Add(&p.Amounts)
		sum.Restricted.Add(&p.Restricted)
		sum.Gaps = append(sum.Gaps, p.Gaps[:min(len(p.Gaps), maxGaps-len(sum.Gaps))]...)
		for r, s := range p.Sums {
			t := sum.Sums[r]
			t.Functions += s.Functions
			t.Ranges += s.Ranges
			t.Bytes += s.Bytes
			sum.Sums[r] = t
		}
		for fde, reasons := range p.cuts {
			sum.addPart(fde, reasons)
		}
	}
	return sum
}

// addPart notes the reasons of the gaps in a part of an FDE. If the FDE has several parts, it corrects the counts of
// functions.
func (r *Result) addPart(fde cfi.FDE, reasons reasonSet) {
	if r.cuts == nil {
		r.cuts = make(map[cfi.FDE]reasonSet)
	}
	before, ok := r.cuts[fde]
	if r.cuts[fde] = before | reasons; !ok {
		return
	}
	r.Functions--
	for both := before & reasons; both != 0; both &= both - 1 {
		reason := Reason(bits.TrailingZeros64(uint64(both)))
		s := r.Sums[reason]
		s.Functions--
		r.Sums[reason] = s
	}
}

type translator struct {
	arch   *arch.Arch
	opt    Options
	codec  *sframe.Codec
	v2     *sframe.Codec
	layout *sframe.Layout
	sink   Sink
	res    *Result

	translations []translation // by rule-set number
	lost         []Gap         // gaps for rules that cannot be expressed
	epilogues    []epilogue    // by translation.n
	restrictions []restriction // by the sink's row number
	repeat       []repeatable  // by program number
	steps        []sframe.Ref  // memory for plt

	current
}

// current is the state of one function.
type current struct {
	fn     *cfi.Function
	pad    uint64  // bytes of padding after the function
	row    cfi.Row // current row
	open   bool    // the last run can be extended
	pcRead bool    // a rule depends on the pc
	runs   []run
	refs   []sframe.Ref
	gaps   []Gap
	popped elffile.Span // range of the current epilogue in which FP has the caller's value, contrary to the CFI
}

// begin replaces the state of the previous function, but keeps its memory.
func (c *current) begin(fn *cfi.Function, pad uint64) {
	*c = current{fn: fn, pad: pad, runs: c.runs[:0], refs: c.refs[:0], gaps: c.gaps[:0]}
}

// A run is an FDE under construction.
type run struct {
	begin, end  uint64
	first, last int // its rows are refs[first:last]
	rep         uint8
	restricted  amounts.Restricted
	handle      int // returned by the sink
}

// A restriction says which of amounts.Restricted count the code of a row.
type restriction struct{ topmost, topmostLinux, onlyV3 bool }

// restrictionOf returns the restriction of a row.
func (x *translator) restrictionOf(r *sframe.Row) restriction {
	relative := func(rule sframe.Rule) bool { return rule.Base == sframe.SP || rule.Base == sframe.FP }
	topmost := r.CFA.Base == sframe.Register || r.RA.Base == sframe.Register || r.FP.Base == sframe.Register
	return restriction{
		topmost: topmost, topmostLinux: topmost || relative(r.RA) || relative(r.FP),
		onlyV3: x.layout.Flexible && !x.v2.Default(r),
	}
}

func (x *translator) function(fn *cfi.Function, pad uint64) error {
	if end := fn.End + pad; !x.opt.Reach.Has(fn.Begin, end-1) || end-fn.Begin > math.MaxUint32 {
		pad = 0
	}
	x.begin(fn, pad)
	x.res.Described += fn.End - fn.Begin
	if why := x.whyNoFDE(); why != 0 {
		x.withoutFDE(why)
		return x.commit()
	}
	n := fn.Program()
	if n >= 0 {
		if r := &x.repeat[n]; r.run > 0 && fn.End-fn.Begin > uint64(r.above) {
			x.addRepeat(int(r.run - 1))
			return nil
		}
	}
	if why := x.whyNoRows(); why.Reason != 0 {
		x.gap(fn.Begin, fn.End, why)
	} else if n < 0 || !x.translateSimple(fn.Steps()) {
		for x.row = range fn.Rows() {
			if err := x.translate(); err != nil {
				return err
			}
		}
	}
	if err := x.commit(); err != nil {
		return err
	}
	if steps := fn.Steps(); n >= 0 && len(steps) > 0 {
		if last := steps[len(steps)-1].Off; uint64(last) < fn.End-fn.Begin {
			x.repeat[n] = x.repeatable(last)
		}
	}
	return nil
}

// withoutFDE adds gaps for the current function, which cannot have an FDE. Code without a caller does not need one.
func (x *translator) withoutFDE(why Reason) {
	fn := x.fn
	if x.whyNoRows().Reason != 0 {
		x.gap(fn.Begin, fn.End, Gap{Reason: why})
		return
	}
	for x.row = range fn.Rows() {
		g := x.outermost()
		if g.Reason == 0 {
			g.Reason = why
		}
		x.gap(x.row.Begin, x.row.End, g)
	}
}

// translateSimple translates the current function if the translation of each row is known and is an FRE without a
// restriction. Most functions are simple. The function must have a Program.
func (x *translator) translateSimple(steps []cfi.Step) bool {
	fn, refs := x.fn, x.refs
	size := fn.End - fn.Begin
	for i := range steps {
		s := &steps[i]
		if uint64(s.Off) >= size {
			break
		}
		k := &x.translations[s.Number]
		if k.is != asRow {
			return false
		}
		refs = append(refs, sframe.Ref{Start: s.Off, Row: k.n})
	}
	x.refs = refs
	x.runs = append(x.runs, run{begin: fn.Begin, end: fn.End, last: len(refs)})
	return true
}

// A repeatable refers to a function that became one FDE without gaps. None of its rows depends on the pc or (in an
// epilogue) on the code, so functions with the same program can repeat them.
type repeatable struct {
	run   uint32 // handle plus 1; 0: the function cannot be repeated
	above uint32 // functions with the same program have the same rows if they have more bytes than this
}

// repeatable returns how to repeat the current function, whose last row starts at offset last.
func (x *translator) repeatable(last uint32) repeatable {
	if len(x.runs) != 1 || len(x.gaps) > 0 || x.pcRead {
		return repeatable{}
	}
	r := &x.runs[0]
	if r.restricted != (amounts.Restricted{}) { // addRepeat does not count them
		return repeatable{}
	}
	return repeatable{uint32(r.handle) + 1, last}
}

// addRepeat adds the current function with the rows of an earlier function.
func (x *translator) addRepeat(handle int) {
	fn := x.fn
	x.countCovered(fn.End - fn.Begin)
	x.res.Padding += x.pad
	x.sink.Repeat(sframe.FDE{Start: fn.Begin, Size: uint32(fn.End - fn.Begin + x.pad), KeyB: fn.KeyB(),
		Signal: fn.Signal()}, handle)
}

// countCovered counts n bytes of the current function as having rows.
func (x *translator) countCovered(n uint64) {
	x.res.Covered += n
	if x.fn.Inferred() {
		x.res.Inferred += n
	}
	if x.fn.Signal() {
		x.res.OnlyV3 += n
	}
}

// commit passes the runs of the current function to the sink, and adds its gaps to the result.
func (x *translator) commit() error {
	var covered uint64
	for i := range x.runs {
		r := &x.runs[i]
		d := sframe.FDE{Start: r.begin, Size: uint32(r.end - r.begin + x.paddingAfter(r)), PCMask: r.rep > 0,
			RepSize: r.rep, KeyB: x.fn.KeyB(), Signal: x.fn.Signal()}
		var err error
		if r.handle, err = x.sink.Add(d, x.refs[r.first:r.last]); err != nil {
			return err
		}
		covered += r.end - r.begin
		x.res.Padding += x.paddingAfter(r)
		if x.fn.Signal() { // countCovered counts all of it
			r.restricted.OnlyV3 = 0
		}
		x.res.Restricted.Add(&r.restricted)
	}
	x.countCovered(covered)
	explain(x.fn, x.gaps)
	var seen reasonSet
	for _, g := range x.gaps {
		s := x.res.Sums[g.Reason]
		if seen>>g.Reason&1 == 0 {
			s.Functions++
		}
		seen |= 1 << g.Reason
		if g.Reason == Outermost {
			x.res.Outermost += g.Size()
			x.res.Covered += g.Size()
		}
		s.Ranges++
		s.Bytes += g.Size()
		x.res.Sums[g.Reason] = s
		if len(x.res.Gaps) < maxGaps {
			x.res.Gaps = append(x.res.Gaps, g)
		}
	}
	if x.fn.Program() < 0 {
		x.res.addPart(x.fn.FDE(), seen)
	}
	return nil
}

// paddingAfter returns how many bytes of padding get the last row of a run. Rows that depend on the pc do not apply to
// padding.
func (x *translator) paddingAfter(r *run) uint64 {
	if r.end != x.fn.End || x.pcRead {
		return 0
	}
	return x.pad
}

// gap adds a gap and ends the current run of rows.
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

// number returns the sink's number for a row.
func (x *translator) number(r sframe.Row) uint32 {
	n := x.sink.Row(r)
	for len(x.restrictions) <= int(n) {
		x.restrictions = append(x.restrictions, restriction{})
	}
	x.restrictions[n] = x.restrictionOf(&r)
	return n
}

// add adds a row with the given number to the last run, or to a new one.
func (x *translator) add(begin, end uint64, row uint32) {
	if !x.open {
		x.runs = append(x.runs, run{begin: begin, first: len(x.refs)})
		x.open = true
	}
	r := &x.runs[len(x.runs)-1]
	if of := x.restrictions[row]; of != (restriction{}) {
		r.restrict(of, end-begin)
	}
	x.refs = append(x.refs, sframe.Ref{Start: uint32(begin - r.begin), Row: row})
	r.end, r.last = end, len(x.refs)
}

// restrict counts n bytes of code whose row has the given restriction.
func (r *run) restrict(of restriction, n uint64) {
	if of.topmost {
		r.restricted.Topmost += n
	}
	if of.topmostLinux {
		r.restricted.TopmostLinux += n
	}
	if of.onlyV3 {
		r.restricted.OnlyV3 += n
	}
}

// A translation is the result of translating a set of rules. A file has many rows, but few distinct rules.
type translation struct {
	is kind
	n  uint32 // the sink's row number, an index in translator.lost or epilogues, or the result of arch.PushAt
}

type kind uint8

const (
	unseen kind = iota
	asRow       // without a restriction
	asRestricted
	asGap
	asPLT // the CFA depends on the pc
	asEpilogue
)

// translate translates the current row.
func (x *translator) translate() error {
	r, k := &x.row, &x.translations[x.row.Number]
	if k.is == unseen {
		*k = x.translateRules()
	}
	switch k.is {
	case asRow, asRestricted:
		x.add(r.Begin, r.End, k.n)
	case asGap:
		x.gap(r.Begin, r.End, x.lost[k.n])
	case asPLT:
		x.pcRead = true
		return x.plt(uint64(k.n))
	case asEpilogue:
		x.epilogue(&x.epilogues[k.n])
	}
	return nil
}

// translateRules translates the rules of the current row. It is called once for each distinct set of rules.
func (x *translator) translateRules() translation {
	r := &x.row
	if r.CFA.Rule == cfi.RuleExpression && r.RA.Rule != cfi.RuleUndefined {
		if at, ok := x.arch.PushAt(r.CFA.Expression); ok {
			return translation{is: asPLT, n: uint32(at)}
		}
	}
	e, g := x.form(x.cfa())
	if g.Reason != 0 {
		x.lost = append(x.lost, g)
		return translation{is: asGap, n: uint32(len(x.lost) - 1)}
	}
	if p, ok := x.epilogueRows(e); ok {
		x.epilogues = append(x.epilogues, p)
		return translation{is: asEpilogue, n: uint32(len(x.epilogues) - 1)}
	}
	n := x.number(e)
	if x.restrictions[n] != (restriction{}) {
		return translation{is: asRestricted, n: n}
	}
	return translation{is: asRow, n: n}
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

// register returns the value that a rule assigns to register reg, relative to the CFA if possible.
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
	case v == value{base: ofReg, reg: reg}: // unchanged; no rule needed
	case v.base == ofReg && cfa.base == ofReg && v.reg == cfa.reg && !cfa.deref:
		v.base, v.reg, v.off = ofCFA, 0, v.off-cfa.off
	}
	return v
}

// values are what the rules of a row amount to.
type values struct{ cfa, ra, fp value }

// form returns the SFrame row for the current row with the given CFA, or a gap.
func (x *translator) form(cfa value) (sframe.Row, Gap) {
	r := &x.row
	if r.RA.Rule == cfi.RuleUndefined && (x.layout.Outermost || x.opt.Outermost) {
		return sframe.Row{Outermost: true}, Gap{}
	}
	v := values{cfa, x.register(&r.RA, r.RAReg, cfa), x.register(&r.FP, x.arch.FP, cfa)}
	if v.ra == (value{base: ofReg, reg: r.RAReg}) && !x.staysIn(r.RAReg) {
		v.ra = value{}
	}
	e, wrong := x.rules(&v)
	if wrong == ColumnNone {
		if fitting, ok := x.fit(e); ok {
			return fitting, Gap{}
		}
	}
	return e, x.whyNoRow(&v, e, wrong)
}

// rules returns the rules of the current row, and the first column that no version can express. A version may also be
// unable to express the combination of rules.
func (x *translator) rules(v *values) (sframe.Row, Column) {
	e := sframe.Row{Signed: x.row.Sign == cfi.Signed}
	home := value{base: ofReg, reg: x.arch.RA} // where the return address is if there is no rule
	if x.arch.FixedRA != 0 {
		home = value{base: ofCFA, off: x.arch.FixedRA, deref: true}
	}
	var cfa, ra, fp bool
	e.CFA, cfa = x.rule(v.cfa)
	if ra = v.ra == home; !ra {
		e.RA, ra = x.rule(v.ra)
	}
	if fp = v.fp == (value{base: ofReg, reg: x.arch.FP}); !fp {
		e.FP, fp = x.rule(v.fp)
	}
	switch {
	case !cfa:
		return e, ColumnCFA
	case !ra || x.row.Sign > cfi.Signed:
		return e, ColumnRA
	case !fp:
		return e, ColumnFP
	case !x.spImplied(v.cfa):
		return e, ColumnSP
	}
	return e, ColumnNone
}

// fit returns the row in a form that an FDE can hold, and whether there is such a form.
func (x *translator) fit(e sframe.Row) (sframe.Row, bool) {
	if x.codec.Default(&e) {
		return e, true
	}
	e.RA, e.FP = byRegister(e.RA, e.CFA), byRegister(e.FP, e.CFA)
	return e, !x.opt.Plain && x.codec.Flexible(&e)
}

// staysIn reports whether a return address that has no rule can be in the register.
func (x *translator) staysIn(reg uint64) bool {
	return x.arch.FixedRA == 0 && reg != x.arch.SP && reg != x.arch.PC
}

// byRegister expresses a CFA-relative value relative to the CFA's base register, because CFA plus offset without a load
// cannot be encoded.
func byRegister(r, cfa sframe.Rule) sframe.Rule {
	sum := int64(r.Offset) + int64(cfa.Offset)
	if r.Base != sframe.CFA || r.Deref || cfa.Deref || !fits(sum) {
		return r
	}
	return sframe.Rule{Base: cfa.Base, Reg: cfa.Reg, Offset: int32(sum)}
}

func fits(off int64) bool { return off == int64(int32(off)) }

// spImplied reports whether the caller's SP has the value that SFrame implies.
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
	return x.register(r, x.arch.SP, cfa) == value{base: ofCFA, off: x.arch.CallerSP}
}

// rule returns the SFrame rule for a value, and whether there is one.
func (x *translator) rule(v value) (sframe.Rule, bool) {
	r := sframe.Rule{Offset: int32(v.off), Deref: v.deref}
	switch {
	case !fits(v.off), v.base != ofCFA && v.base != ofReg:
		return sframe.Rule{}, false
	case v.base == ofCFA:
		r.Base = sframe.CFA
	case v.reg == x.arch.SP:
		r.Base = sframe.SP
	case v.reg == x.arch.FP:
		r.Base = sframe.FP
	case v.reg <= math.MaxUint16:
		r.Base, r.Reg = sframe.Register, uint16(v.reg)
	default:
		return sframe.Rule{}, false
	}
	return r, true
}
