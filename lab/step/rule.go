package step

import (
	"encoding/binary"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"cfi2sframe/arch"
	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// NumRegs is how many registers are kept: of each machine those that rules can name.
const NumRegs = 34

// Regs are the registers of a thread, by DWARF number, before it executes the instruction at PC.
type Regs struct {
	R  [NumRegs]uint64
	PC uint64
}

// firstFloat is the number of the first register that is not for integers, on a machine with 16 of them.
const firstFloat = 16

// A kind says how a rule finds its value.
type kind uint8

const (
	kept      kind = iota // in the register itself, or for RA where the ABI has it
	undefined             // lost; of RA: there is no caller
	fromReg               // register + off
	fromCFA               // CFA + off
	expr                  // an expression of DWARF, with the CFA on its stack
	cfaExpr               // one for the CFA itself
)

// A rule is a rule of either side. If deref is set, the value is in memory there.
type rule struct {
	kind  kind
	deref bool
	reg   uint16
	off   int64
	expr  string
}

// An answer is what one side says at a pc.
type answer struct {
	cfa, ra, fp rule
	sp          rule // of the caller, if it does not follow from the CFA
	outermost   bool // there is no caller
	signed      bool // the return address has a signature in its upper bits
}

// ofCFI returns a rule of call frame information.
func ofCFI(r *cfi.Rule) rule {
	switch r.Rule {
	case cfi.RuleCFA: // of the CFA only
		return rule{kind: fromReg, reg: uint16(r.Reg), off: r.Offset}
	case cfi.RuleOffset:
		return rule{kind: fromCFA, off: r.Offset, deref: true}
	case cfi.RuleValOffset:
		return rule{kind: fromCFA, off: r.Offset}
	case cfi.RuleRegister:
		return rule{kind: fromReg, reg: uint16(r.Reg)}
	case cfi.RuleExpression:
		return rule{kind: expr, expr: string(r.Expression), deref: true}
	case cfi.RuleValExpression:
		return rule{kind: expr, expr: string(r.Expression)}
	case cfi.RuleUndefined:
		return rule{kind: undefined}
	}
	return rule{} // RuleArchitectural, RuleSameVal
}

// cfaRule returns the rule for the CFA, whose expression gives the value itself.
func cfaRule(r *cfi.Rule) rule {
	v := ofCFI(r)
	if v.kind == expr {
		v.kind, v.deref = cfaExpr, false
	}
	return v
}

// answerCFI returns what the rules of a row of call frame information say.
func (m *machine) answerCFI(r *cfi.Rules) answer {
	a := answer{cfa: cfaRule(&r.CFA), ra: ofCFI(&r.RA), fp: ofCFI(&r.FP)}
	a.outermost = a.ra.kind == undefined
	a.signed = r.Sign != cfi.Unsigned
	if a.sp = ofCFI(&r.SP); a.sp == (rule{kind: fromCFA, off: m.CallerSP}) {
		a.sp = rule{}
	}
	if a.ra.kind == kept && m.fixedRA == 0 { // in the column's own register
		a.ra = rule{kind: fromReg, reg: uint16(r.RAReg)}
	}
	return a
}

// ofSFrame returns a rule of SFrame.
func (m *machine) ofSFrame(r sframe.Rule) rule {
	v := rule{kind: fromReg, off: int64(r.Offset), deref: r.Deref}
	switch r.Base {
	case sframe.None:
		return rule{}
	case sframe.CFA:
		v.kind = fromCFA
	case sframe.SP:
		v.reg = m.sp
	case sframe.FP:
		v.reg = m.fp
	case sframe.Register:
		v.reg = r.Reg
	}
	return v
}

// answerSFrame returns what a row of SFrame says.
func (m *machine) answerSFrame(r *sframe.Row) answer {
	if r.Outermost {
		return answer{outermost: true}
	}
	a := answer{cfa: m.ofSFrame(r.CFA), ra: m.ofSFrame(r.RA), fp: m.ofSFrame(r.FP), signed: r.Signed}
	if a.ra.kind == kept {
		if m.fixedRA != 0 {
			a.ra = rule{kind: fromCFA, off: m.fixedRA, deref: true}
		} else {
			a.ra = rule{kind: fromReg, reg: m.ra}
		}
	}
	return a
}

func (m *machine) text(r rule) string {
	base := ""
	switch r.kind {
	case kept:
		return "kept"
	case undefined:
		return "undefined"
	case fromReg:
		base = m.name(r.reg)
	case fromCFA:
		base = "c"
	case expr, cfaExpr:
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
	if a.ra != (rule{kind: fromCFA, off: m.fixedRA, deref: true}) {
		s += ", RA " + m.text(a.ra)
	}
	if a.sp.kind != kept {
		s += ", " + m.name(m.sp) + " " + m.text(a.sp)
	}
	if a.fp.kind != kept {
		s += ", " + m.name(m.fp) + " " + m.text(a.fp)
	}
	return s
}

// A caller is a frame as one side gives it, or as it is. Its CFA is that which belongs to the caller's stack pointer.
type caller struct{ cfa, ra, fp uint64 }

// Memory is that of a program.
type Memory interface {
	// Read fills b from the address.
	Read(addr uint64, b []byte) error
	// Words returns the words at two addresses.
	Words(a, b uint64) (x, y uint64, err error)
}

// evaluate follows an answer. It reports false if that is not possible, as memory is not there.
func (w *Walk) evaluate(a *answer, r *Regs) (caller, bool) {
	c, ok := w.rules(a, r)
	if ok && a.sp.kind != kept {
		c.cfa, ok = w.value(a.sp, r, c.cfa)
		c.cfa -= uint64(w.m.caller)
	}
	return c, ok
}

func (w *Walk) rules(a *answer, r *Regs) (c caller, ok bool) {
	if c.cfa, ok = w.value(a.cfa, r, 0); !ok {
		return c, false
	}
	// Both others are in memory nearly always, and one system call costs less than two.
	if a.ra.kind == fromCFA && a.ra.deref {
		at := c.cfa + uint64(a.ra.off)
		switch {
		case a.fp.kind == kept:
			x, _, err := w.mem.Words(at, at)
			c.ra, c.fp = x, r.R[w.m.fp]
			return c, err == nil
		case a.fp.kind == fromCFA && a.fp.deref:
			var err error
			c.ra, c.fp, err = w.mem.Words(at, c.cfa+uint64(a.fp.off))
			return c, err == nil
		}
	}
	if c.ra, ok = w.value(a.ra, r, c.cfa); !ok {
		return c, false
	}
	if a.signed {
		c.ra &= 1<<48 - 1
	}
	switch a.fp.kind {
	case kept:
		c.fp = r.R[w.m.fp]
	case undefined:
		// Nothing is said, and so nothing is wrong.
		c.fp = w.th.truth().fp
	default:
		c.fp, ok = w.value(a.fp, r, c.cfa)
	}
	return c, ok
}

// value returns the value of a rule.
func (w *Walk) value(v rule, r *Regs, cfa uint64) (uint64, bool) {
	var at uint64
	switch v.kind {
	case fromReg:
		if int(v.reg) >= NumRegs {
			return 0, false
		}
		if w.more != nil && v.reg >= firstFloat && w.m.fixedRA == 0 && w.m.sp < firstFloat && !w.more(r) {
			return 0, false
		}
		at = r.R[v.reg] + uint64(v.off)
	case fromCFA:
		at = cfa + uint64(v.off)
	case expr, cfaExpr:
		begin := &cfa
		if v.kind == cfaExpr {
			begin = nil
		}
		var ok bool
		if at, ok = w.expression(v.expr, begin, r); !ok {
			return 0, false
		}
	default:
		return 0, false
	}
	if !v.deref {
		return at, true
	}
	x, _, err := w.mem.Words(at, at)
	return x, err == nil
}

// expression evaluates a DWARF expression (DWARF 5, section 2.5). If it is not for the CFA, the CFA is on its stack.
func (w *Walk) expression(code string, cfa *uint64, r *Regs) (uint64, bool) {
	var regs []*op.DwarfRegister
	for _, v := range r.R {
		regs = append(regs, op.DwarfRegisterFromUint64(v))
	}
	d := op.NewDwarfRegisters(0, regs, w.m.order, 0, 0, 0, 0)
	if w.m.pc != arch.NoReg {
		d.AddReg(w.m.pc, op.DwarfRegisterFromUint64(r.PC))
	}
	program := []byte(code)
	if cfa != nil {
		d.CFA = int64(*cfa)
		program = append([]byte{byte(op.DW_OP_call_frame_cfa)}, program...)
	}
	v, _, err := op.ExecuteStackProgram(*d, program, 8, func(b []byte, addr uint64) (int, error) {
		x, _, err := w.mem.Words(addr, addr)
		binary.LittleEndian.PutUint64(b, x) // Delve reads words in this order on all machines
		return len(b), err
	})
	return uint64(v), err == nil
}
