package verify

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// A machine has arbitrary but fixed register values and memory contents. It evaluates DWARF expressions.
type machine struct {
	order  binary.ByteOrder
	pcReg  uint64
	pc     uint64
	pcRead bool // an expression has read pc since this was cleared
	stack  []uint64
	steps  int // that expressions took so far
}

// mix scatters its argument over 64 bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// reg returns the value of a register.
func (m *machine) reg(n uint64) uint64 { return mix(n) }

// load returns the 8 bytes of memory at addr.
func (m *machine) load(addr uint64) uint64 { return mix(bits.ReverseBytes64(addr) ^ memory) }

// memory makes the contents of memory differ from register values, also at small addresses.
const memory = 0x2545f4914f6cdd1d

// maxSteps bounds the operations of an expression, which may loop. allSteps bounds those of all expressions, which are
// evaluated at many pcs. Each evaluation counts for some more steps.
const (
	maxSteps = 10000
	allSteps = 1 << 25
	perRun   = 2
)

// errSteps is the error of expressions beyond allSteps.
var errSteps = fmt.Errorf("expressions take more than %d steps, which are not run", allSteps)

// run evaluates an expression with the given values on its stack.
func (m *machine) run(code []byte, initial ...uint64) (result uint64, err error) {
	x := interpreter{machine: m, code: code}
	x.machine.stack = append(m.stack[:0], initial...)
	if m.steps > allSteps {
		return 0, errSteps
	}
	steps := 0
	for ; x.pos < len(code) && x.err == nil; steps++ {
		if steps == maxSteps {
			x.fail("it does not end")
			break
		}
		x.step(op.Opcode(x.operand(1)))
	}
	m.steps += steps + perRun
	if x.err != nil {
		return 0, fmt.Errorf("expression %s: %w", printed(code), x.err)
	}
	return x.pop(), x.err
}

// printed returns the start of an expression in hexadecimal.
func printed(code []byte) string {
	const most = 64
	if len(code) <= most {
		return fmt.Sprintf("% x", code)
	}
	return fmt.Sprintf("% x and %d bytes more", code[:most], len(code)-most)
}

type interpreter struct {
	*machine
	code []byte
	pos  int
	err  error
}

func (x *interpreter) fail(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
}

func (x *interpreter) push(v uint64) { x.stack = append(x.stack, v) }

func (x *interpreter) pop() uint64 {
	if len(x.stack) == 0 {
		x.fail("stack is empty")
		return 0
	}
	v := x.stack[len(x.stack)-1]
	x.stack = x.stack[:len(x.stack)-1]
	return v
}

// operand reads an unsigned operand of 1, 2, 4 or 8 bytes.
func (x *interpreter) operand(size int) uint64 {
	if x.pos+size > len(x.code) {
		x.fail("operand is cut off")
		return 0
	}
	b := x.code[x.pos:][:size]
	x.pos += size
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(x.order.Uint16(b))
	case 4:
		return uint64(x.order.Uint32(b))
	}
	return x.order.Uint64(b)
}

// signed sign-extends a value of size bytes.
func signed(v uint64, size int) uint64 {
	shift := 64 - 8*size
	return uint64(int64(v<<shift) >> shift)
}

func (x *interpreter) uleb() (v uint64) {
	for shift := 0; shift < 70 && x.err == nil; shift += 7 {
		b := x.operand(1)
		v |= (b & 0x7f) << shift
		if b&0x80 == 0 {
			return v
		}
	}
	x.fail("LEB128 number is too long")
	return 0
}

func (x *interpreter) sleb() uint64 {
	start := x.pos
	v := x.uleb()
	if n := 7 * (x.pos - start); n > 0 && n < 64 && v>>(n-1)&1 != 0 {
		v |= ^uint64(0) << n
	}
	return v
}

func (x *interpreter) breg(n uint64) {
	v := x.reg(n)
	if n == x.pcReg {
		v, x.pcRead = x.pc, true
	}
	x.push(v + x.sleb())
}

func (x *interpreter) pick(n uint64) {
	if n >= uint64(len(x.stack)) {
		x.fail("stack has no entry %d", n)
		return
	}
	x.push(x.stack[len(x.stack)-1-int(n)])
}

func (x *interpreter) jump(condition bool) {
	distance := int(int16(x.operand(2)))
	if !condition {
		return
	}
	to := x.pos + distance // from the end of the operand, which is read by now
	if to < 0 || to > len(x.code) {
		x.fail("branch leaves the expression")
		return
	}
	x.pos = to
}

