package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"cfi2sframe/convert"
	"cfi2sframe/report"
)

// Exit statuses of --diff, which are those of diff(1).
const (
	exitSame      = 0
	exitDifferent = 1
	exitTrouble   = 2 // as of wrong usage
)

// diff prints what is different between the .sframe of two files.
func diff(ctx context.Context, s *settings, stdout, stderr io.Writer) int {
	d, err := convert.DiffFiles(ctx, s.files[0], s.files[1], s.FileOptions)
	if errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return interrupted(ctx, stderr, s.files, "not compared")
	}
	if err != nil {
		path := s.files[0]
		if of := (*convert.FileError)(nil); errors.As(err, &of) {
			path, err = of.Path, of.Err
		}
		fmt.Fprintf(stderr, "cfi2sframe: %s: %s\n", report.Printable(path), printable(err.Error()))
		return exitTrouble
	}
	switch {
	case s.report == "json":
		err = report.WriteJSON(stdout, d)
	case s.report == "text" && s.verbose:
		err = d.Text(stdout, -1)
	case s.report == "text":
		err = d.Text(stdout, shortList)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "cfi2sframe: report: %s\n", printable(err.Error()))
		return exitTrouble
	case d.Same:
		return exitSame
	}
	return exitDifferent
}
