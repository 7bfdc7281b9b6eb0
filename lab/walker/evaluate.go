package walker

import (
	"encoding/binary"
	"math"

	"cfi2sframe/sframe"
)

// A step is the result of unwinding one frame.
type step struct {
	how         int
	interrupted bool
	valid       uint32
	pc, floor   uint64
	sp, fp      uint64 // unchanged unless valid
}

// mix scatters its argument over 64 bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// load returns a word of the simulated memory, and whether it is readable.
func load(addr uint64) (uint64, bool) {
	switch v := mix(addr); v % 16 {
	case 0:
		return 0, false
	case 1:
		return 0, true
	default:
		return v, true
	}
}

// A frame holds the registers before a step.
type frame struct {
	step
	abi     sframe.ABI
	regs    [32]uint64
	why     int    // the first reason for a missing value
	cfa, ra uint64 // of the caller
}

// linkRegister returns the register in which calls leave the return address, or -1.
func linkRegister(a sframe.ABI) int {
	switch a {
	case sframe.AArch64Big, sframe.AArch64Little:
		return 30
	case sframe.S390XBig:
		return 14
	}
	return -1
}

func (f *frame) fail(why int) {
	if f.why == sfwOK {
		f.why = why
	}
}

func (f *frame) load(addr uint64) uint64 {
	v, ok := load(addr)
	if !ok {
		f.fail(sfwBadMemory)
	}
	return v
}

func (f *frame) register(n int) uint64 {
	if n < 0 || n > 31 || f.valid>>n&1 == 0 {
		f.fail(sfwNoRegister)
		return 0
	}
	return f.regs[n]
}

// value evaluates a rule.
func (f *frame) value(r sframe.Rule) uint64 {
	v := f.cfa
	switch r.Base {
	case sframe.SP:
		v = f.register(int(f.abi.SP()))
	case sframe.FP:
		v = f.register(int(f.abi.FP()))
	case sframe.Register:
		v = f.register(int(r.Reg))
	}
	if v += uint64(int64(r.Offset)); r.Deref {
		return f.load(v)
	}
	return v
}

// evaluate unwinds one frame as c/query.c does: registers and memory have arbitrary values; the topmost frame has all
// registers, a caller only SP and FP. At some pcs the walker may use the frame pointer.
func evaluate(abi sframe.ABI, r *row, pc uint64, topmost bool) step {
	f := frame{abi: abi}
	for i := range f.regs {
		f.regs[i] = mix(uint64(i) ^ pc<<8)
	}
	sp, fp := abi.SP(), abi.FP()
	f.step = step{pc: pc, interrupted: topmost, sp: f.regs[sp], fp: f.regs[fp], valid: math.MaxUint32}
	if !topmost {
		f.pc, f.floor, f.valid = pc+1, mix(pc), 1<<sp|1<<fp
	}
	res := f.byRow(r)
	switch res.how {
	case sfwSFrame, sfwOutermost, sfwZero:
		return res
	}
	if pc%8 == 0 {
		if by := f.byFramePointer(); by.how == sfwFramePointer {
			return by
		}
	}
	return res
}

// byRow unwinds with a row.
func (f frame) byRow(r *row) step {
	stay := f.step
	switch {
	case r.how != sfwOK:
		stay.how = r.how
		return stay
	case r.Outermost:
		stay.how = sfwOutermost
		return stay
	}
	f.cfa = f.value(r.CFA)
	switch {
	case f.why != sfwOK:
	case r.RA.Base != sframe.None:
		f.ra = f.value(r.RA)
	case f.abi.FixedRA() != 0:
		f.ra = f.load(f.cfa + uint64(int64(f.abi.FixedRA())))
	default:
		f.ra = f.register(linkRegister(f.abi))
	}
	to := step{how: sfwSFrame, interrupted: r.signal, sp: f.cfa, fp: f.step.fp, floor: f.cfa}
	if r.FP.Base != sframe.None && f.why == sfwOK {
		to.fp = f.value(r.FP)
	}
	if r.Signed {
		f.ra &= 1<<48 - 1
	}
	if f.ra == 0 {
		f.fail(sfwZero)
	}
	byFP := !r.CFA.Deref && (r.CFA.Base == sframe.FP || r.CFA.Base == sframe.Register && r.CFA.Reg == f.abi.FP())
	if !r.signal && !byFP && (f.cfa < f.floor || f.cfa == f.floor && !f.interrupted) {
		f.fail(sfwNoProgress)
	}
	if f.why != sfwOK {
		stay.how = f.why
		return stay
	}
	if f.abi == sframe.S390XBig {
		to.sp -= 160
	}
	if r.signal {
		to.floor = 0
	}
	to.pc, to.valid = f.ra, 1<<f.abi.SP()|1<<f.abi.FP()
	return to
}

// byFramePointer unwinds with the frame record that FP points to.
func (f frame) byFramePointer() step {
	at := f.step.fp
	if f.abi == sframe.S390XBig || at < f.floor || at > math.MaxUint64-16 {
		return f.step
	}
	to := step{how: sfwFramePointer, sp: f.step.sp, fp: f.load(at), pc: f.load(at + 8), floor: at + 16}
	to.valid = 1 << f.abi.FP()
	if f.abi == sframe.AMD64Little {
		to.sp = at + 16
		to.valid |= 1 << f.abi.SP()
	} else {
		to.pc &= 1<<48 - 1
	}
	if f.why != sfwOK || to.pc == 0 {
		return f.step
	}
	return to
}

// trampoline reports whether pc has no row or that of a signal frame, and the arbitrary memory there happens to hold
// the two bytes that s390x handlers return to. The walker then reads the registers saved by the kernel.
func trampoline(r *row, abi sframe.ABI, pc uint64) bool {
	if abi != sframe.S390XBig || r.how == sfwOK && !r.signal {
		return false
	}
	var code [16]byte
	for i := range uint64(2) {
		v, _ := load(pc&^7 + 8*i)
		binary.BigEndian.PutUint64(code[8*i:], v)
	}
	at := code[pc&7:]
	return at[0] == 0x0a && (at[1] == 119 || at[1] == 173)
}
