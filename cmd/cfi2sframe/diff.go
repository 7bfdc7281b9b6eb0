package main

import (
	"context"
	"errors"
	"io"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/sframediff"
	"cfi2sframe/report"
)

// Exit statuses of --diff, which are those of diff(1).
const (
	exitSame      = 0
	exitDifferent = 1
	exitTrouble   = 2 // as of wrong usage
)

// diff prints the differences between the .sframe of two files.
func diff(ctx context.Context, s *settings, stdout, stderr io.Writer) int {
	var sides [2]*sframediff.Side
	for i, path := range s.files {
		var err error
		sides[i], err = loadSide(ctx, path, s.Options.Options)
		if errors.Is(err, context.Canceled) || ctx.Err() != nil {
			return interrupted(ctx, stderr, s.files, "not compared")
		}
		if err != nil {
			complain(stderr, path, err)
			return exitTrouble
		}
	}
	d := sframediff.Compare(sides[0], sides[1])
	var err error
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
		complain(stderr, "report", err)
		return exitTrouble
	case d.Same:
		return exitSame
	}
	return exitDifferent
}

// loadSide reads one of the files.
func loadSide(ctx context.Context, path string, opt convert.Options) (*sframediff.Side, error) {
	in, err := files.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return sframediff.Load(path, in.File, in.Info.Size(), opt)
}
