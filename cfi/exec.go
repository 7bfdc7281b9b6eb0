package cfi

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/arch"
)

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

// A Step is a row as instructions make it: it holds from Off bytes on after the address that they begin
// with, up to the next one's.
type Step struct {
	Off    uint32
	Number uint32 // of the rules
}

// maxChunk is how many steps memory is made for at a time.
const maxChunk = 1 << 13

// An executor runs CFA programs. It knows the rules that are in force by their number: most
// instructions lead from one number to another that they have led to before.
type executor struct {
	cursor
	alphabet
	steps   []Step // of the program at hand
	kept    []Step // the last chunk of those that were made
	chunk   int    // the size of the next one
	cie     *cie
	start   uint64 // of the function
	loc     uint64 // where the row in the making begins, in bytes from there
	now     uint32 // the number of the rules in force
	stack   []uint32
	fixed   bool        // an instruction gives an address, not a distance
	initial bool        // it runs a CIE's instructions
	cur     Rules       // of the instruction at hand, while it is executed
	changes [][2]change // by hash
	classes map[class]uint32
}

// A change is what an instruction makes of rules.
type change struct {
	key uint64 // the instruction, its CIE's class, and the number of the rules before; 0 for none
	to  uint32 // the number of those after it
}

// maxChanges is how many pairs of changes are remembered at most, a power of two.
const maxChanges = 1 << 12

func newExecutor() executor {
	return executor{alphabet: newAlphabet(), classes: make(map[class]uint32)}
}

// prepare makes room for the programs of n functions.
func (x *executor) prepare(n int) {
	x.chunk = min(max(4*n, 16), maxChunk)
	if size := min(1<<bits.Len(uint(4*n)), maxChanges); size > len(x.changes) {
		x.changes = make([][2]change, size)
	}
}

// run executes the instructions of a function. What is wrong with them counts from their start.
func (x *executor) run(fn *Function) ([]Step, *Error) {
	x.cursor = cursor{sec: fn.cie.sec, data: fn.cie.sec.data[:fn.limit], pos: int(fn.code)}
	x.cie, x.start, x.loc, x.now = fn.cie, fn.Begin, 0, fn.cie.initial
	x.steps, x.stack, x.fixed = x.steps[:0], x.stack[:0], false
	x.execute()
	x.row(math.MaxUint64)
	if x.err != nil {
		x.err.Off -= uint64(fn.code)
		return nil, x.err
	}
	n := len(x.kept)
	if cap(x.kept)-n < len(x.steps) {
		x.kept, n = make([]Step, 0, max(x.chunk, len(x.steps))), 0
	}
	x.kept = append(x.kept, x.steps...)
	return x.kept[n:len(x.kept):len(x.kept)], nil
}

// row ends the row in the making where the next one begins. Rows that say what the one before them
// does are a part of it.
func (x *executor) row(next uint64) {
	n := len(x.steps)
	if x.loc <= math.MaxUint32 && (n == 0 || x.steps[n-1].Number != x.now) {
		x.steps = append(x.steps, Step{uint32(x.loc), x.now})
	}
	x.loc = next
}

// execute runs all instructions.
func (x *executor) execute() {
	for x.pos < len(x.data) {
		if !x.initial && x.usual() {
			break
		}
		at := x.pos
		op := x.data[at]
		switch {
		case op&opcodeMask == frame.DW_CFA_advance_loc:
			x.pos++
			x.move(at, uint64(op&operandMask))
		case op == frame.DW_CFA_advance_loc1:
			x.pos++
			x.move(at, x.uint(1))
		case op == frame.DW_CFA_nop:
			x.pos++
		case op == frame.DW_CFA_remember_state:
			x.pos++
			x.remember(at)
		case op == frame.DW_CFA_restore_state:
			x.pos++
			x.recall(at)
		case op >= frame.DW_CFA_offset && !x.cie.tracks(uint64(op&operandMask)):
			x.pos++
			if op&opcodeMask == frame.DW_CFA_offset {
				x.uleb()
			}
		default:
			x.change(at, op)
		}
	}
}

