package report

import (
	"fmt"

	"cfi2sframe/cmd/cfi2sframe/internal/page"
)

// Amounts say how much of a file's code can be unwound. All reports have the same.
type Amounts struct {
	Code       uint64 `json:"code"`       // bytes without padding and start-up code, or 0 if they were not counted
	Unwindable uint64 `json:"unwindable"` // of Code: Covered and PLT
	Described  uint64 `json:"described"`  // code that CFI describes, and code whose rows are inferred
	Covered    uint64 `json:"covered"`    // of Described, code with complete stack traces: with rows, and Outermost
	Outermost  uint64 `json:"outermost"`  // of Covered, code without a caller that has no row: a stack trace ends there
	PLT        uint64 `json:"plt"`        // PLT stubs without CFI that have rows
	// Of Covered, by rows from instructions: code without CFI.
	Inferred uint64 `json:"inferred,omitempty"`

	// As the text report has them. WriteJSON sets them.
	PercentUnwindable float64 `json:"unwindable_percent"`
	PercentCovered    float64 `json:"covered_percent"`
}

// setPercents sets the fields for JSON.
func (a *Amounts) setPercents() {
	a.PercentUnwindable, a.PercentCovered = page.Rounded(a.UnwindablePercent()), page.Rounded(a.CoveredPercent())
}

// NewAmounts returns a with Code and Unwindable set.
func NewAmounts(code uint64, a Amounts) Amounts {
	a.Code = code
	// Rows by other tools can be for padding.
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

// String returns how much of the code can be unwound, or if that was not counted, of what CFI describes.
func (a *Amounts) String() string {
	if a.Code == 0 {
		return a.CoveredShare() + " of what CFI describes is covered"
	}
	return fmt.Sprintf("%s of the code is unwindable (%s of %s)", a.UnwindableShare(), Digits(a.Unwindable),
		bytesOf(a.Code))
}

// OfCFI returns how much of what CFI describes, and instructions, a section of a format covers, as reports have it.
func (a *Amounts) OfCFI(format int) string {
	what, apart := "CFI describes", ""
	if a.Inferred > 0 {
		what, apart = "CFI and instructions describe", ", "+Digits(a.Inferred)+" by instructions"
	}
	return fmt.Sprintf("SFrame V%d covers %s of what %s (%s of %s%s)", format, a.CoveredShare(), what,
		Digits(a.Covered), bytesOf(a.Described), apart)
}

// UnwindablePercent returns how much of the code can be unwound.
func (a *Amounts) UnwindablePercent() float64 { return percent(a.Unwindable, a.Code) }

// CoveredPercent returns how much of what CFI describes is covered.
func (a *Amounts) CoveredPercent() float64 { return percent(a.Covered, a.Described) }

// UnwindableShare and CoveredShare return the same as text.
func (a *Amounts) UnwindableShare() string { return Percentage(a.UnwindablePercent()) }
func (a *Amounts) CoveredShare() string    { return Percentage(a.CoveredPercent()) }

// Share returns a part of a whole in percent, as reports have it.
func Share(part, whole uint64) string { return Percentage(percent(part, whole)) }

// percent returns a part of a whole in percent: all of nothing is 100.
func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// Percentage returns a number of percent as reports have it: 100 stands for all.
func Percentage(v float64) string { return page.Percentage(v) }
