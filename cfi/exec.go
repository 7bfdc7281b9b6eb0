package cfi

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/internal/arch"
)

// DWARF opcodes that package frame does not define.
const (
	cfaMIPSAdvanceLoc8           = 0x1d
	cfaAArch64SetRAState         = 0x2b
	cfaAArch64NegateRAStateWithP = 0x2c
	cfaAArch64NegateRAState      = 0x2d
	cfaGNUNegativeOffsetExtended = 0x2f

	opcodeMask  = 0xc0 // for opcodes with an operand in the low six bits
	operandMask = 0x3f
)

// maxStates bounds the nesting of remember_state. Compilers nest it two or three levels deep.
const maxStates = 4096

// maxOffset bounds factored offsets so that their sums cannot overflow.
const maxOffset = 1 << 48

// A Step is a row: it starts Off bytes after the start of the FDE's range and ends at the next Step.
type Step struct {
	Off    uint32
	Number uint32 // number of the rules
}

// An executor runs the instructions of CIEs and FDEs.
type executor struct {
	cursor
	*programs
	numbering
	slots   []slot // hash table of programs; its size is a power of two
	seed    maphash.Seed
	cies    uint32                  // number of CIEs
	touched uint32                  // keeps the read-ahead in addPrograms from being optimized away
	chunk   []Step                  // memory for steps
	effects [1 << effectBits]effect // cache, indexed by hash

	// State of the current program.
	cie     *cie
	steps   []Step
	start   uint64   // address of the function
	at      int      // offset of the current instruction
	loc     uint64   // offset of the current row from the start of the function
	number  uint32   // number of the current state
	now     state    // current state, during change
	stack   []uint32 // saved by remember_state
	fixed   bool     // set_loc was executed
	initial bool     // executing the instructions of a CIE
}

// An effect caches the state that an instruction produces from a given state. Large programs execute millions of
// instructions, but few distinct instructions in few distinct states.
type effect struct {
	cie      *cie
	code     uint32 // result of short
	size     uint32 // in bytes
	from, to uint32 // numbers of states
}

const effectBits = 11

// run executes the instructions of a function and returns its rows, which are valid until the next call. Offsets of
// errors are relative to the start of the instructions.
func (x *executor) run(fn *Function) ([]Step, *Error) {
	d := fn.cie
	x.begin(d, fn.code, fn.limit)
	if d.first == 0 {
		d.first = x.stateNumber(&d.initial) + 1
	}
	x.start, x.steps, x.fixed, x.number = fn.Begin, x.steps[:0], false, d.first-1
	x.execute()
	x.endRow(math.MaxUint64)
	if x.err != nil {
		x.err.Off -= uint64(fn.code)
		return nil, x.err
	}
	return x.steps, nil
}

// runInitial executes the instructions of a CIE from pos to end. They define the initial rules of its FDEs.
func (x *executor) runInitial(d *cie, pos, end int) *Error {
	x.begin(d, uint32(pos), uint32(end))
	start := noState
	start.raReg = d.raReg
	x.number, x.initial = x.stateNumber(&start), true
	x.execute()
	x.initial = false
	if x.err == nil {
		d.initial, d.first = x.states[x.number], x.number+1
	}
	return x.err
}

// begin prepares to execute the instructions between the offsets code and limit.
func (x *executor) begin(d *cie, code, limit uint32) {
	x.cursor = cursor{sec: d.sec, data: d.sec.data[:limit], pos: int(code)}
	x.cie, x.at, x.loc, x.stack = d, x.pos, 0, x.stack[:0]
}

// endRow ends the current row at a location. A row with the same rules as the previous row is merged with it.
func (x *executor) endRow(next uint64) {
	if n := len(x.steps); x.loc <= math.MaxUint32 && (n == 0 || x.steps[n-1].Number != x.number) {
		x.steps = append(x.steps, Step{uint32(x.loc), x.number})
	}
	x.loc = next
}

