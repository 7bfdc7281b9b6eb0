package main

import (
	"context"
	"fmt"

	"cfi2sframe/internal/survey"
)

// surveyed sums up the files below the given paths.
func (w *work) surveyed(ctx context.Context) int {
	file, err := w.openReport()
	if err != nil {
		fmt.Fprintf(w.stderr, "cfi2sframe: report: %v\n", err)
		return exitError
	}
	if file == nil {
		w.out = w.stdout // the survey is what was asked for
	} else {
		defer file.Close()
	}
	s, err := survey.Run(ctx, w.files, survey.Options{Objects: w.objects, Jobs: w.jobs}, func(done, total int) {
		if w.bar == nil {
			w.startBar(total)
		}
		if w.bar != nil {
			_ = w.bar.Set(done) // a bar that cannot be drawn is no reason to stop
		}
	})
	w.clearBar()
	if err == nil && w.report != "none" {
		err = s.Write(w.out, w.report)
	}
	if err == nil {
		err = w.endReport(file)
	}
	if err != nil {
		fmt.Fprintf(w.stderr, "cfi2sframe: survey: %s\n", printable(err.Error()))
		return exitError
	}
	return exitDone
}