// usual executes instructions in their usual forms as long as there are some that only need what is at
// hand: most of all there are. It does what execute does, and reports whether it has come to the end.
func (x *executor) usual() bool {
	var (
		all  = x.sec.data // up to 8 bytes are read at once
		end  = len(x.data)
		pos  = x.pos
		now  = x.now
		loc  = x.loc
		made = x.steps
		d    = x.cie
		key  = uint64(d.class) << classShift
	)
	const far = 1 << 62 // no location
	if d.class > maxClass || d.codeAlign > math.MaxUint8 || !shortcuts {
		return false
	}
loop:
	for pos < end && len(all)-pos >= 8 {
		code := binary.LittleEndian.Uint64(all[pos:])
		op := byte(code)
		size := 1
		switch op >> 6 {
		case frame.DW_CFA_advance_loc >> 6, 0:
			delta := uint64(op & operandMask)
			switch op {
			case frame.DW_CFA_nop: // is an advance by 0
			case frame.DW_CFA_advance_loc1:
				delta, size = code>>8&math.MaxUint8, 2
			case frame.DW_CFA_advance_loc2:
				if !x.sec.little {
					break loop
				}
				delta, size = code>>8&math.MaxUint16, 3
			case frame.DW_CFA_remember_state:
				if len(x.stack) == maxStates {
					break loop
				}
				x.stack = append(x.stack, now)
				pos++
				continue
			case frame.DW_CFA_restore_state:
				n := len(x.stack)
				if n == 0 {
					break loop
				}
				now = x.stack[n-1]
				x.stack = x.stack[:n-1]
				pos++
				continue
			case frame.DW_CFA_def_cfa_offset, frame.DW_CFA_def_cfa_register:
				if size = lebs(code, 1); size == 0 {
					break loop
				}
				goto change
			case frame.DW_CFA_def_cfa:
				if size = lebs(code, 2); size == 0 {
					break loop
				}
				goto change
			default:
				if op < frame.DW_CFA_advance_loc {
					break loop
				}
			}
			if delta *= d.codeAlign; pos+size > end || loc >= far {
				break loop
			}
			pos += size
			if delta == 0 {
				continue
			}
			if n := len(made); loc <= math.MaxUint32 && (n == 0 || made[n-1].Number != now) {
				made = append(made, Step{uint32(loc), now})
			}
			loc += delta
			continue
		case frame.DW_CFA_offset >> 6:
			if size = lebs(code, 1); size == 0 {
				break loop
			}
		}
		if d.others>>(op&operandMask)&1 != 0 { // of a register that is not tracked
			if pos += size; pos > end {
				pos -= size
				break
			}
			continue
		}
	change:
		k := code&(1<<(8*size)-1) | key | uint64(now)<<fromShift
		c := x.changed(k)
		if pos+size > end || c[0].key != k && c[1].key != k {
			break
		}
		pos += size
		if now = c[0].to; c[0].key != k {
			now = c[1].to
		}
	}
	x.pos, x.now, x.loc, x.steps = pos, now, loc, made
	return pos == end
}

// Where in the key of a change its parts are. An instruction in its usual form has 5 bytes at most.
const (
	fromShift  = 40
	classShift = fromShift + 17 // maxRules is 1<<17
	maxClass   = 1<<(64-classShift) - 1
)

// lebs returns the size in bytes of an instruction with so many LEB128 operands, or 0 if one of them
// has more than two bytes.
func lebs(code uint64, operands int) int {
	size := 1
	for range operands {
		if code>>(8*size)&0x80 != 0 {
			if size++; code>>(8*size)&0x80 != 0 {
				return 0
			}
		}
		size++
	}
	return size
}

// change executes an instruction that changes the rules, and remembers what it does if usual can make use
// of that.
func (x *executor) change(at int, op byte) {
	from := x.now
	if x.slow(at, op); x.err != nil || x.initial || x.cie.class > maxClass || len(x.sec.data)-at < 8 {
		return
	}
	code, size := binary.LittleEndian.Uint64(x.sec.data[at:]), 0
	switch {
	case op&opcodeMask == frame.DW_CFA_restore:
		size = 1
	case op&opcodeMask == frame.DW_CFA_offset || op == frame.DW_CFA_def_cfa_offset || op == frame.DW_CFA_def_cfa_register:
		size = lebs(code, 1)
	case op == frame.DW_CFA_def_cfa:
		size = lebs(code, 2)
	}
	if size > 0 {
		k := code&(1<<(8*size)-1) | uint64(x.cie.class)<<classShift | uint64(from)<<fromShift
		c := x.changed(k)
		c[0], c[1] = change{k, x.now}, c[0]
	}
}

// changed returns where the change with a key is, or belongs: the first of the two places.
func (x *executor) changed(key uint64) *[2]change {
	return &x.changes[key*0x9e3779b97f4a7c15>>32&uint64(len(x.changes)-1)]
}

// slow executes an instruction.
func (x *executor) slow(at int, op byte) {
	x.pos++
	x.cur = x.rules[x.now]
	if x.instruction(at, op); x.err != nil {
		return
	}
	n, ok := x.number(&x.cur)
	if !ok {
		x.fail(at, "more than %d different rules in one file", maxRules)
		return
	}
	x.now = n
}

