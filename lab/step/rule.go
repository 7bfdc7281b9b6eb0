package step

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// NumRegs is how many registers are kept: of each machine those that rules can name.
const NumRegs = 34

// Regs are the registers of a thread, by DWARF number, before it executes the instruction at PC.
type Regs struct {
	R  [NumRegs]uint64
	PC uint64
}

// firstFloat is the number of the first register that is not for integers, on a machine with 16 of them.
const firstFloat = 16

// A kind says how a rule finds its value.
type kind uint8

const (
	kept      kind = iota // in the register itself, or for RA where the ABI has it
	undefined             // lost; of RA: there is no caller
	fromReg               // register + off
	fromCFA               // CFA + off
	expr                  // an expression of DWARF, with the CFA on its stack
	cfaExpr               // one for the CFA itself
)

// A rule is a rule of either side. If deref is set, the value is in memory there.
type rule struct {
	kind  kind
	deref bool
	reg   uint16
	off   int64
	expr  string
}

// An answer is what one side says at a pc.
type answer struct {
	cfa, ra, fp rule
	sp          rule // of the caller, if it does not follow from the CFA
	outermost   bool // there is no caller
	signed      bool // the return address has a signature in its upper bits
}

// ofCFI returns a rule of call frame information.
func ofCFI(r *cfi.Rule) rule {
	switch r.Rule {
	case cfi.RuleCFA: // of the CFA only
		return rule{kind: fromReg, reg: uint16(r.Reg), off: r.Offset}
	case cfi.RuleOffset:
		return rule{kind: fromCFA, off: r.Offset, deref: true}
	case cfi.RuleValOffset:
		return rule{kind: fromCFA, off: r.Offset}
	case cfi.RuleRegister:
		return rule{kind: fromReg, reg: uint16(r.Reg)}
	case cfi.RuleExpression:
		return rule{kind: expr, expr: string(r.Expression), deref: true}
	case cfi.RuleValExpression:
		return rule{kind: expr, expr: string(r.Expression)}
	case cfi.RuleUndefined:
		return rule{kind: undefined}
	}
	return rule{} // RuleArchitectural, RuleSameVal
}

// cfaRule returns the rule for the CFA, whose expression gives the value itself.
func cfaRule(r *cfi.Rule) rule {
	v := ofCFI(r)
	if v.kind == expr {
		v.kind, v.deref = cfaExpr, false
	}
	return v
}

// answerCFI returns what the rules of a row of call frame information say.
func (m *machine) answerCFI(r *cfi.Rules) answer {
	a := answer{cfa: cfaRule(&r.CFA), ra: ofCFI(&r.RA), fp: ofCFI(&r.FP)}
	a.outermost = a.ra.kind == undefined
	a.signed = r.Sign != cfi.Unsigned
	if a.sp = ofCFI(&r.SP); a.sp == (rule{kind: fromCFA, off: m.CallerSP}) {
		a.sp = rule{}
	}
	if a.ra.kind == kept && m.fixedRA == 0 { // in the column's own register
		a.ra = rule{kind: fromReg, reg: uint16(r.RAReg)}
	}
	return a
}

// ofSFrame returns a rule of SFrame.
func (m *machine) ofSFrame(r sframe.Rule) rule {
	v := rule{kind: fromReg, off: int64(r.Offset), deref: r.Deref}
	switch r.Base {
	case sframe.None:
		return rule{}
	case sframe.CFA:
		v.kind = fromCFA
	case sframe.SP:
		v.reg = m.sp
	case sframe.FP:
		v.reg = m.fp
	case sframe.Register:
		v.reg = r.Reg
	}
	return v
}

// answerSFrame returns what a row of SFrame says.
func (m *machine) answerSFrame(r *sframe.Row) answer {
	if r.Outermost {
		return answer{outermost: true}
	}
	a := answer{cfa: m.ofSFrame(r.CFA), ra: m.ofSFrame(r.RA), fp: m.ofSFrame(r.FP), signed: r.Signed}
	if a.ra.kind == kept {
		if m.fixedRA != 0 {
			a.ra = rule{kind: fromCFA, off: m.fixedRA, deref: true}
		} else {
			a.ra = rule{kind: fromReg, reg: m.ra}
		}
	}
	return a
}

func (m *machine) text(r rule) string {
	base := ""
	switch r.kind {
	case kept:
		return "kept"
	case undefined:
		return "undefined"
	case fromReg:
		base = m.name(r.reg)
	case fromCFA:
		base = "c"
	case expr, cfaExpr:
		base = "expression"
	}
	if r.off != 0 {
		base += fmt.Sprintf("%+d", r.off)
	}
	if r.deref {
		return "*(" + base + ")"
	}
	return base
}

