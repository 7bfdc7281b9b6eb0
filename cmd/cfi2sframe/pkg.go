package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
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
		w := &packageWork{work{console: c.console(s.quiet), conversion: s.conversion}, s.objects}
		c.status = w.run(c.ctx)
		return nil
	}
	return cmd
}

// A packageWork converts packages, one after the other.
type packageWork struct {
	work
	objects bool
}

// run converts the packages of the command line, and returns the exit status.
func (w *packageWork) run(ctx context.Context) int {
	if w.begin() != nil {
		return exitError
	}
	defer w.report.close()
	w.startBar(len(w.files))
	for i, in := range w.files {
		err := ctx.Err()
		if err == nil {
			w.bar.Describe(report.Printable(filepath.Base(in)))
			err = w.one(ctx, in, i == len(w.files)-1)
		}
		if err != nil {
			w.bar.Clear()
			w.failed(in, err)
		}
		switch {
		case err == nil, w.interrupted:
		case errors.Is(err, convert.ErrCoverage):
			w.short++
		default:
			w.errors++
		}
		w.bar.Set(i + 1)
	}
	return w.end(ctx, "")
}

// one converts a package, reports on its files, and replaces it.
func (w *packageWork) one(ctx context.Context, in string, last bool) error {
	open := files.OpenInPlace
	if !w.inPlace {
		open = func(name string) (*files.Input, error) { return files.Open(ctx, name) }
	}
	p, err := open(in)
	if err != nil {
		return err
	}
	defer p.Close()
	heap.Raise(0, uint64(p.Info.Size()))
	opt := repack.Options{Options: w.Options.Options, Objects: w.objects}
	opt.Limits = report.NewLimits()
	to := bufio.NewWriterSize(io.Discard, 1<<20)
	var output *outfile.File
	if !w.DryRun {
		if output, err = p.Output(w.output, p.Info.Mode().Perm()); err != nil {
			return err
		}
		defer output.Close()
		if _, err := output.ReplacesInput(p.File); err != nil {
			return err
		}
		to.Reset(output)
	}
	res, err := repack.Convert(ctx, p.File, p.Info.Size(), to, opt)
	if err == nil {
		err = to.Flush()
	}
	if err == nil {
		err = p.Unchanged()
	}
	if err != nil {
		if errors.Is(err, convert.ErrCoverage) {
			w.bar.Clear()
			w.report.said = true
			w.worst(withPackage(in, res.Files[len(res.Files)-1].Result).Coverage)
		}
		return outfile.Plain(err)
	}
	if err := w.say(in, res, last); err != nil {
		return fmt.Errorf("report: %w; nothing written", err)
	}
	if output == nil || w.inPlace && res.Same {
		return nil
	}
	if w.KeepDates {
		output.KeepDates(p.Info)
	}
	if err := output.Finish(!w.NoSync); err != nil {
		return err
	}
	if err := cmp.Or(ctx.Err(), p.Unchanged()); err != nil {
		return err
	}
	if err := output.Commit(); err != nil {
		return err
	}
	if place := output.Replaced(); place != nil && !w.NoSync {
		return place.SyncDirectory()
	}
	return nil
}

// withPackage adds the name of a package to the names of files in a result.
func withPackage(in string, res *convert.Result) *convert.Result {
	for _, c := range res.Coverage {
		c.File = in + "!" + c.File
	}
	return res
}

// say writes the report on a package, and makes sure that it arrives. The last one ends a report in a file.
func (w *packageWork) say(in string, res *repack.Result, last bool) error {
	w.bar.Clear()
	for _, f := range res.Files {
		name := in + "!" + f.Name
		if f.Result.Stays == repack.Defective {
			complain(w.stderr, name, fmt.Errorf("%w; the file is unchanged", f.Result.Kept[0].Why))
		}
		if w.form == "text" && f.Result.Stays != "" && !w.verbose { // the summary counts it
			continue
		}
		if err := w.add(name, &files.Result{Result: withPackage(in, f.Result)}); err != nil {
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
	if err != nil {
		return outfile.Plain(err)
	}
	if last && w.report.file != nil {
		return w.report.finish("")
	}
	return w.report.flush()
}

// sumOf sums up the files of a package.
func (w *packageWork) sumOf(in string, res *repack.Result) *report.Package {
	p := &report.Package{
		Schema: report.Schema, Package: in, Output: w.output, Files: len(res.Files), Others: res.Others,
		Kept: make(map[string]int),
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
	p.Before, p.After = uint64(res.Read), uint64(res.Written)
	return p
}

// packageText returns the sum as text.
func packageText(p *report.Package) string {
	var b strings.Builder
	kept := p.Files - p.Converted
	fmt.Fprintf(&b, "%s: ELF files: %d (%d converted, %d kept as they are), other files: %d\n",
		report.Printable(p.Package), p.Files, p.Converted, kept, p.Others)
	most := func(x, y string) int { return cmp.Or(cmp.Compare(p.Kept[y], p.Kept[x]), cmp.Compare(x, y)) }
	for _, why := range slices.SortedFunc(maps.Keys(p.Kept), most) {
		fmt.Fprintf(&b, "  kept as they are: %d (%s)\n", p.Kept[why], repack.Text(convert.Reason(why)))
	}
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
