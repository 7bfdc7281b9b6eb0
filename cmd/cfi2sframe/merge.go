package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/survey"
	"cfi2sframe/report"
)

// A mergeWork has the flags of merge, and does its work.
type mergeWork struct {
	sumWork
	partial bool
}

// mergeCommand returns the verb merge.
func (c *call) mergeCommand() *cobra.Command {
	s := &mergeWork{}
	cmd := newCommand("merge PART...", "combine parts of a survey")
	f := cmd.Flags()
	f.BoolVar(&s.partial, "partial", false, "merge although shards are missing; the report lists the existing ones")
	s.define(cmd, "parts at a time, up to the number of processors; 0: one for each")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(checkInputs(args), s.reporting.check()); err != nil {
			return err
		}
		to := s.destination(c.stdout, "standard output")
		if err := to.distinct("an input", args...); err != nil {
			return c.usage(err)
		}
		s.console, s.what = c.console(s.quiet), "merge"
		c.status = s.run(c.ctx, args, to)
		return nil
	}
	return cmd
}

// run makes one survey of several, and returns the exit status.
func (s *mergeWork) run(ctx context.Context, paths []string, to *destination) int {
	parts, old, err := partFiles(ctx, paths, to)
	if err == nil {
		err = s.open()
	}
	if err != nil {
		return s.finish(ctx, err)
	}
	defer s.report.close()
	opt := survey.MergeOptions{Tool: thisBuild().String(), Partial: s.partial, Jobs: s.jobs}
	whole, err := survey.Merge(ctx, parts, opt, s.progress)
	s.bar.Clear()
	if err == nil && old != "" {
		err = s.replaces(ctx, old, whole)
	}
	if err == nil && s.form == "csv" && whole.Only() != "" { // this form has no place for it
		complain(s.stderr, s.what, errors.New(whole.Only()))
	}
	switch {
	case err != nil:
	case s.form != "none":
		err = s.write(whole)
	}
	return s.finish(ctx, err)
}

// replaces returns an error if the old report is one of the parts, and not the result of an earlier run: it has paths
// that the others do not have.
func (s *mergeWork) replaces(ctx context.Context, old string, whole *survey.Survey) error {
	before, err := survey.Merge(ctx, []string{old}, survey.MergeOptions{Tool: thisBuild().String(), Partial: true}, nil)
	if err != nil {
		if ctx.Err() != nil || outfile.OfMachine(err) {
			return err
		}
		return nil // no survey
	}
	for _, p := range before.Paths {
		if !slices.ContainsFunc(whole.Paths, func(q survey.Part) bool { return p.Name == q.Name }) {
			return fmt.Errorf("--report-file %s is also a part, with %s; use another file", s.file, p.Name)
		}
	}
	return nil
}

// partFiles returns the files among paths, and all *.json below directories. The report of an earlier run, which this
// one replaces, is no part of it, but is returned separately.
func partFiles(ctx context.Context, paths []string, to *destination) (out []string, old string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() { // errors are reported when it is opened
			out = append(out, path)
			continue
		}
		n := len(out)
		err = filepath.WalkDir(path+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".json") {
				return named(name, err)
			}
			info, err := os.Stat(name) // build systems have symbolic links to files of other steps
			if err == nil && to.isFile(info) {
				old = name
			} else if err == nil && info.Mode().IsRegular() {
				out = append(out, name)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return named(name, err)
		})
		if err != nil {
			return nil, "", err
		}
		if len(out) == n {
			return nil, "", fmt.Errorf("%s: the directory has no *.json, the parts of a survey", path)
		}
	}
	return out, old, nil
}

// named returns an error with the name of its file, or nil.
func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", report.Printable(name), outfile.Plain(err))
}
