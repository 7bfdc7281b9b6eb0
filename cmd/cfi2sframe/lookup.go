package main

import (
	"cmp"
	"context"
	"slices"

	"github.com/spf13/cobra"

	"cfi2sframe/cmd/cfi2sframe/internal/lookup"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/panics"
)

// lookupSettings holds the flags of lookup.
type lookupSettings struct {
	files.Sources
	reporting
	cfi bool
}

// lookupCommand defines the verb lookup.
func (c *call) lookupCommand(cmd *cobra.Command) {
	s := &lookupSettings{}
	cmd.Flags().BoolVar(&s.cfi, "cfi", false, "print the rows from CFI, not from .sframe")
	sframeFlag(cmd, &s.SFrame)
	intoFlag(cmd, &s.Reserved, intoUsage)
	cfiFlags(cmd, &s.CFI, &s.Infer, &s.DebugFile)
	s.define(cmd, "report format: none, text or json", fileForms)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := refuse(
			rule{len(args) < 2, "lookup requires a file and at least one address or function"},
			rule{s.cfi && s.SFrame != "", "--cfi and --sframe cannot be combined"},
		)
		if err := cmp.Or(checkInputs(args[:min(len(args), 1)]), err, s.reporting.check()); err != nil {
			return err
		}
		if err := c.distinctInputs(&s.reporting, args[:1]); err != nil {
			return c.usageError(err)
		}
		c.status = c.lookup(s, args[0], args[1:])
		return nil
	}
}

// lookup prints the rows for addresses or functions in a file, and returns the exit status.
func (c *call) lookup(s *lookupSettings, path string, places []string) int {
	status := exitDone
	failed, interrupted := c.each([]string{path}, "not printed", func(path string) error {
		l, err := lookUp(c.ctx, path, places, s)
		if err != nil {
			return explain(path, err, false)
		}
		if slices.ContainsFunc(l.PCs, func(pc report.PC) bool { return pc.Row == nil }) {
			status = exitDifferent
		}
		switch s.form {
		case "json":
			return report.WriteJSON(c.out, l)
		case "text":
			return l.Text(c.out)
		}
		return nil
	}, nil)
	if failed > 0 {
		status = exitTrouble
	}
	return cmp.Or(interrupted, status)
}

// lookUp finds the rows for addresses or functions in a file.
func lookUp(ctx context.Context, path string, places []string, s *lookupSettings) (l *report.Lookup, err error) {
	defer panics.Recover(&err)
	p, err := files.OpenProgram(ctx, path, s.Sources)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	l, err = lookup.Lookup(ctx, p, places, s.cfi)
	if err := p.Err(err); err != nil {
		return nil, err
	}
	l.File = path
	return l, nil
}
