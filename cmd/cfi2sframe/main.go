// Command cfi2sframe adds an SFrame section to ELF files, made from their DWARF call
// frame information.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/pflag"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/debugfile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/internal/survey"
	"cfi2sframe/report"
	"cfi2sframe/sframe"
)

// Exit statuses.
const (
	exitDone     = 0
	exitError    = 1 // of a file, which was not written, or a mismatch that --check found
	exitUsage    = 2
	exitCoverage = 3 // a file was not written because of --min-coverage
	exitSkipped  = 4 // a file was skipped, and --skip-status is given
)

const usageHead = `Usage: cfi2sframe [flags] IN -o OUT
       cfi2sframe [flags] --in-place FILE...
       cfi2sframe [flags] --in-place -r DIR...
       cfi2sframe [flags] --dry-run FILE...
       cfi2sframe [flags] --survey PATH...
       cfi2sframe [flags] --merge PART...
       cfi2sframe --check FILE...
       cfi2sframe --dump FILE...
       cfi2sframe --diff OLD NEW
       cfi2sframe ld PROGRAM ARGUMENT...
       cfi2sframe pkg [flags] IN -o OUT

Adds an .sframe section to ELF programs, shared libraries, relocatable objects and
archives of them, made from the DWARF call frame information they contain
(.eh_frame, .debug_frame). Every result is checked against that information before
it is put in its place. IN may be - for standard input. To convert what a build links
see 'cfi2sframe ld --help', and for packages 'cfi2sframe pkg --help'.

Flags:
`

const usageTail = `
Exit status: 0 done; 1 error, nothing written, or --check found a mismatch;
2 wrong usage; 3 less is covered than --min-coverage; 4 a file was skipped,
and --skip-status is given; 129, 130 or 143 interrupted by SIGHUP, SIGINT or
SIGTERM. --diff: 0 no difference; 1 a difference; 2 error or wrong usage.

Examples:
  cfi2sframe prog -o prog.sframe            convert a program
  cfi2sframe --in-place lib/*.so            convert libraries where they are
  cfi2sframe -r --update --skip-unsupported --in-place DIR
                                            convert all programs and libraries below
                                            DIR; leave up-to-date files unchanged
  cfi2sframe --format 3 foo.o -o foo.o      convert an object, for GNU ld to merge
  cfi2sframe --debug-file auto prog -o out  use what is below /usr/lib/debug
  cfi2sframe --debug-link-update auto --in-place prog
                                            after its debug information was split off
  cfi2sframe --remove prog -o out           remove .sframe
  cfi2sframe -v --dry-run prog              list every gap
  cfi2sframe --report json prog -o out      the same for programs, on stdout
  cfi2sframe --report html --report-file r.html --dry-run bin/*
                                            the same as a page
  cfi2sframe --min-coverage 99.5 prog -o out
                                            fail if less is covered
  cfi2sframe --for linux prog -o out        write what this reader reads
  cfi2sframe --check prog                   compare an .sframe with the CFI
  cfi2sframe --check --report json --min-coverage 99.5 prog
                                            the same for programs; fail if less is covered
  cfi2sframe --diff old.so new.so           the differences between their .sframe
  cfi2sframe --survey /usr/bin /usr/lib     what could be translated of all files there
  cfi2sframe --survey --report-dir pages /usr/bin
                                            the same as pages with links
  cfi2sframe --survey --packages pool image.tar
                                            of all files in packages
  cfi2sframe --survey --shard 3/8 --report json /usr >3.json
                                            one of eight parts of a survey
  cfi2sframe --merge [1-8].json             the survey that these are parts of
  cfi2sframe --merge new.json --against old.json
                                            gains and losses since an earlier survey
  cfi2sframe pkg old.deb -o new.deb         convert all files in a package
`

