package translate

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// An abi holds what translation needs to know of an ABI. Registers are DWARF
// numbers, offsets are bytes.
type abi struct {
	id         sframe.ABI
	sp, fp, ra uint64
	pc         uint64 // register that stands for pc in expressions, or noReg
	fixedRA    int64  // where RA is saved, from the CFA
	names      []string
}

// abis are the ABIs by machine and byte order.
var abis = map[elf.Machine]map[binary.ByteOrder]*abi{
	elf.EM_X86_64: {binary.LittleEndian: &amd64},
}

// ABIOf returns the SFrame ABI of a machine and byte order.
func ABIOf(m elf.Machine, o binary.ByteOrder) (sframe.ABI, error) {
	if a := abis[m][o]; a != nil {
		return a.id, nil
	}
	return 0, fmt.Errorf("machine %v, %v: no SFrame ABI that is supported", m, o)
}

// Options say what to translate to.
type Options struct {
	Version sframe.Version
	// Outermost writes a row without data words where the return address is
	// undefined (errata 2); otherwise such code is left out.
	Outermost bool
}

// A Sink takes functions as they are translated. It must not keep its arguments.
type Sink interface {
	Add(sframe.FDE, []sframe.FRE) error
}

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

// A Result says what became of the CFI. Sizes are in bytes of code.
type Result struct {
	Functions int    // CFI functions
	Described uint64 // code they describe
	Covered   uint64 // code that SFrame describes
	Gaps      []Gap  // by address; adjacent rows with the same rule are one gap
}

// Translate translates the table's functions, in their order, into sink.
func Translate(t *cfi.Table, opt Options, sink Sink) (*Result, error) {
	a := abis[t.Machine][t.Order]
	if a == nil {
		return nil, fmt.Errorf("machine %v, %v: no SFrame ABI that is supported", t.Machine, t.Order)
	}
	layout, ok := opt.Version.Layout()
	if !ok {
		return nil, fmt.Errorf("%v is not supported", opt.Version)
	}
	x := &translator{
		abi: a, opt: opt, layout: layout, sink: sink, res: &Result{Functions: len(t.Functions)},
		eval: evaluator{order: t.Order, pcReg: a.pc},
	}
	for i := range t.Functions {
		if err := x.function(&t.Functions[i]); err != nil {
			return nil, err
		}
	}
	return x.res, nil
}

type translator struct {
	abi    *abi
	opt    Options
	layout sframe.Layout
	sink   Sink
	res    *Result
	rows   cfi.Rows
	eval   evaluator

	// Of the function at hand, until all of its rows are known to be sound.
	fn    *cfi.Function
	runs  []run
	fres  []sframe.FRE
	gaps  []Gap
	open  bool // the last run takes more rows
	steps []sframe.FRE
}

// A run is an FDE in the making.
type run struct {
	begin, end  uint64
	first, last int // its rows in fres
	rep         uint8
}

func (x *translator) function(fn *cfi.Function) error {
	x.fn, x.open = fn, false
	x.runs, x.fres, x.gaps = x.runs[:0], x.fres[:0], x.gaps[:0]
	x.res.Described += fn.End - fn.Begin
	switch {
	case fn.Signal() && !x.layout.Signal:
		x.gap(fn.Begin, fn.End, Gap{Reason: SignalFrame})
	case fn.End-fn.Begin > math.MaxUint32:
		x.gap(fn.Begin, fn.End, Gap{Reason: TooLarge})
	default:
		for x.rows.Start(fn); x.rows.Next(); {
			x.row()
		}
		if err := x.rows.Err(); err != nil {
			x.runs, x.gaps = x.runs[:0], x.gaps[:0]
			x.gap(fn.Begin, fn.End, Gap{Reason: Malformed, Err: err})
		}
	}
	return x.commit()
}

// commit hands the function at hand over.
func (x *translator) commit() error {
	for _, r := range x.runs {
		d := sframe.FDE{Start: r.begin, Size: uint32(r.end - r.begin), RepSize: r.rep, KeyB: x.fn.KeyB()}
		if err := x.sink.Add(d, x.fres[r.first:r.last]); err != nil {
			return err
		}
		x.res.Covered += r.end - r.begin
	}
	drap := false
	for i := range x.gaps {
		drap = drap || x.gaps[i].Reason == DRAP
	}
	for _, g := range x.gaps {
		// The register that a DRAP function keeps its argument pointer in is
		// the CFA's base at its start and end.
		if drap && g.Reason == CFARegister {
			g.Reason = DRAP
		}
		x.res.Gaps = append(x.res.Gaps, g)
	}
	return nil
}

// gap adds a gap, and ends the run of rows before it.
func (x *translator) gap(begin, end uint64, g Gap) {
	x.open = false
	g.Function, g.Begin, g.End = x.fn, begin, end
	if n := len(x.gaps); n > 0 {
		p := &x.gaps[n-1]
		if p.End == begin && p.Reason == g.Reason && p.Column == g.Column && sameRule(&p.Rule, &g.Rule) {
			p.End = end
			return
		}
	}
	x.gaps = append(x.gaps, g)
}

func sameRule(a, b *cfi.Rule) bool {
	return a.Rule == b.Rule && a.Reg == b.Reg && a.Offset == b.Offset && string(a.Expression) == string(b.Expression)
}

