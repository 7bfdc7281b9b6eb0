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

	"github.com/spf13/cobra"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/cmd/cfi2sframe/internal/sframediff"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/sframe"
)

// diffSettings are the flags of diff.
type diffSettings struct {
	files.Sources
	reporting
	recursive bool
}

// diffCommand returns the verb diff.
func (c *call) diffCommand() *cobra.Command {
	s := &diffSettings{}
	cmd := newCommand("diff OLD NEW", "print differences by function")
	cmd.Flags().BoolVarP(&s.recursive, "recursive", "r", false, "compare all files of two directories")
	sframeFlag(cmd, &s.SFrame)
	cfiFlags(cmd, &s.CFI, &s.DebugFile)
	s.define(cmd, "report: none, text or json", fileForms)
	s.defineVerbose(cmd, "list all functions, not only the first ten")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := refuse(rule{len(args) != 2, "diff requires two files, OLD and NEW"})
		if err := cmp.Or(checkInputs(args), err, s.reporting.check()); err != nil {
			return err
		}
		if isDir(args[0]) && isDir(args[1]) && s.recursive {
			c.status = c.diffTrees(s, args)
		} else {
			c.status = c.diff(s, args)
		}
		return nil
	}
	return cmd
}

// isDir reports whether a path leads to a directory.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// diff prints the differences between two files, and returns the exit status.
func (c *call) diff(s *diffSettings, paths []string) int {
	var sides [2]*sframediff.Side
	for i, path := range paths {
		var err error
		sides[i], err = loadSide(c.ctx, path, s.Sources)
		if errors.Is(err, context.Canceled) || c.ctx.Err() != nil {
			return interrupted(c.ctx, c.stderr, paths, "not compared")
		}
		if err != nil {
			complain(c.stderr, path, explain(path, err, !s.recursive))
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

// diffTrees prints the differences between the files of the same paths in two directories, and returns the exit status.
func (c *call) diffTrees(s *diffSettings, roots []string) int {
	same, different, without, failed := 0, 0, 0, 0
	only := [2]int{}
	to := s.destination(c.stdout, "standard output")
	paths, unread := c.relative(roots, to, s.quiet)
	failed += unread
	for _, path := range paths {
		var sides [2]*sframediff.Side
		broken := false
		for i, root := range roots {
			name := filepath.Join(root, path)
			var err error
			if sides[i], err = loadSide(c.ctx, name, s.Sources); c.ctx.Err() != nil {
				return interrupted(c.ctx, c.stderr, roots, "not compared")
			}
			missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, sframe.ErrNone) || convert.ReasonOf(err) != ""
			if err != nil && !missing {
				complain(c.stderr, name, err)
				broken = true
			}
		}
		var err error
		switch has := 0; {
		case broken:
			failed++
		case sides[0] == nil && sides[1] == nil:
			without++
		case sides[0] != nil && sides[1] != nil:
			d := sframediff.Compare(sides[0], sides[1])
			if d.Same {
				same++
				continue
			}
			different++
			err = c.printDiff(s, d)
		default:
			if sides[1] != nil {
				has = 1
			}
			only[has]++
			err = c.printOnly(s, path, roots[has], [...]string{"old", "new"}[has])
		}
		if err != nil {
			complain(c.stderr, "report", err)
			return exitTrouble
		}
	}
	if s.form == "text" {
		fmt.Fprintf(c.out, "%d files: %d the same, %d different, %d only in %s, %d only in %s, %d without .sframe, "+
			"%d failed\n", len(paths), same, different, only[0], report.Printable(roots[0]), only[1],
			report.Printable(roots[1]), without, failed)
	}
	switch {
	case failed > 0:
		return exitTrouble
	case different+only[0]+only[1] > 0:
		return exitDifferent
	}
	return exitDone
}

// printOnly reports on a file of which only one directory has an .sframe.
func (c *call) printOnly(s *diffSettings, path, root, which string) error {
	switch s.form {
	case "json":
		return report.WriteJSON(c.out, &report.Only{Schema: report.DiffSchema, File: path, Only: which})
	case "text":
		_, err := fmt.Fprintf(c.out, "%s: only %s has an .sframe\n", report.Printable(path), report.Printable(root))
		return err
	}
	return nil
}

// relative returns the paths of the files in directories, each once, and the number of errors.
func (c *call) relative(roots []string, to *destination, quiet bool) ([]string, int) {
	var all []string
	failed := 0
	for _, root := range roots {
		found, unread := c.walk([]string{root}, to, quiet)
		failed += unread
		for _, name := range found {
			if path, err := filepath.Rel(root, name); err == nil {
				all = append(all, path)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all), failed
}

// loadSide reads one of the files.
func loadSide(ctx context.Context, path string, from files.Sources) (*sframediff.Side, error) {
	p, err := files.OpenProgram(ctx, path, from)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	side, err := sframediff.Load(path, p)
	if err := p.Err(err); err != nil {
		return nil, err
	}
	return side, nil
}