func main() {
	heap.Limit()
	if status, ok := runLinker(os.Args, os.Stdout, os.Stderr); ok {
		os.Exit(status)
	}
	os.Exit(run(interruptible(), os.Args[1:], os.Stdout, os.Stderr))
}

// interruptible returns a context that ends with the first signal that asks the program to end. A second one ends the
// program even if it waits for a pipe, and leaves nothing behind.
func interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	catchSignals(cancel)
	return ctx
}

// catchSignals calls cancel with the first signal, and ends the program after the second.
func catchSignals(cancel func(error)) {
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as by nohup
			signal.Notify(signals, s)
		}
	}
	go func() {
		first := <-signals
		cancel(caught(first.(syscall.Signal)))
		s := <-signals
		outfile.Abandon()
		signal.Reset(s)
		raise(s)
	}()
}

// prepare makes the heap ready for a file.
func (s *settings) prepare(w convert.Work) {
	if w.Archive {
		heap.PrepareArchive(w.Size)
	} else {
		heap.Prepare(w.CFI, w.Size)
	}
}

// settings are the command line.
type settings struct {
	files.Options
	output     string
	inPlace    bool
	report     string
	reportFile string
	reportDir  string
	quiet      bool
	verbose    bool
	check      bool
	dump       bool
	diff       bool
	survey     bool
	shard      survey.Shard
	merge      bool
	partial    bool
	against    string
	linkerDir  bool
	objects    bool
	packages   bool
	recursive  bool
	skipStatus bool
	jobs       int
	files      []string
	like       string // given with --for
}

// errDone ends the program after --help or --version.
var errDone = errors.New("done")

// A given is those flags that settings are made of, and are not themselves.
type given struct {
	format                                *int
	reader, source, share, padding, shard *string
	version, help                         *bool
}

// newFlags returns an empty set of flags.
func newFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("cfi2sframe", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	return flags
}

