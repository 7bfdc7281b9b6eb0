package generate

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/choice"
)

// Opcodes without a constant in package frame.
const (
	advanceLoc8      = 0x1d // MIPS
	setRAState       = 0x2b // AArch64
	negateWithPC     = 0x2c
	negateRAState    = 0x2d
	negativeExtended = 0x2f // GNU
	unknownOpcode    = 0x3c
)

// An Instruction is a CFI instruction. N is not multiplied by an alignment factor; for set_loc it is the target.
type Instruction struct {
	Op    byte
	Reg   uint64
	Reg2  uint64
	N     int64
	Block []byte
}

// operands lists the forms of operands: r and q are the registers Instruction.Reg and Reg2 (setRAState has its state in
// Reg); u and s are Instruction.N as an unsigned and a signed LEB128 number; 1, 2, 4 and 8 are N in that many bytes; p
// is N as a pointer; b is a block. Opcodes in the high two bits have their first operand in the low six.
var operands = map[byte]string{
	frame.DW_CFA_offset: "u", frame.DW_CFA_set_loc: "p", frame.DW_CFA_advance_loc1: "1", frame.DW_CFA_advance_loc2: "2",
	frame.DW_CFA_advance_loc4: "4", advanceLoc8: "8",
	frame.DW_CFA_def_cfa: "ru", frame.DW_CFA_def_cfa_sf: "rs", frame.DW_CFA_def_cfa_register: "r",
	frame.DW_CFA_def_cfa_offset: "u", frame.DW_CFA_def_cfa_offset_sf: "s", frame.DW_CFA_def_cfa_expression: "b",
	frame.DW_CFA_offset_extended: "ru", frame.DW_CFA_offset_extended_sf: "rs", negativeExtended: "ru",
	frame.DW_CFA_val_offset: "ru", frame.DW_CFA_val_offset_sf: "rs", frame.DW_CFA_undefined: "r",
	frame.DW_CFA_same_value: "r", frame.DW_CFA_restore_extended: "r", frame.DW_CFA_register: "rq",
	frame.DW_CFA_expression: "rb", frame.DW_CFA_val_expression: "rb", frame.DW_CFA_GNU_args_size: "u",
	setRAState: "rs",
}

// instructions encodes instructions of a CIE or one of its FDEs.
func (e *encoder) instructions(list []Instruction, d *CIE) {
	o := e.Order
	for i := range list {
		in := &list[i]
		op := in.Op
		switch op {
		case frame.DW_CFA_advance_loc:
			op |= byte(in.N)
		case frame.DW_CFA_offset, frame.DW_CFA_restore:
			op |= byte(in.Reg)
		}
		e.b = append(e.b, op)
		for _, form := range operands[in.Op] {
			switch form {
			case 'r':
				e.b = uleb(e.b, in.Reg)
			case 'q':
				e.b = uleb(e.b, in.Reg2)
			case 'u':
				e.b = uleb(e.b, uint64(in.N))
			case 's':
				e.b = sleb(e.b, in.N)
			case 'b':
				e.b = append(uleb(e.b, uint64(len(in.Block))), in.Block...)
			case 'p':
				e.pointer(d.Encoding, uint64(in.N))
			case '1':
				e.b = append(e.b, byte(in.N))
			case '2':
				e.b = o.AppendUint16(e.b, uint16(in.N))
			case '4':
				e.b = o.AppendUint32(e.b, uint32(in.N))
			case '8':
				e.b = o.AppendUint64(e.b, uint64(in.N))
			}
		}
	}
}

// A state holds the current rules (DWARF 5, section 6.4.2).
type state struct {
	cfa  cfi.Rule
	regs map[uint64]cfi.Rule
	sign cfi.Sign
}

func (s *state) clone() state {
	return state{cfa: s.cfa, regs: maps.Clone(s.regs), sign: s.sign}
}

// state returns the rules after the initial instructions.
func (c *CIE) state() *state {
	s := &state{regs: make(map[uint64]cfi.Rule), cfa: cfi.Rule{Rule: cfi.RuleUndefined}}
	for i := range c.Initial {
		s.execute(&c.Initial[i], c, &state{})
	}
	return s
}