func (m *machine) describe(a *answer) string {
	if a.outermost {
		return "no caller"
	}
	s := "CFA " + m.text(a.cfa)
	if a.ra != (rule{kind: fromCFA, off: m.fixedRA, deref: true}) {
		s += ", RA " + m.text(a.ra)
	}
	if a.sp.kind != kept {
		s += ", " + m.name(m.sp) + " " + m.text(a.sp)
	}
	if a.fp.kind != kept {
		s += ", " + m.name(m.fp) + " " + m.text(a.fp)
	}
	return s
}

// A caller is a frame as one side gives it, or as it is. Its CFA is that which belongs to the caller's stack pointer.
type caller struct{ cfa, ra, fp uint64 }

// Memory is that of a program.
type Memory interface {
	// Read fills b from the address.
	Read(addr uint64, b []byte) error
	// Words returns the words at two addresses.
	Words(a, b uint64) (x, y uint64, err error)
}

// evaluate follows an answer. It reports false if that is not possible, as memory is not there.
func (w *Walk) evaluate(a *answer, r *Regs) (caller, bool) {
	c, ok := w.rules(a, r)
	if ok && a.sp.kind != kept {
		c.cfa, ok = w.value(a.sp, r, c.cfa)
		c.cfa -= uint64(w.m.caller)
	}
	return c, ok
}

func (w *Walk) rules(a *answer, r *Regs) (c caller, ok bool) {
	if c.cfa, ok = w.value(a.cfa, r, 0); !ok {
		return c, false
	}
	// Both others are in memory nearly always, and one system call costs less than two.
	if a.ra.kind == fromCFA && a.ra.deref {
		at := c.cfa + uint64(a.ra.off)
		switch {
		case a.fp.kind == kept:
			x, _, err := w.mem.Words(at, at)
			c.ra, c.fp = x, r.R[w.m.fp]
			return c, err == nil
		case a.fp.kind == fromCFA && a.fp.deref:
			var err error
			c.ra, c.fp, err = w.mem.Words(at, c.cfa+uint64(a.fp.off))
			return c, err == nil
		}
	}
	if c.ra, ok = w.value(a.ra, r, c.cfa); !ok {
		return c, false
	}
	if a.signed {
		c.ra &= 1<<48 - 1
	}
	switch a.fp.kind {
	case kept:
		c.fp = r.R[w.m.fp]
	case undefined:
		// Nothing is said, and so nothing is wrong.
		c.fp = w.th.truth().fp
	default:
		c.fp, ok = w.value(a.fp, r, c.cfa)
	}
	return c, ok
}

// value returns the value of a rule.
func (w *Walk) value(v rule, r *Regs, cfa uint64) (uint64, bool) {
	var at uint64
	switch v.kind {
	case fromReg:
		if int(v.reg) >= NumRegs {
			return 0, false
		}
		if w.more != nil && v.reg >= firstFloat && w.m.fixedRA == 0 && w.m.sp < firstFloat && !w.more(r) {
			return 0, false
		}
		at = r.R[v.reg] + uint64(v.off)
	case fromCFA:
		at = cfa + uint64(v.off)
	case expr, cfaExpr:
		var stack []uint64
		if v.kind == expr {
			stack = append(stack, cfa)
		}
		var ok bool
		if at, ok = w.expression([]byte(v.expr), stack, r); !ok {
			return 0, false
		}
	default:
		return 0, false
	}
	if !v.deref {
		return at, true
	}
	x, _, err := w.mem.Words(at, at)
	return x, err == nil
}

