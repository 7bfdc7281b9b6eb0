package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/term"

	"cfi2sframe/convert"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/bar"
	"cfi2sframe/internal/files"
	"cfi2sframe/report"
)

// work is what becomes of the files to be converted.
type work struct {
	*settings
	stdout, stderr io.Writer
	batch          files.Batch
	bar            *bar.Bar // or nil
	report         *reporter
	told           map[*files.Job]bool // whose errors are printed
	tally          tally               // of the files that are done
	errors, short  int                 // files that failed, and those with too little coverage
	interrupted    bool                // one of them was
}

func (w *work) run(ctx context.Context) int {
	signal.Ignore(syscall.SIGPIPE) // a report whose reader has gone is an error like others, not the end
	if !w.openReport() {
		return exitError
	}
	defer w.report.close()
	defer w.batch.Reset()
	if w.inPlace {
		w.batch.Expect(w.files)
	}
	w.startBar(len(w.files))
	for i, in := range w.files {
		if w.interrupted {
			w.failed(in, context.Canceled)
			continue
		}
		w.add(ctx, in)
		last := i == len(w.files)-1 || ctx.Err() != nil
		if !last && !w.batch.Full(w.Options) {
			continue
		}
		if err := w.put(ctx, last); err != nil {
			w.stopped(len(w.files) - 1 - i)
			return exitError
		}
	}
	w.clearBar()
	if err := w.endReport(w.summary(&w.tally)); err != nil {
		w.complain("report", err)
		w.stopped(0)
		return exitError
	}
	return w.status(ctx)
}

// status returns the exit status for what became of the files.
func (w *work) status(ctx context.Context) int {
	switch {
	case w.interrupted:
		return interruptedStatus(ctx)
	case w.errors > 0:
		return exitError
	case w.short > 0:
		return exitCoverage
	case w.skipStatus && w.tally.skipped() > 0:
		return exitSkipped
	}
	return exitDone
}

// stopped says what became of the files that nothing else is said of, where there is no report.
func (w *work) stopped(left int) {
	if n := w.tally.done; n > 0 && !w.DryRun {
		fmt.Fprintf(w.stderr, "cfi2sframe: files that are in their places nevertheless: %d\n", n)
	}
	if left > 0 {
		fmt.Fprintf(w.stderr, "cfi2sframe: files that were not converted: %d\n", left)
	}
}

// add converts a file.
func (w *work) add(ctx context.Context, in string) {
	if w.bar != nil {
		w.bar.Describe(report.Printable(filepath.Base(in)))
	}
	if w.inPlace {
		w.batch.AddInPlace(ctx, in, w.Options)
	} else {
		w.batch.Add(ctx, in, w.output, w.Options)
	}
	if w.bar != nil {
		w.bar.Add(1)
	}
}

// put puts what is converted in its place, after its report: a file whose report fails stays as
// it is. An error is that of the report, after which there is no more to be done.
func (w *work) put(ctx context.Context, last bool) error {
	defer w.batch.Reset()
	w.clearBar()
	w.told = make(map[*files.Job]bool)
	w.batch.Finish(ctx)
	broken := w.say(last)
	named := false
	for _, j := range w.batch.Jobs {
		if broken != nil && j.Err == nil {
			j.Err = fmt.Errorf("report: %w; nothing written", broken)
			named = true
		}
	}
	w.batch.Commit(ctx)
	wrong := false // the report says of a file that it is done
	for _, j := range w.batch.Jobs {
		wrong = w.tell(j) || wrong
	}
	switch {
	case broken == nil && wrong:
		if broken = w.sayAgain(last); broken != nil {
			w.complain("report", broken)
		}
	case broken != nil && !named:
		w.complain("report", broken)
	}
	for _, j := range w.batch.Jobs {
		switch {
		case j.Err == nil:
			w.tally.add(j)
		case errors.Is(j.Err, convert.ErrCoverage):
			w.short++
		default:
			w.errors++
		}
	}
	return broken
}

