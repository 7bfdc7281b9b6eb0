package report_test

import (
	"fmt"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/testkit/must"
)

// TestTotals adds up files with gaps, without CFI and without losses. The files that lose most must come first.
func TestTotals(t *testing.T) {
	drap := report.Reason{Name: "drap", Text: "realigned", Functions: 1, Ranges: 2, Bytes: 300, Loss: true}
	start := report.Reason{Name: "outermost", Text: "start", Functions: 1, Ranges: 1, Bytes: 900}
	var sum report.Totals
	for i := range uint64(12) {
		sum.Add(&report.Coverage{
			File:    fmt.Sprint("file", i),
			Amounts: amounts.Amounts{Code: 1000, Unwindable: 1000 - 10*i, Described: 900, Covered: 900, Outermost: 1},
		})
	}
	gaps := &report.Coverage{
		File: "gaps\n", Reasons: []report.Reason{start, drap}, Functions: 3, Size: 70,
		Amounts:    amounts.Amounts{Code: 1000, Unwindable: 690, Described: 990, Covered: 690, Inferred: 40},
		Restricted: amounts.Restricted{OnlyV3: 5},
		Uncovered:  coverage.Uncovered{Bytes: 10},
	}
	sum.Add(gaps)
	sum.Add(gaps)
	sum.Add(&report.Coverage{
		File: "none", Amounts: amounts.Amounts{Code: 2000}, Uncovered: coverage.Uncovered{Bytes: 2000},
	})
	sum.Finish()
	var b strings.Builder
	must.Do(t, sum.Text(&b, 3))
	want := `  bytes of .sframe: 140
  79.50 % of the code is unwindable (12,720 of 16,000 bytes)
  SFrame V3 covers 95.31 % of what CFI and instructions describe (12,180 of 12,780 bytes, 80 by instructions)
  not covered: 600 bytes in 4 ranges of 2 functions: realigned
  2,020 bytes of code have no CFI
  10 bytes covered in V3 only
  code that is not unwindable, by file:
    2,000 bytes of 2,000: none (no CFI)
    310 bytes of 1,000: "gaps\n" (realigned)
    310 bytes of 1,000: "gaps\n" (realigned)
    110 bytes of 1,000: file11
`
	if !strings.HasPrefix(b.String(), want) || strings.Count(b.String(), "\n    ") != 10 ||
		!strings.HasSuffix(b.String(), "    50 bytes of 1,000: file5\n") {
		t.Errorf("%s\nwant %s", b.String(), want)
	}
	if sum.Functions != 6 || sum.Outermost != 12 || sum.Reasons[0] != (report.Reason{Name: "outermost", Text: "start",
		Functions: 2, Ranges: 2, Bytes: 1800}) || sum.PercentUnwindable != 79.5 {
		t.Errorf("%+v", sum)
	}
	b.Reset()
	var none report.Totals
	none.Finish()
	must.Do(t, none.Text(&b, 3))
	if b.Len() > 0 {
		t.Errorf("no files: %s", b.String())
	}
	must.Do(t, report.WriteJSON(&b, &none))
	if s := b.String(); strings.Contains(s, "null") || !strings.HasPrefix(s, `{"schema":3,"complete":true,"files":0,`) {
		t.Errorf("no files: %s", b.String())
	}
}
