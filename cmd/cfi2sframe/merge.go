package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
			return err
		}
		s.console, s.what = c.console(s.quiet), "merge"
		c.status = s.run(c.ctx, args, to)
		return nil
	}
	return cmd
}

// run makes one survey of several, and returns the exit status.
func (s *mergeWork) run(ctx context.Context, paths []string, to *destination) int {
	parts, err := partFiles(ctx, paths, to)
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

// partFiles returns the files among paths, and all *.json below directories, except the report of this run.
func partFiles(ctx context.Context, paths []string, to *destination) ([]string, error) {
	var out []string
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
			if err == nil && info.Mode().IsRegular() && !to.isFile(info) {
				out = append(out, name)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return named(name, err)
		})
		if err != nil {
			return nil, err
		}
		if len(out) == n {
			return nil, fmt.Errorf("%s: the directory has no *.json, the parts of a survey", path)
		}
	}
	return out, nil
}

// named returns an error with the name of its file, or nil.
func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", report.Printable(name), outfile.Plain(err))
}
