package translate

import (
	"math"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// GCC (12 to 16, amd64) ends functions that realign their stack with "pop %rbp; lea -8(%r10),%rsp; ret". For the last
// two instructions, its CFI claims that the caller's rbp is still saved where rbp points. The translated rows are
// correct there: rbp has the caller's value, because it is not written again before control leaves the function.

// An epilogue describes a row that may be part of an epilogue: the row says that FP is saved at the address in FP, like
// all rows of a function that realigns its stack.
type epilogue struct {
	asCFI, popped uint32 // row numbers: according to the CFI, and with FP unchanged
	reg           uint64 // register that equals the CFA; math.MaxUint64 if the CFA is based on SP
}

// epilogueSize bounds the bytes of code that are read on each side of the end of the row, where SP has been restored.
const epilogueSize = 48

// epilogueRows returns the row numbers of an epilogue, and whether the row may be part of an epilogue.
func (x *translator) epilogueRows(e sframe.Row) (p epilogue, ok bool) {
	if x.opt.Code == nil || x.arch.Epilogue == nil || e.CFA.Deref ||
		e.FP != (sframe.Rule{Base: sframe.FP, Deref: true}) {
		return p, false
	}
	switch {
	case e.CFA.Base == sframe.SP:
		p.reg = math.MaxUint64
	case e.CFA.Base == sframe.Register && e.CFA.Offset == 0:
		p.reg = uint64(e.CFA.Reg)
	default:
		return p, false
	}
	popped := e
	popped.FP = sframe.Rule{}
	if popped, ok = x.fit(popped); ok {
		p.asCFI, p.popped = x.number(e), x.number(popped)
	}
	return p, ok
}

// epilogue adds the current row according to the CFI, except that FP is unchanged in x.popped, which starts at the
// instruction that restores SP.
func (x *translator) epilogue(p *epilogue) {
	r, fn := &x.row, x.fn
	if p.reg != math.MaxUint64 {
		x.popped = elffile.Span{}
		begin := r.End - min(r.End-r.Begin, epilogueSize)
		code := x.opt.Code(begin, min(fn.End, r.End+epilogueSize)-begin)
		stays := func(pc uint64) bool { return fn.Begin < pc && pc < fn.End }
		if code != nil {
			first, last := x.arch.Epilogue(code, begin, int(r.End-begin), p.reg, stays)
			x.popped = elffile.Span{Begin: begin + uint64(first), End: begin + uint64(last)}
		}
	}
	at := min(max(r.Begin, x.popped.Begin), r.End)
	end := min(max(at, x.popped.End), r.End)
	x.addPart(r.Begin, at, p.asCFI)
	x.addPart(at, end, p.popped)
	if at < end && !x.restrictions[p.popped].onlyV3 { // V1 and V2 have a gap, because they cannot express the CFI
		x.runs[len(x.runs)-1].restricted.OnlyV3 += end - at
	}
	x.addPart(end, r.End, p.asCFI)
}

// addPart is add for a possibly empty range.
func (x *translator) addPart(begin, end uint64, row uint32) {
	if begin < end {
		x.add(begin, end, row)
	}
}
