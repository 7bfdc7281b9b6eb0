package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/survey"
	"cfi2sframe/report"
)

// A sumWork is the common part of the verbs with one report on all files: survey and merge.
type sumWork struct {
	console
	reporting
	noSync bool
	jobs   int
	what   string // the verb
	report *reporter
}

// define defines the flags of both verbs.
func (w *sumWork) define(cmd *cobra.Command, jobs string) {
	forms := append([]string{"none"}, survey.Forms...)
	w.reporting.define(cmd, "report: none, text, json, csv or html", forms)
	w.defineFile(cmd)
	jobsFlag(cmd, &w.jobs, jobs)
	noSyncFlag(cmd, &w.noSync)
}

// A surveyWork has the flags of survey, and does its work.
type surveyWork struct {
	sumWork
	survey.Settings
	reportDir string
	shard     survey.Shard
	isOutput  func(path string) bool
}

// surveyCommand returns the verb survey.
func (c *call) surveyCommand() *cobra.Command {
	s := &surveyWork{}
	cmd := newCommand("survey PATH...", "sum up the coverage of all files of a tree")
	f := cmd.Flags()
	f.BoolVar(&s.Objects, "objects", false, "also survey relocatable objects and archives")
	shard := &value{kind: "I/N", set: func(text string) (err error) {
		if s.shard, err = survey.ParseShard(text); err != nil {
			err = errors.New(strings.TrimPrefix(err.Error(), strconv.Quote(text)+" ")) // pflag names the value
		}
		return err
	}}
	f.Var(shard, "shard", "survey part I of N of all files below the PATHs; merge joins the parts")
	s.define(cmd, "files at a time, up to the number of processors; 0: one for each")
	f.StringVar(&s.reportDir, "report-dir", "",
		"write a page to `DIR`/index.html, and pages next to it for files that lose something")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := cmp.Or(checkInputs(args), s.directReport(f.Changed("report")))
		if err := cmp.Or(err, s.reporting.check()); err != nil {
			return err
		}
		to := s.destination(c.stdout, "standard output")
		if err := to.distinct("an input", args...); err != nil {
			return c.usage(err)
		}
		s.console, s.what, s.isOutput = c.console(s.quiet), "survey", to.is
		c.status = s.run(c.ctx, args)
		return nil
	}
	return cmd
}

// directReport sends the report to the directory for pages.
func (s *surveyWork) directReport(formChosen bool) error {
	switch {
	case s.reportDir == "":
		return nil
	case s.file != "":
		return errors.New("--report-dir and --report-file cannot be combined")
	case formChosen && s.form != "html":
		return fmt.Errorf("--report-dir and --report %s cannot be combined", s.form)
	}
	s.form, s.file = "html", filepath.Join(s.reportDir, surveyIndex)
	return nil
}

// run sums up the files below paths, and returns the exit status.
func (s *surveyWork) run(ctx context.Context, paths []string) int {
	if s.reportDir != "" {
		if err := os.MkdirAll(s.reportDir, 0o777); err != nil {
			return s.finish(ctx, fmt.Errorf("cannot make the directory %s: %w", s.reportDir, outfile.Plain(err)))
		}
		if err := notPage(s.file); err != nil {
			return s.finish(ctx, err)
		}
	}
	if err := s.open(); err != nil {
		return s.finish(ctx, err)
	}
	defer s.report.close()
	opt := survey.Options{
		Settings: s.Settings, Tool: thisBuild().String(), Shard: s.shard, Jobs: s.jobs, Starting: heap.Raise,
	}
	opt.Scanning, opt.IsOutput = s.scanning, s.isOutput
	result, err := survey.Run(ctx, paths, opt, s.progress)
	s.scan.Clear()
	s.bar.Clear()
	switch {
	case err != nil || s.form == "none":
	case s.reportDir != "":
		var links map[string]string
		if links, err = s.pages(ctx, result, s.reportDir); err == nil {
			err = outfile.Plain(result.HTML(s.report.out, links, today()))
		}
	default:
		err = s.write(result)
	}
	return s.finish(ctx, err)
}

// open opens the report.
func (w *sumWork) open() (err error) {
	w.report, err = openReport(&w.reporting, w.stdout, "standard output", w.noSync)
	return err
}

// write writes the report. File names in it cannot control a terminal.
func (w *sumWork) write(s *survey.Survey) error {
	if f, ok := w.report.to.(*os.File); ok && w.form == "csv" && cwriter.IsTerminal(int(f.Fd())) {
		return outfile.Plain(s.CSV(w.report.out, report.Printable))
	}
	if w.form == "html" {
		return outfile.Plain(s.HTML(w.report.out, nil, today()))
	}
	return outfile.Plain(s.Write(w.report.out, w.form))
}

// finish ends the report if there was no error, and returns the exit status.
func (w *sumWork) finish(ctx context.Context, err error) int {
	if errors.Is(err, context.Canceled) {
		return interrupted(ctx, w.stderr, []string{w.what}, "nothing written")
	}
	if err == nil {
		err = w.report.finish("")
	}
	if err == nil {
		err = outfile.Plain(w.report.commit())
	}
	if err != nil {
		complain(w.stderr, w.what, err)
		return exitError
	}
	return exitDone
}
