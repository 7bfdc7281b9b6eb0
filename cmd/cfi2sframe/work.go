package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// work converts the files of a command line.
type work struct {
	console
	settings      *conversion
	batch         files.Batch
	results       map[*files.Job]*result // for jobs of the batch, and for jobs announced early
	report        *reporter
	tally         tally            // of finished files
	unread        []*report.Failed // directories and files that could not be listed
	errors, short int              // files that failed, and files with too little coverage
	all           int              // files
	many          bool             // several files
	interrupted   bool
	machine       bool // a file failed because of a system error
}

// begin opens the report.
func (w *work) begin() (err error) {
	signal.Ignore(syscall.SIGPIPE) // a closed pipe is an ordinary write error
	stream, name := w.settings.stream(w.stdout, w.stderr)
	if w.report, err = openReport(&w.settings.reporting, stream, name, w.settings.to.NoSync); err != nil {
		complain(w.stderr, "report", err)
		return err
	}
	w.report.html, w.report.json = w.settings.form == "html", w.settings.form == "json"
	for _, f := range w.unread {
		w.report.fail(f)
	}
	w.results = make(map[*files.Job]*result)
	return nil
}

// run converts files, and returns the exit status.
func (w *work) run(ctx context.Context) int {
	w.errors = len(w.unread)
	if w.begin() != nil {
		return exitError
	}
	defer w.report.close()
	defer w.batch.Close()
	if w.settings.inPlace {
		w.batch.Expect(w.settings.files)
	}
	w.all = len(w.settings.files)
	w.many = w.all > 1
	if w.batch.Workers = w.workers(); w.batch.Workers > 1 {
		heap.PrepareMany()
	}
	next := 0 // to announce
	for i, in := range w.settings.files {
		if w.interrupted {
			w.complainAbout(in, context.Canceled)
			continue
		}
		for ; next == i || next < w.all && w.batch.Ahead(); next++ {
			w.announce(ctx, w.settings.files[next])
		}
		w.batch.Next(ctx)
		j := w.batch.Jobs[len(w.batch.Jobs)-1]
		w.results[j].setNames(j)
		last := i == len(w.settings.files)-1 || ctx.Err() != nil
		if !last && !w.batch.Full(w.settings.to) {
			continue
		}
		rest := w.settings.files[i+1:]
		if err := w.finishBatch(ctx, last, rest); err != nil {
			w.printStopped(len(rest))
			return exitError
		}
		if last {
			break
		}
	}
	return w.finishReport(ctx, w.summary(&w.tally))
}

// workers returns the number of threads that convert files. Files are converted one at a time if one may be the debug
// file of another, or if the limits of an HTML page apply to all of them.
func (w *work) workers() int {
	s := w.settings
	debug := s.to.DebugLinkUpdate != "" || s.debugFile != "" && s.inPlace
	if !w.many || debug || s.limits != nil {
		return 1
	}
	return cmp.Or(s.Workers, runtime.GOMAXPROCS(0))
}

// announce tells the batch that a file will follow.
func (w *work) announce(ctx context.Context, in string) {
	r := &result{}
	opt := r.options(w.settings, in)
	if w.settings.inPlace {
		w.results[w.batch.BeginInPlace(ctx, in, opt)] = r
	} else {
		w.results[w.batch.Begin(ctx, in, w.settings.output, opt)] = r
	}
}

// finishReport writes the last lines of the report, and returns the exit status.
func (w *work) finishReport(ctx context.Context, lines string) int {
	r := w.report
	var err error
	switch {
	case !r.ended && (r.file != nil || !w.interrupted):
		err = r.finish(lines)
	case w.interrupted:
		err = r.flush()
	}
	if err == nil && (r.said || w.errors == 0) { // otherwise the report is empty
		err = r.commit()
	}
	if err != nil {
		complain(w.stderr, "report", err)
		w.printStopped(0)
		return exitError
	}
	return w.status(ctx)
}

// status returns the exit status.
func (w *work) status(ctx context.Context) int {
	switch {
	case w.interrupted:
		return interruptedStatus(ctx)
	case w.errors > 0:
		return exitError
	case w.short > 0:
		return exitCoverage
	case w.settings.skipStatus && w.tally.skipped() > 0:
		return exitSkipped
	}
	return exitDone
}

// printStopped is called when the report cannot be written. It prints how many files were replaced, and how many were
// not converted.
func (w *work) printStopped(left int) {
	if n := w.tally.done; n > 0 && !w.settings.to.DryRun {
		fmt.Fprintf(w.stderr, "cfi2sframe: files replaced despite the error: %d\n", n)
	}
	if left > 0 {
		fmt.Fprintf(w.stderr, "cfi2sframe: files not converted: %d\n", left)
	}
}

