package readback

import (
	"encoding/binary"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// A Value is a sum of something, such as a register, and a number.
type Value struct {
	Base string // r7, [r7+8], or "" for a number alone
	N    uint64
}

func register(n uint64) Value { return Value{Base: fmt.Sprintf("r%d", n)} }

func number(n uint64) Value { return Value{N: n} }

func (v Value) add(n int64) Value { return Value{v.Base, v.N + uint64(n)} }

// load returns what is in memory at v.
func (v Value) load() Value { return Value{Base: "[" + v.String() + "]"} }

func (v Value) String() string {
	if v.Base == "" {
		return fmt.Sprintf("%#x", v.N)
	}
	return fmt.Sprintf("%s%+d", v.Base, int64(v.N))
}

// made returns what an operator makes of values that it cannot be worked out for.
func made(name string, args ...Value) Value { return Value{Base: fmt.Sprint(name, args)} }

// maxSteps bounds how many operations of an expression are done.
const maxSteps = 4096

// Evaluate does what an expression says, as far as it can be known.
func (r *Reader) Evaluate(code []byte, pc uint64, initial ...Value) (Value, error) {
	x := stack{order: r.order, code: code, values: initial, pc: pc, pcReg: r.pc}
	for n := 0; x.pos < len(code); n++ {
		if n == maxSteps {
			return Value{}, fmt.Errorf("an expression takes more than %d steps", maxSteps)
		}
		if x.step(); x.err != nil {
			return Value{}, x.err
		}
	}
	return x.pop(), x.err
}

// A stack is an expression that is being worked out.
type stack struct {
	order  binary.ByteOrder
	code   []byte
	pos    int
	values []Value
	pc     uint64
	pcReg  uint64
	err    error
}

func (x *stack) push(v Value) { x.values = append(x.values, v) }

func (x *stack) pick(n uint64) {
	if n >= uint64(len(x.values)) {
		x.err = fmt.Errorf("an expression's stack has no entry %d", n)
		return
	}
	x.push(x.values[len(x.values)-1-int(n)])
}

func (x *stack) pop() Value {
	n := len(x.values)
	if n == 0 {
		x.err = fmt.Errorf("an expression's stack is empty")
		return Value{}
	}
	v := x.values[n-1]
	x.values = x.values[:n-1]
	return v
}

// number reads a number of 1, 2, 4 or 8 bytes.
func (x *stack) number(size int, signed bool) uint64 {
	if len(x.code)-x.pos < size {
		x.err = fmt.Errorf("an expression is cut off")
		x.pos = len(x.code)
		return 0
	}
	b := x.code[x.pos : x.pos+size]
	x.pos += size
	var v uint64
	switch size {
	case 1:
		v = uint64(b[0])
	case 2:
		v = uint64(x.order.Uint16(b))
	case 4:
		v = uint64(x.order.Uint32(b))
	default:
		v = x.order.Uint64(b)
	}
	if shift := 64 - 8*size; signed {
		return uint64(int64(v<<shift) >> shift)
	}
	return v
}

// leb reads an LEB128 number.
func (x *stack) leb(signed bool) (v uint64) {
	for shift := 0; ; shift += 7 {
		b := x.number(1, false)
		if shift < 64 {
			v |= b & 0x7f << shift
		}
		if b < 0x80 || x.err != nil || shift > 70 {
			if signed && b&0x40 != 0 && shift+7 < 64 {
				v -= 1 << (shift + 7)
			}
			return v
		}
	}
}

func (x *stack) reg(n uint64) {
	v := register(n)
	if n == x.pcReg {
		v = number(x.pc)
	}
	x.push(v.add(int64(x.leb(true))))
}

// jump goes on elsewhere if a value is not zero.
func (x *stack) jump(v Value) {
	to := x.pos + 2 + int(int16(x.number(2, false)))
	switch {
	case v.Base != "":
		x.err = fmt.Errorf("an expression jumps if %v is not zero", v)
	case v.N == 0:
	case to < 0 || to > len(x.code):
		x.err = fmt.Errorf("an expression jumps out of itself")
	default:
		x.pos = to
	}
}

// constants are the operations that push a number of some bytes.
var constants = map[op.Opcode]struct {
	size   int
	signed bool
}{
	op.DW_OP_const1u: {1, false}, op.DW_OP_const1s: {1, true}, op.DW_OP_const2u: {2, false}, op.DW_OP_const2s: {2, true},
	op.DW_OP_const4u: {4, false}, op.DW_OP_const4s: {4, true}, op.DW_OP_const8u: {8, false}, op.DW_OP_const8s: {8, true},
	op.DW_OP_addr: {8, false},
}

func (x *stack) step() {
	code := op.Opcode(x.number(1, false))
	if c, ok := constants[code]; ok {
		x.push(number(x.number(c.size, c.signed)))
		return
	}
	switch {
	case code >= op.DW_OP_lit0 && code <= op.DW_OP_lit31:
		x.push(number(uint64(code - op.DW_OP_lit0)))
		return
	case code >= op.DW_OP_breg0 && code <= op.DW_OP_breg31:
		x.reg(uint64(code - op.DW_OP_breg0))
		return
	}
	switch code {
	case op.DW_OP_nop:
	case op.DW_OP_bregx:
		x.reg(x.leb(false))
	case op.DW_OP_constu:
		x.push(number(x.leb(false)))
	case op.DW_OP_consts:
		x.push(number(x.leb(true)))
	case op.DW_OP_dup:
		x.pick(0)
	case op.DW_OP_over:
		x.pick(1)
	case op.DW_OP_pick:
		x.pick(x.number(1, false))
	case op.DW_OP_drop:
		x.pop()
	case op.DW_OP_swap:
		a, b := x.pop(), x.pop()
		x.push(a)
		x.push(b)
	case op.DW_OP_rot:
		a, b, c := x.pop(), x.pop(), x.pop()
		x.push(a)
		x.push(c)
		x.push(b)
	case op.DW_OP_deref:
		x.push(x.pop().load())
	case op.DW_OP_deref_size:
		if n := x.number(1, false); n != 8 {
			x.push(made(fmt.Sprint("load", n), x.pop()))
			return
		}
		x.push(x.pop().load())
	case op.DW_OP_plus_uconst:
		x.push(x.pop().add(int64(x.leb(false))))
	case op.DW_OP_abs, op.DW_OP_neg, op.DW_OP_not:
		x.unary(code, x.pop())
	case op.DW_OP_skip:
		x.jump(number(1))
	case op.DW_OP_bra:
		x.jump(x.pop())
	default:
		b, a := x.pop(), x.pop()
		x.binary(code, a, b)
	}
}

func (x *stack) unary(code op.Opcode, v Value) {
	switch {
	case v.Base != "":
		x.push(made(fmt.Sprintf("op%#x", code), v))
	case code == op.DW_OP_not:
		x.push(number(^v.N))
	case code == op.DW_OP_neg || int64(v.N) < 0:
		x.push(number(-v.N))
	default:
		x.push(v)
	}
}

func (x *stack) binary(code op.Opcode, a, b Value) {
	switch {
	case code == op.DW_OP_plus && b.Base == "":
		x.push(a.add(int64(b.N)))
		return
	case code == op.DW_OP_plus && a.Base == "":
		x.push(b.add(int64(a.N)))
		return
	case code == op.DW_OP_minus && b.Base == "":
		x.push(a.add(-int64(b.N)))
		return
	case a.Base != "" || b.Base != "":
		x.push(made(fmt.Sprintf("op%#x", code), a, b))
		return
	}
	truth := func(t bool) uint64 {
		if t {
			return 1
		}
		return 0
	}
	s, t := int64(a.N), int64(b.N)
	var v uint64
	switch code {
	case op.DW_OP_minus:
		v = a.N - b.N
	case op.DW_OP_and:
		v = a.N & b.N
	case op.DW_OP_or:
		v = a.N | b.N
	case op.DW_OP_xor:
		v = a.N ^ b.N
	case op.DW_OP_mul:
		v = a.N * b.N
	case op.DW_OP_div, op.DW_OP_mod:
		switch {
		case t == 0:
			x.err = fmt.Errorf("an expression divides by zero")
		case code == op.DW_OP_div:
			v = uint64(s / t)
		default:
			v = a.N % b.N
		}
	case op.DW_OP_shl:
		v = a.N << b.N
	case op.DW_OP_shr:
		v = a.N >> b.N
	case op.DW_OP_shra:
		v = uint64(s >> min(b.N, 63))
	case op.DW_OP_eq:
		v = truth(s == t)
	case op.DW_OP_ne:
		v = truth(s != t)
	case op.DW_OP_ge:
		v = truth(s >= t)
	case op.DW_OP_gt:
		v = truth(s > t)
	case op.DW_OP_le:
		v = truth(s <= t)
	case op.DW_OP_lt:
		v = truth(s < t)
	default:
		x.err = fmt.Errorf("%#x is no operation of an expression", uint8(code))
	}
	x.push(number(v))
}