// execute executes an instruction that changes the rules.
func (s *state) execute(in *Instruction, d *CIE, initial *state) {
	factored := in.N * d.Data
	set := func(r cfi.Rule) { s.regs[in.Reg] = r }
	switch in.Op {
	case frame.DW_CFA_def_cfa:
		s.cfa = cfi.Rule{Rule: cfi.RuleCFA, Reg: in.Reg, Offset: in.N}
	case frame.DW_CFA_def_cfa_sf:
		s.cfa = cfi.Rule{Rule: cfi.RuleCFA, Reg: in.Reg, Offset: factored}
	case frame.DW_CFA_def_cfa_register:
		s.cfa.Reg = in.Reg
	case frame.DW_CFA_def_cfa_offset:
		s.cfa.Offset = in.N
	case frame.DW_CFA_def_cfa_offset_sf:
		s.cfa.Offset = factored
	case frame.DW_CFA_def_cfa_expression:
		s.cfa = cfi.Rule{Rule: cfi.RuleExpression, Expression: in.Block}
	case frame.DW_CFA_undefined:
		set(cfi.Rule{Rule: cfi.RuleUndefined})
	case frame.DW_CFA_same_value:
		set(cfi.Rule{Rule: cfi.RuleSameVal})
	case frame.DW_CFA_offset, frame.DW_CFA_offset_extended, frame.DW_CFA_offset_extended_sf:
		set(cfi.Rule{Rule: cfi.RuleOffset, Offset: factored})
	case negativeExtended:
		set(cfi.Rule{Rule: cfi.RuleOffset, Offset: -factored})
	case frame.DW_CFA_val_offset, frame.DW_CFA_val_offset_sf:
		set(cfi.Rule{Rule: cfi.RuleValOffset, Offset: factored})
	case frame.DW_CFA_register:
		set(cfi.Rule{Rule: cfi.RuleRegister, Reg: in.Reg2})
	case frame.DW_CFA_expression:
		set(cfi.Rule{Rule: cfi.RuleExpression, Expression: in.Block})
	case frame.DW_CFA_val_expression:
		set(cfi.Rule{Rule: cfi.RuleValExpression, Expression: in.Block})
	case frame.DW_CFA_restore, frame.DW_CFA_restore_extended:
		if r, ok := initial.regs[in.Reg]; ok {
			set(r)
		} else {
			delete(s.regs, in.Reg)
		}
	case setRAState:
		s.sign = cfi.Sign(min(in.Reg, uint64(cfi.SignUnknown)))
	case negateRAState:
		s.negate(cfi.Signed)
	case negateWithPC:
		s.negate(cfi.SignedWithPC)
	}
}

func (s *state) negate(to cfi.Sign) {
	switch s.sign {
	case cfi.Unsigned:
		s.sign = to
	case to:
		s.sign = cfi.Unsigned
	default:
		s.sign = cfi.SignUnknown
	}
}

// rules returns the part of the state that unwinding needs.
func (s *state) rules(m *Machine, d *CIE) *cfi.Rules {
	rule := func(reg uint64) cfi.Rule {
		if r, ok := s.regs[reg]; ok {
			return r
		}
		return cfi.Rule{Rule: cfi.RuleArchitectural}
	}
	return &cfi.Rules{CFA: s.cfa, RA: rule(d.RA), FP: rule(m.FP), SP: rule(m.SP), RAReg: d.RA, Sign: s.sign}
}

// A Row applies to a range of addresses.
type Row struct {
	Range
	Rules        *cfi.Rules // nil if the instructions are invalid, or other FDEs have other rules
	Signal, KeyB bool
	FDE          int
}

