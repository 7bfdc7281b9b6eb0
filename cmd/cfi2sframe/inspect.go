package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
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
		err := dumpFile(ctx, out, path)
		if flushed := out.Flush(); err == nil {
			err = flushed
		}
		if errors.Is(err, context.Canceled) {
			return interrupted(ctx, stderr, s.files[i:], "not printed")
		}
		if err != nil {
			complain(stderr, path, err)
			status = exitError
		}
	}
	return status
}

// dumpFile prints the .sframe of a file.
func dumpFile(ctx context.Context, w io.Writer, path string) error {
	in, err := files.Open(ctx, path)
	if err != nil {
		return err
	}
	defer in.Close()
	return convert.Dump(w, in.File, in.Info.Size())
}

// check compares the .sframe of each file with the CFI, and prints the mismatches.
func check(ctx context.Context, s *settings, stdout, stderr io.Writer) int {
	status := exitDone
	short := false
	var t tally
	for i, path := range s.files {
		if ctx.Err() != nil {
			return interrupted(ctx, stderr, s.files[i:], "not checked")
		}
		c, err := files.Check(ctx, path, s.Options.Options)
		if errors.Is(err, context.Canceled) {
			return interrupted(ctx, stderr, s.files[i:], "not checked")
		}
		if c != nil {
			if len(c.Mismatches) > 0 {
				status = exitError
			}
			if printed := printChecked(s, stdout, path, c); err == nil {
				err = printed
			}
		}
		switch {
		case err != nil:
			complain(stderr, path, err)
			status = exitError
		case c.Skipped != "":
			t.stays(c.Skipped)
		case c.Percent() < s.MinCoverage:
			complain(stderr, path,
				fmt.Errorf("coverage %s is below %s", report.Percentage(c.Percent()), report.Percentage(s.MinCoverage)))
			short = true
		}
	}
	n := t.skipped()
	if s.Require && n == len(s.files) {
		fmt.Fprintln(stderr, "cfi2sframe: --require: no program or shared library was found")
		status = exitError
	}
	if n > 0 && s.report == "text" && len(s.files) > 1 {
		fmt.Fprintf(stdout, "%d files: %d skipped\n%s", len(s.files), n, t.reasons("skipped"))
	}
	switch {
	case status != exitDone:
		return status
	case short:
		return exitCoverage
	case n > 0 && s.skipStatus:
		return exitSkipped
	}
	return exitDone
}

// printChecked prints what was found in one file: the mismatches, and a summary if there is a report.
func printChecked(s *settings, w io.Writer, path string, c *convert.Checked) error {
	out := bufio.NewWriter(w)
	text := s.report == "text"
	switch {
	case s.report == "json":
		if err := checkedJSON(out, path, c); err != nil {
			return err
		}
	case c.Skipped != "" && text && (s.verbose || len(s.files) == 1):
		fmt.Fprintf(out, "%s: skipped: %s\n", report.Printable(path), c.Skipped.Text())
	case c.Skipped == "":
		checkedText(out, report.Printable(path), c, text)
	}
	return out.Flush()
}

// checkedJSON writes the result of --check for a file as JSON.
func checkedJSON(w io.Writer, path string, c *convert.Checked) error {
	if c.Skipped != "" {
		return report.WriteJSON(w, &report.Kept{Schema: report.Schema, File: path, Kept: string(c.Skipped), Why: c.Skipped.Text()})
	}
	c.File = path
	return report.WriteJSON(w, &c.Check)
}

// checkedText writes the mismatches of a file, and a summary if it is wanted.
func checkedText(w io.Writer, path string, c *convert.Checked, summary bool) {
	for _, m := range c.Mismatches {
		place := ""
		if m.Function != "" {
			place = fmt.Sprintf(" %s+%#x", printable(m.Function), m.Offset)
		}
		fmt.Fprintf(w, "%s: %#x-%#x%s: %s\n", path, m.Begin, m.End, place, m.What)
	}
	if !summary {
		return
	}
	fmt.Fprintf(w, "%s: %s, %v, %d FDEs, %d FREs: ", path, c.ABI, sframe.Version(c.Format), c.FDEs, c.FREs)
	fmt.Fprintf(w, "%d of %d bytes of code described by CFI have the same in SFrame (%s)",
		c.Covered, c.Described, report.Percentage(100*float64(c.Covered)/float64(max(c.Described, 1))))
	if c.PLT > 0 {
		fmt.Fprintf(w, ", and %d bytes of PLT stubs without CFI are right", c.PLT)
	}
	if c.Padding > 0 {
		fmt.Fprintf(w, ", %d bytes of padding after functions have their last rows", c.Padding)
	}
	if !c.Sorted {
		fmt.Fprint(w, "; the FDEs are not sorted")
	}
	fmt.Fprintf(w, "; mismatches: %d\n", len(c.Mismatches))
}
