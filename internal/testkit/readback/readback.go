// Package readback compares an .sframe with the call frame information that it was made from, as a stack
// tracer would read it: pc by pc, by sframe.Lookup.
//
// It has nothing of package verify's but the question. Values are not numbers, but what they are made of, in
// words such as [r7+8-16]: rules are equal if they come out as the same words. So they cannot be equal by chance,
// and whoever reads a difference sees what it is.
package readback

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// A machine is what the ABI documents say: numbers of registers, where a call leaves the return address, and how far
// the caller's stack pointer is from the CFA.
type machine struct {
	sp, fp, ra, pc uint64 // ra is where rows without a rule have it; none where it always is in memory
	fixedRA        int64
	caller         int64
	spSaved        bool // rules for SP say where it was saved; its value follows from the CFA all the same
}

const none = ^uint64(0)

var machines = map[elf.Machine]machine{
	elf.EM_X86_64:  {sp: 7, fp: 6, ra: none, pc: 16, fixedRA: -8},
	elf.EM_AARCH64: {sp: 31, fp: 29, ra: 30, pc: 32},
	elf.EM_S390:    {sp: 15, fp: 11, ra: 14, pc: none, caller: -160, spSaved: true},
}

// A Reader reads one section.
type Reader struct {
	m     machine
	order binary.ByteOrder
	s     *sframe.Section
}

// New returns a Reader of a section of a machine's.
func New(m elf.Machine, order binary.ByteOrder, s *sframe.Section) (*Reader, error) {
	known, ok := machines[m]
	if !ok || s.ABI.Order().Uint16([]byte{0, 1}) != order.Uint16([]byte{0, 1}) {
		return nil, fmt.Errorf("ABI %v for machine %v, %v", s.ABI, m, order)
	}
	return &Reader{known, order, s}, nil
}

// A Fact is what call frame information says of a pc.
type Fact struct {
	Rules        *cfi.Rules // nil: nothing that can be understood
	Signal, KeyB bool
}

// Row compares the section with what is known of a pc, and reports whether the section has a row for that.
// F is nil where nothing may be said.
func (r *Reader) Row(pc uint64, f *Fact) (bool, error) {
	e, ok, err := r.s.Lookup(pc)
	if err != nil || !ok {
		return false, err
	}
	d := r.s.FDE(r.s.Find(pc))
	fail := func(format string, args ...any) (bool, error) {
		return true, fmt.Errorf("at %#x, CFA %v, RA %v, FP %v: %s", pc, e.CFA, e.RA, e.FP, fmt.Sprintf(format, args...))
	}
	switch {
	case f == nil:
		return fail("nothing describes that code")
	case f.Rules == nil:
		return fail("what describes that code is malformed")
	case d.Signal != f.Signal || d.KeyB != f.KeyB:
		return fail("signal frame %t, key B %t; %t and %t were expected", d.Signal, d.KeyB, f.Signal, f.KeyB)
	}
	rules := f.Rules
	if lost := rules.RA.Rule == cfi.RuleUndefined; lost || e.Outermost {
		if lost != e.Outermost {
			return fail("outermost frame %t; %t was expected", e.Outermost, lost)
		}
		return true, nil
	}
	if rules.Sign > cfi.Signed || e.Signed != (rules.Sign == cfi.Signed) {
		return fail("signed return address: %t; the state is %d", e.Signed, rules.Sign)
	}
	want, err := r.expected(rules, pc)
	if err != nil {
		return fail("the row says something, where %v", err)
	}
	if got := r.got(&e.Row); got != want {
		return fail("the frame is %v; %v was expected", got, want)
	}
	return true, nil
}

// A frame is what one step of a stack trace finds, in words.
type frame struct{ cfa, ra, fp, sp string }