// rows returns the rows of an FDE, up to an invalid instruction.
func (c *CFI) rows(i int) []Row {
	f := &c.FDEs[i]
	d := &c.CIEs[f.CIE]
	row := func(begin, end uint64, r *cfi.Rules) Row {
		return Row{Range{begin, end}, r, d.Signal(), d.KeyB(), i}
	}
	limit := f.Start + f.Size
	if f.Broken {
		return []Row{row(f.Start, limit, nil)}
	}
	initial := d.state()
	now, loc := initial.clone(), f.Start
	var stack []state
	var out []Row
	to := func(next uint64) {
		if begin, end := min(loc, limit), min(next, limit); begin < end {
			out = append(out, row(begin, end, now.rules(c.Machine, d)))
		}
		loc = next
	}
	for j := range f.Instructions {
		switch in := &f.Instructions[j]; in.Op {
		case frame.DW_CFA_set_loc:
			to(uint64(in.N))
		case frame.DW_CFA_advance_loc, frame.DW_CFA_advance_loc1, frame.DW_CFA_advance_loc2, frame.DW_CFA_advance_loc4,
			advanceLoc8:
			to(loc + uint64(in.N)*d.Code)
		case frame.DW_CFA_remember_state:
			stack = append(stack, now.clone())
		case frame.DW_CFA_restore_state:
			now, stack = stack[len(stack)-1], stack[:len(stack)-1]
		default:
			now.execute(in, d, initial)
		}
	}
	to(max(loc, limit))
	return out
}

// Rows returns the rows of all FDEs, sorted by address. Code that several FDEs cover belongs to the one with the lowest
// start or, if the starts are equal, to the first in the section.
func (c *CFI) Rows() []Row {
	order := make([]int, 0, len(c.FDEs))
	for i := range c.FDEs {
		if c.FDEs[i].Size > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.FDEs[a].Start, c.FDEs[b].Start) })
	var out, all []Row
	end := uint64(0)
	for _, i := range order {
		rows := c.rows(i)
		all = append(all, rows...)
		for _, r := range rows {
			if r.Begin = max(r.Begin, end); r.Begin < r.End {
				out = append(out, r)
			}
		}
		end = max(end, c.FDEs[i].Start+c.FDEs[i].Size)
	}
	for i := range all {
		out = all[i].dispute(out)
	}
	return out
}

// dispute removes the rules of rows where r has other rules.
func (r *Row) dispute(rows []Row) (out []Row) {
	for _, o := range rows {
		begin, end := max(r.Begin, o.Begin), min(r.End, o.End)
		same := r.FDE == o.FDE || o.Rules == nil || r.Rules != nil && reflect.DeepEqual(*r.Rules, *o.Rules) &&
			r.Signal == o.Signal && r.KeyB == o.KeyB
		if begin >= end || same {
			out = append(out, o)
			continue
		}
		for _, p := range []Range{{o.Begin, begin}, {begin, end}, {end, o.End}} {
			q := o
			if q.Range = p; p.Begin == begin {
				q.Rules = nil
			}
			if p.Begin < p.End {
				out = append(out, q)
			}
		}
	}
	return out
}

// initial sets the instructions of a CIE: usually the rules at a function's entry.
func (c *CFI) initial(s *choice.Source, d *CIE) {
	m := c.Machine
	d.Initial = []Instruction{{Op: frame.DW_CFA_def_cfa, Reg: m.SP, N: m.Entry}}
	if m.FixedRA != 0 && m.FixedRA%d.Data == 0 {
		saved := Instruction{Op: frame.DW_CFA_offset_extended_sf, Reg: d.RA, N: m.FixedRA / d.Data}
		d.Initial = append(d.Initial, saved)
	}
	g := program{s: s, m: m, d: d, initial: &state{regs: make(map[uint64]cfi.Rule)}}
	g.now = state{regs: make(map[uint64]cfi.Rule), cfa: cfi.Rule{Rule: cfi.RuleCFA}}
	for range s.N(3) {
		if in, ok := g.change(false); ok {
			d.Initial = append(d.Initial, in)
			g.now.execute(&in, d, g.initial)
		}
	}
	if s.Rarely(32) {
		d.Initial = nil // no CFA
	}
}

// A program is a generator of the instructions of a CIE or an FDE.
type program struct {
	s       *choice.Source
	m       *Machine
	d       *CIE
	now     state
	initial *state
}