// move adds a factored delta to the location. Where the function is does not matter, nor whether rows
// after its end are after that of the address space: others with the same instructions may be elsewhere.
func (x *executor) move(at int, delta uint64) {
	hi, d := bits.Mul64(delta, x.cie.codeAlign)
	next, carry := bits.Add64(x.loc, d, 0)
	switch {
	case x.err != nil || hi == 0 && d == 0:
	case hi != 0 || carry != 0:
		x.fail(at, "location advances past 2^64")
	case x.initial:
		x.fail(at, "initial instructions of a CIE change the location")
	default:
		x.row(next)
	}
}

// setLoc goes to an address. Whether that can be read, or goes back, is another function's own matter, too.
func (x *executor) setLoc(at int) {
	x.fixed = true
	next := x.pointer(x.cie.fdeEnc, x.start)
	switch {
	case x.err != nil:
	case x.initial:
		x.fail(at, "initial instructions of a CIE change the location")
	case next < x.start || next-x.start < x.loc:
		x.fail(at, "set_loc goes back from %#x to %#x", x.start+x.loc, next)
	default:
		if next -= x.start; next > x.loc {
			x.row(next)
		}
	}
}

// remember keeps the rules that are in force.
func (x *executor) remember(at int) {
	if len(x.stack) == maxStates {
		x.fail(at, "remember_state nests deeper than %d", maxStates)
		return
	}
	x.stack = append(x.stack, x.now)
}

// recall takes the rules that were kept last.
func (x *executor) recall(at int) {
	n := len(x.stack)
	if n == 0 {
		x.fail(at, "restore_state without a remember_state")
		return
	}
	x.now = x.stack[n-1]
	x.stack = x.stack[:n-1]
}

// instruction executes any instruction but those that execute knows. Rules that it changes are those
// in cur.
func (x *executor) instruction(at int, op byte) {
	switch {
	case op&opcodeMask == frame.DW_CFA_offset:
		x.set(uint64(op&operandMask), Rule{Rule: RuleOffset, Offset: x.factored()})
		return
	case op&opcodeMask == frame.DW_CFA_restore:
		x.restore(uint64(op & operandMask))
		return
	}
	switch op {
	case frame.DW_CFA_set_loc:
		x.setLoc(at)
	case frame.DW_CFA_advance_loc2:
		x.move(at, x.uint(2))
	case frame.DW_CFA_advance_loc4:
		x.move(at, x.uint(4))
	case cfaMIPSAdvanceLoc8:
		x.move(at, x.uint(8))

	case frame.DW_CFA_def_cfa:
		reg := x.uleb()
		x.defCFA(at, reg, int64(x.uleb()))
	case frame.DW_CFA_def_cfa_sf:
		reg := x.uleb()
		x.defCFA(at, reg, x.factoredSigned())
	case frame.DW_CFA_def_cfa_register:
		reg := x.uleb()
		x.needCFA(at)
		x.cur.CFA = Rule{Rule: RuleCFA, Reg: reg, Offset: x.cur.CFA.Offset}
	case frame.DW_CFA_def_cfa_offset:
		x.setCFAOffset(at, int64(x.uleb()))
	case frame.DW_CFA_def_cfa_offset_sf:
		x.setCFAOffset(at, x.factoredSigned())
	case frame.DW_CFA_def_cfa_expression:
		x.cur.CFA = Rule{Rule: RuleExpression, Offset: x.cur.CFA.Offset, Expression: x.expression(x.block())}

	case frame.DW_CFA_undefined:
		x.set(x.uleb(), Rule{Rule: RuleUndefined})
	case frame.DW_CFA_same_value:
		x.set(x.uleb(), Rule{Rule: RuleSameVal})
	case frame.DW_CFA_offset_extended:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleOffset, Offset: x.factored()})
	case frame.DW_CFA_offset_extended_sf:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleOffset, Offset: x.factoredSigned()})
	case cfaGNUNegativeOffsetExtended:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleOffset, Offset: -x.factored()})
	case frame.DW_CFA_val_offset:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleValOffset, Offset: x.factored()})
	case frame.DW_CFA_val_offset_sf:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleValOffset, Offset: x.factoredSigned()})
	case frame.DW_CFA_register:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleRegister, Reg: x.uleb()})
	case frame.DW_CFA_expression:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleExpression, Expression: x.expression(x.block())})
	case frame.DW_CFA_val_expression:
		reg := x.uleb()
		x.set(reg, Rule{Rule: RuleValExpression, Expression: x.expression(x.block())})
	case frame.DW_CFA_restore_extended:
		x.restore(x.uleb())

	case frame.DW_CFA_GNU_args_size:
		x.uleb() // of concern to exception handling only
	case cfaAArch64NegateRAState:
		x.negateRAState(at, Signed)
	case cfaAArch64NegateRAStateWithP:
		x.negateRAState(at, SignedWithPC)
	default:
		x.fail(at, "unknown opcode %#02x", op)
	}
}