// add adds a row to the last run, or to a new one.
func (x *translator) add(begin, end uint64, e sframe.FRE) {
	if !x.open {
		x.runs = append(x.runs, run{begin: begin, first: len(x.fres)})
		x.open = true
	}
	r := &x.runs[len(x.runs)-1]
	e.Start = uint32(begin - r.begin)
	x.fres = append(x.fres, e)
	r.end, r.last = end, len(x.fres)
}

// row translates the current row.
func (x *translator) row() {
	r := &x.rows
	cfa := x.cfa(r.Begin)
	if x.eval.pcHit && r.RA.Rule != frame.RuleUndefined {
		x.varying()
		return
	}
	e, g := x.forms(cfa)
	if g.Reason != 0 {
		x.gap(r.Begin, r.End, g)
		return
	}
	x.add(r.Begin, r.End, e)
}

// cfa returns the current row's CFA at pc.
func (x *translator) cfa(pc uint64) value {
	x.eval.pcHit = false
	switch rule := &x.rows.CFA; rule.Rule {
	case frame.RuleCFA:
		return value{base: ofReg, reg: rule.Reg, off: rule.Offset}
	case frame.RuleExpression:
		x.eval.pc = pc
		return x.eval.eval(rule.Expression)
	case frame.RuleUndefined:
		return value{base: undefined}
	}
	return value{}
}

// register returns what a rule says of register reg, in terms of the CFA where
// that is the same.
func (x *translator) register(rule *cfi.Rule, reg uint64, cfa value) value {
	var v value
	switch rule.Rule {
	case frame.RuleArchitectural, frame.RuleSameVal:
		return value{base: ofReg, reg: reg}
	case frame.RuleUndefined:
		return value{base: undefined}
	case frame.RuleRegister:
		v = value{base: ofReg, reg: rule.Reg}
	case frame.RuleOffset:
		return value{base: ofCFA, off: rule.Offset, deref: true}
	case frame.RuleValOffset:
		return value{base: ofCFA, off: rule.Offset}
	case frame.RuleExpression, frame.RuleValExpression:
		v = x.eval.eval(rule.Expression, value{base: ofCFA})
		if x.eval.pcHit {
			return value{}
		}
		if rule.Rule == frame.RuleExpression {
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

// forms finds the SFrame form of the current row, whose CFA is given, or the gap
// that it is.
func (x *translator) forms(cfa value) (e sframe.FRE, g Gap) {
	r, a := &x.rows, x.abi
	if r.RA.Rule == frame.RuleUndefined {
		if x.opt.Outermost {
			return sframe.FRE{Outermost: true}, Gap{}
		}
		return e, Gap{Reason: Outermost, Column: ColumnRA, Rule: r.RA}
	}
	var reason Reason
	if e.CFA, reason = x.cfaForm(cfa); reason != 0 {
		return e, Gap{Reason: reason, Column: ColumnCFA, Rule: r.CFA}
	}
	if e.RA, reason = x.raForm(x.register(&r.RA, x.fn.RAReg(), cfa)); reason != 0 {
		return e, Gap{Reason: reason, Column: ColumnRA, Rule: r.RA}
	}
	if e.FP, reason = x.fpForm(x.register(&r.FP, a.fp, cfa)); reason != 0 {
		return e, Gap{Reason: reason, Column: ColumnFP, Rule: r.FP}
	}
	if r.SP.Rule != frame.RuleArchitectural {
		if v := x.register(&r.SP, a.sp, cfa); v != cfa && v != (value{base: ofCFA}) {
			return e, Gap{Reason: SPRule, Column: ColumnSP, Rule: r.SP}
		}
	}
	return e, Gap{}
}

func fits(off int64) bool { return off == int64(int32(off)) }

func (x *translator) cfaForm(v value) (sframe.Rule, Reason) {
	switch {
	case v.base == undefined:
		return sframe.Rule{}, CFAMissing
	case v.base == ofReg && v.deref && v.reg == x.abi.fp:
		return sframe.Rule{}, DRAP
	case v.base != ofReg || v.deref:
		return sframe.Rule{}, CFAExpression
	case v.reg != x.abi.sp && v.reg != x.abi.fp:
		return sframe.Rule{}, CFARegister
	case !fits(v.off):
		return sframe.Rule{}, OffsetRange
	case v.reg == x.abi.sp:
		return sframe.Rule{Base: sframe.SP, Offset: int32(v.off)}, 0
	}
	return sframe.Rule{Base: sframe.FP, Offset: int32(v.off)}, 0
}

func (x *translator) raForm(v value) (sframe.Rule, Reason) {
	switch {
	case v == value{base: ofCFA, off: x.abi.fixedRA, deref: true}:
		return sframe.Rule{}, 0
	case v.base == ofReg && !v.deref && v.off == 0 && v.reg != x.abi.ra:
		return sframe.Rule{}, RARegister
	case v.base == ofCFA && v.deref:
		return sframe.Rule{}, RAOffset
	}
	return sframe.Rule{}, RARule
}

func (x *translator) fpForm(v value) (sframe.Rule, Reason) {
	switch {
	case v == value{base: ofReg, reg: x.abi.fp}:
		return sframe.Rule{}, 0
	case v.base == undefined:
		return sframe.Rule{}, FPUndefined
	case v.base == ofReg && !v.deref && v.off == 0:
		return sframe.Rule{}, FPRegister
	case v.base != ofCFA || !v.deref:
		return sframe.Rule{}, FPRule
	case !fits(v.off):
		return sframe.Rule{}, OffsetRange
	}
	return sframe.Rule{Base: sframe.CFA, Offset: int32(v.off), Deref: true}, 0
}