// define defines all flags.
func (s *settings) define(flags *pflag.FlagSet) *given {
	g := &given{}
	g.format = flags.Int("format", int(sframe.V2), "SFrame version to write: 1, 2 or 3")
	g.reader = flags.String("for", "", "write what `READER` reads: "+presetNames()+"; or the format of the .sframe in a file of this name")
	g.source = flags.String("source", cfi.Auto.String(), "where the CFI comes from: auto, eh_frame or debug_frame")
	flags.StringVar(&s.DebugFile, "debug-file", "", "also read .debug_frame and names from `FILE`; auto: find it by build-id or .gnu_debuglink")
	flags.StringVar(&s.DebugLinkUpdate, "debug-link-update", "", "also give `FILE`, the debug file, the headers of the result, so that both match; auto: find it as --debug-file does")
	flags.StringVarP(&s.output, "output", "o", "", "write the result to `FILE`; - is standard output")
	flags.BoolVar(&s.inPlace, "in-place", false, "replace each FILE by its result")
	flags.BoolVarP(&s.recursive, "recursive", "r", false, "take all files below a directory on the same file system; do not follow symbolic links")
	flags.BoolVar(&s.SkipUnsupported, "skip-unsupported", false, "skip and count unsupported files: scripts, 32-bit files, other machines, files without CFI")
	flags.BoolVar(&s.skipStatus, "skip-status", false, "exit with 4 if --skip-unsupported has skipped a file")
	flags.BoolVarP(&s.KeepDates, "preserve-dates", "p", false, "give the result the access and modification times of its input")
	flags.BoolVar(&s.NoSync, "no-sync", false, "skip fsync, for build trees: a power failure may lose a file and its replacement")
	flags.BoolVar(&s.DryRun, "dry-run", false, "translate, check and report, but write nothing")
	flags.BoolVar(&s.PCRel, "pcrel", false, "start addresses relative to their own field (errata 1, binutils 2.45)")
	flags.BoolVar(&s.Outermost, "outermost", false, "rows without data words for code without a caller (errata 2)")
	g.share = flags.String("share", convert.ShareAuto.String(), "let one FDE describe several functions or a part of one, and share identical row lists: on, off (one FDE and one list for each function) or auto, which shares lists in little-endian output only; always off in objects")
	g.padding = flags.String("padding", "on", "describe the padding after functions by their last rows, for readers that look up return addresses after calls that do not return: on or off; never in objects")
	flags.BoolVar(&s.Force, "force", false, "replace an existing .sframe section")
	flags.BoolVar(&s.Update, "update", false, "like --force, but leave the file unchanged if its section is up to date")
	flags.BoolVar(&s.Remove, "remove", false, "remove .sframe and its segment")
	flags.BoolVar(&s.NoVerify, "no-verify", false, "do not check the result against the CFI; for measuring only")
	flags.Float64Var(&s.MinCoverage, "min-coverage", 0, "write nothing if less than `PERCENT` of the code that CFI describes is covered; with --check, exit with 3")
	flags.StringVar(&s.report, "report", "text", "form of the report on each file: none, text (on stderr), json or html (on stdout); for a survey also csv")
	flags.StringVar(&s.reportFile, "report-file", "", "write the report to `FILE`")
	flags.StringVar(&s.reportDir, "report-dir", "", "write a survey's page to `DIR`/index.html, and pages next to it for files that lose something")
	flags.BoolVarP(&s.quiet, "quiet", "q", false, "print no text on the terminal but errors; --report-file and reports other than text are written")
	flags.BoolVarP(&s.verbose, "verbose", "v", false, "list all gaps with their causes in the text report, not only the first ten")
	flags.BoolVar(&s.check, "check", false, "compare the .sframe of each FILE with the CFI, also if another tool wrote it")
	flags.BoolVar(&s.Require, "require", false,
		"with --check: fail if a program or library has no section; skip other files")
	flags.BoolVar(&s.dump, "dump", false, "print the .sframe of each FILE as objdump --sframe does")
	flags.BoolVar(&s.diff, "diff", false, "print the differences between the .sframe of two files, OLD and NEW, by function")
	flags.BoolVar(&s.survey, "survey", false, "sum up what could be translated in all ELF files below each PATH; write nothing else")
	flags.BoolVar(&s.objects, "objects", false, "also survey relocatable objects and archives")
	flags.BoolVar(&s.packages, "packages", false, "also survey packages and images below each PATH: .deb, .rpm, tar files, OCI image layouts, output of docker save; a PATH that is one is always opened")
	g.shard = flags.String("shard", "", "survey part I of N of all files below the PATHs, as `I/N`; --merge joins the parts")
	flags.BoolVar(&s.merge, "merge", false, "make one survey of the surveys in JSON that each PART has, a file or a directory with *.json")
	flags.StringVar(&s.against, "against", "", "report gains and losses since the survey in JSON that `FILE` has, instead of the sums")
	flags.BoolVar(&s.partial, "partial", false, "merge although shards are missing; the report lists the existing ones")
	flags.IntVarP(&s.jobs, "jobs", "j", 0, "threads for each file, or files of a survey at a time, up to the number of processors; 0: as many as processors, but fewer for small files")
	flags.BoolVar(&s.linkerDir, "print-linker-dir", false, "print the directory with linkers that convert their output, for the -B of compilers, and exit")
	g.version = flags.Bool("version", false, "print the version and its origin, and exit")
	g.help = flags.BoolP("help", "h", false, "print this help and exit")
	return g
}

