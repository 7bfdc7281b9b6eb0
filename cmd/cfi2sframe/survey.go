package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"

	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/survey"
	"cfi2sframe/report"
)

// surveyed sums up the files below the given paths.
func (w *work) surveyed(ctx context.Context) int {
	if w.reportDir != "" {
		if err := os.MkdirAll(w.reportDir, 0o777); err != nil {
			w.complain("report", fmt.Errorf("cannot make the folder %s: %w", w.reportDir, outfile.Plain(err)))
			return exitError
		}
		if err := notPage(w.reportFile); err != nil {
			w.complain("report", err)
			return exitError
		}
	}
	if !w.openReport() {
		return exitError
	}
	defer w.report.close()
	opt := survey.Options{
		Settings: survey.Settings{Objects: w.objects, Packages: w.packages},
		Tool:     thisBuild().String(), Shard: w.shard, Jobs: w.jobs, Starting: heap.Raise,
	}
	s, err := survey.Run(ctx, w.files, opt, w.progress)
	w.clearBar()
	switch {
	case err != nil || w.settings.report == "none":
	case w.reportDir != "":
		var links map[string]string
		if links, err = w.pages(ctx, s); err == nil {
			err = outfile.Plain(s.HTML(w.report.out, links))
		}
	default:
		err = w.writeSurvey(s)
	}
	return w.summedUp(ctx, "survey", err)
}

// writeSurvey writes the report. Names of files in it do nothing to a terminal.
func (w *work) writeSurvey(s *survey.Survey) error {
	if f, ok := w.report.to.(*os.File); ok && w.settings.report == "csv" && term.IsTerminal(int(f.Fd())) {
		return outfile.Plain(s.CSV(w.report.out, report.Printable))
	}
	return outfile.Plain(s.Write(w.report.out, w.settings.report))
}

// progress shows how much of a survey is done.
func (w *work) progress(done, total int) {
	if w.bar == nil {
		w.startBar(total)
	}
	if w.bar != nil {
		w.bar.Set(done)
	}
}

// summedUp ends a report that sums up files, of which err is what went wrong, and returns the exit status.
func (w *work) summedUp(ctx context.Context, what string, err error) int {
	if errors.Is(err, context.Canceled) {
		return interrupted(ctx, w.stderr, []string{what}, "nothing written")
	}
	if err == nil {
		err = outfile.Plain(w.report.finish(""))
	}
	if err == nil {
		err = outfile.Plain(w.report.commit())
	}
	if err != nil {
		w.complain(what, err)
		return exitError
	}
	return exitDone
}
