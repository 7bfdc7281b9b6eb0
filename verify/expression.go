package verify

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/op"
)

// A machine has arbitrary but fixed register values and memory contents. It evaluates DWARF expressions.
type machine struct {
	order  binary.ByteOrder
	pcReg  uint64
	pc     uint64
	pcBits uint64 // low bits of pc that expressions have read since the field was last cleared
	steps  int    // steps taken by expressions so far

	// The current expression.
	code  []byte
	pos   int
	stack []uint64
	err   error
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

// memory makes the contents of memory differ from register values, even at small addresses.
const memory = 0x2545f4914f6cdd1d

// maxSteps bounds the operations of an expression, which may loop. allSteps bounds those of all expressions, which are
// evaluated at many pcs. Each evaluation counts as perRun additional steps.
const (
	maxSteps = 10000
	allSteps = 1 << 25
	perRun   = 2
)

// errSteps is the error for expressions beyond allSteps.
var errSteps = fmt.Errorf("expressions exceed the limit of %d steps", allSteps)

// run evaluates an expression with the given values on its stack.
func (m *machine) run(code []byte, initial ...uint64) (result uint64, err error) {
	if m.steps > allSteps {
		return 0, errSteps
	}
	m.code, m.pos, m.err, m.stack = code, 0, nil, append(m.stack[:0], initial...)
	steps := 0
	for ; m.pos < len(code) && m.err == nil; steps++ {
		if steps == maxSteps {
			m.fail("it does not end")
			break
		}
		m.step(op.Opcode(m.operand(1)))
	}
	m.steps += steps + perRun
	result = m.pop()
	if m.err != nil {
		const most = 64
		return 0, fmt.Errorf("expression % x: %w", code[:min(len(code), most)], m.err)
	}
	return result, nil
}

func (m *machine) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

func (m *machine) push(v uint64) { m.stack = append(m.stack, v) }

func (m *machine) pop() uint64 {
	if len(m.stack) == 0 {
		m.fail("stack is empty")
		return 0
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v
}

// operand decodes an unsigned operand of 1, 2, 4 or 8 bytes.
func (m *machine) operand(size int) uint64 {
	if m.pos+size > len(m.code) {
		m.fail("operand is truncated")
		return 0
	}
	b := m.code[m.pos:][:size]
	m.pos += size
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(m.order.Uint16(b))
	case 4:
		return uint64(m.order.Uint32(b))
	}
	return m.order.Uint64(b)
}

func (m *machine) uleb() (v uint64) {
	for shift := 0; shift < 70 && m.err == nil; shift += 7 {
		b := m.operand(1)
		v |= (b & 0x7f) << shift
		if b&0x80 == 0 {
			return v
		}
	}
	m.fail("LEB128 number is too long")
	return 0
}

func (m *machine) sleb() uint64 {
	start := m.pos
	v := m.uleb()
	if n := 7 * (m.pos - start); n > 0 && n < 64 && v>>(n-1)&1 != 0 {
		v |= ^uint64(0) << n
	}
	return v
}

func (m *machine) breg(n uint64) {
	v := m.reg(n)
	offset := m.sleb()
	if n == m.pcReg {
		v = m.pc
		m.pcBits |= m.mask()
	}
	m.push(v + offset)
}

// mask returns which bits of a value just pushed can affect the result: the low bits if the next operations are a small
// literal and DW_OP_and, which linkers emit for a PLT, otherwise all bits.
func (m *machine) mask() uint64 {
	if next := m.code[m.pos:]; len(next) >= 2 && op.Opcode(next[1]) == op.DW_OP_and {
		if lit := op.Opcode(next[0]); lit >= op.DW_OP_lit0 && lit <= op.DW_OP_lit31 {
			return 1<<bits.Len8(uint8(lit-op.DW_OP_lit0)) - 1
		}
	}
	return math.MaxUint64
}

func (m *machine) pick(n uint64) {
	if n >= uint64(len(m.stack)) {
		m.fail("stack has no entry %d", n)
		return
	}
	m.push(m.stack[len(m.stack)-1-int(n)])
}

func (m *machine) jump(condition bool) {
	distance := int(int16(m.operand(2)))
	if !condition {
		return
	}
	to := m.pos + distance // from the end of the operand
	if to < 0 || to > len(m.code) {
		m.fail("branch out of the expression")
		return
	}
	m.pos = to
}

// step executes an operation.
func (m *machine) step(code op.Opcode) {
	switch {
	case code >= op.DW_OP_lit0 && code <= op.DW_OP_lit31:
		m.push(uint64(code - op.DW_OP_lit0))
		return
	case code >= op.DW_OP_breg0 && code <= op.DW_OP_breg31:
		m.breg(uint64(code - op.DW_OP_breg0))
		return
	case code >= op.DW_OP_const1u && code <= op.DW_OP_const8s: // sizes 1, 2, 4, 8, each unsigned and signed
		size := 1 << ((code - op.DW_OP_const1u) / 2)
		v, shift := m.operand(size), 64-8*size
		if code&1 == 1 {
			v = uint64(int64(v<<shift) >> shift)
		}
		m.push(v)
		return
	}
	switch code {
	case op.DW_OP_nop:
	case op.DW_OP_bregx:
		m.breg(m.uleb())
	case op.DW_OP_addr:
		m.push(m.operand(8))
	case op.DW_OP_constu:
		m.push(m.uleb())
	case op.DW_OP_consts:
		m.push(m.sleb())
	case op.DW_OP_dup:
		m.pick(0)
	case op.DW_OP_over:
		m.pick(1)
	case op.DW_OP_pick:
		m.pick(m.operand(1))
	case op.DW_OP_drop:
		m.pop()
	case op.DW_OP_swap:
		top, second := m.pop(), m.pop()
		m.stack = append(m.stack, top, second)
	case op.DW_OP_rot: // the top entry becomes the third
		top, second, third := m.pop(), m.pop(), m.pop()
		m.stack = append(m.stack, top, third, second)
	case op.DW_OP_deref:
		m.push(m.load(m.pop()))
	case op.DW_OP_deref_size:
		if size := m.operand(1); size != 8 {
			m.fail("load of %d bytes", size)
		}
		m.push(m.load(m.pop()))
	case op.DW_OP_plus_uconst:
		m.push(m.pop() + m.uleb())
	case op.DW_OP_abs:
		v := int64(m.pop())
		m.push(uint64(max(v, -v)))
	case op.DW_OP_neg:
		m.push(-m.pop())
	case op.DW_OP_not:
		m.push(^m.pop())
	case op.DW_OP_skip:
		m.jump(true)
	case op.DW_OP_bra:
		m.jump(m.pop() != 0)
	default:
		m.binary(code)
	}
}

// binary executes an operation on the top two entries.
func (m *machine) binary(code op.Opcode) {
	b, a := m.pop(), m.pop()
	f := operations[code]
	switch {
	case f == nil:
		m.fail("opcode %#02x is not allowed in call frame information", uint8(code))
	case (code == op.DW_OP_div || code == op.DW_OP_mod) && b == 0:
		m.fail("division by zero")
	case code >= op.DW_OP_shl && code <= op.DW_OP_shra && b > 63: // consumers disagree about the result
		m.fail("shift by %d bits", b)
	default:
		m.push(f(a, b))
	}
}

// operations holds the binary operations by opcode.
var operations = [256]func(a, b uint64) uint64{
	op.DW_OP_and:   func(a, b uint64) uint64 { return a & b },
	op.DW_OP_or:    func(a, b uint64) uint64 { return a | b },
	op.DW_OP_xor:   func(a, b uint64) uint64 { return a ^ b },
	op.DW_OP_plus:  func(a, b uint64) uint64 { return a + b },
	op.DW_OP_minus: func(a, b uint64) uint64 { return a - b },
	op.DW_OP_mul:   func(a, b uint64) uint64 { return a * b },
	op.DW_OP_div:   func(a, b uint64) uint64 { return uint64(int64(a) / int64(b)) },
	op.DW_OP_mod:   func(a, b uint64) uint64 { return a % b },
	op.DW_OP_shl:   func(a, b uint64) uint64 { return a << b },
	op.DW_OP_shr:   func(a, b uint64) uint64 { return a >> b },
	op.DW_OP_shra:  func(a, b uint64) uint64 { return uint64(int64(a) >> b) },
	op.DW_OP_eq:    func(a, b uint64) uint64 { return truth(a == b) },
	op.DW_OP_ne:    func(a, b uint64) uint64 { return truth(a != b) },
	op.DW_OP_ge:    func(a, b uint64) uint64 { return truth(int64(a) >= int64(b)) },
	op.DW_OP_gt:    func(a, b uint64) uint64 { return truth(int64(a) > int64(b)) },
	op.DW_OP_le:    func(a, b uint64) uint64 { return truth(int64(a) <= int64(b)) },
	op.DW_OP_lt:    func(a, b uint64) uint64 { return truth(int64(a) < int64(b)) },
}

func truth(t bool) uint64 {
	if t {
		return 1
	}
	return 0
}