// parse reads the command line. If it is within a command, that command must take the flags.
func parse(within *mode, args []string, stdout io.Writer) (*settings, error) {
	s := &settings{}
	s.Starting = s.prepare
	flags := newFlags()
	g := s.define(flags)
	if err := flags.Parse(args); err != nil {
		return nil, usageError(err)
	}
	if *g.help {
		fmt.Fprint(stdout, usageHead, flags.FlagUsages(), usageTail)
		return nil, errDone
	}
	if *g.version {
		thisBuild().print(stdout)
		return nil, errDone
	}
	m, err := modeOf(flags)
	if err == nil && within != nil {
		err = within.check(flags)
	}
	if err == nil {
		err = m.check(flags)
	}
	if err == nil {
		err = s.settle(flags, g)
	}
	switch {
	case err != nil:
		return nil, err
	case s.linkerDir && len(s.files) > 0:
		return nil, fmt.Errorf("%s takes no file", m)
	case s.linkerDir:
		return s, nil
	}
	if err := s.completeFolder(flags.Changed("report")); err != nil {
		return nil, err
	}
	return s, s.complete(m)
}

// settle makes settings of flags whose values are words and numbers.
func (s *settings) settle(flags *pflag.FlagSet, g *given) error {
	if flags.Changed("for") {
		p, err := findPreset(*g.reader)
		if err == nil {
			err = p.apply(flags)
		}
		if err != nil {
			return err
		}
		s.like = *g.reader
	}
	if *g.format != int(uint8(*g.format)) || !slices.Contains(sframe.Versions(), sframe.Version(*g.format)) {
		return fmt.Errorf("--format %d is not known; 1, 2 or 3 was expected", *g.format)
	}
	s.Version = sframe.Version(*g.format)
	if l, _ := s.Version.Layout(); s.PCRel && l.Flags&sframe.FDEFuncStartPCRel == 0 || s.Outermost && !l.Errata2 {
		return errors.New("--pcrel and --outermost are for format 2; format 1 has nothing like it, and format 3 always does so")
	}
	var err error
	if s.Source, err = cfi.ParseSource(*g.source); err != nil {
		return fmt.Errorf("--source: %w", err)
	}
	if s.Share, err = convert.ParseShare(*g.share); err != nil {
		return fmt.Errorf("--share %w", err)
	}
	if *g.padding != "on" && *g.padding != "off" {
		return fmt.Errorf("--padding %q is not known; use on or off", *g.padding)
	}
	s.NoPadding = *g.padding == "off"
	s.jobs = min(s.jobs, runtime.GOMAXPROCS(0)) // others would only take memory
	s.Workers = s.jobs
	if s.report == "html" { // which is written when all files are done
		s.Room = report.NewRoom()
	}
	if !(s.MinCoverage >= 0 && s.MinCoverage <= 100) {
		return fmt.Errorf("--min-coverage %v: a number from 0 to 100 was expected", s.MinCoverage)
	}
	if s.MinCoverage > 0 && s.MinCoverage <= 1 { // 1 % is useless, and 1 may be meant as 100 %
		meant := strconv.FormatFloat(100*s.MinCoverage, 'g', 6, 64)
		return fmt.Errorf("--min-coverage %v is %v %%; was %s meant?", s.MinCoverage, s.MinCoverage, meant)
	}
	if flags.Changed("shard") {
		if s.shard, err = survey.ParseShard(*g.shard); err != nil {
			return fmt.Errorf("--shard %w", err)
		}
	}
	s.files = flags.Args()
	return nil
}

// completeOutput is complete for where results go.
func (s *settings) completeOutput() error {
	places := 0
	for _, on := range []bool{s.output != "", s.inPlace, s.DryRun} {
		if on {
			places++
		}
	}
	switch {
	case places > 1:
		return errors.New("-o, --in-place and --dry-run cannot be combined")
	case places == 0 && len(s.files) == 1:
		return errors.New("no output file: -o OUT or --in-place was expected")
	case s.recursive && s.output != "":
		return errors.New("-r and -o cannot be combined")
	case !s.inPlace && !s.DryRun && len(s.files) > 1:
		return fmt.Errorf("%d input files; one was expected, or --in-place", len(s.files))
	case outfile.IsStdout(s.output) && s.reportOnStdout():
		return fmt.Errorf("the result and --report %s exclude each other on standard output", s.report)
	}
	return nil
}

