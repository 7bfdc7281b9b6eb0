package report

import (
	"fmt"

	"cfi2sframe/cmd/cfi2sframe/internal/page"
	"cfi2sframe/internal/amounts"
)

// Percents holds the shares of Amounts, rounded as in the text report. WriteJSON sets them.
type Percents struct {
	PercentUnwindable float64 `json:"unwindable_percent"`
	PercentCovered    float64 `json:"covered_percent"`
}

// percentsOf returns the shares.
func percentsOf(a *amounts.Amounts) Percents {
	return Percents{page.Rounded(a.UnwindablePercent()), page.Rounded(a.CoveredPercent())}
}

// Headline returns the share of unwindable code or, if code was not counted, the share of covered code.
func Headline(a *amounts.Amounts) string {
	if a.Code == 0 {
		return CoveredShare(a) + " of what CFI describes is covered"
	}
	return fmt.Sprintf("%s of the code is unwindable (%s of %s)", UnwindableShare(a), Digits(a.Unwindable),
		bytesOf(a.Code))
}

// OfCFI returns the report line that states how much of the described code is covered.
func OfCFI(a *amounts.Amounts, format int) string {
	what, apart := "CFI describes", ""
	if a.Inferred > 0 {
		what, apart = "CFI and instructions describe", ", "+Digits(a.Inferred)+" by instructions"
	}
	return fmt.Sprintf("SFrame V%d covers %s of what %s (%s of %s%s)", format, CoveredShare(a), what,
		Digits(a.Covered), bytesOf(a.Described), apart)
}

// UnwindableShare and CoveredShare return shares as text.
func UnwindableShare(a *amounts.Amounts) string { return Percentage(a.UnwindablePercent()) }
func CoveredShare(a *amounts.Amounts) string    { return Percentage(a.CoveredPercent()) }

// Share formats part/whole as a percentage, as in reports.
func Share(part, whole uint64) string { return Percentage(amounts.Percent(part, whole)) }

// Percentage formats a percentage as in reports. Only exactly 100 is shown as 100.
func Percentage(v float64) string { return page.Percentage(v) }
