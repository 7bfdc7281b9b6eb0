package step

import (
	"encoding/binary"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

// numRegs is the number of registers to read: rules use no others.
const numRegs = 34

// registers holds a thread's registers by DWARF number, before the instruction at pc.
type registers struct {
	r  [numRegs]uint64
	pc uint64
}

// A kind is how a rule computes its value.
type kind uint8

const (
	unchanged  kind = iota // in the register itself
	undefined              // lost
	register               // register + off
	fromCFA                // CFA + off
	expression             // a DWARF expression
)

// A rule says how CFI or SFrame computes a value. If deref is set, the value is loaded from the computed address.
type rule struct {
	kind  kind
	deref bool
	reg   uint64
	off   int64
	code  string // of the expression
}

// An answer is the row of CFI or SFrame for a pc.
type answer struct {
	cfa, ra, fp rule
	sp          rule // the caller's stack pointer, if it is not the CFA
	outermost   bool // the code has no caller
	signed      bool // the return address has a pointer authentication code
}

func ruleOfCFI(r *cfi.Rule) rule {
	switch r.Rule {
	case cfi.RuleCFA:
		return rule{kind: register, reg: r.Reg, off: r.Offset}
	case cfi.RuleOffset, cfi.RuleValOffset:
		return rule{kind: fromCFA, off: r.Offset, deref: r.Rule == cfi.RuleOffset}
	case cfi.RuleRegister:
		return rule{kind: register, reg: r.Reg}
	case cfi.RuleExpression, cfi.RuleValExpression:
		return rule{kind: expression, code: string(r.Expression), deref: r.Rule == cfi.RuleExpression}
	case cfi.RuleUndefined:
		return rule{kind: undefined}
	}
	return rule{} // RuleArchitectural, RuleSameVal
}

func (m *machine) answerOfCFI(r *cfi.Rules) *answer {
	a := &answer{cfa: ruleOfCFI(&r.CFA), ra: ruleOfCFI(&r.RA), fp: ruleOfCFI(&r.FP), signed: r.Sign != cfi.Unsigned}
	a.cfa.deref = false // the CFA is the value of its expression
	if a.ra.kind == undefined {
		return &answer{outermost: true}
	}
	if a.sp = ruleOfCFI(&r.SP); a.sp == (rule{kind: fromCFA, off: m.CallerSP}) {
		a.sp = rule{}
	}
	if a.ra.kind == unchanged && m.linked() {
		a.ra = rule{kind: register, reg: r.RAReg}
	}
	return a
}

func (m *machine) ruleOfSFrame(r sframe.Rule) rule {
	v := rule{kind: register, reg: uint64(r.Reg), off: int64(r.Offset), deref: r.Deref}
	switch r.Base {
	case sframe.None:
		return rule{}
	case sframe.CFA:
		v.kind = fromCFA
	case sframe.SP:
		v.reg = m.SP
	case sframe.FP:
		v.reg = m.FP
	}
	return v
}

func (m *machine) answerOfSFrame(r *sframe.Row) *answer {
	if r.Outermost {
		return &answer{outermost: true}
	}
	a := &answer{cfa: m.ruleOfSFrame(r.CFA), ra: m.ruleOfSFrame(r.RA), fp: m.ruleOfSFrame(r.FP), signed: r.Signed}
	if a.ra.kind == unchanged {
		a.ra = rule{kind: register, reg: m.RA}
	}
	return a
}

func (m *machine) text(r rule) string {
	base := ""
	switch r.kind {
	case undefined:
		return "undefined"
	case register:
		base = m.Register(r.reg)
	case fromCFA:
		base = "c"
	case expression:
		base = "expression"
	}
	if r.off != 0 {
		base += fmt.Sprintf("%+d", r.off)
	}
	if r.deref {
		return "*(" + base + ")"
	}
	return base
}

func (m *machine) describe(a *answer) string {
	if a.outermost {
		return "no caller"
	}
	s := "CFA " + m.text(a.cfa)
	if a.ra != (rule{kind: fromCFA, off: m.FixedRA, deref: true}) {
		s += ", RA " + m.text(a.ra)
	}
	if a.sp.kind != unchanged {
		s += ", " + m.Register(m.SP) + " " + m.text(a.sp)
	}
	if a.fp.kind != unchanged {
		s += ", " + m.Register(m.FP) + " " + m.text(a.fp)
	}
	return s
}

// A caller is the caller's frame as CFI or SFrame describes it, or as it is; the CFA is derived from the caller's SP.
type caller struct{ cfa, ra, fp uint64 }

// memory is a program's memory.
type memory interface {
	// read fills b with the memory at addr.
	read(addr uint64, b []byte) error
}

// word returns a word of the program's memory.
func (w *walk) word(addr uint64) (uint64, bool) {
	err := w.mem.read(addr, w.buf[:])
	return w.m.order.Uint64(w.buf[:]), err == nil
}

// evaluate returns the caller according to an answer, or false if memory or a register is not available.
func (w *walk) evaluate(a *answer, r *registers) (c caller, ok bool) {
	if c.cfa, ok = w.value(a.cfa, r, nil); !ok {
		return c, false
	}
	cfa := c.cfa
	if c.ra, ok = w.value(a.ra, r, &cfa); !ok {
		return c, false
	}
	if a.signed {
		c.ra &= 1<<48 - 1
	}
	switch a.fp.kind {
	case unchanged:
		c.fp = r.r[w.m.FP]
	case undefined: // says nothing about FP, so it cannot be wrong
		c.fp = w.th.truth().fp
	default:
		c.fp, ok = w.value(a.fp, r, &cfa)
	}
	if ok && a.sp.kind != unchanged {
		c.cfa, ok = w.value(a.sp, r, &cfa)
		c.cfa -= uint64(w.m.CallerSP)
	}
	return c, ok
}

// firstFloat is the first floating-point register of s390x.
const firstFloat = 16

// value returns the value of a rule. The argument cfa is nil if the rule is that of the CFA itself.
func (w *walk) value(v rule, r *registers, cfa *uint64) (uint64, bool) {
	var at uint64
	switch v.kind {
	case register:
		if v.reg >= numRegs || w.floats != nil && v.reg >= firstFloat && !w.floats(r) {
			return 0, false
		}
		at = r.r[v.reg] + uint64(v.off)
	case fromCFA:
		at = *cfa + uint64(v.off)
	case expression:
		var ok bool
		if at, ok = w.expression(v.code, cfa, r); !ok {
			return 0, false
		}
	default:
		return 0, false
	}
	if v.deref {
		return w.word(at)
	}
	return at, true
}

// expression evaluates a DWARF expression (DWARF 5, section 2.5), whose initial stack holds the CFA if there is one.
func (w *walk) expression(code string, cfa *uint64, r *registers) (uint64, bool) {
	var regs []*op.DwarfRegister
	for _, v := range r.r {
		regs = append(regs, op.DwarfRegisterFromUint64(v))
	}
	d := op.NewDwarfRegisters(0, regs, w.m.order, 0, 0, 0, 0)
	if w.m.PC != arch.NoReg {
		d.AddReg(w.m.PC, op.DwarfRegisterFromUint64(r.pc))
	}
	program := []byte(code)
	if cfa != nil {
		d.CFA = int64(*cfa)
		program = append([]byte{byte(op.DW_OP_call_frame_cfa)}, program...)
	}
	v, _, err := op.ExecuteStackProgram(*d, program, 8, func(b []byte, addr uint64) (int, error) {
		x, ok := w.word(addr)
		if !ok {
			return 0, fmt.Errorf("no memory at %#x", addr)
		}
		binary.LittleEndian.PutUint64(b, x) // Delve expects this order on all machines
		return len(b), nil
	})
	return uint64(v), err == nil
}