// completeInput is complete for what is about standard input.
func (s *settings) completeInput(m *mode) error {
	n := 0
	for _, f := range s.files {
		if f == files.Stdin && !s.sumsUp() {
			n++
		}
	}
	switch {
	case n > 0 && m.name == packageCommand:
		return errors.New("standard input (-) is not for packages; a file was expected")
	case n > 0 && s.inPlace:
		return errors.New("--in-place is not for standard input (-)")
	case n > 1:
		return errors.New("standard input (-) is given twice")
	}
	return nil
}

// completeDebugLink is complete for what is about --debug-link-update.
func (s *settings) completeDebugLink() error {
	switch {
	case s.DebugLinkUpdate == "":
		return nil
	case s.output == "" && !s.inPlace:
		return errors.New("--debug-link-update is for -o and --in-place")
	case outfile.IsStdout(s.output):
		return errors.New("--debug-link-update is not for standard output: the result and the debug file have to go to their places together")
	case len(s.files) > 1 && s.DebugLinkUpdate != debugfile.Auto:
		return fmt.Errorf("%d input files with one debug file; --debug-link-update auto was expected", len(s.files))
	}
	return nil
}

// completeFolder is complete for what is about --report-dir.
func (s *settings) completeFolder(form bool) error {
	switch {
	case s.reportDir == "":
		return nil
	case s.reportFile != "":
		return errors.New("--report-dir and --report-file exclude each other")
	case form && s.report != "html":
		return fmt.Errorf("--report-dir is for pages, and excludes --report %s", s.report)
	}
	s.report, s.reportFile = "html", filepath.Join(s.reportDir, surveyIndex)
	return nil
}

// reportOnStdout reports whether standard output gets the report.
func (s *settings) reportOnStdout() bool {
	switch {
	case s.report == "none":
		return false
	case s.reportFile != "":
		return outfile.IsStdout(s.reportFile)
	}
	return s.report != "text"
}

// An output is standard output for what is printed there, with errors that say so.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil {
		err = fmt.Errorf("standard output: %w", outfile.Plain(err))
		o.err = err
	}
	return n, err
}

// ended returns the exit status for a command line after which there is nothing to be done: because all it asks for has been
// printed, or because it is wrong, which it says.
func (o *output) ended(err error, stderr io.Writer, help string) int {
	switch {
	case !errors.Is(err, errDone):
		fmt.Fprintf(stderr, "cfi2sframe: %s\nTry '%s'.\n", printable(err.Error()), help)
		return exitUsage
	case o.err != nil:
		fmt.Fprintf(stderr, "cfi2sframe: %s\n", printable(o.err.Error()))
		return exitError
	}
	return exitDone
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == packageCommand {
		return runPackages(ctx, args[1:], stdout, stderr)
	}
	out := &output{Writer: stdout}
	s, err := parse(nil, args, out)
	if err == nil && s.linkerDir {
		status := printLinkerDir(out, stderr)
		if out.err == nil {
			return status
		}
		err = errDone
	}
	unread := 0
	if err == nil {
		unread = s.walk(ctx, stdout, stderr)
		err = s.distinct(stdout, stderr)
	}
	if err != nil {
		return out.ended(err, stderr, "cfi2sframe --help")
	}
	switch {
	case s.dump:
		return dump(ctx, s, out, stderr)
	case s.check:
		return max(check(ctx, s, out, stderr), min(unread, exitError))
	case s.diff:
		return diff(ctx, s, out, stderr)
	}
	w := &work{settings: s, stdout: stdout, stderr: stderr, errors: unread}
	switch {
	case s.survey:
		return w.surveyed(ctx)
	case s.merge:
		return w.merged(ctx)
	}
	return w.run(ctx)
}

// printable takes out of a message what would do something to a terminal: names
// of sections can be anything.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