// got takes a step by a row of the section.
func (r *Reader) got(e *sframe.Row) frame {
	rule := func(v sframe.Rule, cfa value) value {
		out := cfa
		switch v.Base {
		case sframe.SP:
			out = register(r.m.sp)
		case sframe.FP:
			out = register(r.m.fp)
		case sframe.Register:
			out = register(uint64(v.Reg))
		}
		out = out.add(int64(v.Offset))
		if v.Deref {
			out = out.load()
		}
		return out
	}
	cfa := rule(e.CFA, value{})
	ra := register(r.m.ra)
	switch {
	case e.RA.Base != sframe.None:
		ra = rule(e.RA, cfa)
	case r.m.ra == none:
		ra = cfa.add(r.m.fixedRA).load()
	}
	fp := register(r.m.fp)
	if e.FP.Base != sframe.None {
		fp = rule(e.FP, cfa)
	}
	return frame{cfa.String(), ra.String(), fp.String(), cfa.add(r.m.caller).String()}
}

// expected takes one by call frame information.
func (r *Reader) expected(rules *cfi.Rules, pc uint64) (f frame, err error) {
	var cfa value
	switch c := &rules.CFA; c.Rule {
	case cfi.RuleCFA:
		cfa = register(c.Reg).add(c.Offset)
	case cfi.RuleExpression:
		cfa, err = r.run(c.Expression, pc)
	default:
		err = fmt.Errorf("there is no CFA")
	}
	if err != nil {
		return f, err
	}
	f.cfa = cfa.String()
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
			v, err := r.run(rule.Expression, pc, cfa)
			if rule.Rule == cfi.RuleExpression {
				v = v.load()
			}
			return v.String(), err
		}
		return "", fmt.Errorf("register %d is undefined", reg)
	}
	unchanged := rules.RA.Rule == cfi.RuleArchitectural || rules.RA.Rule == cfi.RuleSameVal
	if unchanged && (r.m.ra == none || rules.RAReg == r.m.sp || rules.RAReg == r.m.pc) {
		return f, fmt.Errorf("the return address is nowhere")
	}
	if f.ra, err = column(&rules.RA, rules.RAReg); err != nil {
		return f, err
	}
	if f.fp, err = column(&rules.FP, r.m.fp); err != nil {
		return f, err
	}
	f.sp = cfa.add(r.m.caller).String()
	saved := rules.SP.Rule == cfi.RuleOffset || rules.SP.Rule == cfi.RuleRegister || rules.SP.Rule == cfi.RuleSameVal
	if rules.SP.Rule != cfi.RuleArchitectural && !(saved && r.m.spSaved) {
		f.sp, err = column(&rules.SP, r.m.sp)
	}
	return f, err
}

// A Result says what was compared.
type Result struct {
	Pcs     int // that were looked up
	Rows    int // of call frame information that the section says the same of, as far as was looked
	Without int // rows that the section says nothing of
}

// Table compares the section at the first and the last pc, and one between, of every row of a table, and at the pcs
// beside its functions.
func Table(t *cfi.Table, s *sframe.Section) (Result, error) {
	var res Result
	r, err := New(t.Machine, t.Order, s)
	if err != nil {
		return res, err
	}
	for fn := range t.Functions() {
		f := Fact{Signal: fn.Signal(), KeyB: fn.KeyB()}
		if fn.Err() != nil {
			if _, err := r.Row(fn.Begin, &f); err != nil {
				return res, err
			}
			continue
		}
		for row := range fn.Rows() {
			f.Rules = row.Rules
			covered := 0
			pcs := []uint64{row.Begin, row.Begin + (row.End-row.Begin)/2, row.End - 1}
			for _, pc := range pcs {
				ok, err := r.Row(pc, &f)
				if err != nil {
					return res, err
				}
				if ok {
					covered++
				}
				res.Pcs++
			}
			switch covered {
			case len(pcs):
				res.Rows++
			case 0:
				res.Without++
			default: // a CFA that depends on the pc
				if row.CFA.Rule != cfi.RuleExpression {
					return res, fmt.Errorf("of the row %#x-%#x the section has a part", row.Begin, row.End)
				}
			}
		}
	}
	return res, nil
}
