package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/convert"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
)

// work is what becomes of the files to be converted.
type work struct {
	*settings
	stdout, stderr io.Writer
	inPlace        convert.InPlace
	bar            *progressbar.ProgressBar // or nil
	out            io.Writer                // where the report goes
	pages          []*report.Coverage       // for the page that is written at the end
	errors, short  int                      // files that failed, and those with too little coverage
}

func (w *work) run(ctx context.Context) int {
	file, err := w.openReport()
	if err != nil {
		fmt.Fprintf(w.stderr, "cfi2sframe: report: %v\n", err)
		return exitError
	}
	if file != nil {
		defer file.Close()
	}
	w.startBar(len(w.files))
	for _, in := range w.files {
		if w.bar != nil {
			w.bar.Describe(filepath.Base(in))
		}
		if err := w.file(ctx, in); err != nil && !w.failed(ctx, in, err) {
			return exitError
		}
		if w.bar != nil {
			_ = w.bar.Add(1) // a bar that cannot be drawn is no reason to stop
		}
	}
	w.clearBar()
	if err := w.endReport(file); err != nil {
		fmt.Fprintf(w.stderr, "cfi2sframe: report: %v\n", err)
		w.errors++
	}
	switch {
	case w.errors > 0:
		return exitError
	case w.short > 0:
		return exitCoverage
	}
	return exitDone
}

// openReport prepares the file that the report goes to, if that is one of its own.
func (w *work) openReport() (*outfile.File, error) {
	w.out = w.stderr
	if w.report == "json" || w.report == "html" {
		w.out = w.stdout
	}
	if w.reportFile == "" || w.report == "none" {
		return nil, nil
	}
	file, err := outfile.Open(w.reportFile)
	if err != nil {
		return nil, err
	}
	w.out = file
	return file, nil
}

// endReport writes what is left to be said.
func (w *work) endReport(file *outfile.File) error {
	if w.report == "text" && len(w.files) > 1 && !w.survey {
		bad := w.errors + w.short
		fmt.Fprintf(w.out, "%d files: %d done, %d failed\n", len(w.files), len(w.files)-bad, bad)
	}
	if w.report == "html" && !w.survey {
		if err := report.HTML(w.out, w.pages); err != nil {
			return err
		}
	}
	if file == nil {
		return nil
	}
	if err := file.LikeNew(); err != nil {
		return err
	}
	return file.Commit()
}

// failed prints the error of a file, and reports whether to go on.
func (w *work) failed(ctx context.Context, in string, err error) bool {
	w.clearBar()
	if ctx.Err() != nil {
		fmt.Fprintf(w.stderr, "cfi2sframe: %s: interrupted, nothing written\n", in)
		return false
	}
	switch {
	case errors.Is(err, convert.ErrCoverage):
		w.short++
	default:
		w.errors++
	}
	if errors.Is(err, elfwrite.ErrExists) {
		err = fmt.Errorf("%w; --force replaces it", err)
	}
	fmt.Fprintf(w.stderr, "cfi2sframe: %s: %s\n", in, printable(err.Error()))
	return true
}

// startBar shows a progress bar if there are many files and somebody who looks.
func (w *work) startBar(n int) {
	f, ok := w.stderr.(*os.File)
	if !ok || n < 2 || w.quiet || !term.IsTerminal(int(f.Fd())) {
		return
	}
	w.bar = progressbar.NewOptions(n, progressbar.OptionSetWriter(w.stderr),
		progressbar.OptionShowCount(), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
}

func (w *work) clearBar() {
	if w.bar != nil {
		_ = w.bar.Clear()
	}
}

// file converts one file and reports that.
func (w *work) file(ctx context.Context, in string) error {
	var res *convert.Result
	var err error
	if w.settings.inPlace {
		res, err = w.inPlace.File(ctx, in, w.Options)
	} else {
		res, err = convert.File(ctx, in, w.output, w.Options)
	}
	if res == nil || err != nil && !errors.Is(err, convert.ErrCoverage) {
		return err
	}
	w.clearBar()
	if err := w.print(in, res); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err != nil {
		w.worst(res)
	}
	return err
}

// worst prints the largest gaps of a file that has too many, whatever is reported otherwise.
func (w *work) worst(res *convert.Result) {
	type gap struct {
		file string
		report.Gap
	}
	var gaps []gap
	for _, c := range res.Coverage {
		for _, g := range c.Gaps {
			gaps = append(gaps, gap{c.File, g})
		}
	}
	slices.SortStableFunc(gaps, func(a, b gap) int { return cmp.Compare(b.End-b.Begin, a.End-a.Begin) })
	for i, g := range gaps {
		if i == shortList {
			break
		}
		fmt.Fprintf(w.stderr, "%s: %v\n", g.file, &g.Gap)
	}
}

// shortList is how many gaps the text report lists without -v.
const shortList = 10

func (w *work) print(in string, res *convert.Result) error {
	switch w.report {
	case "json":
		for _, c := range res.Coverage {
			if err := c.JSON(w.out); err != nil {
				return err
			}
		}
	case "html":
		w.pages = append(w.pages, res.Coverage...)
	case "text":
		return w.text(in, res)
	}
	return nil
}

// text prints what became of a file. Of an archive's members it is said one by one with -v
// only.
func (w *work) text(in string, res *convert.Result) error {
	coverage, gaps := res.Coverage, shortList
	if w.verbose {
		gaps = -1
	}
	if res.Archive && !w.verbose && len(coverage) > 0 {
		coverage = []*report.Coverage{report.Sum(in, coverage)}
	}
	for _, c := range coverage {
		if err := c.Text(w.out, gaps); err != nil {
			return err
		}
	}
	if w.Remove && (res.Archive || len(res.Kept) == 0) {
		fmt.Fprintf(w.out, "%s: .sframe is removed\n", in)
	}
	if res.Archive {
		w.kept(in, res.Kept)
	} else {
		for _, k := range res.Kept {
			fmt.Fprintf(w.out, "%s: kept as it is: %s\n", in, printable(k.Why.Error()))
		}
	}
	if res.Links > 0 {
		fmt.Fprintf(w.out, "%s: other names of the file (hard links) that keep the old contents: %d\n", in, res.Links)
	}
	return nil
}

// kept prints the members of an archive that stayed as they were: how many for which reason,
// or each with -v.
func (w *work) kept(in string, members []convert.Kept) {
	reasons := make(map[string]int)
	for _, k := range members {
		why := printable(k.Why.Error())
		reasons[why]++
		if w.verbose {
			fmt.Fprintf(w.out, "%s(%s): kept as it is: %s\n", in, printable(k.Member), why)
		}
	}
	if w.verbose {
		return
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(w.out, "  members kept as they are: %d (%s)\n", reasons[why], why)
	}
}
