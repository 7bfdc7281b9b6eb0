package cfi

import (
	"bytes"
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/internal/arch"
)

// A Rule tells how to find the caller's value of a register, or the CFA. The field Rule is its kind; its operands are
// in Reg, Offset and Expression:
//
//	kind                 of the CFA                  of a register
//	RuleArchitectural                                no rule
//	RuleUndefined        no rule                     the value is lost
//	RuleSameVal                                      unchanged
//	RuleCFA              register Reg plus Offset
//	RuleOffset                                       in memory at CFA plus Offset
//	RuleValOffset                                    CFA plus Offset
//	RuleRegister                                     in register Reg
//	RuleExpression       the value of Expression     in memory at the value of Expression
//	RuleValExpression                                the value of Expression
//
// See DWARF 5, section 6.4.1. Registers are DWARF numbers; offsets are in bytes. Expressions must not be modified. The
// ABI defines the value of a register without a rule: callee-saved registers are preserved, and SP is derived from the
// CFA.
type Rule frame.DWRule

// String returns the rule in the notation of readelf --debug-dump=frames-interp: r7+16, c-8 (saved at CFA-8), v-8
// (CFA-8), u (undefined), s (same value). A register without a rule is "none".
func (r Rule) String() string { return r.text(numbered) }

var numbered = new(arch.Arch).Register

// text is String with the names of registers.
func (r Rule) text(name func(reg uint64) string) string {
	switch r.Rule {
	case RuleUndefined:
		return "u"
	case RuleSameVal:
		return "s"
	case RuleArchitectural:
		return "none"
	case RuleCFA:
		return fmt.Sprintf("%s%+d", name(r.Reg), r.Offset)
	case RuleRegister:
		return name(r.Reg)
	case RuleOffset:
		return fmt.Sprintf("c%+d", r.Offset)
	case RuleValOffset:
		return fmt.Sprintf("v%+d", r.Offset)
	}
	return fmt.Sprintf("exp % x", r.Expression)
}

// The kinds of rules.
const (
	RuleUndefined     = frame.RuleUndefined
	RuleSameVal       = frame.RuleSameVal
	RuleOffset        = frame.RuleOffset
	RuleValOffset     = frame.RuleValOffset
	RuleRegister      = frame.RuleRegister
	RuleExpression    = frame.RuleExpression
	RuleValExpression = frame.RuleValExpression
	RuleArchitectural = frame.RuleArchitectural
	RuleCFA           = frame.RuleCFA
)

// SameRule reports whether two rules are equal.
func SameRule(a, b *Rule) bool {
	return a.Rule == b.Rule && a.Offset == b.Offset && a.Reg == b.Reg && bytes.Equal(a.Expression, b.Expression)
}

// A Sign tells whether and how the return address is signed (AArch64 pointer authentication). The first three have the
// numbers of RA_SIGN_STATE.
type Sign uint8

const (
	Unsigned     Sign = iota
	Signed            // with SP as the modifier (negate_ra_state)
	SignedWithPC      // with SP and PC (negate_ra_state_with_pc)
	SignUnknown       // RA_SIGN_STATE has an explicit rule, or another value
)

// Rules holds the rules of a row.
type Rules struct {
	CFA        Rule
	RA, FP, SP Rule
	RAReg      uint64 // DWARF number of the return address column; field RA holds its rule
	Sign       Sign
}

// String returns the rules in the notation of Rule, for example "CFA r7+16, RA c-8, FP c-16, SP none".
func (r *Rules) String() string { return r.text(numbered) }

// text is String with the names of registers.
func (r *Rules) text(name func(reg uint64) string) string {
	s := fmt.Sprintf("CFA %s, RA %s, FP %s, SP %s", r.CFA.text(name), r.RA.text(name), r.FP.text(name), r.SP.text(name))
	if r.Sign != Unsigned {
		s += ", signed"
	}
	return s
}

// equivalent reports whether unwinding by r and s gives the same result. The offset of an expression is unused.
func (r *Rules) equivalent(s *Rules) bool {
	x, y := r.CFA, s.CFA
	if x.Rule == RuleExpression {
		x.Offset, y.Offset = 0, 0
	}
	return SameRule(&x, &y) && SameRule(&r.RA, &s.RA) && SameRule(&r.FP, &s.FP) && SameRule(&r.SP, &s.SP) &&
		r.RAReg == s.RAReg && r.Sign == s.Sign
}

// A state is Rules in a comparable form.
type state struct {
	cfa, ra, fp, sp rule
	raReg           uint64
	sign            Sign
}

// A rule is a Rule in a comparable form.
type rule struct {
	kind       frame.Rule
	expression uint32 // number of the expression; 0: none
	reg        uint64
	offset     int64
}

// noState is the state before the instructions of a CIE, except for raReg.
var noState = state{
	ra: rule{kind: RuleArchitectural},
	fp: rule{kind: RuleArchitectural},
	sp: rule{kind: RuleArchitectural},
}

// A numbering assigns numbers to states. A file has many rows, but few distinct states.
type numbering struct {
	rules       []Rules // by number
	states      []state // by number
	numbers     map[state]uint32
	expressions [][]byte          // by number
	ofBytes     map[string]uint32 // numbers of expressions
}

// maxRules bounds the number of distinct rules in a file. Large programs have about a thousand distinct rules.
const maxRules = 1 << 17

const tooManyRules = "more than %d distinct rules in one file"

func newNumbering() numbering {
	return numbering{numbers: make(map[state]uint32), expressions: make([][]byte, 1), ofBytes: make(map[string]uint32)}
}

// number returns the number of a state, and false if there are too many states.
func (a *numbering) number(s *state) (uint32, bool) {
	n, ok := a.numbers[*s]
	if !ok {
		if len(a.rules) == maxRules {
			return 0, false
		}
		n = uint32(len(a.rules))
		a.numbers[*s] = n
		a.states = append(a.states, *s)
		a.rules = append(a.rules, Rules{a.rule(&s.cfa), a.rule(&s.ra), a.rule(&s.fp), a.rule(&s.sp), s.raReg, s.sign})
	}
	return n, true
}

func (a *numbering) rule(r *rule) Rule {
	return Rule{Rule: r.kind, Offset: r.offset, Reg: r.reg, Expression: a.expressions[r.expression]}
}

// expression returns the number of an expression.
func (a *numbering) expression(b []byte) uint32 {
	n, ok := a.ofBytes[string(b)]
	if !ok {
		n = uint32(len(a.expressions))
		a.expressions = append(a.expressions, bytes.Clone(b))
		a.ofBytes[string(b)] = n
	}
	return n
}