// stateNumber returns the number of a state.
func (x *executor) stateNumber(s *state) uint32 {
	n, ok := x.numbering.number(s)
	if !ok {
		x.fail(x.at, "more than %d distinct rules in one file", maxRules)
	}
	return n
}

// execute executes the instructions.
func (x *executor) execute() {
	for x.pos < len(x.data) {
		x.at = x.pos
		op := x.data[x.at]
		x.pos++
		operand := uint64(op & operandMask)
		switch kind := op & opcodeMask; {
		case kind == frame.DW_CFA_advance_loc:
			x.advance(operand)
			continue
		case kind == frame.DW_CFA_offset && !x.cie.isTracked(operand):
			x.uleb()
			continue
		}
		switch op {
		case frame.DW_CFA_nop:
		case frame.DW_CFA_set_loc:
			x.setLoc()
		case frame.DW_CFA_advance_loc1:
			x.advance(x.uint(1))
		case frame.DW_CFA_advance_loc2:
			x.advance(x.uint(2))
		case frame.DW_CFA_advance_loc4:
			x.advance(x.uint(4))
		case cfaMIPSAdvanceLoc8:
			x.advance(x.uint(8))
		case frame.DW_CFA_remember_state:
			x.remember()
		case frame.DW_CFA_restore_state:
			x.recall()
		case frame.DW_CFA_GNU_args_size:
			x.uleb() // used only for exception handling
		default:
			x.change(op)
		}
	}
}

// change executes an instruction that changes the state, or applies its cached effect.
func (x *executor) change(op byte) {
	code := uint32(0)
	if b := x.sec.data[x.at:]; len(b) >= 4 {
		code = shortInstruction(op, binary.LittleEndian.Uint32(b))
	}
	h := (uint64(code)<<32 ^ uint64(x.number)<<8 ^ uint64(x.cie.number)) * 0x9e3779b97f4a7c15
	e := &x.effects[h>>(64-effectBits)]
	if end := x.at + int(e.size); e.code == code && e.from == x.number && e.cie == x.cie && end <= len(x.data) {
		x.pos, x.number = end, e.to
		return
	}
	from := x.number
	x.now = x.states[from]
	x.instruction(op)
	// In a CIE, DW_CFA_restore has a different effect.
	if x.number = x.stateNumber(&x.now); code != 0 && x.err == nil && !x.initial {
		*e = effect{x.cie, code, uint32(x.pos - x.at), from, x.number}
	}
}

// shortInstruction returns the instruction at the start of code, or 0 if it is uncommon or longer than four bytes.
func shortInstruction(op byte, code uint32) uint32 {
	switch kind := op & opcodeMask; {
	case kind == frame.DW_CFA_restore:
		return code & 0xff
	case kind == frame.DW_CFA_offset, op == frame.DW_CFA_def_cfa_offset, op == frame.DW_CFA_def_cfa_register:
		if code&0x8000 == 0 { // one-byte operand
			return code & 0xffff
		}
		if code&0x800000 == 0 {
			return code & 0xffffff
		}
	case code&0x8000 == 0 && (op == frame.DW_CFA_def_cfa || op == cfaGNUNegativeOffsetExtended):
		if code&0x800000 == 0 {
			return code & 0xffffff
		}
		if code&0x80000000 == 0 {
			return code
		}
	}
	return 0
}