// negateRAState changes whether the return address is signed in the given way.
func (x *executor) negateRAState(at int, to Sign) {
	switch {
	case x.sec.mach.raState == arch.NoReg:
		x.fail(at, "opcode %#02x is not defined for this machine", x.data[at])
	case x.cur.Sign == Unsigned:
		x.cur.Sign = to
	case x.cur.Sign == to:
		x.cur.Sign = Unsigned
	default:
		x.cur.Sign = SignUnknown
	}
}

// factored reads an unsigned offset and multiplies it by the data alignment.
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

func (x *executor) defCFA(at int, reg uint64, offset int64) {
	if offset <= -maxOffset || offset >= maxOffset {
		x.fail(at, "CFA offset %d is too large", offset)
		return
	}
	x.cur.CFA = Rule{Rule: RuleCFA, Reg: reg, Offset: offset}
}

// needCFA fails unless there is a CFA rule that a part of can be changed. DWARF
// asks for one of a register and an offset (DWARF 5, section 6.4.2.2), but
// libgcrypt's assembly and GCC's SVE code change parts of an expression, and all
// unwinders read that in one way: a new register stands with the offset that was
// last in force, and a new offset has no effect until a register comes.
func (x *executor) needCFA(at int) {
	if x.cur.CFA.Rule == RuleUndefined {
		x.fail(at, "part of a CFA rule is changed, but there is none")
	}
}

func (x *executor) setCFAOffset(at int, offset int64) {
	x.needCFA(at)
	if old := x.cur.CFA; old.Rule == RuleExpression {
		x.defCFA(at, 0, offset)
		old.Offset = x.cur.CFA.Offset
		x.cur.CFA = old
		return
	}
	x.defCFA(at, x.cur.CFA.Reg, offset)
}

// set gives a register a rule.
func (x *executor) set(reg uint64, rule Rule) {
	if x.cie.tracks(reg) {
		x.assign(reg, &rule, &rule, &rule, SignUnknown)
	}
}

// restore gives a register the rule it had after the CIE's instructions, and in these none. No
// unwinder looks at the rules that it had before in the same CIE.
func (x *executor) restore(reg uint64) {
	if !x.cie.tracks(reg) {
		return
	}
	init := noRules
	if !x.initial {
		init = &x.rules[x.cie.initial]
	}
	x.assign(reg, &init.RA, &init.FP, &init.SP, init.Sign)
}

// assign changes all of RA, FP, SP and the sign that a register stands for. The CIE's return
// address column can be any register, also FP or SP: unwinders look for the return address
// where they find that register.
func (x *executor) assign(reg uint64, ra, fp, sp *Rule, sign Sign) {
	next, mach := &x.cur, &x.sec.mach
	if reg == x.cie.raReg {
		next.RA = *ra
	}
	switch {
	case reg == mach.fp:
		next.FP = *fp
	case reg == mach.sp:
		next.SP = *sp
	case mach.signs(reg):
		next.Sign = sign
	}
}

// noRules are those before the first instruction of a CIE.
var noRules = func() *Rules {
	none := Rule{Rule: RuleArchitectural}
	return &Rules{RA: none, FP: none, SP: none}
}()

// tracks reports whether rows have a rule for the register, or say something of it.
func (d *cie) tracks(reg uint64) bool {
	m := &d.sec.mach
	return reg == d.raReg || reg == m.fp || reg == m.sp || m.signs(reg)
}

// runInitial executes a CIE's instructions, from pos to end, and sets what its functions begin with.
func (x *executor) runInitial(d *cie, pos, end int) *Error {
	x.cursor = cursor{sec: d.sec, data: d.sec.data[:end], pos: pos}
	x.cie, x.start, x.loc, x.stack = d, 0, 0, x.stack[:0]
	start := *noRules
	start.RAReg = d.raReg
	var ok bool
	if x.now, ok = x.number(&start); !ok {
		x.fail(pos, "more than %d different rules in one file", maxRules)
	}
	x.initial = true
	x.execute()
	x.initial = false
	d.initial, d.class = x.now, x.class(d, x.now)
	for reg := range uint64(operandMask + 1) {
		if !d.tracks(reg) {
			d.others |= 1 << reg
		}
	}
	return x.err
}

// A class is what instructions depend on besides the rules in force.
type class struct {
	raReg     uint64
	dataAlign int64
	initial   uint32
}

// class returns the number of a CIE's class.
func (x *executor) class(d *cie, initial uint32) uint32 {
	c := class{d.raReg, d.dataAlign, initial}
	n, ok := x.classes[c]
	if !ok {
		n = uint32(len(x.classes))
		x.classes[c] = n
	}
	return n
}
