package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/cmd/cfi2sframe/internal/sframediff"
	"cfi2sframe/internal/files"
)

// diffSettings holds the flags of diff.
type diffSettings struct {
	files.Sources
	reporting
}

// diffCommand returns the verb diff.
func (c *call) diffCommand() *cobra.Command {
	s := &diffSettings{}
	cmd := newCommand("diff OLD NEW", "print differences by function")
	sframeFlag(cmd, &s.SFrame)
	cfiFlags(cmd, &s.CFI, &s.Infer, &s.DebugFile)
	s.define(cmd, "report format: none, text or json", fileForms)
	s.defineVerbose(cmd, "list all functions, not only the first ten")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := refuse(rule{len(args) != 2, "diff requires two files, OLD and NEW"})
		if err := cmp.Or(checkInputs(args), err, s.reporting.check()); err != nil {
			return err
		}
		if err := c.distinctInputs(&s.reporting, args); err != nil {
			return c.usageError(err)
		}
		c.status = c.diff(s, args)
		return nil
	}
	return cmd
}

// diff prints the differences between two files, and returns the exit status.
func (c *call) diff(s *diffSettings, paths []string) int {
	var sides [2]*sframediff.Side
	for i, path := range paths {
		var err error
		sides[i], err = loadSide(c.ctx, path, s.Sources)
		if errors.Is(err, context.Canceled) || c.ctx.Err() != nil {
			return printInterrupted(c.ctx, c.stderr, paths, "not compared")
		}
		if err != nil {
			complain(c.stderr, path, explain(path, err, false))
			return exitTrouble
		}
	}
	d := sframediff.Compare(sides[0], sides[1])
	switch err := c.printDiff(s, d); {
	case err != nil:
		complain(c.stderr, "report", err)
		return exitTrouble
	case d.Same:
		return exitDone
	}
	return exitDifferent
}

// printDiff reports on two files.
func (c *call) printDiff(s *diffSettings, d *report.Diff) error {
	switch {
	case s.form == "json":
		return report.WriteJSON(c.out, d)
	case s.form == "text" && s.verbose:
		return d.Text(c.out, -1)
	case s.form == "text":
		return d.Text(c.out, shortList)
	}
	return nil
}

// loadSide reads one of the two files to compare.
func loadSide(ctx context.Context, path string, from files.Sources) (*sframediff.Side, error) {
	p, err := files.OpenProgram(ctx, path, from)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	side, err := sframediff.Load(ctx, path, p)
	if err := p.Err(err); err != nil {
		return nil, err
	}
	return side, nil
}
