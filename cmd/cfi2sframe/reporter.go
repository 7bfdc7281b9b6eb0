package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/report"
)

// A reporter writes the report. What is said of files is written down, and known to have arrived,
// before they are put in their places. Where the report is a file of its own, that goes to its
// place last, and what turns out not to be so is taken back.
type reporter struct {
	*settings
	out   *bufio.Writer
	to    io.Writer          // where out leads
	file  *outfile.File      // the same, if the report is a file of its own
	pages []*report.Coverage // for the page that is written at the end
	said  bool               // there is something in it
	ended bool               // its end is written

	// Where what was said since mark begins: in the file, and in pages.
	from   int64
	first  int
	before bool // there was something in it
}

// openReport prepares the report, or says why it cannot.
func (w *work) openReport() bool {
	r := &reporter{settings: w.settings, to: w.stderr}
	if w.reportOnStdout() || w.sumsUp() {
		r.to = w.stdout
	}
	if w.reportFile != "" {
		var err error
		if r.file, err = outfile.Open(w.reportFile, 0o666); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("%w; make the directory first", err)
			}
			w.complain("report", err)
			return false
		}
		r.to = r.file
	}
	r.out = bufio.NewWriter(r.to)
	w.report = r
	return true
}

// close gives the report up, if it is not in its place.
func (r *reporter) close() {
	if r.file != nil {
		r.file.Close()
	}
}

// flush writes down what was said so far, and makes sure that it arrives.
func (r *reporter) flush() error {
	err := r.out.Flush()
	if f, ok := r.to.(*os.File); ok && err == nil {
		err = outfile.Flush(f)
	}
	return outfile.Plain(err)
}

// mark notes where rewind goes back to. Everything is flushed.
func (r *reporter) mark() error {
	r.first, r.before = len(r.pages), r.said
	if r.file == nil {
		return nil
	}
	var err error
	r.from, err = r.file.Seek(0, io.SeekCurrent)
	return outfile.Plain(err)
}

// rewind takes back what was said since mark, if that is possible, and reports whether it is.
func (r *reporter) rewind() (bool, error) {
	if r.file == nil || r.file.Stream() {
		return false, nil
	}
	r.pages, r.said, r.ended = r.pages[:r.first], r.before, false
	err := r.file.Truncate(r.from)
	if err == nil {
		_, err = r.file.Seek(r.from, io.SeekStart)
	}
	return true, outfile.Plain(err)
}

// finish ends the report with a line, and makes it ready for its place.
func (r *reporter) finish(line string) error {
	r.ended = true
	if r.report == "html" && !r.sumsUp() {
		if err := report.HTML(r.out, r.pages); err != nil {
			return outfile.Plain(err)
		}
	}
	if _, err := io.WriteString(r.out, line); err != nil {
		return outfile.Plain(err)
	}
	if err := r.flush(); err != nil || r.file == nil {
		return err
	}
	if r.file.Stream() { // which may fail
		return r.file.Commit()
	}
	return r.file.Finish(!r.NoSync)
}

// commit renames the file of the report to its final name.
func (r *reporter) commit() error {
	if r.file == nil || r.file.Stream() {
		return nil
	}
	if err := r.file.Commit(); err != nil || r.NoSync || r.file.Replaced() == nil {
		return err
	}
	return outfile.SyncDirectories([]*outfile.Place{r.file.Replaced()})[r.file.Replaced()]
}

// add says what became of a file. Errors show when it is flushed.
func (r *reporter) add(in string, res *files.Result) error {
	r.said = true
	switch r.report {
	case "json":
		return outfile.Plain(r.json(in, res))
	case "html":
		r.pages = append(r.pages, res.Coverage...)
	case "text":
		return outfile.Plain(r.text(in, res))
	}
	return nil
}

// removed reports whether .sframe was removed from a file, or from members of an archive.
func (r *reporter) removed(res *files.Result) bool { return r.Remove && res.Stays == "" }

// json says in JSON what became of a file.
func (r *reporter) json(in string, res *files.Result) error {
	if r.removed(res) {
		gone := report.Removed{Schema: report.Schema, File: in, Output: r.output, Removed: true, Unsigned: res.Unsigned}
		if r.inPlace {
			gone.Output = in
		}
		if err := report.WriteJSON(r.out, gone); err != nil {
			return err
		}
	}
	for _, c := range res.Coverage {
		if err := c.JSON(r.out); err != nil {
			return err
		}
	}
	for _, k := range res.Kept {
		if k.Reason == convert.Current || k.Reason == convert.NoRows { // which the coverage says
			continue
		}
		name := in
		if k.Member != "" {
			name = fmt.Sprintf("%s(%s)", in, k.Member)
		}
		kept := report.Kept{Schema: report.Schema, File: name, Kept: string(k.Reason), Why: k.Why.Error()}
		if err := report.WriteJSON(r.out, kept); err != nil {
			return err
		}
	}
	return nil
}

// shortList is how many gaps the text report lists without -v.
const shortList = 10

// text says in text what became of a file. Of an archive's members it is said one by one with
// -v only.
func (r *reporter) text(in string, res *files.Result) error {
	if res.Stays != "" && len(r.files) > 1 && !r.verbose && res.DebugFile == "" && len(res.PassedOver) == 0 { // which the last lines count
		return nil
	}
	coverage, gaps := res.Coverage, shortList
	if r.verbose {
		gaps = -1
	}
	if res.Archive && !r.verbose && len(coverage) > 0 {
		coverage = []*report.Coverage{report.Sum(in, coverage)}
	}
	for _, c := range coverage {
		if err := c.Text(r.out, gaps); err != nil {
			return err
		}
	}
	name := report.Printable(in)
	if r.removed(res) {
		fmt.Fprintf(r.out, "%s: .sframe is removed\n", name)
	}
	if res.Unsigned {
		fmt.Fprintf(r.out, "%s: the module signature is removed; sign it again\n", name)
	}
	if res.Archive {
		r.kept(name, res.Kept)
	} else {
		for _, k := range res.Kept {
			fmt.Fprintf(r.out, "%s: kept as it is: %s\n", name, printable(k.Why.Error()))
		}
	}
	if res.DebugFile != "" {
		fmt.Fprintf(r.out, "%s: debug file %s has the new headers\n", name, report.Printable(res.DebugFile))
	}
	for _, why := range res.PassedOver {
		fmt.Fprintf(r.out, "%s: not updated: %s\n", name, printable(why.Error()))
	}
	if res.Links > 0 {
		fmt.Fprintf(r.out, "%s: other names of the file (hard links) that keep the old contents: %d\n", name, res.Links)
	}
	return nil
}

// kept says which members of an archive stayed as they were: how many for which reason, or each
// with -v.
func (r *reporter) kept(name string, members []convert.Kept) {
	reasons := make(map[string]int)
	for _, k := range members {
		why := printable(k.Why.Error())
		reasons[why]++
		if r.verbose {
			fmt.Fprintf(r.out, "%s(%s): kept as it is: %s\n", name, printable(k.Member), why)
		}
	}
	if r.verbose {
		return
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(r.out, "  members kept as they are: %d (%s)\n", reasons[why], why)
	}
}
