package cfi

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/frame"
)

// maxStates bounds the nesting of remember_state. Compilers nest it two or three levels deep.
const maxStates = 4096

// A Step is a row: it starts Off bytes after the start of the FDE's range and ends at the next Step.
type Step struct {
	Off    uint32
	Number uint32 // number of the rules
}

// An executor runs the instructions of CIEs and FDEs.
type executor struct {
	decoder
	*programs
	numbering
	slots   []slot // hash table of programs; its size is a power of two
	seed    maphash.Seed
	touched uint32                  // keeps the read-ahead in addPrograms from being optimized away
	chunk   []Step                  // memory for steps
	effects [1 << effectBits]effect // cache, indexed by hash

	// State of the current program.
	steps   []Step
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
	code     uint32 // result of shortInstruction
	size     uint32 // in bytes
	from, to uint32 // numbers of states
}

const effectBits = 11

// run executes the instructions of a function and returns its rows, which are valid until the next call. Offsets of
// errors are relative to the start of the instructions.
func (x *executor) run(fn *Function) ([]Step, *Error) {
	d := fn.cie
	x.begin(d, fn.code, fn.limit, fn.Begin)
	if d.first == 0 {
		d.first = x.stateNumber(&d.initial) + 1
	}
	x.steps, x.fixed, x.number = x.steps[:0], false, d.first-1
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
	x.begin(d, uint32(pos), uint32(end), 0)
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

// begin prepares to execute the instructions between the offsets code and limit, for a function that begins at start.
func (x *executor) begin(d *cie, code, limit uint32, start uint64) {
	x.decoder = decoder{cursor: cursor{sec: d.sec, data: d.sec.data[:limit], pos: int(code)}, cie: d, start: start}
	x.at, x.loc, x.stack = x.pos, 0, x.stack[:0]
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
		x.fail(x.at, tooManyRules, maxRules)
	}
	return n
}

// execute executes the instructions.
func (x *executor) execute() {
	var in instruction
	for x.pos < len(x.data) {
		// Most instructions are of these kinds, or have a cached effect.
		op := x.data[x.pos]
		switch operand := uint64(op & operandMask); {
		case op == frame.DW_CFA_nop:
			x.pos++
			continue
		case op&opcodeMask == frame.DW_CFA_advance_loc:
			x.at = x.pos
			x.pos++
			x.advance(operand)
			continue
		case op&opcodeMask == frame.DW_CFA_offset && !x.cie.isTracked(operand):
			x.pos++
			x.uleb()
			continue
		}
		code := uint32(0)
		if b := x.sec.data[x.pos:]; len(b) >= 4 {
			code = shortInstruction(binary.LittleEndian.Uint32(b))
		}
		var e *effect
		if code != 0 {
			h := (uint64(code)<<32 ^ uint64(x.number)<<8 ^ uint64(x.cie.number)) * 0x9e3779b97f4a7c15
			e = &x.effects[h>>(64-effectBits)]
			end := x.pos + int(e.size)
			if e.code == code && e.from == x.number && e.cie == x.cie && end <= len(x.data) {
				x.pos, x.number = end, e.to
				continue
			}
		}
		x.next(&in)
		x.fixed = x.fixed || in.op == opSetLoc
		if x.err != nil {
			return
		}
		switch in.op {
		case opNop:
		case opAdvance:
			x.advance(in.n)
		case opSetLoc:
			x.setLoc(in.n)
		case opRemember:
			x.remember()
		case opRecall:
			x.recall()
		default:
			from := x.number
			x.change(&in)
			// In a CIE, DW_CFA_restore has a different effect.
			if e != nil && x.err == nil && !x.initial {
				*e = effect{x.cie, code, uint32(x.pos - x.at), from, x.number}
			}
		}
	}
}

// shortInstruction returns the instruction at the start of code if it changes the state, is common and has at most four
// bytes, and 0 otherwise.
func shortInstruction(code uint32) uint32 {
	op := byte(code)
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
	case code&0x8000 == 0 && op == frame.DW_CFA_def_cfa:
		if code&0x800000 == 0 {
			return code & 0xffffff
		}
		if code&0x80000000 == 0 {
			return code
		}
	}
	return 0
}

// change executes an instruction that changes the state.
func (x *executor) change(in *instruction) {
	x.now = x.states[x.number]
	s, r := &x.now, in.rule
	if r.kind == RuleExpression || r.kind == RuleValExpression {
		r.expression = x.expression(in.expression)
	}
	switch in.op {
	case opDefCFA:
		if r.kind == RuleExpression {
			r.offset = s.cfa.offset
		}
		s.cfa = r
	case opDefCFARegister:
		r.offset = x.cfa().offset
		s.cfa = r
	case opDefCFAOffset:
		x.cfa().offset = r.offset
	case opSet:
		x.assign(in.reg, &state{ra: r, fp: r, sp: r, sign: SignUnknown})
	case opRestore:
		x.restore(in.reg)
	case opSetSign:
		s.sign = Sign(min(in.n, uint64(SignUnknown)))
	case opToggleSign:
		s.sign = s.sign.toggled(Signed)
	case opToggleSignWithPC:
		s.sign = s.sign.toggled(SignedWithPC)
	}
	x.number = x.stateNumber(s)
}

// advance adds a factored delta to the location. It does not check for the end of the function or of the address space,
// because functions at other addresses may share the instructions.
func (x *executor) advance(delta uint64) {
	hi, d := bits.Mul64(delta, x.cie.codeAlign)
	next, carry := bits.Add64(x.loc, d, 0)
	switch {
	case hi == 0 && d == 0:
	case hi != 0 || carry != 0:
		x.fail(x.at, "location advances past 2^64")
	case x.initial:
		x.fail(x.at, "location change in the initial instructions of a CIE")
	default:
		x.endRow(next)
	}
}

// setLoc sets the location to an address. Whether it fails depends on where the function starts.
func (x *executor) setLoc(next uint64) {
	switch {
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

// toggled returns the sign after an instruction that toggles between unsigned and signed in the given way.
func (s Sign) toggled(to Sign) Sign {
	switch s {
	case to:
		return Unsigned
	case Unsigned:
		return to
	}
	return SignUnknown
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
