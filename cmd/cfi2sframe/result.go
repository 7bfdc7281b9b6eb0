package main

import (
	"fmt"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/amounts"
	"cfi2sframe/internal/files"
)

// minimums holds the values of --min-coverage and --min-unwindable, in percent.
type minimums struct{ coverage, unwindable float64 }

// isSet reports whether a minimum is set.
func (l *minimums) isSet() bool { return l.coverage > 0 || l.unwindable > 0 }

// shortfall returns a message if the amounts are below a minimum, or "". Code without a caller counts as covered.
func (l *minimums) shortfall(a *amounts.Amounts) string {
	below := func(what string, got, want float64) string {
		return fmt.Sprintf("%s %s is below %v %%", what, report.Percentage(got), want)
	}
	switch covered, unwindable := a.CoveredPercent(), a.UnwindablePercent(); {
	case covered < l.coverage:
		return below("coverage", covered, l.coverage)
	case unwindable < l.unwindable:
		return below("unwindable code", unwindable, l.unwindable)
	}
	return ""
}

// A result holds the reports on a converted file.
type result struct {
	coverage []*report.Coverage // of the file, or of members of an archive
	refusing []string           // presets whose readers refuse the section, for a text report
	attached *report.Check
}

// options returns the options for a file. Reports on the file are added to the result.
func (r *result) options(s *conversion, path string) files.Options {
	opt := s.to
	opt.Work, opt.Run.SkipUnsupported = s.work(), s.isSkipped(path)
	if s.form == "none" && !s.minimums.isSet() {
		return opt
	}
	limits := s.limits
	if limits == nil {
		limits = report.NewLimits()
	}
	opt.Run.Report = func(d *convert.Details) error {
		if d.Comparison != nil {
			var err error
			r.attached, err = report.Checked(d.Comparison, d.File, d.Debug.File(), d.Table)
			return err
		}
		if r.coverage == nil {
			limits.Grow(int64(d.InputSize))
		}
		r.coverage = append(r.coverage, report.Converted(d, limits))
		if s.form != "text" {
			return nil
		}
		var err error
		r.refusing, err = refusing(d)
		return err
	}
	opt.Accept = func() string {
		if len(r.coverage) == 0 || r.isWithoutCFI() { // a minimum does not apply to skipped files
			return ""
		}
		return s.minimums.shortfall(&report.Sum("", r.coverage).Amounts)
	}
	return opt
}

// isWithoutCFI reports whether the file is unchanged because it has no CFI.
func (r *result) isWithoutCFI() bool {
	return len(r.coverage) == 1 &&
		(r.coverage[0].Kept == string(convert.NoCFI) || r.coverage[0].Kept == string(convert.NoCode))
}

// setError adds why nothing was written to the reports.
func (r *result) setError(err error) {
	for _, c := range r.coverage {
		c.Error = report.PrintableMessage(err.Error())
	}
}

// setNames adds the names of input and output to the reports, after the conversion.
func (r *result) setNames(j *files.Job) {
	if j.Result == nil {
		return
	}
	for _, c := range r.coverage {
		c.File, c.Output = j.In+c.File, j.Result.Output
		if !j.Result.Archive && j.Result.Stays != "" {
			c.Kept = string(j.Result.Stays)
		}
	}
	if r.attached != nil {
		r.attached.File = j.In
	}
}