// advances lists instructions that advance the location; common instructions are repeated.
var advances = []Instruction{
	{Op: frame.DW_CFA_advance_loc}, {Op: frame.DW_CFA_advance_loc}, {Op: frame.DW_CFA_advance_loc},
	{Op: frame.DW_CFA_advance_loc}, {Op: frame.DW_CFA_advance_loc}, {Op: frame.DW_CFA_advance_loc},
	{Op: frame.DW_CFA_advance_loc}, {Op: frame.DW_CFA_advance_loc1, N: 9}, {Op: frame.DW_CFA_advance_loc1, N: 255},
	{Op: frame.DW_CFA_advance_loc2, N: 1}, {Op: frame.DW_CFA_advance_loc2, N: 257},
	{Op: frame.DW_CFA_advance_loc2, N: 65535}, {Op: frame.DW_CFA_advance_loc4, N: 7},
	{Op: frame.DW_CFA_advance_loc4, N: 65536}, {Op: frame.DW_CFA_advance_loc4, N: 1<<32 - 1},
	{Op: advanceLoc8, N: 9}, {Op: advanceLoc8, N: 1 << 33}, {Op: frame.DW_CFA_set_loc}, {Op: frame.DW_CFA_set_loc},
}

// program generates the instructions of an FDE, and returns the offset of the last row.
func (c *CFI) program(s *choice.Source, f *FDE, d *CIE) uint64 {
	g := program{s: s, m: c.Machine, d: d, initial: d.state()}
	g.now = g.initial.clone()
	var stack []state
	loc := uint64(0)
	for n := s.N(24); n > 0; n-- {
		var in Instruction
		switch s.N(8) {
		case 0, 1, 2:
			in = choice.Of(s, advances...)
			switch {
			case in.Op == frame.DW_CFA_advance_loc:
				in.N = int64(s.N(64))
			case in.Op != frame.DW_CFA_set_loc:
			case (d.Encoding&0xf == encU2 || d.Encoding&0xf == encS2) && loc >= 1<<12, loc >= 1<<30:
				in.Op = frame.DW_CFA_nop // the target may not be encodable
			default:
				loc += uint64(s.N(64))
				in.N = int64(f.Start + loc)
			}
			if in.Op != frame.DW_CFA_set_loc {
				loc += uint64(in.N) * d.Code
			}
		case 3:
			in.Op = frame.DW_CFA_remember_state
			stack = append(stack, g.now.clone())
		case 4:
			if len(stack) == 0 {
				in.Op = frame.DW_CFA_nop
				break
			}
			in.Op = frame.DW_CFA_restore_state
			g.now, stack = stack[len(stack)-1], stack[:len(stack)-1]
		default:
			var ok bool
			if in, ok = g.change(true); !ok {
				continue
			}
			g.now.execute(&in, d, g.initial)
		}
		f.Instructions = append(f.Instructions, in)
	}
	if s.Rarely(32) {
		f.Broken = true
		f.Instructions = append(f.Instructions, Instruction{Op: unknownOpcode})
	}
	return loc
}

// offset chooses an offset in bytes.
func (g *program) offset() int64 {
	v := choice.Of[int64](g.s, 16, 8, 0, 24, 32, 160, 48, 4, 120, 128, 1000, 1016, 1<<15, 1<<16+8, 1<<31-8, 1<<31,
		1<<36)
	if g.s.Rarely(2) {
		return -v
	}
	return v
}

// factored returns an offset divided by the data alignment.
func (g *program) factored() int64 { return g.offset() / g.d.Data }

// reg chooses a register, usually one that unwinding needs.
func (g *program) reg() uint64 {
	return choice.Of(g.s, g.m.FP, g.d.RA, g.m.SP, g.m.FP, g.d.RA, 3, 12, 17, 40, 200)
}

// base chooses a register for the CFA.
func (g *program) base() uint64 { return choice.Of(g.s, g.m.SP, g.m.FP, g.m.SP, g.m.FP, 10, 3, 17, 33) }

