package cfi

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/arch"
)

// A Rule says how to find the value of a register, or of the CFA, in the caller.
//
// For the CFA, RuleCFA means register Reg plus Offset, RuleExpression the value of
// Expression, and RuleUndefined that no rule was given. For a register,
// RuleArchitectural means that no rule was given, RuleOffset and RuleValOffset
// are relative to the CFA, and the other kinds are DWARF's (DWARF 5, section
// 6.4.1). Offsets are in bytes. Expressions are parts of the section's contents
// and must not be changed.
type Rule = frame.DWRule

// A Sign says whether the return address is signed (AArch64 pointer authentication).
type Sign uint8

const (
	Unsigned     Sign = iota
	Signed            // with SP as the modifier (negate_ra_state)
	SignedWithPC      // with SP and PC (negate_ra_state_with_pc)
	SignUnknown       // by a rule for the pseudo-register RA_SIGN_STATE
)

// Rules are the rules of one row.
type Rules struct {
	CFA Rule
	*Registers
}

// Registers are the rules of a row for registers. They never change once a row has them, so
// that rows with the same pointer say the same. The reverse need not be true.
type Registers struct {
	RA, FP, SP Rule
	Sign       Sign
}

// DWARF opcodes that the frame package does not name.
const (
	cfaMIPSAdvanceLoc8           = 0x1d
	cfaAArch64NegateRAStateWithP = 0x2c
	cfaAArch64NegateRAState      = 0x2d
	cfaGNUNegativeOffsetExtended = 0x2f

	opcodeMask  = 0xc0 // of the opcodes with an operand in the low six bits
	operandMask = 0x3f
)

// maxStates is how deep remember_state may nest. Compilers nest two or three deep.
const maxStates = 4096

// maxOffset bounds factored offsets, so that no sum of them wraps.
const maxOffset = 1 << 48

// Rows executes CFA programs, one function at a time. It is reused for many
// functions so that nothing is allocated per row.
//
//	var rows cfi.Rows
//	for rows.Start(fn); rows.Next(); {
//		... rows.Begin, rows.End, rows.CFA, rows.RA ...
//	}
//	if err := rows.Err(); err != nil {
type Rows struct {
	// Begin and End are the addresses the current row holds for, End excluded.
	Begin, End uint64
	// Rules of the current row.
	Rules

	cursor
	fn    *Function
	loc   uint64 // where the row in the making begins
	stack []Rules
	init  *Rules
	done  bool
	last  uint64                     // where the last row begins, once that is known
	fixed bool                       // an instruction gave an address, not a distance
	known [knownRegisters]*Registers // by hash, from all functions so far
}

// knownRegisters is how many rules for registers are remembered, a power of two.
const knownRegisters = 128

// Start prepares for the rows of fn.
func (r *Rows) Start(fn *Function) {
	r.Rules = fn.cie.initial
	r.cursor = cursor{sec: fn.cie.sec, data: fn.cie.sec.data[:fn.limit], pos: int(fn.program)}
	r.fn = fn
	r.init = &fn.cie.initial
	r.loc = fn.start
	r.Begin, r.End = fn.Begin, fn.Begin
	r.stack = r.stack[:0]
	r.done, r.fixed = false, false
}

// Next goes to the next row, and reports whether there is one. The rows of a
// function tile [fn.Begin, fn.End) unless Err says otherwise; a row is not
// merged with an equal neighbour. After an error, the rows seen before it must
// not be trusted either: the function is malformed as a whole.
func (r *Rows) Next() bool {
	for !r.done {
		begin := r.loc
		if !r.advance() {
			// The last row reaches to the end of the function.
			r.done, r.last = true, begin
			if r.err != nil {
				return false
			}
			r.loc = r.fn.start + r.fn.size
		}
		lo, hi := max(begin, r.fn.Begin), min(r.loc, r.fn.End)
		if lo < hi {
			r.Begin, r.End = lo, hi
			return true
		}
	}
	return false
}

