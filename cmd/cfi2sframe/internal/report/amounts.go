package report

import (
	"fmt"

	"cfi2sframe/cmd/cfi2sframe/internal/page"
)

// Amounts says how much of a file's code can be unwound. All reports include it.
type Amounts struct {
	Code       uint64 `json:"code"`       // bytes, excluding padding and start-up code; 0 if not counted
	Unwindable uint64 `json:"unwindable"` // of Code: Covered and PLT
	Described  uint64 `json:"described"`  // code with CFI or inferred rows
	Covered    uint64 `json:"covered"`    // part of Described with rows, or without a caller (Outermost)
	Outermost  uint64 `json:"outermost"`  // part of Covered without rows, where stack traces end
	PLT        uint64 `json:"plt"`        // PLT stubs without CFI that have rows
	// Part of Covered: code without CFI, whose rows are inferred from instructions.
	Inferred uint64 `json:"inferred,omitempty"`

	// Rounded as in the text report. WriteJSON sets them.
	PercentUnwindable float64 `json:"unwindable_percent"`
	PercentCovered    float64 `json:"covered_percent"`
}

// setPercents sets the fields for JSON.
func (a *Amounts) setPercents() {
	a.PercentUnwindable, a.PercentCovered = page.Rounded(a.UnwindablePercent()), page.Rounded(a.CoveredPercent())
}

// NewAmounts returns the given amounts with Code and Unwindable set.
func NewAmounts(code uint64, a Amounts) Amounts {
	a.Code = code
	// Other tools may write rows for padding.
	a.Unwindable = min(a.Covered+a.PLT, code)
	return a
}

// Add adds other amounts.
func (a *Amounts) Add(b *Amounts) {
	a.Code += b.Code
	a.Unwindable += b.Unwindable
	a.Described += b.Described
	a.Covered += b.Covered
	a.Inferred += b.Inferred
	a.Outermost += b.Outermost
	a.PLT += b.PLT
}

// String returns the share of unwindable code or, if code was not counted, the share of covered code.
func (a *Amounts) String() string {
	if a.Code == 0 {
		return a.CoveredShare() + " of what CFI describes is covered"
	}
	return fmt.Sprintf("%s of the code is unwindable (%s of %s)", a.UnwindableShare(), Digits(a.Unwindable),
		bytesOf(a.Code))
}

// OfCFI returns the report line that states how much of the described code is covered.
func (a *Amounts) OfCFI(format int) string {
	what, apart := "CFI describes", ""
	if a.Inferred > 0 {
		what, apart = "CFI and instructions describe", ", "+Digits(a.Inferred)+" by instructions"
	}
	return fmt.Sprintf("SFrame V%d covers %s of what %s (%s of %s%s)", format, a.CoveredShare(), what,
		Digits(a.Covered), bytesOf(a.Described), apart)
}

// UnwindablePercent returns the unwindable code as a percentage of all code.
func (a *Amounts) UnwindablePercent() float64 { return percent(a.Unwindable, a.Code) }

// CoveredPercent returns the covered code as a percentage of the described code.
func (a *Amounts) CoveredPercent() float64 { return percent(a.Covered, a.Described) }

// UnwindableShare and CoveredShare return UnwindablePercent and CoveredPercent as text.
func (a *Amounts) UnwindableShare() string { return Percentage(a.UnwindablePercent()) }
func (a *Amounts) CoveredShare() string    { return Percentage(a.CoveredPercent()) }

// Share formats part/whole as a percentage, as in reports.
func Share(part, whole uint64) string { return Percentage(percent(part, whole)) }

// percent returns part/whole as a percentage, or 100 if whole is 0.
func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// Percentage formats a percentage as in reports. Only exactly 100 is shown as 100.
func Percentage(v float64) string { return page.Percentage(v) }