// changes lists opcodes that change the rules; common opcodes are repeated.
var changes = []byte{
	frame.DW_CFA_def_cfa, frame.DW_CFA_def_cfa, frame.DW_CFA_def_cfa_sf, frame.DW_CFA_def_cfa_register,
	frame.DW_CFA_def_cfa_register, frame.DW_CFA_def_cfa_offset, frame.DW_CFA_def_cfa_offset,
	frame.DW_CFA_def_cfa_offset_sf, frame.DW_CFA_def_cfa_expression, frame.DW_CFA_undefined, frame.DW_CFA_same_value,
	frame.DW_CFA_offset, frame.DW_CFA_offset, frame.DW_CFA_offset, frame.DW_CFA_offset_extended,
	frame.DW_CFA_offset_extended_sf, negativeExtended, frame.DW_CFA_val_offset, frame.DW_CFA_val_offset_sf,
	frame.DW_CFA_register, frame.DW_CFA_expression, frame.DW_CFA_val_expression, frame.DW_CFA_restore,
	frame.DW_CFA_restore_extended, frame.DW_CFA_GNU_args_size, negateRAState, negateRAState, negateWithPC,
	setRAState,
}

// change chooses an instruction that changes the rules. It returns false if the instruction would be meaningless.
func (g *program) change(restore bool) (in Instruction, ok bool) {
	s := g.s
	in = Instruction{Op: choice.Of(s, changes...), Reg: g.reg(), Reg2: g.reg()}
	switch in.Op {
	case frame.DW_CFA_def_cfa_register, frame.DW_CFA_def_cfa_offset, frame.DW_CFA_def_cfa_offset_sf:
		if g.now.cfa.Rule != cfi.RuleCFA {
			return in, false
		}
	case frame.DW_CFA_restore, frame.DW_CFA_restore_extended:
		if !restore {
			return in, false
		}
	case negateRAState, negateWithPC:
		return in, g.m.Signs
	case setRAState:
		in.Reg, in.N = choice.Of[uint64](s, 0, 1, 2, 3, 1, 300), g.offset()
		return in, g.m.Signs
	}
	switch in.Op {
	case frame.DW_CFA_def_cfa, frame.DW_CFA_def_cfa_sf, frame.DW_CFA_def_cfa_register:
		in.Reg = g.base()
	case frame.DW_CFA_offset, frame.DW_CFA_restore:
		in.Reg %= 64
	}
	switch in.Op {
	case frame.DW_CFA_def_cfa, frame.DW_CFA_def_cfa_offset, frame.DW_CFA_GNU_args_size:
		in.N = max(0, g.offset())
	case frame.DW_CFA_def_cfa_sf, frame.DW_CFA_def_cfa_offset_sf, frame.DW_CFA_offset_extended_sf,
		frame.DW_CFA_val_offset_sf:
		in.N = g.factored()
	case frame.DW_CFA_def_cfa_expression, frame.DW_CFA_expression, frame.DW_CFA_val_expression:
		in.Block = g.expression(in.Op != frame.DW_CFA_def_cfa_expression)
	default:
		in.N = choice.Of[int64](s, 2, 1, 3, 6, 4, 0, 9, 100, 127, 128, 20, 4096)
	}
	return in, true
}

// expression generates a DWARF expression; onCFA says whether its initial stack holds the CFA.
func (g *program) expression(onCFA bool) []byte {
	s := g.s
	breg := func(reg uint64, n int64) []byte {
		if reg < 32 {
			return sleb([]byte{0x70 + byte(reg)}, n)
		}
		return sleb(uleb([]byte{0x92}, reg), n)
	}
	var b []byte
	if !onCFA || s.Rarely(2) {
		b = breg(g.base(), g.offset())
	}
	for range s.N(4) {
		n, reg := g.offset(), g.base()
		b = append(b, choice.Of(s,
			[]byte{0x06}, []byte{0x06}, // deref
			uleb([]byte{0x23}, uint64(max(0, n))), // plus_uconst
			append(sleb([]byte{0x11}, n), 0x22),   // consts, plus
			append(sleb([]byte{0x11}, n), 0x1c),   // consts, minus
			[]byte{0x12, 0x13},                    // dup, drop
			[]byte{0x38, 0x22},                    // lit8, plus
			[]byte{0x09, byte(n), 0x22},           // const1s, plus
			[]byte{0x94, 8},                       // deref_size
			[]byte{0x09, 0xf0, 0x1a},              // const1s -16, and: realigns a stack
			append(breg(reg, 0), 0x16, 0x13),      // swap, drop
		)...)
	}
	return b
}