// MinSize returns, behind the last row, the size in bytes from which on another function with
// the same instructions has the same rows, as far from its start; only the last row ends
// where the function does. It is 0 if that cannot be said.
func (r *Rows) MinSize() uint64 {
	if !r.done || r.err != nil || r.fixed || r.last >= r.fn.End {
		return 0
	}
	return r.last - r.fn.start + 1
}

// Err returns the error that ended the rows, if any.
func (r *Rows) Err() error {
	if r.err == nil {
		return nil
	}
	return r.err
}

// execInitial runs a CIE's initial instructions.
func execInitial(d *cie, pos, end int) (Rules, *Error) {
	unset := Rule{Rule: frame.RuleArchitectural}
	start := Rules{Registers: &Registers{RA: unset, FP: unset, SP: unset}}
	r := Rows{
		Rules:  start,
		cursor: cursor{sec: d.sec, data: d.sec.data[:end], pos: pos},
		fn:     &Function{cie: d},
		init:   &start,
	}
	if r.advance() {
		r.fail(pos, "initial instructions of a CIE change the location")
	}
	return r.Rules, r.err
}

// advance executes instructions until the location changes, and reports
// whether it did.
func (r *Rows) advance() bool {
	for r.pos < len(r.data) {
		at := r.pos
		op := r.data[at]
		r.pos++
		switch op & opcodeMask {
		case frame.DW_CFA_advance_loc:
			if r.move(at, uint64(op&operandMask)) {
				return true
			}
		case frame.DW_CFA_offset:
			if off := r.factored(); r.tracks(uint64(op & operandMask)) {
				r.set(uint64(op&operandMask), Rule{Rule: frame.RuleOffset, Offset: off})
			}
		case frame.DW_CFA_restore:
			r.restore(uint64(op & operandMask))
		default:
			// The most frequent one, in its usual form.
			if op == frame.DW_CFA_def_cfa_offset && r.pos < len(r.data) && r.data[r.pos] < 0x80 && r.CFA.Rule == frame.RuleCFA {
				r.CFA.Offset = int64(r.data[r.pos])
				r.pos++
			} else if r.execute(at, op) {
				return true
			}
		}
	}
	return false
}

// move adds a factored delta to the location.
func (r *Rows) move(at int, delta uint64) bool {
	hi, d := bits.Mul64(delta, r.fn.cie.codeAlign)
	next, carry := bits.Add64(r.loc, d, 0)
	if hi != 0 || carry != 0 {
		r.fail(at, "location advances past 2^64")
		return false
	}
	if r.err != nil || next == r.loc {
		return false
	}
	r.loc = next
	return true
}