func (x *interpreter) step(code op.Opcode) {
	switch {
	case code >= op.DW_OP_lit0 && code <= op.DW_OP_lit31:
		x.push(uint64(code - op.DW_OP_lit0))
		return
	case code >= op.DW_OP_breg0 && code <= op.DW_OP_breg31:
		x.breg(uint64(code - op.DW_OP_breg0))
		return
	}
	switch code {
	case op.DW_OP_nop:
	case op.DW_OP_bregx:
		x.breg(x.uleb())
	case op.DW_OP_addr, op.DW_OP_const8u, op.DW_OP_const8s:
		x.push(x.operand(8))
	case op.DW_OP_const1u:
		x.push(x.operand(1))
	case op.DW_OP_const2u:
		x.push(x.operand(2))
	case op.DW_OP_const4u:
		x.push(x.operand(4))
	case op.DW_OP_const1s:
		x.push(signed(x.operand(1), 1))
	case op.DW_OP_const2s:
		x.push(signed(x.operand(2), 2))
	case op.DW_OP_const4s:
		x.push(signed(x.operand(4), 4))
	case op.DW_OP_constu:
		x.push(x.uleb())
	case op.DW_OP_consts:
		x.push(x.sleb())
	case op.DW_OP_dup:
		x.pick(0)
	case op.DW_OP_over:
		x.pick(1)
	case op.DW_OP_pick:
		x.pick(x.operand(1))
	case op.DW_OP_drop:
		x.pop()
	case op.DW_OP_swap:
		top, second := x.pop(), x.pop()
		x.push(top)
		x.push(second)
	case op.DW_OP_rot: // the top entry becomes the third
		top, second, third := x.pop(), x.pop(), x.pop()
		x.push(top)
		x.push(third)
		x.push(second)
	case op.DW_OP_deref:
		x.push(x.load(x.pop()))
	case op.DW_OP_deref_size:
		if size := x.operand(1); size != 8 {
			x.fail("load of %d bytes", size)
		}
		x.push(x.load(x.pop()))
	case op.DW_OP_plus_uconst:
		x.push(x.pop() + x.uleb())
	case op.DW_OP_abs:
		if v := x.pop(); int64(v) < 0 {
			x.push(-v)
		} else {
			x.push(v)
		}
	case op.DW_OP_neg:
		x.push(-x.pop())
	case op.DW_OP_not:
		x.push(^x.pop())
	case op.DW_OP_skip:
		x.jump(true)
	case op.DW_OP_bra:
		x.jump(x.pop() != 0)
	default:
		second, first := x.pop(), x.pop()
		x.binary(code, first, second)
	}
}

func (x *interpreter) binary(code op.Opcode, a, b uint64) {
	truth := func(t bool) {
		if t {
			x.push(1)
		} else {
			x.push(0)
		}
	}
	switch code {
	case op.DW_OP_and:
		x.push(a & b)
	case op.DW_OP_or:
		x.push(a | b)
	case op.DW_OP_xor:
		x.push(a ^ b)
	case op.DW_OP_plus:
		x.push(a + b)
	case op.DW_OP_minus:
		x.push(a - b)
	case op.DW_OP_mul:
		x.push(a * b)
	case op.DW_OP_div, op.DW_OP_mod:
		switch {
		case b == 0:
			x.fail("division by zero")
		case code == op.DW_OP_div:
			x.push(uint64(int64(a) / int64(b)))
		default:
			x.push(a % b)
		}
	case op.DW_OP_shl, op.DW_OP_shr, op.DW_OP_shra:
		switch {
		case b > 63: // which is not the same everywhere
			x.fail("shift by %d bits", b)
		case code == op.DW_OP_shl:
			x.push(a << b)
		case code == op.DW_OP_shr:
			x.push(a >> b)
		default:
			x.push(uint64(int64(a) >> b))
		}
	case op.DW_OP_eq:
		truth(a == b)
	case op.DW_OP_ne:
		truth(a != b)
	case op.DW_OP_ge:
		truth(int64(a) >= int64(b))
	case op.DW_OP_gt:
		truth(int64(a) > int64(b))
	case op.DW_OP_le:
		truth(int64(a) <= int64(b))
	case op.DW_OP_lt:
		truth(int64(a) < int64(b))
	default:
		x.fail("opcode %#02x is not one for call frame information", uint8(code))
	}
}
