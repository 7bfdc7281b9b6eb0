package translate

import (
	"math"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

// This file decides which reason a gap gets; no other file of the package names a Reason. Functions return the reason 0
// if there is none.

// whyNoFDE returns the reason why the current function cannot have an FDE.
func (x *translator) whyNoFDE() Reason {
	fn := x.fn
	switch {
	case x.opt.Outside != nil && x.opt.Outside(fn.Begin):
		return OutsideText
	case fn.Signal() && !x.layout.Signal:
		return SignalFrame
	case !x.opt.Reach.Has(fn.Begin, fn.End-1): // an FDE may start at any row of the function
		return TooFar
	case fn.End-fn.Begin > math.MaxUint32:
		return TooLarge
	}
	return 0
}

// whyNoRows returns the gap for the current function if its CFI has no rows, or too many.
func (x *translator) whyNoRows() Gap {
	fn := x.fn
	switch err := fn.Err(); {
	case len(fn.Steps()) >= maxRows:
		return Gap{Reason: TooLarge}
	case fn.Disputed():
		return Gap{Reason: Disputed}
	case err != nil && fn.Section() == ".gopclntab":
		return Gap{Reason: GoTable, Err: err}
	case err != nil:
		return Gap{Reason: Malformed, Err: err}
	}
	return Gap{}
}

// whyNoPLT returns the gap for the current row, whose CFA depends on the pc as in a PLT.
func (x *translator) whyNoPLT() Gap {
	r := &x.row
	g := Gap{Column: ColumnCFA, Rule: r.CFA}
	if x.opt.alignment(r.Begin)%arch.PLTEntry != 0 {
		g.Reason = CFAAddress
	} else if r.End-r.Begin > maxPLT {
		g.Reason = CFAExpression
	}
	return g
}

// outermost returns the gap for the current row if there is no caller.
func (x *translator) outermost() Gap {
	if r := &x.row; r.RA.Rule == cfi.RuleUndefined {
		return Gap{Reason: Outermost, Column: ColumnRA, Rule: r.RA}
	}
	return Gap{}
}

// whyNoRow returns the gap for the current row, which cannot be expressed. The gap is blamed on the first column that
// no version can express, or else on the first that makes the row e inexpressible.
func (x *translator) whyNoRow(v *values, e sframe.Row, wrong Column) Gap {
	r := &x.row
	if g := x.outermost(); g.Reason != 0 {
		return g
	}
	if r.Sign > cfi.Signed {
		return Gap{Reason: RASigned}
	}
	if wrong == ColumnNone {
		cfa := sframe.Row{CFA: e.CFA}
		ra := sframe.Row{CFA: e.CFA, RA: e.RA}
		switch {
		case !x.codec.Default(&cfa):
			wrong = ColumnCFA
		case !x.codec.Default(&ra):
			wrong = ColumnRA
		default:
			wrong = ColumnFP
		}
	}
	switch wrong {
	case ColumnCFA:
		return Gap{Reason: x.whyNoCFA(v.cfa), Column: wrong, Rule: r.CFA}
	case ColumnRA:
		return Gap{Reason: whyNoRA(v.ra), Column: wrong, Rule: r.RA}
	case ColumnFP:
		return Gap{Reason: whyNoFP(v.fp), Column: wrong, Rule: r.FP}
	}
	return Gap{Reason: SPRule, Column: wrong, Rule: r.SP}
}

func (x *translator) whyNoCFA(v value) Reason {
	switch {
	case v.base == undefined:
		return CFAMissing
	case v.base == unknown:
		return CFAExpression
	case !fits(v.off):
		return OffsetRange
	case v.deref && v.reg == x.arch.FP:
		return DRAP
	case v.deref:
		return CFAExpression
	case v.reg != x.arch.SP && v.reg != x.arch.FP:
		return CFARegister
	}
	return OffsetRange
}

func whyNoRA(v value) Reason {
	switch {
	case v.base == unknown || v.base == undefined:
		return RARule
	case !fits(v.off):
		return OffsetRange
	case v.base == ofReg && !v.deref && v.off == 0:
		return RARegister
	case v.base == ofCFA && v.deref:
		return RAOffset
	}
	return RARule
}

func whyNoFP(v value) Reason {
	switch {
	case v.base == undefined:
		return FPUndefined
	case v.base == unknown:
		return FPRule
	case !fits(v.off):
		return OffsetRange
	case v.base == ofReg && !v.deref && v.off == 0:
		return FPRegister
	case v.base == ofCFA && v.deref && v.off&1 == 0:
		return FPWithoutRA
	}
	return FPRule
}

// explain corrects the reasons that depend on the function as a whole.
func explain(fn *cfi.Function, gaps []Gap) {
	drap := slices.ContainsFunc(gaps, func(g Gap) bool { return g.Reason == DRAP })
	for i := range gaps {
		switch g := &gaps[i]; {
		case g.Reason == CFAMissing && fn.SwitchesStack():
			g.Reason = GoStackSwitch
		// At the start and end of a DRAP function, the CFA is based on the register that holds the argument pointer.
		case g.Reason == CFARegister && drap:
			g.Reason = DRAP
		}
	}
}