// execute runs an instruction without an operand in its opcode, and reports
// whether the location changed.
func (r *Rows) execute(at int, op byte) bool {
	switch op {
	case frame.DW_CFA_nop:
	case frame.DW_CFA_set_loc:
		next := r.pointer(r.fn.cie.fdeEnc, r.fn.start)
		if r.err != nil {
			break
		}
		if next < r.loc {
			r.fail(at, "set_loc goes back from %#x to %#x", r.loc, next)
			break
		}
		moved := next > r.loc
		r.fixed = true
		r.loc = next
		return moved
	case frame.DW_CFA_advance_loc1:
		return r.move(at, r.uint(1))
	case frame.DW_CFA_advance_loc2:
		return r.move(at, r.uint(2))
	case frame.DW_CFA_advance_loc4:
		return r.move(at, r.uint(4))
	case cfaMIPSAdvanceLoc8:
		return r.move(at, r.uint(8))

	case frame.DW_CFA_def_cfa:
		reg := r.uleb()
		r.defCFA(at, reg, int64(r.uleb()))
	case frame.DW_CFA_def_cfa_sf:
		reg := r.uleb()
		r.defCFA(at, reg, r.factoredSigned())
	case frame.DW_CFA_def_cfa_register:
		reg := r.uleb()
		r.needCFA(at)
		r.CFA = Rule{Rule: frame.RuleCFA, Reg: reg, Offset: r.CFA.Offset}
	case frame.DW_CFA_def_cfa_offset:
		r.setCFAOffset(at, int64(r.uleb()))
	case frame.DW_CFA_def_cfa_offset_sf:
		r.setCFAOffset(at, r.factoredSigned())
	case frame.DW_CFA_def_cfa_expression:
		r.CFA = Rule{Rule: frame.RuleExpression, Offset: r.CFA.Offset, Expression: r.block()}

	case frame.DW_CFA_undefined:
		r.set(r.uleb(), Rule{Rule: frame.RuleUndefined})
	case frame.DW_CFA_same_value:
		r.set(r.uleb(), Rule{Rule: frame.RuleSameVal})
	case frame.DW_CFA_offset_extended:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleOffset, Offset: r.factored()})
	case frame.DW_CFA_offset_extended_sf:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleOffset, Offset: r.factoredSigned()})
	case cfaGNUNegativeOffsetExtended:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleOffset, Offset: -r.factored()})
	case frame.DW_CFA_val_offset:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleValOffset, Offset: r.factored()})
	case frame.DW_CFA_val_offset_sf:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleValOffset, Offset: r.factoredSigned()})
	case frame.DW_CFA_register:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleRegister, Reg: r.uleb()})
	case frame.DW_CFA_expression:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleExpression, Expression: r.block()})
	case frame.DW_CFA_val_expression:
		reg := r.uleb()
		r.set(reg, Rule{Rule: frame.RuleValExpression, Expression: r.block()})
	case frame.DW_CFA_restore_extended:
		r.restore(r.uleb())

	case frame.DW_CFA_remember_state:
		if len(r.stack) == maxStates {
			r.fail(at, "remember_state nests deeper than %d", maxStates)
			break
		}
		r.stack = append(r.stack, r.Rules)
	case frame.DW_CFA_restore_state:
		n := len(r.stack)
		if n == 0 {
			r.fail(at, "restore_state without a remember_state")
			break
		}
		r.Rules = r.stack[n-1]
		r.stack = r.stack[:n-1]

	case frame.DW_CFA_GNU_args_size:
		r.uleb() // of concern to exception handling only
	case cfaAArch64NegateRAState, cfaAArch64NegateRAStateWithP:
		if r.sec.mach.raState == arch.NoReg {
			r.fail(at, "opcode %#02x is not defined for this machine", op)
			break
		}
		to := Signed
		if op == cfaAArch64NegateRAStateWithP {
			to = SignedWithPC
		}
		switch r.Sign {
		case Unsigned:
			r.sign(to)
		case to:
			r.sign(Unsigned)
		default:
			r.sign(SignUnknown)
		}
	default:
		r.fail(at, "unknown opcode %#02x", op)
	}
	return false
}

// factored reads an unsigned offset and multiplies it by the data alignment.
func (r *Rows) factored() int64 {
	at := r.pos
	v := r.uleb()
	if v >= maxOffset {
		r.fail(at, "offset %d is too large", v)
		return 0
	}
	return r.factor(at, int64(v))
}

func (r *Rows) factoredSigned() int64 {
	at := r.pos
	return r.factor(at, r.sleb())
}

func (r *Rows) factor(at int, v int64) int64 {
	f := r.fn.cie.dataAlign
	if p := v * f; v == 0 || (p/v == f && -maxOffset < p && p < maxOffset) {
		return p
	}
	r.fail(at, "offset %d times the data alignment %d is too large", v, f)
	return 0
}

func (r *Rows) defCFA(at int, reg uint64, offset int64) {
	if offset <= -maxOffset || offset >= maxOffset {
		r.fail(at, "CFA offset %d is too large", offset)
		return
	}
	r.CFA = Rule{Rule: frame.RuleCFA, Reg: reg, Offset: offset}
}

