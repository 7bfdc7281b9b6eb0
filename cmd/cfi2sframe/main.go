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
	"runtime/debug"
	"strings"
	"syscall"
	"unicode"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"cfi2sframe/cfi"
	"cfi2sframe/elfwrite"
	"cfi2sframe/internal/convert"
	"cfi2sframe/sframe"
)

// Exit statuses.
const (
	exitDone  = 0
	exitError = 1 // of a file, which was not written
	exitUsage = 2
)

const usageHead = `Usage: cfi2sframe [flags] IN -o OUT
       cfi2sframe [flags] --in-place FILE...

Adds an .sframe section to ELF programs, shared libraries, relocatable objects and
archives of them, made from the DWARF call frame information they contain
(.eh_frame, .debug_frame). Every result is checked against that information before
it is put in its place.

Flags:
`

const usageTail = `
Exit status: 0 done; 1 error, nothing written; 2 wrong usage.

Examples:
  cfi2sframe prog -o prog.sframe            convert a program
  cfi2sframe --in-place lib/*.so            convert libraries where they are
  cfi2sframe --format 3 foo.o -o foo.o      convert an object, for GNU ld to merge
  cfi2sframe --debug-file auto prog -o out  use what is below /usr/lib/debug
  cfi2sframe --remove prog -o out           take .sframe out again
  cfi2sframe -v prog -o out                 list every range that was left out
  cfi2sframe --report json prog -o out      the same for programs, on stdout
  cfi2sframe --pcrel --outermost prog -o out
                                            for readers of errata 1 and 2
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are the command line.
type settings struct {
	convert.Options
	output  string
	inPlace bool
	report  string
	quiet   bool
	verbose bool
	files   []string
}

// errDone ends the program after --help or --version.
var errDone = errors.New("done")

func parse(args []string, stdout io.Writer) (*settings, error) {
	s := &settings{}
	flags := pflag.NewFlagSet("cfi2sframe", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.SortFlags = false
	format := flags.Int("format", int(sframe.V2), "SFrame version to write: 1, 2 or 3")
	source := flags.String("source", cfi.Auto.String(), "where the CFI comes from: auto, eh_frame or debug_frame")
	flags.StringVarP(&s.output, "output", "o", "", "write the result to `FILE`; - is standard output")
	flags.BoolVar(&s.inPlace, "in-place", false, "replace each FILE by its result")
	flags.BoolVar(&s.PCRel, "pcrel", false, "start addresses relative to their own field (errata 1, binutils 2.45)")
	flags.BoolVar(&s.Outermost, "outermost", false, "rows without data words for code without a caller (errata 2)")
	flags.BoolVar(&s.Force, "force", false, "replace an .sframe section that is there already")
	flags.BoolVar(&s.NoVerify, "no-verify", false, "do not check the result against the CFI; for measuring only")
	flags.StringVar(&s.report, "report", "text", "what is said of each file: none, text (on stderr) or json (on stdout)")
	flags.BoolVarP(&s.quiet, "quiet", "q", false, "no report, only errors")
	flags.BoolVarP(&s.verbose, "verbose", "v", false, "list every gap in the text report, not the first ten")
	flags.StringVar(&s.DebugFile, "debug-file", "", "take .debug_frame from `FILE` if IN has none; auto: by build-id or .gnu_debuglink")
	flags.BoolVar(&s.Remove, "remove", false, "take .sframe and its segment out again")
	version := flags.Bool("version", false, "print the version and exit")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *help {
		fmt.Fprint(stdout, usageHead, flags.FlagUsages(), usageTail)
		return nil, errDone
	}
	if *version {
		fmt.Fprintln(stdout, "cfi2sframe", buildVersion())
		return nil, errDone
	}
	if *format < int(sframe.V1) || *format > int(sframe.V3) {
		return nil, fmt.Errorf("--format %d is not known; 1, 2 or 3 was expected", *format)
	}
	s.Version = sframe.Version(*format)
	if s.Version == sframe.V1 && (s.PCRel || s.Outermost) {
		return nil, errors.New("--pcrel and --outermost are for format 2; format 1 has nothing like it, and format 3 always does so")
	}
	var err error
	if s.Source, err = cfi.ParseSource(*source); err != nil {
		return nil, fmt.Errorf("--source: %w", err)
	}
	switch s.report {
	case "none", "text", "json":
	default:
		return nil, fmt.Errorf("--report %q is not known; none, text or json was expected", s.report)
	}
	if s.quiet {
		s.report = "none"
	}
	s.files = flags.Args()
	switch {
	case len(s.files) == 0:
		return nil, errors.New("no input file")
	case s.inPlace && s.output != "":
		return nil, errors.New("--in-place and -o exclude each other")
	case !s.inPlace && len(s.files) > 1:
		return nil, fmt.Errorf("%d input files; one was expected, or --in-place", len(s.files))
	case !s.inPlace && s.output == "":
		return nil, errors.New("no output file: -o OUT or --in-place was expected")
	case !s.inPlace && convert.IsStdout(s.output) && s.report == "json":
		return nil, errors.New("the result and --report json exclude each other on standard output")
	case s.Remove && s.Force:
		return nil, errors.New("--remove and --force exclude each other")
	}
	return s, nil
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout)
	switch {
	case errors.Is(err, errDone):
		return exitDone
	case err != nil:
		fmt.Fprintf(stderr, "cfi2sframe: %v\nTry 'cfi2sframe --help'.\n", err)
		return exitUsage
	}
	w := &work{settings: s, stdout: stdout, stderr: stderr}
	return w.run(ctx)
}

// work is what becomes of the command line's files.
type work struct {
	*settings
	stdout, stderr io.Writer
	inPlace        convert.InPlace
	bar            *progressbar.ProgressBar // or nil
}

func (w *work) run(ctx context.Context) int {
	w.startBar()
	failed := 0
	for _, in := range w.files {
		if w.bar != nil {
			w.bar.Describe(filepath.Base(in))
		}
		if err := w.file(ctx, in); err != nil {
			w.clearBar()
			if ctx.Err() != nil {
				fmt.Fprintf(w.stderr, "cfi2sframe: %s: interrupted, nothing written\n", in)
				return exitError
			}
			failed++
			if errors.Is(err, elfwrite.ErrExists) {
				err = fmt.Errorf("%w; --force replaces it", err)
			}
			fmt.Fprintf(w.stderr, "cfi2sframe: %s: %s\n", in, printable(err.Error()))
		}
		if w.bar != nil {
			_ = w.bar.Add(1) // a bar that cannot be drawn is no reason to stop
		}
	}
	w.clearBar()
	if len(w.files) > 1 && w.report == "text" {
		fmt.Fprintf(w.stderr, "%d files: %d done, %d failed\n", len(w.files), len(w.files)-failed, failed)
	}
	if failed > 0 {
		return exitError
	}
	return exitDone
}

// startBar shows a progress bar if there are many files and somebody who looks.
func (w *work) startBar() {
	f, ok := w.stderr.(*os.File)
	if !ok || len(w.files) < 2 || w.quiet || !term.IsTerminal(int(f.Fd())) {
		return
	}
	w.bar = progressbar.NewOptions(len(w.files), progressbar.OptionSetWriter(w.stderr),
		progressbar.OptionShowCount(), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
}

func (w *work) clearBar() {
	if w.bar != nil {
		_ = w.bar.Clear()
	}
}

// file converts one file and reports that.
func (w *work) file(ctx context.Context, in string) error {
	var res *convert.Result
	var err error
	if w.settings.inPlace {
		res, err = w.inPlace.File(ctx, in, w.Options)
	} else {
		res, err = convert.File(ctx, in, w.output, w.Options)
	}
	if err != nil || res == nil {
		return err
	}
	w.clearBar()
	return w.print(in, res)
}

// shortList is how many gaps the text report lists without -v.
const shortList = 10

func (w *work) print(in string, res *convert.Result) error {
	for _, c := range res.Coverage {
		var err error
		switch w.report {
		case "json":
			err = c.JSON(w.stdout)
		case "text":
			gaps := shortList
			if w.verbose {
				gaps = -1
			}
			err = c.Text(w.stderr, gaps)
		}
		if err != nil {
			return err
		}
	}
	if w.report != "text" {
		return nil
	}
	if w.Remove {
		fmt.Fprintf(w.stderr, "%s: .sframe is removed\n", in)
	}
	for _, k := range res.Kept {
		fmt.Fprintf(w.stderr, "%s(%s): kept as it is: %s\n", in, printable(k.Member), printable(k.Why.Error()))
	}
	if res.Links > 0 {
		fmt.Fprintf(w.stderr, "%s: %d other names of the file (hard links) keep the old contents\n", in, res.Links)
	}
	return nil
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