// expression evaluates an expression of DWARF (DWARF 5, section 2.5) with those operations that call frame
// information has.
func (w *Walk) expression(b []byte, stack []uint64, r *Regs) (uint64, bool) {
	code := b
	pop := func() uint64 {
		if len(stack) == 0 {
			return 0
		}
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		return v
	}
	push := func(v uint64) { stack = append(stack, v) }
	take := func(n int) uint64 {
		if len(b) < n {
			b = nil
			return 0
		}
		var buf [8]byte
		if w.m.order == binary.BigEndian {
			copy(buf[8-n:], b)
		} else {
			copy(buf[:], b[:n])
		}
		b = b[n:]
		return w.m.order.Uint64(buf[:])
	}
	leb := func(signed bool) uint64 {
		var v uint64
		for shift := uint(0); len(b) > 0; {
			c := b[0]
			b = b[1:]
			v |= uint64(c&0x7f) << shift
			shift += 7
			if c < 0x80 {
				if signed && c&0x40 != 0 && shift < 64 {
					v |= ^uint64(0) << shift
				}
				break
			}
		}
		return v
	}
	reg := func(n uint64) uint64 {
		if n == w.m.pc {
			return r.PC
		}
		if n < NumRegs {
			return r.R[n]
		}
		return 0
	}
	for n := 0; len(b) > 0; n++ {
		if n > 1000 || len(stack) > 100 {
			return 0, false
		}
		opcode := op.Opcode(b[0])
		b = b[1:]
		switch {
		case opcode >= op.DW_OP_lit0 && opcode <= op.DW_OP_lit31:
			push(uint64(opcode - op.DW_OP_lit0))
			continue
		case opcode >= op.DW_OP_breg0 && opcode <= op.DW_OP_breg31:
			push(reg(uint64(opcode-op.DW_OP_breg0)) + leb(true))
			continue
		}
		switch opcode {
		case op.DW_OP_deref:
			x, _, err := w.mem.Words(stackTop(stack), stackTop(stack))
			if err != nil {
				return 0, false
			}
			pop()
			push(x)
		case op.DW_OP_const1u, op.DW_OP_const2u, op.DW_OP_const4u, op.DW_OP_const8u:
			push(take(1 << ((opcode - op.DW_OP_const1u) / 2)))
		case op.DW_OP_const1s:
			push(uint64(int64(int8(take(1)))))
		case op.DW_OP_const2s:
			push(uint64(int64(int16(take(2)))))
		case op.DW_OP_const4s:
			push(uint64(int64(int32(take(4)))))
		case op.DW_OP_const8s:
			push(take(8))
		case op.DW_OP_constu:
			push(leb(false))
		case op.DW_OP_consts:
			push(leb(true))
		case op.DW_OP_dup:
			push(stackTop(stack))
		case op.DW_OP_drop:
			pop()
		case op.DW_OP_swap:
			x, y := pop(), pop()
			push(x)
			push(y)
		case op.DW_OP_and, op.DW_OP_minus, op.DW_OP_mul, op.DW_OP_or, op.DW_OP_plus, op.DW_OP_shl, op.DW_OP_shr, op.DW_OP_shra,
			op.DW_OP_xor, op.DW_OP_eq, op.DW_OP_ge, op.DW_OP_gt, op.DW_OP_le, op.DW_OP_lt, op.DW_OP_ne:
			y := pop()
			push(binaryOp(opcode, pop(), y))
		case op.DW_OP_neg:
			push(-pop())
		case op.DW_OP_not:
			push(^pop())
		case op.DW_OP_plus_uconst:
			push(pop() + leb(false))
		case op.DW_OP_bra:
			to := int16(take(2))
			if pop() != 0 && !jump(code, &b, to) {
				return 0, false
			}
		case op.DW_OP_skip:
			if !jump(code, &b, int16(take(2))) {
				return 0, false
			}
		case op.DW_OP_bregx:
			n := leb(false)
			push(reg(n) + leb(true))
		case op.DW_OP_nop:
		default:
			return 0, false
		}
	}
	if len(stack) == 0 {
		return 0, false
	}
	return pop(), true
}

// binaryOp does an operation on two values, of which y was the top of the stack.
func binaryOp(code op.Opcode, x, y uint64) uint64 {
	is := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	switch code {
	case op.DW_OP_and:
		return x & y
	case op.DW_OP_minus:
		return x - y
	case op.DW_OP_mul:
		return x * y
	case op.DW_OP_or:
		return x | y
	case op.DW_OP_plus:
		return x + y
	case op.DW_OP_shl:
		return x << y
	case op.DW_OP_shr:
		return x >> y
	case op.DW_OP_shra:
		return uint64(int64(x) >> y)
	case op.DW_OP_xor:
		return x ^ y
	case op.DW_OP_eq:
		return is(x == y)
	case op.DW_OP_ge:
		return is(int64(x) >= int64(y))
	case op.DW_OP_gt:
		return is(int64(x) > int64(y))
	case op.DW_OP_le:
		return is(int64(x) <= int64(y))
	case op.DW_OP_lt:
		return is(int64(x) < int64(y))
	default: // ne
		return is(x != y)
	}
}

func stackTop(s []uint64) uint64 {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1]
}

// jump moves b, a rest of code, by a number of bytes.
func jump(code []byte, b *[]byte, by int16) bool {
	at := len(code) - len(*b) + int(by)
	if at < 0 || at > len(code) {
		return false
	}
	*b = bytes.Clone(code[at:])
	return true
}
