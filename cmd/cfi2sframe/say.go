package main

import (
	"fmt"
	"maps"
	"slices"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
)

// reportOn reports on a file.
func (w *work) reportOn(j *files.Job, r *result) error {
	if j.Result == nil { // a second name of a file that was already converted
		return nil
	}
	w.report.said = true
	switch w.settings.form {
	case "json":
		return w.reportJSON(j, r)
	case "html":
		w.report.pages = append(w.report.pages, r.coverage...)
	case "text":
		return w.reportText(j, r)
	}
	return nil
}

// wasRemoved reports whether .sframe was removed from a file, or from members of an archive.
func (w *work) wasRemoved(res *files.Result) bool {
	return w.settings.verb == "remove" && res.Stays == ""
}

// reportJSON reports on a file in JSON.
func (w *work) reportJSON(j *files.Job, r *result) error {
	in, res := j.In, j.Result
	if w.wasRemoved(res) {
		gone := &report.Removed{
			Schema: report.Schema, File: in, Output: w.settings.output, Removed: true, Unsigned: res.Unsigned,
		}
		if w.settings.inPlace {
			gone.Output = in
		}
		if err := report.WriteJSON(w.report.out, gone); err != nil {
			return err
		}
	}
	if r.attached != nil {
		if err := report.WriteJSON(w.report.out, r.attached); err != nil {
			return err
		}
	}
	for _, c := range r.coverage {
		if err := report.WriteJSON(w.report.out, c); err != nil {
			return err
		}
	}
	for _, k := range res.Kept {
		if k.Reason == convert.Current || k.Reason == convert.NoRows || r.isWithoutCFI() {
			continue // included in the coverage report
		}
		name := in
		if k.Member != "" {
			name = fmt.Sprintf("%s(%s)", in, k.Member)
		}
		kept := &report.Kept{Schema: report.Schema, File: name, Kept: string(k.Reason), Why: whyKept(k)}
		if err := report.WriteJSON(w.report.out, kept); err != nil {
			return err
		}
	}
	return nil
}

// whyKept returns why a file is unchanged.
func whyKept(k convert.Kept) string {
	if k.Reason == convert.Exists {
		return k.Why.Error() + "; " + adviceOn(k.Why)
	}
	return k.Why.Error()
}

// shortList is the number of gaps that the text report lists without -v.
const shortList = 10

// reportText reports on a file as text. Members of an archive are listed with -v only.
func (w *work) reportText(j *files.Job, r *result) error {
	in, res := j.In, j.Result
	if r.isWithoutCFI() {
		if c := r.coverage[0]; w.isList() && c.Code > 0 {
			w.addRow(in, c)
		}
		r = &result{}
	}
	if res.Stays != "" && w.all > 1 && !w.settings.verbose {
		return nil // the summary counts it
	}
	coverage, gaps := r.coverage, shortList
	if w.settings.verbose {
		gaps = -1
	}
	if res.Archive && !w.settings.verbose && len(coverage) > 0 {
		coverage = []*report.Coverage{report.Sum(in, coverage)}
	}
	for _, c := range coverage {
		if w.isList() {
			w.addRow(in, c)
			continue
		}
		if err := c.Text(w.report.out, gaps); err != nil {
			return err
		}
		fmt.Fprintf(w.report.out, "  read by: %s\n", w.readers(r.refusing))
	}
	name := report.Printable(in)
	if r.attached != nil {
		checkedText(w.report.out, name, r.attached, true)
	}
	if w.wasRemoved(res) {
		fmt.Fprintf(w.report.out, "%s: .sframe removed\n", name)
	}
	if res.Unsigned {
		fmt.Fprintf(w.report.out, "%s: module signature removed; sign the module again\n", name)
	}
	if res.Archive {
		if !w.isList() {
			w.reportKept(name, res.Kept)
		}
	} else {
		for _, k := range res.Kept {
			fmt.Fprintf(w.report.out, "%s: unchanged: %s\n", name, report.PrintableMessage(whyKept(k)))
		}
	}
	if res.Links > 0 {
		fmt.Fprintf(w.report.out, "%s: other hard links, which keep the old contents: %d\n",
			name, res.Links)
	}
	return nil
}

// isList reports whether the text report is a list with one line per file.
func (w *work) isList() bool { return w.settings.form == "text" && w.many && !w.settings.verbose }

// columns is the format of a line in the list of files. Names are last because they can be long.
const columns = "%11s %14s %12s  %s\n"

// addRow adds a file to the list of files.
func (w *work) addRow(in string, c *report.Coverage) {
	if w.report.rows == 0 {
		fmt.Fprintf(w.report.out, columns, "unwindable", "bytes of code", ".sframe", "file")
	}
	w.report.rows++
	fmt.Fprintf(w.report.out, columns, report.UnwindableShare(&c.Amounts), report.Digits(c.Code), report.Digits(c.Size),
		report.Printable(in))
}

// readers lists the readers that support the format, except for some.
func (w *work) readers(except []string) string {
	if w.settings.Linux > convert.LinuxUser {
		return w.settings.like
	}
	return readersOf(convert.Format{Version: w.settings.Version, PCRel: w.settings.PCRel,
		Outermost: w.settings.Outermost}, except)
}

// reportKept reports on the unchanged members of an archive: each with -v, otherwise their number per reason.
func (w *work) reportKept(name string, members []convert.Kept) {
	reasons := make(map[string]int)
	for _, k := range members {
		why := report.PrintableMessage(whyKept(k))
		reasons[why]++
		if w.settings.verbose {
			fmt.Fprintf(w.report.out, "%s(%s): unchanged: %s\n", name, report.PrintableMessage(k.Member), why)
		}
	}
	if w.settings.verbose {
		return
	}
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(w.report.out, "  unchanged members: %d (%s)\n", reasons[why], why)
	}
}
