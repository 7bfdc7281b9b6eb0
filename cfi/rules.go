package cfi

import (
	"bytes"
	"hash/maphash"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/frame"
)

// A Rule says how to find the value of a register, or of the CFA, in the caller. Its kind is in the
// field Rule, the numbers it needs in Reg, Offset and Expression:
//
//	kind                 of the CFA                  of a register
//	RuleArchitectural                                none was given
//	RuleUndefined        none was given              the value is lost
//	RuleSameVal                                      unchanged
//	RuleCFA              register Reg plus Offset
//	RuleOffset                                       in memory at CFA plus Offset
//	RuleValOffset                                    CFA plus Offset
//	RuleRegister                                     in register Reg
//	RuleExpression       the value of Expression     in memory at the value of Expression
//	RuleValExpression                                the value of Expression
//
// (DWARF 5, section 6.4.1.) Registers are DWARF numbers, offsets are in bytes. Expressions must not be
// changed. What it means that a register has no rule is the
// ABI's to say: callee-saved registers keep their value, and SP is derived from the CFA.
type Rule = frame.DWRule

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

// SameRule reports whether a and b say the same.
func SameRule(a, b *Rule) bool {
	return a.Rule == b.Rule && a.Offset == b.Offset && a.Reg == b.Reg && bytes.Equal(a.Expression, b.Expression)
}

// A Sign says whether the return address is signed (AArch64 pointer authentication).
type Sign uint8

const (
	Unsigned     Sign = iota
	Signed            // with SP as the modifier (negate_ra_state)
	SignedWithPC      // with SP and PC (negate_ra_state_with_pc)
	SignUnknown       // by a rule for the pseudo-register RA_SIGN_STATE
)

// Rules are the rules of a row.
type Rules struct {
	CFA        Rule
	RA, FP, SP Rule
	RAReg      uint64 // DWARF number of the return address column, which RA is the rule of
	Sign       Sign
}

// same reports whether a and b say the same, if their expressions are those that one alphabet keeps.
func same(a, b *Rule) bool {
	return a.Rule == b.Rule && a.Offset == b.Offset && a.Reg == b.Reg && len(a.Expression) == len(b.Expression) &&
		(len(a.Expression) == 0 || &a.Expression[0] == &b.Expression[0])
}

// equal reports whether r and s say the same, if their expressions are those that one alphabet keeps.
func (r *Rules) equal(s *Rules) bool {
	return same(&r.CFA, &s.CFA) && same(&r.RA, &s.RA) && same(&r.FP, &s.FP) && same(&r.SP, &s.SP) && r.RAReg == s.RAReg && r.Sign == s.Sign
}

// An alphabet numbers the rules of rows: a program has many rows, and few that differ.
type alphabet struct {
	rules []Rules  // by number
	slots []uint32 // a hash table of numbers plus 1; 0 for none. Its size is a power of two
	seed  maphash.Seed
	salt  uint64
	// By their hashes: of expressions that are equal, one stands for all, so that its bytes are looked
	// at once for each time that an instruction has it.
	expressions map[uint64][]byte
}

// maxRules bounds how many different rules there may be. Large programs have a thousand.
const maxRules = 1 << 17

func newAlphabet() alphabet {
	seed := maphash.MakeSeed()
	return alphabet{slots: make([]uint32, 64), seed: seed, salt: maphash.Bytes(seed, nil), expressions: make(map[uint64][]byte)}
}

// expression returns the expression that stands for all that are equal to b. It is a copy.
func (a *alphabet) expression(b []byte) []byte {
	h := maphash.Bytes(a.seed, b)
	e, ok := a.expressions[h]
	if ok && bytes.Equal(e, b) {
		return e
	}
	b = bytes.Clone(b)
	if !ok {
		a.expressions[h] = b
	}
	return b
}

// number returns the number of the rules, and whether they have one: there may be too many.
func (a *alphabet) number(r *Rules) (uint32, bool) {
	s := a.slot(r)
	if *s > 0 {
		return *s - 1, true
	}
	if len(a.rules) == maxRules {
		return 0, false
	}
	a.rules = append(a.rules, *r)
	*s = uint32(len(a.rules))
	if 2*len(a.rules) > len(a.slots) {
		a.slots = make([]uint32, 2*len(a.slots))
		for i := range a.rules {
			*a.slot(&a.rules[i]) = uint32(i + 1)
		}
	}
	return uint32(len(a.rules) - 1), true
}

// slot returns where the number of the rules is, or belongs.
func (a *alphabet) slot(r *Rules) *uint32 {
	mask := uint64(len(a.slots) - 1)
	for i := a.hash(r); ; i++ {
		s := &a.slots[i&mask]
		if *s == 0 || a.rules[*s-1].equal(r) {
			return s
		}
	}
}

func (a *alphabet) hash(r *Rules) uint64 {
	h := a.salt
	mix := func(v uint64) {
		hi, lo := bits.Mul64(h^v, 0x9e3779b97f4a7c15)
		h = hi ^ lo
	}
	for _, p := range [...]*Rule{&r.CFA, &r.RA, &r.FP, &r.SP} {
		mix(uint64(p.Rule)<<56 ^ uint64(p.Offset))
		mix(p.Reg)
		if len(p.Expression) > 0 {
			mix(maphash.Comparable(a.seed, &p.Expression[0]))
		}
	}
	mix(r.RAReg<<8 ^ uint64(r.Sign))
	return h
}