// instruction executes an instruction that changes the state.
func (x *executor) instruction(op byte) {
	operand := uint64(op & operandMask)
	switch op & opcodeMask {
	case frame.DW_CFA_offset:
		x.set(operand, rule{kind: RuleOffset, offset: x.factored()})
		return
	case frame.DW_CFA_restore:
		x.restore(operand)
		return
	}
	switch op {
	case frame.DW_CFA_def_cfa:
		reg := x.uleb()
		x.setCFA(rule{kind: RuleCFA, reg: reg, offset: int64(x.uleb())})
	case frame.DW_CFA_def_cfa_sf:
		reg := x.uleb()
		x.setCFA(rule{kind: RuleCFA, reg: reg, offset: x.factoredSigned()})
	case frame.DW_CFA_def_cfa_register:
		x.setCFA(rule{kind: RuleCFA, reg: x.uleb(), offset: x.cfa().offset})
	case frame.DW_CFA_def_cfa_offset:
		x.setCFAOffset(int64(x.uleb()))
	case frame.DW_CFA_def_cfa_offset_sf:
		x.setCFAOffset(x.factoredSigned())
	case frame.DW_CFA_def_cfa_expression:
		x.setCFA(rule{kind: RuleExpression, offset: x.now.cfa.offset, expression: x.expression()})

	case frame.DW_CFA_undefined:
		x.set(x.uleb(), rule{kind: RuleUndefined})
	case frame.DW_CFA_same_value:
		x.set(x.uleb(), rule{kind: RuleSameVal})
	case frame.DW_CFA_offset_extended:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleOffset, offset: x.factored()})
	case frame.DW_CFA_offset_extended_sf:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleOffset, offset: x.factoredSigned()})
	case cfaGNUNegativeOffsetExtended:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleOffset, offset: -x.factored()})
	case frame.DW_CFA_val_offset:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleValOffset, offset: x.factored()})
	case frame.DW_CFA_val_offset_sf:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleValOffset, offset: x.factoredSigned()})
	case frame.DW_CFA_register:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleRegister, reg: x.uleb()})
	case frame.DW_CFA_expression:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleExpression, expression: x.expression()})
	case frame.DW_CFA_val_expression:
		reg := x.uleb()
		x.set(reg, rule{kind: RuleValExpression, expression: x.expression()})
	case frame.DW_CFA_restore_extended:
		x.restore(x.uleb())
	case cfaAArch64SetRAState:
		x.setRAState()
	case cfaAArch64NegateRAState:
		x.negateRAState(Signed)
	case cfaAArch64NegateRAStateWithP:
		x.negateRAState(SignedWithPC)
	default:
		x.fail(x.at, "unknown opcode %#02x", op)
	}
}

// advance adds a factored delta to the location. It does not check for the end of the function or of the address space,
// because functions at other addresses may share the instructions.
func (x *executor) advance(delta uint64) {
	hi, d := bits.Mul64(delta, x.cie.codeAlign)
	next, carry := bits.Add64(x.loc, d, 0)
	switch {
	case x.err != nil || hi == 0 && d == 0:
	case hi != 0 || carry != 0:
		x.fail(x.at, "location advances past 2^64")
	case x.initial:
		x.fail(x.at, "location change in the initial instructions of a CIE")
	default:
		x.endRow(next)
	}
}

// setLoc sets the location to an address. Whether it fails depends on where the function starts.
func (x *executor) setLoc() {
	x.fixed = true
	next := x.pointer(x.cie.fdeEnc, x.start)
	switch {
	case x.err != nil:
	case x.initial:
		x.fail(x.at, "location change in the initial instructions of a CIE")
	case next < x.start || next-x.start < x.loc:
		x.fail(x.at, "set_loc moves backward from %#x to %#x", x.start+x.loc, next)
	default:
		if next -= x.start; next > x.loc {
			x.endRow(next)
		}
	}
}

// remember pushes the current state.
func (x *executor) remember() {
	if len(x.stack) == maxStates {
		x.fail(x.at, "remember_state nests deeper than %d", maxStates)
		return
	}
	x.stack = append(x.stack, x.number)
}

// recall pops a state.
func (x *executor) recall() {
	n := len(x.stack)
	if n == 0 {
		x.fail(x.at, "restore_state without a remember_state")
		return
	}
	x.number = x.stack[n-1]
	x.stack = x.stack[:n-1]
}

