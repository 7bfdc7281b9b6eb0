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
	"path/filepath"
	"runtime"
	"slices"
	"strings"

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
	report        *reporter
	unreported    error            // why the report cannot be written, or nil
	tally         tally            // of finished files
	unread        []*report.Failed // directories and files that could not be listed
	errors, short int              // files that failed, and files with too little coverage
	all           int              // files
	many          bool             // several files
	interrupted   bool
	machine       bool // a file failed because of a system error
}

// run converts files, and returns the exit status. The report on a file follows when the file is in place, so that a
// report that cannot be written costs no file.
func (w *work) run(ctx context.Context) int {
	s := w.settings
	stream, name := s.stream(w.stdout, w.stderr)
	if s.form == "text" {
		stream = leavingReader{stream}
	}
	var err error
	if w.report, err = openReport(&s.reporting, stream, name, s.to.NoSync); err != nil {
		complain(w.stderr, "report", err)
		return exitError
	}
	defer w.report.close()
	w.report.html, w.report.json = s.form == "html", s.form == "json"
	for _, f := range w.unread {
		w.report.fail(f)
	}
	w.all, w.errors = len(s.files), len(w.unread)
	w.many = w.all > 1
	set := &files.Settings{
		InPlace: s.inPlace, DryRun: s.to.DryRun && !s.to.Detach, Output: s.output, Workers: 1, Alone: w.alone(),
	}
	if !set.Alone {
		if set.Workers = cmp.Or(s.Workers, runtime.GOMAXPROCS(0)); set.Workers > 1 {
			heap.PrepareMany()
		}
	}
	results := make([]*result, w.all)
	set.Options = func(i int) files.Options {
		results[i] = &result{}
		return results[i].options(s, s.files[i])
	}
	i := 0
	for j := range files.Each(ctx, s.files, set) {
		if i == w.all { // a directory
			w.errors++
			complain(w.stderr, j.In, j.Err)
			w.report.fail(report.NewFailed(j.In, j.Err))
			continue
		}
		r := cmp.Or(results[i], &result{}) // empty for another name of a file
		results[i] = nil
		i++
		w.add(j, r)
	}
	return w.finish(ctx)
}

// alone reports whether files are converted one at a time: if there is only one, if one may be the debug file of
// another, if they may have the same detached file, or if the limits of an HTML page apply to all of them.
func (w *work) alone() bool {
	s := w.settings
	return !w.many || s.debugFile != "" && s.inPlace || s.to.Detach || s.limits != nil
}

// add counts a file, and reports on it.
func (w *work) add(j *files.Job, r *result) {
	r.setNames(j)
	switch {
	case j.Err == nil:
		w.tally.add(j, r)
		w.said(w.reportOn(j, r))
	case errors.Is(j.Err, files.ErrRefused):
		w.short++
		w.tally.add(j, r)
		w.said(w.reportRefused(j, r))
		w.complainAbout(j.In, j.Err)
		if w.report.json && len(r.coverage) == 0 { // another name of the file
			w.report.fail(report.NewFailed(j.In, j.Err))
		}
	default:
		w.errors++
		w.machine = w.machine || outfile.OfMachine(j.Err)
		w.said(w.report.out.Flush())
		w.complainAbout(j.In, j.Err)
	}
	w.said(w.report.out.Flush())
}

// said records why the report cannot be written.
func (w *work) said(err error) { w.unreported = cmp.Or(w.unreported, outfile.Plain(err)) }

// finish writes the last lines of the report, and returns the exit status.
func (w *work) finish(ctx context.Context) int {
	r, t := w.report, &w.tally
	t.Files, t.Unchanged = w.all+len(w.unread), countReasons(t.stay)
	t.Failed = t.Files - t.Done - t.skipped() - t.stay[convert.Current]
	t.Finish()
	if w.unreported == nil && (r.file != nil || !w.interrupted) {
		if w.said(w.summarize()); w.unreported == nil {
			w.said(r.finish(r.said || w.errors == 0)) // otherwise the report is empty
		}
	}
	if w.unreported != nil {
		complain(w.stderr, "report", w.unreported)
		if n := w.tally.Done; n > 0 && !w.settings.to.DryRun {
			fmt.Fprintf(w.stderr, "cfi2sframe: files replaced despite the error: %d\n", n)
		}
		w.errors++
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

// reportRefused reports on a file with too little coverage, and prints the largest gaps.
func (w *work) reportRefused(j *files.Job, r *result) error {
	w.report.said = true
	r.setError(j.Err)
	var err error
	if !w.isList() { // a list has no row for refused files; the error states the percentage
		err = w.reportOn(j, r)
	}
	err = cmp.Or(err, w.report.out.Flush())
	for _, line := range report.Causes(r.coverage, shortList, w.settings.unwindable > 0) {
		fmt.Fprintln(w.stderr, line)
	}
	return err
}

// summarize writes the end of the report: the page, or the totals of several files.
func (w *work) summarize() error {
	r, t := w.report, &w.tally
	switch {
	case r.html:
		return report.HTML(r.out, r.pages, r.fails, t.Unchanged, thisVersion())
	case r.json && (w.many || w.settings.recursive) && !w.interrupted:
		return report.WriteJSON(r.out, &t.Totals)
	case w.settings.form != "text" || w.all == 1 && t.Files == 1:
		return nil
	}
	rest := "failed"
	if w.interrupted {
		rest = "not converted"
	}
	fmt.Fprint(r.out, t.text(rest))
	if t.Size > 0 {
		fmt.Fprintf(r.out, "  read by: %s\n", w.readers(t.refusing))
	}
	return t.Text(r.out, int(w.settings.Version))
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
	report.Totals
	stay     map[convert.Reason]int // unchanged files
	refusing []string               // presets whose readers refuse at least one file
}

// add counts a file that was converted, is unchanged or has too little coverage.
func (t *tally) add(j *files.Job, r *result) {
	switch {
	case j.Err != nil:
	case j.Result == nil || j.Result.Stays == "": // without a Result: another name of a converted file
		t.Done++
	case t.stay == nil:
		t.stay = map[convert.Reason]int{j.Result.Stays: 1}
	default:
		t.stay[j.Result.Stays]++
	}
	for _, c := range r.coverage {
		t.Totals.Add(c)
	}
	t.refusing = append(t.refusing, r.refusing...)
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
func (t *tally) text(rest string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d files: %d done, ", t.Files, t.Done)
	if kept := t.Files - t.Done - t.Failed; kept > 0 {
		fmt.Fprintf(&b, "%d unchanged, ", kept)
	}
	fmt.Fprintf(&b, "%d %s\n", t.Failed, rest)
	b.WriteString(reasons("unchanged", t.Unchanged))
	return b.String()
}

// countReasons returns the count of each reason, the most frequent first.
func countReasons(counts map[convert.Reason]int) (list []report.Unchanged) {
	most := func(x, y convert.Reason) int { return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x, y)) }
	for _, why := range slices.SortedFunc(maps.Keys(counts), most) {
		list = append(list, report.Unchanged{Reason: string(why), Text: why.Text(), Files: counts[why]})
	}
	return list
}

// reasons returns a line for each reason.
func reasons(what string, counts []report.Unchanged) string {
	var b strings.Builder
	for _, r := range counts {
		fmt.Fprintf(&b, "  %s: %d (%s)\n", what, r.Files, r.Text)
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
