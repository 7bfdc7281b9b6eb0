package translate

import (
	"encoding/binary"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// A base is what a value is relative to.
type base uint8

const (
	unknown   base = iota // not a form known here
	undefined             // there is no value
	constant              // 0
	ofCFA                 // the CFA
	ofReg                 // register reg
)

// A value is base + off, loaded from memory there if deref.
type value struct {
	base  base
	deref bool
	reg   uint64
	off   int64
	// vague are the bits of off that may be others when the code runs, because the pc is another.
	vague uint64
}

// An evaluator runs DWARF expressions on symbolic values. It knows no branches,
// pieces or calls, which call frame information has no use for.
type evaluator struct {
	order binary.ByteOrder
	pcReg uint64 // register that reads as pc, or arch.NoReg
	pc    uint64
	vague uint64 // the bits of pc that are not certain
	pcHit bool   // the last expression read pc
	stack []value
	code  []byte
	bad   bool
	limit uint64 // bytes of expressions that are evaluated in all, or 0 for any number
	spent uint64 // of these
}

// maxExpression is the longest expression in bytes that is evaluated. Those of
// compilers and linkers have a dozen; a limit keeps rows cheap that share one.
const maxExpression = 256

// MaxEvaluated bounds the bytes of expressions that are evaluated for a table. What has an expression
// after these is left out, as if it had no form. A few bytes for each byte of a PLT are most in
// real programs.
const MaxEvaluated = 16 << 20

// eval returns the value of the expression, with initial values on the stack
// (DWARF 5, section 6.4.2: the CFA for register rules, nothing for the CFA's own
// rule), or a value of base unknown.
func (e *evaluator) eval(code []byte, initial ...value) value {
	e.stack = append(e.stack[:0], initial...)
	e.code, e.bad, e.pcHit = code, len(code) > maxExpression, false
	if e.limit > 0 && !e.bad {
		e.spent += uint64(len(code))
		e.bad = e.spent > e.limit
	}
	for len(e.code) > 0 && !e.bad {
		e.step()
	}
	if e.bad || len(e.stack) == 0 {
		return value{}
	}
	return e.stack[len(e.stack)-1]
}

func (e *evaluator) push(v value) {
	if v.base == unknown || len(e.stack) == 64 {
		e.bad = true
		return
	}
	e.stack = append(e.stack, v)
}

func (e *evaluator) pop() value {
	n := len(e.stack)
	if n == 0 {
		e.bad = true
		return value{}
	}
	v := e.stack[n-1]
	e.stack = e.stack[:n-1]
	return v
}

// uint reads an operand of n bytes.
func (e *evaluator) uint(n int) uint64 {
	if len(e.code) < n {
		e.bad = true
		return 0
	}
	b := e.code[:n]
	e.code = e.code[n:]
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(e.order.Uint16(b))
	case 4:
		return uint64(e.order.Uint32(b))
	}
	return e.order.Uint64(b)
}