// finishBatch reports on the files of the batch, then replaces them. If the report cannot be written, no file is
// replaced, and the run ends.
func (w *work) finishBatch(ctx context.Context, last bool, rest []string) error {
	defer func() {
		for _, j := range w.batch.Jobs {
			delete(w.results, j)
		}
		w.batch.Reset()
	}()
	w.batch.Finish(ctx)
	broken := w.reportBatch(last, rest)
	named := false
	for _, j := range w.batch.Jobs {
		if broken != nil && j.Err == nil {
			j.Err = fmt.Errorf("report: %w; nothing written", broken)
			named = true
		}
	}
	w.batch.Commit(ctx)
	var kept []*files.Job // reported, but then not replaced
	for _, j := range w.batch.Jobs {
		if j.Err != nil && !w.results[j].printed && broken == nil {
			kept = append(kept, j)
		}
		w.printError(j)
		switch {
		case j.Err == nil:
			w.tally.add(j, w.results[j])
		case errors.Is(j.Err, files.ErrRefused):
			w.short++
		default:
			w.errors++
			w.machine = w.machine || outfile.OfMachine(j.Err)
		}
	}
	if len(kept) > 0 {
		broken = w.listUnreplaced(kept)
	}
	if broken != nil && !named {
		complain(w.stderr, "report", broken)
	}
	return broken
}

// listUnreplaced completes a report with the files that were reported but not replaced.
func (w *work) listUnreplaced(kept []*files.Job) error {
	r := w.report
	switch {
	case r.file == nil:
		return r.flush()
	case r.file.Stream():
		return nil // the messages on standard error name these files
	case w.settings.form == "text" && w.tally.done == 0 && len(w.tally.stay) == 0 && w.short == 0:
		r.said = false // nothing is left to report
		return nil
	}
	for _, j := range kept {
		why := report.PrintableMessage(j.Err.Error())
		if errors.Is(j.Err, context.Canceled) {
			why = "interrupted"
		}
		switch w.settings.form { // printError has added the lines of JSON
		case "html":
			for _, c := range w.results[j].coverage {
				c.Warnings = append(c.Warnings, "not replaced: "+why)
			}
		case "text":
			fmt.Fprintf(r.out, "%s: not replaced: %s\n", report.Printable(j.In), why) // flush returns the error
		}
	}
	if r.ended {
		return r.finish("")
	}
	return r.flush()
}

// reportBatch reports on the files of the batch and prints their errors so far, in order. After the last batch, the
// rest of the files are not converted, because of an interrupt.
func (w *work) reportBatch(last bool, rest []string) (broken error) {
	ready := w.tally
	ready.stay = maps.Clone(ready.stay)
	for _, j := range w.batch.Jobs {
		switch {
		case j.Err == nil:
			ready.add(j, w.results[j])
			broken = cmp.Or(broken, w.reportOn(j))
		case errors.Is(j.Err, files.ErrRefused):
			broken = cmp.Or(broken, w.reportRefused(j))
			w.printError(j)
		default:
			broken = cmp.Or(broken, w.report.flush())
			w.printError(j)
		}
	}
	if last {
		for _, in := range rest {
			w.complainAbout(in, context.Canceled)
		}
	}
	// A report file or page is complete before the last files are replaced.
	if last && (w.report.file != nil || w.settings.form == "html") {
		broken = cmp.Or(broken, w.report.finish(w.summary(&ready)))
	}
	return cmp.Or(broken, w.report.flush())
}

// reportRefused reports on a file with too little coverage, and prints the largest gaps.
func (w *work) reportRefused(j *files.Job) error {
	w.report.said = true
	w.results[j].setError(j.Err)
	var err error
	if !w.isList() { // a list has no row for refused files; the error states the percentage
		err = w.reportOn(j)
	}
	err = cmp.Or(err, w.report.flush())
	for _, line := range report.Causes(w.results[j].coverage, shortList, w.settings.unwindable > 0) {
		fmt.Fprintln(w.stderr, line)
	}
	return err
}

// printError prints a file's error, if any, but only once.
func (w *work) printError(j *files.Job) {
	if r := w.results[j]; j.Err != nil && !r.printed {
		r.printed = true
		w.complainAbout(j.In, j.Err)
	}
}

// summary returns the last lines of a text report on many files.
func (w *work) summary(t *tally) string {
	if w.settings.form != "text" || w.all < 2 {
		return ""
	}
	rest := "failed"
	if w.interrupted {
		rest = "not converted"
	}
	text := t.text(w.all, rest)
	if t.size > 0 {
		text += fmt.Sprintf("  read by: %s\n  bytes of .sframe: %s\n  %v\n", w.readers(t.refusing),
			report.Digits(t.size), &t.Amounts)
	}
	return text
}

