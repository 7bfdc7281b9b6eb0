package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"cfi2sframe/convert"
	"cfi2sframe/report"
)

// dump prints the .sframe of each file.
func dump(ctx context.Context, s *settings, stdout, stderr io.Writer) int {
	status := exitDone
	out := bufio.NewWriter(stdout)
	for i, path := range s.files {
		if ctx.Err() != nil {
			return interrupted(ctx, stderr, s.files[i:], "not printed")
		}
		if len(s.files) > 1 {
			fmt.Fprintf(out, "%s:\n\n", report.Printable(path))
		}
		err := convert.DumpFile(ctx, out, path)
		if flushed := out.Flush(); err == nil {
			err = flushed
		}
		if errors.Is(err, context.Canceled) {
			return interrupted(ctx, stderr, s.files[i:], "not printed")
		}
		if err != nil {
			fmt.Fprintf(stderr, "cfi2sframe: %s: %s\n", report.Printable(path), printable(err.Error()))
			status = exitError
		}
	}
	return status
}

// check compares the .sframe of each file with the CFI, and prints the mismatches.
func check(ctx context.Context, s *settings, stdout, stderr io.Writer) int {
	status := exitDone
	var t tally
	for i, path := range s.files {
		if ctx.Err() != nil {
			return interrupted(ctx, stderr, s.files[i:], "not checked")
		}
		c, err := convert.CheckFile(ctx, path, s.FileOptions)
		if errors.Is(err, context.Canceled) {
			return interrupted(ctx, stderr, s.files[i:], "not checked")
		}
		if c != nil && c.Skipped != "" {
			t.stays(c.Skipped)
			if !s.quiet && (s.verbose || len(s.files) == 1) {
				fmt.Fprintf(stdout, "%s: skipped: %s\n", report.Printable(path), c.Skipped.Text())
			}
			continue
		}
		if c != nil {
			if len(c.Mismatches) > 0 {
				status = exitError
			}
			if printed := printChecked(s, stdout, path, c); err == nil {
				err = printed
			}
		}
		if err != nil {
			fmt.Fprintf(stderr, "cfi2sframe: %s: %s\n", report.Printable(path), printable(err.Error()))
			status = exitError
		}
	}
	n := t.skipped()
	if s.Require && n == len(s.files) {
		fmt.Fprintln(stderr, "cfi2sframe: --require: no program or shared library was found")
		status = exitError
	}
	if n > 0 {
		if !s.quiet && len(s.files) > 1 {
			fmt.Fprintf(stdout, "%d files: %d skipped\n%s", len(s.files), n, t.reasons("skipped"))
		}
		if s.skipStatus && status == exitDone {
			status = exitSkipped
		}
	}
	return status
}

// printChecked prints what was found in one file: the mismatches, and a summary unless the
// user wants none.
func printChecked(s *settings, w io.Writer, path string, c *convert.Checked) error {
	out := bufio.NewWriter(w)
	path = report.Printable(path)
	for _, m := range c.Mismatches {
		place := ""
		if m.Function != "" {
			place = fmt.Sprintf(" %s+%#x", printable(m.Function), m.Offset)
		}
		fmt.Fprintf(out, "%s: %#x-%#x%s: %s\n", path, m.Begin, m.End, place, m.What)
	}
	if !s.quiet {
		fmt.Fprintf(out, "%s: %v, %v, %d FDEs, %d FREs: ", path, c.ABI, c.Version, c.FDEs, c.FREs)
		fmt.Fprintf(out, "%d of %d bytes of code described by CFI have the same in SFrame (%s)",
			c.Covered, c.Described, report.Percentage(100*float64(c.Covered)/float64(max(c.Described, 1))))
		if c.Stubs > 0 {
			fmt.Fprintf(out, ", and %d bytes of PLT stubs without CFI are right", c.Stubs)
		}
		if c.Unsorted {
			fmt.Fprint(out, "; the FDEs are not sorted")
		}
		fmt.Fprintf(out, "; mismatches: %d\n", len(c.Mismatches))
	}
	return out.Flush()
}