// say writes the report on the files of the batch, and prints the errors of those that have some
// already, in their order.
func (w *work) say(last bool) error {
	broken := w.report.mark()
	keep := func(err error) {
		if broken == nil {
			broken = err
		}
	}
	ready := w.tally.clone()
	for _, j := range w.batch.Jobs {
		short := errors.Is(j.Err, convert.ErrCoverage)
		if j.Err == nil {
			ready.add(j)
		}
		if j.Result != nil && (j.Err == nil || short) {
			keep(w.report.add(j.In, j.Result))
		}
		if j.Err != nil && !w.told[j] {
			keep(w.report.flush())
			if short {
				w.worst(j.Result.Coverage)
			}
			w.tell(j)
		}
	}
	// Where the end can be taken back, or has everything in it, it comes before the files go to
	// their places.
	if last && (w.report.file != nil || w.settings.report == "html") {
		keep(w.report.finish(w.summary(&ready)))
	}
	keep(w.report.flush())
	return broken
}

// sayAgain is say after some of the files failed on the last step, where what was said can be
// taken back.
func (w *work) sayAgain(last bool) error {
	if again, err := w.report.rewind(); err != nil || !again {
		return err
	}
	return w.say(last)
}

// tell prints the error of a file, once, and reports whether it did.
func (w *work) tell(j *files.Job) bool {
	if j.Err == nil || w.told[j] {
		return false
	}
	w.told[j] = true
	w.failed(j.In, j.Err)
	return true
}

// summary returns the last lines of a text report on many files, of which those of the tally are going to be done.
func (w *work) summary(t *tally) string {
	if w.settings.report != "text" || len(w.files) < 2 {
		return ""
	}
	rest := "failed"
	if w.interrupted {
		rest = "not converted"
	}
	return t.text(len(w.files), rest)
}

// endReport ends the report with a line, and puts it in its place.
func (w *work) endReport(line string) error {
	r := w.report
	if !r.ended && (r.file != nil || !w.interrupted) {
		if err := r.finish(line); err != nil {
			return err
		}
	}
	if !r.said && w.errors > 0 { // a report on nothing
		return nil
	}
	return r.commit()
}

// complain prints an error.
func (w *work) complain(about string, err error) { complain(w.stderr, about, err) }

// failed prints the error of a file.
func (w *work) failed(in string, err error) {
	switch {
	case errors.Is(err, context.Canceled):
		w.interrupted = true
		err = errors.New("interrupted, nothing written")
	case errors.Is(err, elfwrite.ErrExists):
		err = fmt.Errorf("%w; --update or --force replaces it", err)
	}
	w.complain(in, err)
}

// startBar shows a progress bar if there are many files and standard error is a terminal.
func (w *work) startBar(n int) {
	f, ok := w.stderr.(*os.File)
	if !ok || n < 2 || w.quiet || !term.IsTerminal(int(f.Fd())) {
		return
	}
	var screen io.Writer = f
	if columns, lines, err := term.GetSize(int(f.Fd())); err != nil || columns == 0 || lines == 0 {
		screen = struct{ io.Writer }{f} // which does not tell its size, and gets a bar of the usual one
	}
	w.bar = bar.New(screen, n)
}

func (w *work) clearBar() {
	if w.bar != nil {
		w.bar.Clear()
	}
}

// worst prints the largest gaps of a file that has too many, whatever is reported otherwise.
func (w *work) worst(coverage []*report.Coverage) {
	type gap struct {
		file string
		report.Gap
	}
	var gaps []gap
	for _, c := range coverage {
		for _, g := range c.Gaps {
			gaps = append(gaps, gap{c.File, g})
		}
	}
	slices.SortStableFunc(gaps, func(a, b gap) int { return cmp.Compare(b.End-b.Begin, a.End-a.Begin) })
	for _, g := range gaps[:min(len(gaps), shortList)] {
		fmt.Fprintf(w.stderr, "%s: %v\n", report.Printable(g.file), &g.Gap)
	}
}