// complainAbout prints a file's error, with advice.
func (w *work) complainAbout(in string, err error) {
	switch {
	case errors.Is(err, context.Canceled):
		w.interrupted = true
		err = errors.New("interrupted, nothing written")
	case adviceOn(err) != "":
		err = fmt.Errorf("%w; %s", err, adviceOn(err))
	case !errors.Is(err, files.ErrRefused) && in != files.Stdin:
		better := explain(in, err, true)
		if better == err && w.settings.output != "" && !w.settings.to.ByBuildID &&
			!outfile.IsStdout(w.settings.output) {
			better = explainOutput(in, w.settings.output, err)
		}
		err = better
	}
	complain(w.stderr, in, err)
	if !w.report.json || !errors.Is(err, files.ErrRefused) { // otherwise the line of the coverage has the error
		w.report.fail(report.NewFailed(in, err))
	}
}

// A console holds the output streams of a verb.
type console struct{ stdout, stderr io.Writer }

// A tally counts finished files.
type tally struct {
	done           int                    // changed files
	report.Amounts                        // of changed files, and of files without CFI
	size           uint64                 // of their .sframe
	stay           map[convert.Reason]int // unchanged files
	refusing       []string               // presets whose readers refuse at least one file
}

// add counts a file.
func (t *tally) add(j *files.Job, r *result) {
	if j.Result != nil && j.Result.Stays != "" {
		t.addUnchanged(j.Result.Stays)
		if r.isWithoutCFI() {
			t.Amounts.Add(&r.coverage[0].Amounts)
		}
		return
	}
	t.done++
	if j.Result == nil { // a second name of a file that was already converted
		return
	}
	for _, c := range r.coverage {
		t.Amounts.Add(&c.Amounts)
		t.size += c.Size
	}
	t.refusing = append(t.refusing, r.refusing...)
}

// addUnchanged counts an unchanged file.
func (t *tally) addUnchanged(why convert.Reason) {
	if t.stay == nil {
		t.stay = make(map[convert.Reason]int)
	}
	t.stay[why]++
}

// skipped returns the number of unchanged files, not counting those that were up to date.
func (t *tally) skipped() int {
	n := 0
	for why, files := range t.stay {
		if why != convert.Current {
			n += files
		}
	}
	return n
}

// text summarizes all files. The parameter rest is the word for files that are not in the tally.
func (t *tally) text(all int, rest string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d files: %d done, ", all, t.done)
	kept := t.skipped() + t.stay[convert.Current]
	if kept > 0 {
		fmt.Fprintf(&b, "%d unchanged, ", kept)
	}
	fmt.Fprintf(&b, "%d %s\n", all-t.done-kept, rest)
	b.WriteString(reasons("unchanged", t.stay))
	return b.String()
}

// reasons returns a line with the count of each reason, the most frequent first.
func reasons(what string, counts map[convert.Reason]int) string {
	var b strings.Builder
	most := func(x, y convert.Reason) int { return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y)) }
	for _, why := range slices.SortedFunc(maps.Keys(counts), most) {
		fmt.Fprintf(&b, "  %s: %d (%s)\n", what, counts[why], why.Text())
	}
	return b.String()
}

// walk returns the paths with each directory replaced by the regular files below it, sorted by name. walk prints
// errors, and returns them. It does not follow symbolic links, enter other file systems such as /proc, or
// return an earlier report that this run replaces.
func (c *call) walk(paths []string, to *destination, quiet bool) (found []string,
	failed []*report.Failed) {
	fail := func(name string, err error) {
		complain(c.stderr, name, outfile.Plain(err))
		failed = append(failed, report.NewFailed(name, outfile.Plain(err)))
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if path == files.Stdin || err != nil || !info.IsDir() { // the error is reported when the file is opened
			found = append(found, path)
			continue
		}
		// With a trailing separator, a symbolic link is followed to the directory that it points to.
		err = filepath.WalkDir(path+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
			switch {
			case c.ctx.Err() != nil:
				return c.ctx.Err()
			case err != nil:
				fail(name, err)
			case d.Type().IsRegular():
				if info, err := d.Info(); err == nil && to.isOld(name, info) {
					return nil
				}
				if name == files.Stdin {
					name = "." + string(filepath.Separator) + name
				}
				found = append(found, name)
			case d.IsDir():
				if here, err := d.Info(); err == nil && !inode.SameDevice(here, info) {
					if !quiet {
						complain(c.stderr, name, errors.New("is on another file system; skipped"))
					}
					return fs.SkipDir
				}
			}
			return nil
		})
		if err != nil { // the context was canceled
			found = append(found, path)
		}
	}
	return found, failed
}
