package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/cmd/cfi2sframe/internal/survey"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
)

// sumWork is the common part of survey and merge, which write one report on all files.
type sumWork struct {
	console
	reporting
	noSync bool
	what   string // the verb
}

// define defines the flags of survey and merge.
func (w *sumWork) define(cmd *cobra.Command) {
	w.reporting.define(cmd, "report format: none, text, json or html", []string{"none", "text", "json", "html"})
	w.defineFile(cmd)
	noSyncFlag(cmd, &w.noSync)
}

// surveyCommand defines the verb survey.
func (c *call) surveyCommand(cmd *cobra.Command) {
	w := &sumWork{what: "survey"}
	opt := survey.Options{Starting: heap.Raise}
	f := cmd.Flags()
	f.BoolVar(&opt.Objects, "objects", false, "also survey relocatable objects and archives")
	inferFlag(cmd, &opt.Infer)
	shard := &value{kind: "I/N", set: func(text string) (err error) {
		if opt.Shard, err = survey.ParseShard(text); err != nil {
			err = errors.New(strings.TrimPrefix(err.Error(), strconv.Quote(text)+" ")) // pflag names the value
		}
		return err
	}}
	f.Var(shard, "shard", "survey only part I of N of the files below the PATHs, divided by name; merge "+
		"combines the parts")
	w.define(cmd)
	jobsFlag(cmd, &opt.Jobs, "number of files to examine at a time, at most one per processor; 0: one per processor")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(checkInputs(args), w.reporting.check()); err != nil {
			return err
		}
		if err := c.distinctInputs(&w.reporting, args); err != nil {
			return c.usageError(err)
		}
		w.console = console{c.stdout, c.stderr}
		opt.IsOutput = w.destination(c.stdout, "standard output").matches
		c.status = w.run(c.ctx, args, func() (*survey.Survey, error) {
			return survey.Run(c.ctx, args, opt)
		})
		return nil
	}
}

// mergeCommand defines the verb merge.
func (c *call) mergeCommand(cmd *cobra.Command) {
	w := &sumWork{what: "merge"}
	w.define(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cmp.Or(checkInputs(args), w.reporting.check()); err != nil {
			return err
		}
		if err := c.distinctInputs(&w.reporting, args); err != nil {
			return c.usageError(err)
		}
		w.console = console{c.stdout, c.stderr}
		c.status = w.run(c.ctx, args, func() (*survey.Survey, error) { return survey.Merge(args) })
		return nil
	}
}

// run writes the report on a survey of the given paths, and returns the exit status.
func (w *sumWork) run(ctx context.Context, paths []string, survey func() (*survey.Survey, error)) int {
	r, err := openReport(&w.reporting, w.stdout, "standard output", w.noSync)
	if err == nil {
		defer r.close()
		s, failed := survey()
		err = failed
		if err == nil {
			err = w.write(r, s, paths)
		}
	}
	if err == nil {
		err = outfile.Plain(r.finish("", true))
	}
	switch {
	case errors.Is(err, context.Canceled):
		complain(w.stderr, w.what, errors.New("interrupted, nothing written"))
		return interruptedStatus(ctx)
	case err != nil:
		complain(w.stderr, w.what, err)
		return exitError
	}
	return exitDone
}

// write writes a survey of the given paths.
func (w *sumWork) write(r *reporter, s *survey.Survey, paths []string) error {
	switch w.form {
	case "text":
		return outfile.Plain(s.Text(r.out))
	case "json":
		return outfile.Plain(s.JSON(r.out))
	case "html":
		heading := report.Printable(paths[0])
		if n := len(paths) - 1; n > 0 {
			heading += " and " + strconv.Itoa(n) + " more"
		}
		return outfile.Plain(s.HTML(r.out, heading, thisVersion()))
	}
	return nil
}
