package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/repack"
	"cfi2sframe/report"
)

// packageCommand is the word for what is done with packages.
const packageCommand = "pkg"

const packageHead = `Usage: cfi2sframe pkg [flags] IN -o OUT
       cfi2sframe pkg [flags] --in-place PKG...
       cfi2sframe pkg [flags] --dry-run PKG...

Converts the programs and shared libraries in Debian packages (.deb) and in those of RPM,
and leaves the rest of a package unchanged. The checksums by which dpkg and rpm verify files
are those of the new files. The same package gives the same bytes each time.

Signed packages are refused, as their signatures would become invalid. Unsupported files,
files that cannot be converted, kernel modules, configuration files and signed files are
unchanged, and are counted. So are files that have an .sframe, without --update or --force.
If nothing changes, OUT is IN, byte for byte.

Flags:
`

const packageTail = `
Exit status: 0 done; 1 error, nothing written; 2 wrong usage; 3 nothing written because of
--min-coverage; 129, 130 or 143 interrupted by SIGHUP, SIGINT or SIGTERM.

Examples:
  cfi2sframe pkg bash_5.2.37-2_amd64.deb -o new/bash_5.2.37-2_amd64.deb
  cfi2sframe pkg -q --in-place *.deb
`

// packageUsage says what flags do for packages, if it is not the same.
var packageUsage = map[string]string{
	"in-place":     "replace each PKG by its result",
	"update":       "like --force, but leave a file unchanged if its section is up to date",
	"verbose":      "list all gaps in the text report, and the unchanged files",
	"jobs":         "threads, up to the number of processors; 0: as many as processors",
	"min-coverage": "write nothing if less than `PERCENT` of the code of one of the files is covered",
	"report":       "form of the report on each file: none, text (on stderr) or json (on stdout)",
	"objects":      "also convert relocatable objects and static libraries, but not kernel modules",
}

// parsePackages reads the command line after the word for packages.
func parsePackages(args []string, stdout io.Writer) (*settings, error) {
	s := &settings{}
	s.Starting = s.prepare
	all, flags := newFlags(), newFlags()
	g := s.define(all)
	m := commandMode(packageCommand)
	all.VisitAll(func(f *pflag.Flag) {
		if m.heeds(f.Name) || f.Name == "help" {
			f.Usage = cmp.Or(packageUsage[f.Name], f.Usage)
			flags.AddFlag(f)
		}
	})
	if err := flags.Parse(args); err != nil {
		return nil, usageError(err)
	}
	if *g.help {
		fmt.Fprint(stdout, packageHead, flags.FlagUsages(), packageTail)
		return nil, errDone
	}
	s.files = flags.Args()
	if err := s.settle(flags, g); err != nil {
		return nil, err
	}
	return s, s.complete(m)
}

// runPackages is the whole program for packages.
func runPackages(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &output{Writer: stdout}
	s, err := parsePackages(args, out)
	if err == nil {
		err = s.distinct(stdout, stderr)
	}
	if err != nil {
		return out.ended(err, stderr, "cfi2sframe pkg --help")
	}
	w := &work{settings: s, stdout: stdout, stderr: stderr}
	return w.repackaged(ctx)
}

// repackaged converts packages, one after the other.
func (w *work) repackaged(ctx context.Context) int {
	signal.Ignore(syscall.SIGPIPE) // see run
	if !w.openReport() {
		return exitError
	}
	defer w.report.close()
	w.startBar(len(w.files))
	for i, in := range w.files {
		if ctx.Err() != nil {
			w.failed(in, context.Canceled)
			continue
		}
		if w.bar != nil {
			w.bar.Describe(report.Printable(filepath.Base(in)))
		}
		err := w.onePackage(ctx, in, i == len(w.files)-1)
		if err != nil {
			w.clearBar()
			w.failed(in, err)
			if errors.Is(err, convert.ErrCoverage) {
				w.short++
			} else {
				w.errors++
			}
		}
		if w.bar != nil {
			w.bar.Add(1)
		}
	}
	w.clearBar()
	if err := w.endReport(""); err != nil {
		w.complain("report", err)
		return exitError
	}
	return w.status(ctx)
}

// onePackage converts a package, says what became of its files, and puts it in its place.
func (w *work) onePackage(ctx context.Context, in string, last bool) error {
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
	opt.Room = report.NewRoom()
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
			w.clearBar()
			w.report.said = true
			w.worst(withPackage(in, res.Files[len(res.Files)-1].Result).Coverage)
		}
		return outfile.Plain(err)
	}
	if err := w.sayPackage(in, res, last); err != nil {
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
		return outfile.SyncDirectories([]*outfile.Place{place})[place]
	}
	return nil
}

// withPackage returns a result in which the names of files begin with that of the package.
func withPackage(in string, res *convert.Result) *convert.Result {
	for _, c := range res.Coverage {
		c.File = in + "!" + c.File
	}
	return res
}

// sayPackage writes the report on a package, and makes sure that it arrives. With the last one comes the end of a report that is
// a file of its own.
func (w *work) sayPackage(in string, res *repack.Result, last bool) error {
	w.clearBar()
	for _, f := range res.Files {
		name := in + "!" + f.Name
		if f.Failed != nil {
			w.complain(name, fmt.Errorf("%w; it stays as it is", f.Failed))
		}
		if w.settings.report == "text" && f.Result.Stays != "" && !w.verbose { // which the summary counts
			continue
		}
		if err := w.report.add(name, &files.Result{Result: withPackage(in, f.Result)}); err != nil {
			return err
		}
	}
	w.report.said = true
	sum := w.sumOf(in, res)
	var err error
	switch w.settings.report {
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

// sumOf sums up what became of the files of a package.
func (w *work) sumOf(in string, res *repack.Result) *report.Package {
	p := &report.Package{Schema: report.Schema, Package: in, Output: w.output, Files: len(res.Files), Others: res.Others, Kept: make(map[string]int)}
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

// packageText says the same in words.
func packageText(p *report.Package) string {
	var b strings.Builder
	kept := p.Files - p.Converted
	fmt.Fprintf(&b, "%s: ELF files: %d (%d converted, %d kept as they are), other files: %d\n", report.Printable(p.Package), p.Files, p.Converted, kept, p.Others)
	most := func(x, y string) int { return cmp.Or(cmp.Compare(p.Kept[y], p.Kept[x]), cmp.Compare(x, y)) }
	for _, why := range slices.SortedFunc(maps.Keys(p.Kept), most) {
		fmt.Fprintf(&b, "  kept as they are: %d (%s)\n", p.Kept[why], repack.Text(convert.Reason(why)))
	}
	if p.After > 0 {
		fmt.Fprintf(&b, "  bytes of ELF files: %s; of the package: %s\n", change(p.FilesBefore, p.FilesAfter), change(p.Before, p.After))
	}
	return b.String()
}

// change says how a number changes.
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
