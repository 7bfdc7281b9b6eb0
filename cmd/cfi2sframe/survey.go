package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/survey"
)

// surveyed sums up the files below the given paths.
func (w *work) surveyed(ctx context.Context) int {
	var err error
	if w.reportDir != "" {
		if err = os.MkdirAll(w.reportDir, 0o777); err != nil {
			w.complain("report", fmt.Errorf("cannot make the folder %s: %w", w.reportDir, outfile.Plain(err)))
			return exitError
		}
		if err = notPage(w.reportFile); err != nil {
			w.complain("report", err)
			return exitError
		}
	}
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
	switch {
	case err != nil || w.settings.report == "none":
	case w.reportDir != "":
		var links map[string]string
		if links, err = w.pages(ctx, s); err == nil {
			err = s.HTML(w.report.out, links)
		}
	default:
		err = s.Write(w.report.out, w.settings.report)
	}
	if errors.Is(err, context.Canceled) {
		return interrupted(ctx, w.stderr, []string{"survey"}, "nothing written")
	}
	if err == nil {
		err = w.report.finish("")
	}
	if err == nil {
		err = w.report.commit()
	}
	if err != nil {
		fmt.Fprintf(w.stderr, "cfi2sframe: survey: %s\n", printable(outfile.Plain(err).Error()))
		return exitError
	}
	return exitDone
}
