package main

import (
	"cmp"
	"context"
	"errors"

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

// lookupCommand returns the verb lookup.
func (c *call) lookupCommand() *cobra.Command {
	s := &lookupSettings{}
	cmd := newCommand("lookup FILE PC...", "print the rows for addresses")
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
	return cmd
}

// lookup prints the rows for addresses or functions in a file, and returns the exit status.
func (c *call) lookup(s *lookupSettings, path string, places []string) int {
	l, err := lookUp(c.ctx, path, places, s)
	switch {
	case errors.Is(err, context.Canceled) || c.ctx.Err() != nil:
		return printInterrupted(c.ctx, c.stderr, []string{path}, "not printed")
	case err != nil:
		complain(c.stderr, path, explain(path, err, false))
		return exitTrouble
	case s.form == "json":
		err = report.WriteJSON(c.out, l)
	case s.form == "text":
		err = l.Text(c.out)
	}
	if err != nil {
		complain(c.stderr, "report", err)
		return exitTrouble
	}
	for _, pc := range l.PCs {
		if pc.Row == nil {
			return exitDifferent
		}
	}
	return exitDone
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
