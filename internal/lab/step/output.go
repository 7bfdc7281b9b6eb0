package main

import (
	"fmt"
	"io"

	"cfi2sframe/report"
)

// line sums up a result.
func line(r *result) string {
	status := "ok  "
	if r.Faults() > 0 {
		status = "FAIL"
	}
	return fmt.Sprintf("%s  %s %s: %s steps, %s where the CFI is wrong, %s faults of SFrame; %.0f s", status, r.ABI, r.Subject,
		report.Digits(r.Steps), report.Digits(r.Wrong()), report.Digits(r.Faults()), r.Seconds)
}

func summary(out io.Writer, results []*result) bool {
	ok := true
	for _, r := range results {
		ok = ok && r.Faults() == 0
	}
	return ok
}

func markdown(path string, results []*result) error { return nil }
