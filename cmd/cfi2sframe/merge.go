package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/survey"
	"cfi2sframe/report"
)

// sumsUp reports whether there is one report on all files, which says nothing of any conversion.
func (s *settings) sumsUp() bool { return s.survey || s.merge }

// completeMerge is complete for what is about the parts of surveys.
func (s *settings) completeMerge() error {
	if s.against != "" && s.report != "none" && !slices.Contains(survey.ComparisonForms, s.report) {
		return fmt.Errorf("--report %s is not for --against; %s was expected", s.report, strings.Join(survey.ComparisonForms, " or "))
	}
	return nil
}

// merged makes one survey of several.
func (w *work) merged(ctx context.Context) int {
	parts, err := w.partFiles(ctx)
	if err != nil {
		return w.summedUp(ctx, "merge", err)
	}
	if !w.openReport() {
		return exitError
	}
	defer w.report.close()
	s, err := survey.Merge(ctx, parts, survey.MergeOptions{Tool: thisBuild().String(), Partial: w.partial, Jobs: w.jobs}, w.progress)
	w.clearBar()
	if err == nil && w.against == "" && w.settings.report != "none" {
		err = w.writeSurvey(s)
	}
	if err == nil && w.settings.report == "csv" && s.Only() != "" { // which the form has no place for
		w.complain("merge", errors.New(s.Only()))
	}
	if err == nil && w.against != "" {
		err = w.compared(s)
	}
	return w.summedUp(ctx, "merge", err)
}

// compared says what is different from an earlier survey.
func (w *work) compared(s *survey.Survey) error {
	c, err := s.Against(w.against)
	if err != nil || w.settings.report == "none" {
		return err
	}
	return outfile.Plain(c.Write(w.report.out, w.settings.report))
}

// partFiles returns the given files, and all *.json below the given directories. The report of an earlier run may be among
// them.
func (w *work) partFiles(ctx context.Context) ([]string, error) {
	said := w.reportDestination(w.stdout, w.stderr)
	var out []string
	for _, given := range w.files {
		info, err := os.Stat(given)
		if err != nil || !info.IsDir() { // what is wrong is said when it is opened
			out = append(out, given)
			continue
		}
		n := len(out)
		err = filepath.WalkDir(given+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return named(name, err)
			case d.IsDir() || !strings.HasSuffix(name, ".json"):
				return nil
			}
			info, err := os.Stat(name) // build systems have symbolic links for what others made
			if err != nil {
				return named(name, err)
			}
			if info.Mode().IsRegular() && (said == nil || !said.isFile(info)) {
				out = append(out, name)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(out) == n {
			return nil, fmt.Errorf("%s: no *.json is in this folder; parts of a survey were expected", given)
		}
	}
	return out, nil
}

// named returns an error with the name of what it is about, once.
func named(name string, err error) error {
	return fmt.Errorf("%s: %w", report.Printable(name), outfile.Plain(err))
}
