// Package readback compares an .sframe with the CFI that it was made from, pc by pc. It reads the .sframe as a stack
// tracer would: with sframe.Lookup or another reader. It shares no code with package verify. Values are strings such as
// [r7+8-16] rather than numbers; two rules are equal if their strings are equal. Thus, different rules never compare
// equal by chance, and error messages show the rules themselves.
package readback

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// A Machine holds facts from ABI documents, to find mistakes in package arch. Registers are DWARF register numbers.
type Machine struct {
	SP, FP  uint64
	ra, pc  uint64 // ra: register with RA in rows without a rule for RA, or none
	FixedRA int64  // where calls leave RA, relative to the CFA; 0: in ra
	caller  int64  // the caller's stack pointer, relative to the CFA
	spSaved bool   // rules for SP say where it was saved; its value still follows from the CFA
}

const none = ^uint64(0)

// System V ABI for AMD64; DWARF for the Arm 64-bit Architecture; zSeries ELF ABI supplement.
var machines = map[elf.Machine]Machine{
	elf.EM_X86_64:  {SP: 7, FP: 6, ra: none, pc: 16, FixedRA: -8},
	elf.EM_AARCH64: {SP: 31, FP: 29, ra: 30, pc: 32},
	elf.EM_S390:    {SP: 15, FP: 11, ra: 14, pc: none, caller: -160, spSaved: true},
}

// A Reader interprets the SFrame rows of a machine in one byte order, optionally those of a given section.
type Reader struct {
	Machine
	order binary.ByteOrder
	s     *sframe.Section
}

// New returns a Reader. If s is nil, Row must not be called.
func New(m elf.Machine, order binary.ByteOrder, s *sframe.Section) (*Reader, error) {
	known, ok := machines[m]
	if !ok || s != nil && s.ABI.Order().Uint16([]byte{0, 1}) != order.Uint16([]byte{0, 1}) {
		return nil, fmt.Errorf("machine %v, %v, is unknown, or the section has a different byte order", m, order)
	}
	return &Reader{known, order, s}, nil
}

// A Fact is the CFI's row for a pc.
type Fact struct {
	Rules        *cfi.Rules // nil if invalid
	Signal, KeyB bool
}

// A FoundRow is a row found by a reader of SFrame.
type FoundRow struct {
	sframe.Row
	Signal, KeyB bool
}

// Row compares the section with the CFI at a pc, and reports whether it has a row. If f is nil, no row is allowed.
func (r *Reader) Row(pc uint64, f *Fact) (bool, error) {
	e, ok, err := r.s.Lookup(pc)
	if err != nil || !ok {
		return false, err
	}
	return true, r.Compare(pc, f, &FoundRow{e.Row, e.FDE.Signal, e.FDE.KeyB})
}

// Compare compares a row found at a pc with the CFI.
func (r *Reader) Compare(pc uint64, f *Fact, e *FoundRow) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("at %#x, CFA %v, RA %v, FP %v: %s", pc, e.CFA, e.RA, e.FP, fmt.Sprintf(format, args...))
	}
	switch {
	case f == nil:
		return fail("no CFI describes that code")
	case f.Rules == nil:
		return fail("the CFI of that code is malformed")
	case e.Signal != f.Signal || e.KeyB != f.KeyB:
		return fail("signal frame %t, key B %t; want %t and %t", e.Signal, e.KeyB, f.Signal, f.KeyB)
	}
	rules := f.Rules
	if lost := rules.RA.Rule == cfi.RuleUndefined; lost || e.Outermost {
		if lost != e.Outermost {
			return fail("outermost frame %t; want %t", e.Outermost, lost)
		}
		return nil
	}
	if rules.Sign > cfi.Signed || e.Signed != (rules.Sign == cfi.Signed) {
		return fail("signed return address: %t; the state is %d", e.Signed, rules.Sign)
	}
	want, err := r.CFI(rules, pc)
	if err != nil {
		return fail("the section has a row, but %v", err)
	}
	if got := r.SFrame(&e.Row); got != want {
		return fail("the frame is %v; want %v", got, want)
	}
	return nil
}

// A Frame is the result of unwinding one frame; its values are strings.
type Frame struct{ CFA, RA, FP, SP string }

// SFrame returns the result of unwinding with an SFrame row.
func (m *Machine) SFrame(e *sframe.Row) Frame {
	rule := func(v sframe.Rule, cfa Value) Value {
		out := cfa
		switch v.Base {
		case sframe.SP:
			out = register(m.SP)
		case sframe.FP:
			out = register(m.FP)
		case sframe.Register:
			out = register(uint64(v.Reg))
		}
		out = out.add(int64(v.Offset))
		if v.Deref {
			out = out.load()
		}
		return out
	}
	cfa := rule(e.CFA, Value{})
	ra := register(m.ra)
	switch {
	case e.RA.Base != sframe.None:
		ra = rule(e.RA, cfa)
	case m.ra == none:
		ra = cfa.add(m.FixedRA).load()
	}
	fp := register(m.FP)
	if e.FP.Base != sframe.None {
		fp = rule(e.FP, cfa)
	}
	return Frame{cfa.String(), ra.String(), fp.String(), cfa.add(m.caller).String()}
}

// CFI returns the result of unwinding with a row of CFI.
func (r *Reader) CFI(rules *cfi.Rules, pc uint64) (f Frame, err error) {
	var cfa Value
	switch c := &rules.CFA; c.Rule {
	case cfi.RuleCFA:
		cfa = register(c.Reg).add(c.Offset)
	case cfi.RuleExpression:
		cfa, err = r.evaluate(c.Expression, pc)
	default:
		err = fmt.Errorf("the CFI has no CFA")
	}
	if err != nil {
		return f, err
	}
	f.CFA = cfa.String()
	column := func(rule *cfi.Rule, reg uint64) (string, error) {
		switch rule.Rule {
		case cfi.RuleArchitectural, cfi.RuleSameVal:
			return register(reg).String(), nil
		case cfi.RuleOffset:
			return cfa.add(rule.Offset).load().String(), nil
		case cfi.RuleValOffset:
			return cfa.add(rule.Offset).String(), nil
		case cfi.RuleRegister:
			return register(rule.Reg).String(), nil
		case cfi.RuleExpression, cfi.RuleValExpression:
			v, err := r.evaluate(rule.Expression, pc, cfa)
			if rule.Rule == cfi.RuleExpression {
				v = v.load()
			}
			return v.String(), err
		}
		return "", fmt.Errorf("register %d is undefined", reg)
	}
	unchanged := rules.RA.Rule == cfi.RuleArchitectural || rules.RA.Rule == cfi.RuleSameVal
	if unchanged && (r.ra == none || rules.RAReg == r.SP || rules.RAReg == r.pc) {
		return f, fmt.Errorf("the CFI does not give the return address")
	}
	if f.RA, err = column(&rules.RA, rules.RAReg); err != nil {
		return f, err
	}
	if f.FP, err = column(&rules.FP, r.FP); err != nil {
		return f, err
	}
	f.SP = cfa.add(r.caller).String()
	saved := rules.SP.Rule == cfi.RuleOffset || rules.SP.Rule == cfi.RuleRegister || rules.SP.Rule == cfi.RuleSameVal
	if rules.SP.Rule != cfi.RuleArchitectural && !(saved && r.spSaved) {
		f.SP, err = column(&rules.SP, r.SP)
	}
	return f, err
}
