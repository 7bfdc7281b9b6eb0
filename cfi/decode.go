package cfi

import (
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

// maxOffset bounds factored offsets so that their sums cannot overflow.
const maxOffset = 1 << 48

// An operation is what an instruction does. Several opcodes encode the same operation.
type operation uint8

const (
	opUnknown operation = iota
	opNop
	opAdvance        // by n, times the code alignment
	opSetLoc         // to address n
	opRemember       // DW_CFA_remember_state
	opRecall         // DW_CFA_restore_state
	opDefCFA         // to rule
	opDefCFARegister // to rule.reg
	opDefCFAOffset   // to rule.offset
	opSet            // reg to rule
	opRestore        // reg
	opSetSign        // to n; this and the following are not defined for all machines
	opToggleSign
	opToggleSignWithPC
)

// An instruction is a decoded call frame instruction (DWARF 5, section 6.4.2).
type instruction struct {
	op         operation
	n, reg     uint64
	rule       rule // without the number of the expression
	expression []byte
}

// opcodes lists the opcodes without an operand in their low bits (DWARF 5, table 7.29; for AArch64, "DWARF for the Arm
// 64-bit Architecture", section "Call frame instructions"). Each operand is a letter; see decoder.operand.
var opcodes = [operandMask + 1]struct {
	op       operation
	kind     frame.Rule
	operands string
}{
	frame.DW_CFA_nop:                {op: opNop},
	frame.DW_CFA_set_loc:            {op: opSetLoc, operands: "a"},
	frame.DW_CFA_advance_loc1:       {op: opAdvance, operands: "1"},
	frame.DW_CFA_advance_loc2:       {op: opAdvance, operands: "2"},
	frame.DW_CFA_advance_loc4:       {op: opAdvance, operands: "4"},
	cfaMIPSAdvanceLoc8:              {op: opAdvance, operands: "8"},
	frame.DW_CFA_remember_state:     {op: opRemember},
	frame.DW_CFA_restore_state:      {op: opRecall},
	frame.DW_CFA_GNU_args_size:      {op: opNop, operands: "n"}, // used only for exception handling
	frame.DW_CFA_def_cfa:            {opDefCFA, RuleCFA, "Rc"},
	frame.DW_CFA_def_cfa_sf:         {opDefCFA, RuleCFA, "RC"},
	frame.DW_CFA_def_cfa_register:   {opDefCFARegister, RuleCFA, "R"},
	frame.DW_CFA_def_cfa_offset:     {opDefCFAOffset, RuleCFA, "c"},
	frame.DW_CFA_def_cfa_offset_sf:  {opDefCFAOffset, RuleCFA, "C"},
	frame.DW_CFA_def_cfa_expression: {opDefCFA, RuleExpression, "x"},
	frame.DW_CFA_undefined:          {opSet, RuleUndefined, "r"},
	frame.DW_CFA_same_value:         {opSet, RuleSameVal, "r"},
	frame.DW_CFA_offset_extended:    {opSet, RuleOffset, "ru"},
	frame.DW_CFA_offset_extended_sf: {opSet, RuleOffset, "rs"},
	cfaGNUNegativeOffsetExtended:    {opSet, RuleOffset, "r-"},
	frame.DW_CFA_val_offset:         {opSet, RuleValOffset, "ru"},
	frame.DW_CFA_val_offset_sf:      {opSet, RuleValOffset, "rs"},
	frame.DW_CFA_register:           {opSet, RuleRegister, "rR"},
	frame.DW_CFA_expression:         {opSet, RuleExpression, "rx"},
	frame.DW_CFA_val_expression:     {opSet, RuleValExpression, "rx"},
	frame.DW_CFA_restore_extended:   {op: opRestore, operands: "r"},
	cfaAArch64SetRAState:            {op: opSetSign, operands: "nd"},
	cfaAArch64NegateRAState:         {op: opToggleSign},
	cfaAArch64NegateRAStateWithP:    {op: opToggleSignWithPC},
}

// A decoder decodes the instructions of a CIE or FDE.
type decoder struct {
	cursor
	cie   *cie
	start uint64 // address of the function
	at    int    // offset of the current instruction
}

// next decodes the next instruction.
func (d *decoder) next(in *instruction) {
	d.at = d.pos
	op := d.u8()
	*in = instruction{reg: uint64(op & operandMask)}
	switch op & opcodeMask {
	case frame.DW_CFA_advance_loc:
		in.op, in.n = opAdvance, in.reg
		return
	case frame.DW_CFA_offset:
		in.op, in.rule = opSet, rule{kind: RuleOffset, offset: d.factored()}
		return
	case frame.DW_CFA_restore:
		in.op = opRestore
		return
	}
	form := &opcodes[op]
	in.op, in.rule.kind = form.op, form.kind
	for _, letter := range form.operands {
		d.operand(in, letter)
	}
	switch {
	case in.op == opUnknown:
		d.fail(d.at, "unknown opcode %#02x", op)
	case in.op >= opSetSign && d.sec.regs.raState == arch.NoReg:
		d.fail(d.at, "opcode %#02x is not defined for this machine", op)
	}
}

// operand decodes an operand of an instruction.
func (d *decoder) operand(in *instruction, letter rune) {
	switch letter {
	case '1', '2', '4', '8':
		in.n = d.uint(int(letter - '0'))
	case 'a':
		in.n = d.pointer(d.cie.fdeEnc, d.start)
	case 'n':
		in.n = d.uleb()
	case 'd': // distance to the instruction that signs
		d.sleb()
	case 'r':
		in.reg = d.uleb()
	case 'R':
		in.rule.reg = d.uleb()
	case 'c':
		in.rule.offset = d.cfaOffset(int64(d.uleb()))
	case 'C':
		in.rule.offset = d.cfaOffset(d.factoredSigned())
	case 'u':
		in.rule.offset = d.factored()
	case '-':
		in.rule.offset = -d.factored()
	case 's':
		in.rule.offset = d.factoredSigned()
	case 'x':
		in.expression = d.take(d.uleb(), "expression")
	}
}

// factored decodes an unsigned offset and multiplies it by the data alignment.
func (d *decoder) factored() int64 {
	at := d.pos
	v := d.uleb()
	if v >= maxOffset {
		d.fail(at, "offset %d is too large", v)
		return 0
	}
	return d.factor(at, int64(v))
}

func (d *decoder) factoredSigned() int64 {
	at := d.pos
	return d.factor(at, d.sleb())
}

func (d *decoder) factor(at int, v int64) int64 {
	f := d.cie.dataAlign
	if p := v * f; v == 0 || (p/v == f && -maxOffset < p && p < maxOffset) {
		return p
	}
	d.fail(at, "offset %d times the data alignment %d is too large", v, f)
	return 0
}

// cfaOffset checks an offset of the CFA.
func (d *decoder) cfaOffset(offset int64) int64 {
	if offset <= -maxOffset || offset >= maxOffset {
		d.fail(d.at, "CFA offset %d is too large", offset)
	}
	return offset
}