// negateRAState toggles the return address between unsigned and signed in the given way.
func (x *executor) negateRAState(to Sign) {
	switch now := x.now.sign; {
	case x.sec.regs.raState == arch.NoReg:
		x.fail(x.at, "opcode %#02x is not defined for this machine", x.data[x.at])
	case now == to:
		to = Unsigned
	case now != Unsigned:
		to = SignUnknown
	}
	x.now.sign = to
}

// setRAState sets how the return address is signed ("DWARF for the Arm 64-bit Architecture", section "Call frame
// instructions"). Rows do not need the second operand, the distance to the instruction that signs.
func (x *executor) setRAState() {
	to := x.uleb()
	x.sleb()
	if x.sec.regs.raState == arch.NoReg {
		x.fail(x.at, "opcode %#02x is not defined for this machine", x.data[x.at])
	}
	x.now.sign = Sign(min(to, uint64(SignUnknown)))
}

// factored decodes an unsigned offset and multiplies it by the data alignment.
func (x *executor) factored() int64 {
	at := x.pos
	v := x.uleb()
	if v >= maxOffset {
		x.fail(at, "offset %d is too large", v)
		return 0
	}
	return x.factor(at, int64(v))
}

func (x *executor) factoredSigned() int64 {
	at := x.pos
	return x.factor(at, x.sleb())
}

func (x *executor) factor(at int, v int64) int64 {
	f := x.cie.dataAlign
	if p := v * f; v == 0 || (p/v == f && -maxOffset < p && p < maxOffset) {
		return p
	}
	x.fail(at, "offset %d times the data alignment %d is too large", v, f)
	return 0
}

// expression decodes an expression and returns its number.
func (x *executor) expression() uint32 {
	return x.numbering.expression(x.take(x.uleb(), "expression"))
}

// cfa returns the CFA rule for an instruction that sets only its register or its offset. DWARF allows this only if the
// rule consists of both (DWARF 5, section 6.4.2.2), but libgcrypt's assembly and GCC's SVE code do it while the CFA is
// an expression. All unwinders agree on the result: a new register uses the last offset, and a new offset has no effect
// until a register is set.
func (x *executor) cfa() *rule {
	if x.now.cfa.kind == RuleUndefined {
		x.fail(x.at, "instruction modifies the CFA rule, but there is none")
	}
	return &x.now.cfa
}

// setCFA sets the CFA rule.
func (x *executor) setCFA(r rule) {
	x.now.cfa = r
	x.setCFAOffset(r.offset)
}

func (x *executor) setCFAOffset(offset int64) {
	if offset <= -maxOffset || offset >= maxOffset {
		x.fail(x.at, "CFA offset %d is too large", offset)
	}
	x.cfa().offset = offset
}

// set sets the rule of a register.
func (x *executor) set(reg uint64, r rule) {
	x.assign(reg, &state{ra: r, fp: r, sp: r, sign: SignUnknown})
}

// restore sets the rule of a register to its initial rule from the CIE. In a CIE, it removes the rule, as all unwinders
// do.
func (x *executor) restore(reg uint64) {
	if x.initial {
		x.assign(reg, &noState)
	} else {
		x.assign(reg, &x.cie.initial)
	}
}

// assign copies a register's rule (RA, FP or SP) or the sign state from s. The return address column of a CIE can be
// any register, including FP and SP; unwinders look for the return address there.
func (x *executor) assign(reg uint64, s *state) {
	if reg == x.cie.raReg {
		x.now.ra = s.ra
	}
	switch regs := &x.sec.regs; {
	case reg == regs.fp:
		x.now.fp = s.fp
	case reg == regs.sp:
		x.now.sp = s.sp
	case regs.isSignState(reg):
		x.now.sign = s.sign
	}
}

// isTracked reports whether rows depend on the rule of the register.
func (d *cie) isTracked(reg uint64) bool {
	m := &d.sec.regs
	return reg == d.raReg || reg == m.fp || reg == m.sp || m.isSignState(reg)
}
