package translate

import (
	"encoding/binary"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// A base is what a value is relative to.
type base uint8

const (
	unknown   base = iota // not supported
	undefined             // has no value
	ofCFA                 // the CFA
	ofReg                 // register reg
)

// A value is base + off, or the contents of memory at that address if deref is set.
type value struct {
	base  base
	deref bool
	reg   uint64
	off   int64
}

// load returns the value in memory at address v.
func load(v value) value {
	if v.deref || v.base == unknown {
		return value{}
	}
	v.deref = true
	return v
}

// addOffset returns v + n.
func addOffset(v value, n int64) value {
	if v.deref || v.base == unknown {
		return value{}
	}
	v.off += n
	return v
}

// maxExpression is the maximum size in bytes of expressions that are evaluated. Compilers and linkers emit about
// a dozen bytes; hostile files may share a long expression among many rows.
const maxExpression = 256

// evaluate returns the value of an expression with initial value v (DWARF 5, section 6.4.2: the CFA for register rules,
// none for the CFA's rule). It supports registers, sums with constants, and one load. The values of other expressions,
// and of expressions that use register pc, are unknown.
func evaluate(code []byte, v value, pc uint64) value {
	if len(code) > maxExpression {
		return value{}
	}
	e := expression{code: code}
	for len(e.code) > 0 {
		switch o := e.opcode(); {
		case o >= op.DW_OP_breg0 && o <= op.DW_OP_breg31:
			v = value{base: ofReg, reg: uint64(o - op.DW_OP_breg0), off: e.signed()}
		case o == op.DW_OP_bregx:
			v = value{base: ofReg, reg: e.unsigned(), off: e.signed()}
		case o == op.DW_OP_deref:
			v = load(v)
		case o == op.DW_OP_plus_uconst:
			v = addOffset(v, int64(e.unsigned()))
		case o >= op.DW_OP_lit0 && o <= op.DW_OP_lit31:
			v = e.sum(v, int64(o-op.DW_OP_lit0))
		case o == op.DW_OP_const1u:
			v = e.sum(v, int64(e.opcode()))
		case o == op.DW_OP_constu:
			v = e.sum(v, int64(e.unsigned()))
		default:
			return value{}
		}
		if e.bad || v.base == unknown || v.base == ofReg && v.reg == pc {
			return value{}
		}
	}
	return v
}

// An expression decodes the operations of a DWARF expression.
type expression struct {
	code []byte // remaining bytes
	bad  bool   // an operand is truncated or too large
}

// opcode decodes an opcode, or 1-byte operand. At the end of the expression, it returns 0, which is not an opcode. An
// operand that is missing does no harm, because the operation that must follow it is missing as well.
func (e *expression) opcode() op.Opcode {
	if len(e.code) == 0 {
		return 0
	}
	b := e.code[0]
	e.code = e.code[1:]
	return op.Opcode(b)
}

// sum decodes an operation and returns v + n or v - n.
func (e *expression) sum(v value, n int64) value {
	switch e.opcode() {
	case op.DW_OP_plus:
		return addOffset(v, n)
	case op.DW_OP_minus:
		return addOffset(v, -n)
	}
	return value{}
}

// unsigned decodes an unsigned LEB128 number.
func (e *expression) unsigned() uint64 {
	v, n := binary.Uvarint(e.code)
	if n <= 0 {
		e.bad = true
		return v
	}
	e.code = e.code[n:]
	return v
}

// signed decodes a signed LEB128 number.
func (e *expression) signed() int64 {
	before := len(e.code)
	v := int64(e.unsigned())
	unused := max(0, 64-7*(before-len(e.code))) // number of bits above the encoded bits
	return v << unused >> unused
}