// needCFA fails unless there is a CFA rule that a part of can be changed. DWARF
// asks for one of a register and an offset (DWARF 5, section 6.4.2.2), but
// libgcrypt's assembly and GCC's SVE code change parts of an expression, and all
// unwinders read that in one way: a new register stands with the offset that was
// last in force, and a new offset has no effect until a register comes.
func (r *Rows) needCFA(at int) {
	if r.CFA.Rule == frame.RuleUndefined {
		r.fail(at, "part of a CFA rule is changed, but there is none")
	}
}

func (r *Rows) setCFAOffset(at int, offset int64) {
	r.needCFA(at)
	if old := r.CFA; old.Rule == frame.RuleExpression {
		r.defCFA(at, 0, offset)
		old.Offset = r.CFA.Offset
		r.CFA = old
		return
	}
	r.defCFA(at, r.CFA.Reg, offset)
}

// tracks reports whether the row has a rule for the register.
func (r *Rows) tracks(reg uint64) bool {
	return reg == r.fn.cie.raReg || reg == r.sec.mach.fp || reg == r.sec.mach.sp || r.signs(reg)
}

// signs reports whether the register is the one that says whether return addresses are signed.
func (r *Rows) signs(reg uint64) bool {
	return reg == r.sec.mach.raState && reg != arch.NoReg
}

// set gives a register a rule.
func (r *Rows) set(reg uint64, rule Rule) {
	if r.tracks(reg) {
		r.assign(reg, &rule, &rule, &rule, SignUnknown)
	}
}

// restore gives a register the rule it had after the CIE's instructions, and in these none. No
// unwinder looks at the rules that it had before in the same CIE.
func (r *Rows) restore(reg uint64) {
	if r.tracks(reg) {
		r.assign(reg, &r.init.RA, &r.init.FP, &r.init.SP, r.init.Sign)
	}
}

// assign changes all of RA, FP, SP and the sign that a register stands for. The CIE's return
// address column can be any register, also FP or SP: unwinders look for the return address
// where they find that register.
func (r *Rows) assign(reg uint64, ra, fp, sp *Rule, sign Sign) {
	next := *r.Registers
	if reg == r.fn.cie.raReg {
		next.RA = *ra
	}
	switch {
	case reg == r.sec.mach.fp:
		next.FP = *fp
	case reg == r.sec.mach.sp:
		next.SP = *sp
	case r.signs(reg):
		next.Sign = sign
	}
	r.become(&next)
}

// sign changes the state of the return address.
func (r *Rows) sign(to Sign) {
	next := *r.Registers
	next.Sign = to
	r.become(&next)
}

// become gives the row rules that are equal to next, if possible those that another row
// has.
func (r *Rows) become(next *Registers) {
	if next.equal(r.Registers) {
		return
	}
	if next.equal(r.init.Registers) {
		r.Registers = r.init.Registers
		return
	}
	k := &r.known[next.hash()%knownRegisters]
	if *k == nil || !next.equal(*k) {
		g := *next
		*k = &g
	}
	r.Registers = *k
}

func (g *Registers) equal(h *Registers) bool {
	return SameRule(&g.RA, &h.RA) && SameRule(&g.FP, &h.FP) && SameRule(&g.SP, &h.SP) && g.Sign == h.Sign
}

// SameRule reports whether a and b say the same.
func SameRule(a, b *Rule) bool {
	return a.Rule == b.Rule && a.Offset == b.Offset && a.Reg == b.Reg && bytes.Equal(a.Expression, b.Expression)
}

func (g *Registers) hash() uint64 {
	var h uint64
	for _, p := range [...]*Rule{&g.RA, &g.FP, &g.SP} {
		h = (h ^ uint64(p.Rule) ^ uint64(p.Offset)<<8 ^ p.Reg<<32 ^ uint64(len(p.Expression))<<48) * 0x9e3779b97f4a7c15
	}
	return (h ^ uint64(g.Sign)) * 0x9e3779b97f4a7c15 >> 32
}

func fmtRange(start, size uint64, in span) string {
	return fmt.Sprintf("FDE of the %d bytes at %#x, but the executable code there ends at %#x", size, start, in.end)
}
