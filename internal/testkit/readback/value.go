package readback

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// A Value is the sum of a base, such as a register, and a number.
type Value struct {
	Base string // r7, [r7+8], or "" for a plain number
	N    uint64
}

func register(n uint64) Value { return Value{Base: fmt.Sprintf("r%d", n)} }

func number(n uint64) Value { return Value{N: n} }

func (v Value) add(n int64) Value { return Value{v.Base, v.N + uint64(n)} }

// load returns the word in memory at v.
func (v Value) load() Value { return Value{Base: "[" + v.String() + "]"} }

func (v Value) String() string {
	if v.Base == "" {
		return fmt.Sprintf("%#x", v.N)
	}
	return fmt.Sprintf("%s%+d", v.Base, int64(v.N))
}

// evaluate evaluates an expression as far as its values are known. Unknown results are words that no row contains.
func (r *Reader) evaluate(code []byte, pc uint64, initial ...Value) (Value, error) {
	x := stack{code: code, values: slices.Clone(initial)}
	for len(x.code) > 0 && x.err == nil {
		x.step(r, pc)
	}
	return x.pop(), x.err
}

// A stack evaluates a DWARF expression.
type stack struct {
	code   []byte // remaining operations
	values []Value
	err    error
}

func (x *stack) push(v Value) { x.values = append(x.values, v) }

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

// take removes and returns the next n bytes of the expression.
func (x *stack) take(n int) []byte {
	if n <= 0 || n > len(x.code) {
		x.err = fmt.Errorf("an expression is truncated")
		x.code = nil
		return make([]byte, max(n, 1))
	}
	b := x.code[:n]
	x.code = x.code[n:]
	return b
}

// unsigned decodes an unsigned LEB128 number, and signed decodes a signed LEB128 number.
func (x *stack) unsigned() uint64 {
	v, n := binary.Uvarint(x.code)
	x.take(n)
	return v
}

func (x *stack) signed() int64 {
	v, n := binary.Uvarint(x.code)
	x.take(n)
	unused := max(0, 64-7*n)
	return int64(v<<unused) >> unused
}

// register decodes an offset from register n.
func (x *stack) register(r *Reader, n, pc uint64) {
	v := register(n)
	if n == r.pc {
		v = number(pc)
	}
	x.push(v.add(x.signed()))
}

func (x *stack) step(r *Reader, pc uint64) {
	switch code := op.Opcode(x.take(1)[0]); {
	case code >= op.DW_OP_lit0 && code <= op.DW_OP_lit31:
		x.push(number(uint64(code - op.DW_OP_lit0)))
	case code >= op.DW_OP_breg0 && code <= op.DW_OP_breg31:
		x.register(r, uint64(code-op.DW_OP_breg0), pc)
	case code == op.DW_OP_bregx:
		x.register(r, x.unsigned(), pc)
	case code == op.DW_OP_const1u:
		x.push(number(uint64(x.take(1)[0])))
	case code == op.DW_OP_const1s:
		x.push(number(uint64(int8(x.take(1)[0]))))
	case code == op.DW_OP_constu:
		x.push(number(x.unsigned()))
	case code == op.DW_OP_consts:
		x.push(number(uint64(x.signed())))
	case code == op.DW_OP_deref:
		x.push(x.pop().load())
	case code == op.DW_OP_plus_uconst:
		x.push(x.pop().add(int64(x.unsigned())))
	default:
		x.operator(code)
	}
}

// operator applies a binary operator.
func (x *stack) operator(code op.Opcode) {
	b, a := x.pop(), x.pop()
	switch {
	case code == op.DW_OP_plus && b.Base == "":
		x.push(a.add(int64(b.N)))
	case code == op.DW_OP_plus && a.Base == "":
		x.push(b.add(int64(a.N)))
	case code == op.DW_OP_minus && b.Base == "":
		x.push(a.add(-int64(b.N)))
	case a.Base != "" || b.Base != "":
		x.push(Value{Base: fmt.Sprintf("op%#x%v", uint8(code), []Value{a, b})})
	case code == op.DW_OP_and:
		x.push(number(a.N & b.N))
	case code == op.DW_OP_shl:
		x.push(number(a.N << b.N))
	case code == op.DW_OP_ge:
		x.push(number(0))
		if int64(a.N) >= int64(b.N) {
			x.values[len(x.values)-1].N = 1
		}
	default:
		x.err = fmt.Errorf("operation %#x is unknown", uint8(code))
	}
}
