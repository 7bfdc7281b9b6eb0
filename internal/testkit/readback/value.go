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

// combined returns the result of an operator on values that are not all known.
func combined(name string, args ...Value) Value { return Value{Base: fmt.Sprint(name, args)} }

// maxSteps bounds the operations of an expression.
const maxSteps = 4096

// Evaluate evaluates an expression as far as its values are known.
func (r *Reader) Evaluate(code []byte, pc uint64, initial ...Value) (Value, error) {
	x := stack{Reader: r, code: code, values: initial, at: pc}
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

// A stack evaluates an expression.
type stack struct {
	*Reader
	code   []byte
	pos    int
	values []Value
	at     uint64 // the pc
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
func (x *stack) number(size int, signed bool) (v uint64) {
	if len(x.code)-x.pos < size {
		x.err = fmt.Errorf("an expression is cut off")
		x.pos = len(x.code)
		return 0
	}
	for i := range size {
		if b := uint64(x.code[x.pos+i]); x.order == binary.ByteOrder(binary.BigEndian) {
			v = v<<8 | b
		} else {
			v |= b << (8 * i)
		}
	}
	x.pos += size
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
	if n == x.pc {
		v = number(x.at)
	}
	x.push(v.add(int64(x.leb(true))))
}

// jump jumps if a value is not zero.
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

func (x *stack) step() {
	code := op.Opcode(x.number(1, false))
	switch {
	case code >= op.DW_OP_lit0 && code <= op.DW_OP_lit31:
		x.push(number(uint64(code - op.DW_OP_lit0)))
		return
	case code >= op.DW_OP_breg0 && code <= op.DW_OP_breg31:
		x.reg(uint64(code - op.DW_OP_breg0))
		return
	case code >= op.DW_OP_const1u && code <= op.DW_OP_const8s: // 1u, 1s, 2u, 2s, 4u ...
		n := int(code - op.DW_OP_const1u)
		x.push(number(x.number(1<<(n/2), n%2 != 0)))
		return
	}
	switch code {
	case op.DW_OP_nop:
	case op.DW_OP_addr:
		x.push(number(x.number(8, false)))
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
		x.values = append(x.values, a, b)
	case op.DW_OP_rot:
		a, b, c := x.pop(), x.pop(), x.pop()
		x.values = append(x.values, a, c, b)
	case op.DW_OP_deref:
		x.push(x.pop().load())
	case op.DW_OP_deref_size:
		if n := x.number(1, false); n != 8 {
			x.push(combined(fmt.Sprint("load", n), x.pop()))
			return
		}
		x.push(x.pop().load())
	case op.DW_OP_plus_uconst:
		x.push(x.pop().add(int64(x.leb(false))))
	case op.DW_OP_skip:
		x.jump(number(1))
	case op.DW_OP_bra:
		x.jump(x.pop())
	default:
		x.operator(code)
	}
}

func truth(t bool) uint64 {
	if t {
		return 1
	}
	return 0
}

// unary and binaryOperators work on known values.
var unary = map[op.Opcode]func(uint64) uint64{
	op.DW_OP_abs: func(a uint64) uint64 {
		if int64(a) < 0 {
			return -a
		}
		return a
	},
	op.DW_OP_neg: func(a uint64) uint64 { return -a },
	op.DW_OP_not: func(a uint64) uint64 { return ^a },
}

var binaryOperators = map[op.Opcode]func(a, b uint64) uint64{
	op.DW_OP_minus: func(a, b uint64) uint64 { return a - b },
	op.DW_OP_and:   func(a, b uint64) uint64 { return a & b },
	op.DW_OP_or:    func(a, b uint64) uint64 { return a | b },
	op.DW_OP_xor:   func(a, b uint64) uint64 { return a ^ b },
	op.DW_OP_mul:   func(a, b uint64) uint64 { return a * b },
	op.DW_OP_div:   func(a, b uint64) uint64 { return uint64(int64(a) / int64(b)) },
	op.DW_OP_mod:   func(a, b uint64) uint64 { return a % b },
	op.DW_OP_shl:   func(a, b uint64) uint64 { return a << b },
	op.DW_OP_shr:   func(a, b uint64) uint64 { return a >> b },
	op.DW_OP_shra:  func(a, b uint64) uint64 { return uint64(int64(a) >> min(b, 63)) },
	op.DW_OP_eq:    func(a, b uint64) uint64 { return truth(a == b) },
	op.DW_OP_ne:    func(a, b uint64) uint64 { return truth(a != b) },
	op.DW_OP_ge:    func(a, b uint64) uint64 { return truth(int64(a) >= int64(b)) },
	op.DW_OP_gt:    func(a, b uint64) uint64 { return truth(int64(a) > int64(b)) },
	op.DW_OP_le:    func(a, b uint64) uint64 { return truth(int64(a) <= int64(b)) },
	op.DW_OP_lt:    func(a, b uint64) uint64 { return truth(int64(a) < int64(b)) },
}

func (x *stack) operator(code op.Opcode) {
	name := fmt.Sprintf("op%#x", code)
	b := x.pop()
	if fn := unary[code]; fn != nil {
		if b.Base != "" {
			x.push(combined(name, b))
		} else {
			x.push(number(fn(b.N)))
		}
		return
	}
	a := x.pop()
	fn := binaryOperators[code]
	switch {
	case code == op.DW_OP_plus && b.Base == "":
		x.push(a.add(int64(b.N)))
	case code == op.DW_OP_plus && a.Base == "":
		x.push(b.add(int64(a.N)))
	case code == op.DW_OP_minus && b.Base == "":
		x.push(a.add(-int64(b.N)))
	case a.Base != "" || b.Base != "":
		x.push(combined(name, a, b))
	case fn == nil:
		x.err = fmt.Errorf("%#x is no operation of an expression", uint8(code))
	case b.N == 0 && (code == op.DW_OP_div || code == op.DW_OP_mod):
		x.err = fmt.Errorf("an expression divides by zero")
	default:
		x.push(number(fn(a.N, b.N)))
	}
}
