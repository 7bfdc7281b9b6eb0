package convert

import (
	"context"
	"fmt"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/verify"
)

// A Contradiction is code whose CFI contradicts its instructions.
type Contradiction struct {
	Begin, End uint64 // addresses; End is exclusive
	What       string // describes both values: from the CFI and from the instructions
}

func (c Contradiction) String() string { return verify.Mismatch(c).String() }

// An Agreement tells how far CFI agrees with the instructions.
type Agreement = verify.Agreement

// Contradictions compares the CFI with rows that are inferred from the instructions as if the file had no CFI, and
// returns where they contradict each other. It compares the CFA where both rows base it on the same register or the
// distance between both registers is known; there, it also compares the locations of the return address and of the
// caller's frame pointer, which may be in more than one place.
func Contradictions(ctx context.Context, f *elffile.File, t *cfi.Table) ([]Contradiction, *Agreement, error) {
	if !Infers(f) {
		return nil, &Agreement{}, nil
	}
	none, err := cfi.Parse(t.Machine, t.Order)
	if err != nil {
		return nil, nil, err
	}
	inf, _, err := inferRows(ctx, f, none, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	a, err := verify.Compare(f, t, inf)
	if err != nil {
		return nil, nil, err
	}
	var list []Contradiction
	machine := arch.Of(t.Machine)
	for i := range a.Differences {
		d := &a.Differences[i]
		list = addContradiction(list, Contradiction{d.Begin, d.End, describe(machine, d)})
	}
	return list, a, nil
}

// describe describes a difference.
func describe(a *arch.Arch, d *verify.Difference) string {
	row := &d.Inferred
	saved := func(own uint64, reg uint8, offset int32) *cfi.Rule {
		switch {
		case offset != 0:
			return &cfi.Rule{Rule: cfi.RuleOffset, Offset: int64(offset)}
		case uint64(reg) != own:
			return &cfi.Rule{Rule: cfi.RuleRegister, Reg: uint64(reg)}
		}
		return &cfi.Rule{Rule: cfi.RuleArchitectural}
	}
	name, own, known, found := "FP", a.FP, &d.CFI.FP, saved(a.FP, uint8(a.FP), row.FP)
	switch d.Part {
	case verify.PartCFA:
		return fmt.Sprintf("CFA is %s%+d according to CFI, but %s%+d according to the instructions",
			a.Register(d.CFI.CFA.Reg), d.CFI.CFA.Offset, a.Register(uint64(row.Reg)), row.Offset)
	case verify.PartRA:
		name, own, known, found = "RA", a.RA, &d.CFI.RA, saved(a.RA, row.RAReg, row.RA)
		switch {
		case row.Outermost:
			found = &cfi.Rule{Rule: cfi.RuleUndefined}
		case a.FixedRA != 0:
			found = saved(a.RA, 0, int32(a.FixedRA))
		case (d.CFI.Sign == cfi.Signed) != row.Signed:
			return fmt.Sprintf("RA is signed: %t according to CFI, but %t according to the instructions",
				d.CFI.Sign == cfi.Signed, row.Signed)
		}
	}
	return fmt.Sprintf("%s is %s according to CFI, but %s according to the instructions", name, place(a, own, known),
		place(a, own, found))
}

// place describes where the value of a register is, according to a rule.
func place(a *arch.Arch, own uint64, r *cfi.Rule) string {
	switch r.Rule {
	case cfi.RuleArchitectural, cfi.RuleSameVal:
		return "in " + a.Register(own)
	case cfi.RuleRegister:
		return "in " + a.Register(r.Reg)
	case cfi.RuleOffset:
		return fmt.Sprintf("at CFA%+d", r.Offset)
	case cfi.RuleUndefined:
		return "undefined"
	}
	return "given by an expression"
}

// addContradiction appends a contradiction, or extends the last one if it is adjacent and has the same description.
func addContradiction(list []Contradiction, c Contradiction) []Contradiction {
	if n := len(list); n > 0 && list[n-1].End == c.Begin && list[n-1].What == c.What {
		list[n-1].End = c.End
		return list
	}
	return append(list, c)
}