// leb reads a LEB128 operand.
func (e *evaluator) leb(signed bool) int64 {
	var v int64
	for shift := 0; shift < 64; shift += 7 {
		b := e.uint(1)
		v |= int64(b&0x7f) << shift
		if b < 0x80 {
			if signed && b&0x40 != 0 && shift < 57 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
	e.bad = true
	return 0
}

func number(n int64) value { return value{base: constant, off: n} }

func (e *evaluator) breg(reg uint64) {
	off := e.leb(true)
	if reg == e.pcReg {
		e.pcHit = true
		e.push(arithmetic(op.DW_OP_plus, value{base: constant, off: int64(e.pc), vague: e.vague}, number(off)))
		return
	}
	e.push(value{base: ofReg, reg: reg, off: off})
}

// load returns the value at address v.
func load(v value) value {
	if v.deref || v.base == constant {
		return value{}
	}
	v.deref = true
	return v
}

// plus returns v + n for a number n.
func plus(v, n value) value {
	switch {
	case n == number(0):
		return v
	case v.deref:
		return value{}
	}
	v.off, v.vague = v.off+n.off, above(v.vague|n.vague)
	return v
}

// above returns the bits from the lowest one of vague on: what those of a sum, a difference or a
// product depend on is the bits below them.
func above(vague uint64) uint64 { return -(vague & -vague) }

func (e *evaluator) step() {
	code := op.Opcode(e.uint(1))
	switch {
	case code >= op.DW_OP_lit0 && code <= op.DW_OP_lit31:
		e.push(number(int64(code - op.DW_OP_lit0)))
		return
	case code >= op.DW_OP_breg0 && code <= op.DW_OP_breg31:
		e.breg(uint64(code - op.DW_OP_breg0))
		return
	}
	switch code {
	case op.DW_OP_nop:
	case op.DW_OP_bregx:
		e.breg(uint64(e.leb(false)))
	case op.DW_OP_const1u:
		e.push(number(int64(e.uint(1))))
	case op.DW_OP_const1s:
		e.push(number(int64(int8(e.uint(1)))))
	case op.DW_OP_const2u:
		e.push(number(int64(e.uint(2))))
	case op.DW_OP_const2s:
		e.push(number(int64(int16(e.uint(2)))))
	case op.DW_OP_const4u:
		e.push(number(int64(e.uint(4))))
	case op.DW_OP_const4s:
		e.push(number(int64(int32(e.uint(4)))))
	case op.DW_OP_const8u, op.DW_OP_const8s:
		e.push(number(int64(e.uint(8))))
	case op.DW_OP_constu:
		e.push(number(e.leb(false)))
	case op.DW_OP_consts:
		e.push(number(e.leb(true)))
	case op.DW_OP_dup:
		e.pick(0)
	case op.DW_OP_over:
		e.pick(1)
	case op.DW_OP_pick:
		e.pick(int(e.uint(1)))
	case op.DW_OP_drop:
		e.pop()
	case op.DW_OP_swap:
		a, b := e.pop(), e.pop()
		e.push(a)
		e.push(b)
	case op.DW_OP_rot:
		a, b, c := e.pop(), e.pop(), e.pop()
		e.push(a)
		e.push(c)
		e.push(b)
	case op.DW_OP_deref:
		e.push(load(e.pop()))
	case op.DW_OP_deref_size:
		if e.uint(1) != 8 {
			e.bad = true
		}
		e.push(load(e.pop()))
	case op.DW_OP_plus_uconst:
		e.push(plus(e.pop(), number(e.leb(false))))
	case op.DW_OP_abs, op.DW_OP_neg, op.DW_OP_not:
		e.unary(code)
	default:
		e.binary(code)
	}
}

func (e *evaluator) pick(i int) {
	if i >= len(e.stack) {
		e.bad = true
		return
	}
	e.push(e.stack[len(e.stack)-1-i])
}

func (e *evaluator) unary(code op.Opcode) {
	v := e.pop()
	if v.base != constant {
		e.bad = true
		return
	}
	switch {
	case code == op.DW_OP_not:
		v.off = ^v.off
	case code == op.DW_OP_abs && v.vague != 0:
		v.vague = all
	case code == op.DW_OP_neg || v.off < 0:
		v.off, v.vague = -v.off, above(v.vague)
	}
	e.push(v)
}

func (e *evaluator) binary(code op.Opcode) {
	b, a := e.pop(), e.pop()
	switch {
	case a.base == constant && b.base == constant:
		e.push(arithmetic(code, a, b))
	case code == op.DW_OP_plus && b.base == constant:
		e.push(plus(a, b))
	case code == op.DW_OP_plus && a.base == constant:
		e.push(plus(b, a))
	case code == op.DW_OP_minus && b.base == constant:
		b.off, b.vague = -b.off, above(b.vague)
		e.push(plus(a, b))
	default:
		e.bad = true
	}
}

// all are all bits.
const all = ^uint64(0)

// arithmetic returns the outcome for two numbers. Bits of it that are not vague are the same for all
// numbers that differ from a and b in vague bits only.
func arithmetic(code op.Opcode, a, b value) value {
	vague := a.vague | b.vague
	with := func(off int64, vague uint64) value { return value{base: constant, off: off, vague: vague} }
	// Where not all depends on the bits below, nothing is certain but what does not depend on
	// vague bits at all.
	whole := func(off int64) value {
		if vague != 0 {
			return with(off, all)
		}
		return number(off)
	}
	truth := func(t bool) value {
		off := int64(0)
		if t {
			off = 1
		}
		return with(off, whole(0).vague&1)
	}
	switch code {
	case op.DW_OP_and: // a certain 0 makes a certain 0
		return with(a.off&b.off, vague&(uint64(a.off)|a.vague)&(uint64(b.off)|b.vague))
	case op.DW_OP_or: // a certain 1 makes a certain 1
		return with(a.off|b.off, vague&^(uint64(a.off)&^a.vague)&^(uint64(b.off)&^b.vague))
	case op.DW_OP_xor:
		return with(a.off^b.off, vague)
	case op.DW_OP_plus:
		return with(a.off+b.off, above(vague))
	case op.DW_OP_minus:
		return with(a.off-b.off, above(vague))
	case op.DW_OP_mul:
		return with(a.off*b.off, above(vague))
	case op.DW_OP_div, op.DW_OP_mod:
		switch {
		case b.off == 0 || b.vague != 0: // it is 0 here or elsewhere
		case code == op.DW_OP_div:
			return whole(a.off / b.off)
		case b.off&(b.off-1) == 0:
			return arithmetic(op.DW_OP_and, a, number(b.off-1))
		default:
			return whole(int64(uint64(a.off) % uint64(b.off)))
		}
	case op.DW_OP_shl, op.DW_OP_shr, op.DW_OP_shra:
		return shift(code, a, b)
	case op.DW_OP_eq:
		return truth(a.off == b.off)
	case op.DW_OP_ne:
		return truth(a.off != b.off)
	case op.DW_OP_ge:
		return truth(a.off >= b.off)
	case op.DW_OP_gt:
		return truth(a.off > b.off)
	case op.DW_OP_le:
		return truth(a.off <= b.off)
	case op.DW_OP_lt:
		return truth(a.off < b.off)
	}
	return value{}
}

// shift is arithmetic for shifts. Unwinders do not agree on those by 64 bits and more.
func shift(code op.Opcode, a, b value) value {
	n := uint64(b.off)
	switch {
	case n > 63 || b.vague != 0: // it is too far here or elsewhere
		return value{}
	case code == op.DW_OP_shl:
		return value{base: constant, off: a.off << n, vague: a.vague << n}
	case code == op.DW_OP_shr:
		return value{base: constant, off: int64(uint64(a.off) >> n), vague: a.vague >> n}
	}
	return value{base: constant, off: a.off >> n, vague: uint64(int64(a.vague) >> n)}
}
