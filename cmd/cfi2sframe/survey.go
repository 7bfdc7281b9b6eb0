package main

import (
	"context"
	"fmt"

	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/survey"
)

// surveyed sums up the files below the given paths.
func (w *work) surveyed(ctx context.Context) int {
	var err error
	if w.report, err = openReport(w.settings, w.stdout, w.stderr); err != nil {
		w.complain("report", err)
		return exitError
	}
	defer w.report.close()
	s, err := survey.Run(ctx, w.files, survey.Options{Objects: w.objects, Jobs: w.jobs, Starting: heap.Raise}, func(done, total int) {
		if w.bar == nil {
			w.startBar(total)
		}
		if w.bar != nil {
			w.bar.Set(done)
		}
	})
	w.clearBar()
	if err == nil && w.settings.report != "none" {
		err = s.Write(w.report.out, w.settings.report)
	}
	if err == nil {
		err = w.report.finish("")
	}
	if err == nil {
		err = w.report.commit()
	}
	if err != nil {
		fmt.Fprintf(w.stderr, "cfi2sframe: survey: %s\n", printable(err.Error()))
		return exitError
	}
	return exitDone
}
