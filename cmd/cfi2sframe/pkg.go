package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/repack"
	"cfi2sframe/report"
)

// packageSettings are the flags of pkg.
type packageSettings struct {
	*conversion
	objects bool
}

// packageCommand returns the verb pkg.
func (c *call) packageCommand() *cobra.Command {
	s := &packageSettings{conversion: newConversion()}
	cmd := newCommand("pkg IN -o OUT\npkg --in-place PKG...", "convert a .deb or .rpm")
	s.outputFlags(cmd, "replace each PKG by its result")
	s.formatFlags(cmd)
	s.replaceFlags(cmd)
	cmd.Flags().BoolVar(&s.objects, "objects", false,
		"also convert relocatable objects and static libraries, but not kernel modules")
	s.define(cmd, "report on each file: none, text (on stderr) or json (on stdout)", fileForms)
	s.defineFile(cmd)
	s.defineVerbose(cmd, "list all gaps in the text report, and the unchanged files")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := s.complete(cmd, args); err != nil {
			return err
		}
		if slices.Contains(args, files.Stdin) {
			return errors.New("pkg cannot read standard input (-); use a file")
		}
		if err := s.distinct(c.stdout, c.stderr); err != nil {
			return err
		}
		s.Into = s.into
		w := &work{console: c.console(s.quiet), conversion: s.conversion}
		c.status = w.run(c.ctx)
		return nil
	}
	return cmd
}

// into converts a package, like convert.Into.
func (s *packageSettings) into(
	ctx context.Context, r io.ReaderAt, size int64, create func() (*os.File, error), opt convert.Options,
) (*convert.Result, error) {
	heap.Raise(0, uint64(size))
	path := opt.Path
	opt.Limits, opt.Path = report.NewLimits(), ""
	to := bufio.NewWriterSize(io.Discard, 1<<20)
	if !opt.DryRun {
		file, err := create()
		if err != nil {
			return nil, err
		}
		to.Reset(&output{Writer: file, name: cmp.Or(s.output, path)})
	}
	var err error
	s.packed, err = repack.Convert(ctx, r, size, to, repack.Options{Options: opt, Objects: s.objects})
	if err == nil {
		err = to.Flush()
	}
	switch err = outfile.Plain(err); {
	case errors.Is(err, convert.ErrCoverage):
		short := s.packed.Files[len(s.packed.Files)-1].Result
		inPackage("", short)
		return short, err
	case err != nil:
		return nil, err
	case s.inPlace && s.packed.Same:
		return &convert.Result{Stays: convert.Current}, nil
	}
	return &convert.Result{}, nil
}

// inPackage adds the name of a package to the names of files in a result.
func inPackage(name string, res *convert.Result) {
	for _, c := range res.Coverage {
		c.File = name + "!" + c.File
	}
}

// addPackage reports on the current package.
func (w *work) addPackage(in string) error {
	res := w.packed
	for _, f := range res.Files {
		name := in + "!" + f.Name
		if f.Result.Stays == repack.Defective {
			complain(w.stderr, name, fmt.Errorf("%w; the file is unchanged", f.Result.Kept[0].Why))
		}
		if w.form == "text" && f.Result.Stays != "" && !w.verbose { // the summary counts it
			continue
		}
		inPackage(in, f.Result)
		if err := w.add(name, &files.Result{Result: f.Result}); err != nil {
			return err
		}
	}
	w.report.said = true
	sum := w.sumOf(in, res)
	var err error
	switch w.form {
	case "text":
		_, err = io.WriteString(w.report.out, packageText(sum))
	case "json":
		err = report.WriteJSON(w.report.out, sum)
	}
	return outfile.Plain(err)
}

// sumOf sums up the files of a package.
func (w *work) sumOf(in string, res *repack.Result) *report.Package {
	p := &report.Package{
		Schema: report.Schema, Package: in, Output: w.output, Files: len(res.Files), Others: res.Others,
		Kept: make(map[string]int), Before: uint64(res.Read), After: uint64(res.Written),
	}
	if w.inPlace && !res.Same {
		p.Output = in
	}
	for _, f := range res.Files {
		p.FilesBefore += uint64(f.Before)
		p.FilesAfter += uint64(f.After)
		if f.Result.Stays == "" {
			p.Converted++
		} else {
			p.Kept[string(f.Result.Stays)]++
		}
	}
	return p
}

// packageText returns the sum as text.
func packageText(p *report.Package) string {
	var b strings.Builder
	kept := p.Files - p.Converted
	fmt.Fprintf(&b, "%s: ELF files: %d (%d converted, %d unchanged), other files: %d\n",
		report.Printable(p.Package), p.Files, p.Converted, kept, p.Others)
	b.WriteString(reasons("unchanged", p.Kept, repack.Text))
	if p.After > 0 {
		fmt.Fprintf(&b, "  bytes of ELF files: %s; of the package: %s\n",
			change(p.FilesBefore, p.FilesAfter), change(p.Before, p.After))
	}
	return b.String()
}

// change returns how a number changes, as text.
func change(before, after uint64) string {
	if before == after {
		return report.Digits(before)
	}
	sign, by := "+", after-before
	if after < before {
		sign, by = "-", before-after
	}
	return fmt.Sprintf("%s, now %s (%s%s)", report.Digits(before), report.Digits(after), sign, report.Digits(by))
}
