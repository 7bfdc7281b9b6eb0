// Command cfi-step runs a program instruction by instruction, and tells in which functions the call frame
// information, or SFrame, says what is not so.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/spf13/pflag"

	"cfi2sframe/lab/step"
	"cfi2sframe/sframe"
)

const help = `cfi-step - find call frame information that contradicts the processor

Usage: cfi-step [flags] PROGRAM [ARGUMENT...]

Runs the program one instruction at a time (Linux, amd64), and keeps a second stack of all calls, from which
it knows at every instruction who the caller is: its return address, its stack pointer and its frame pointer. It
asks the call frame information (.eh_frame, .debug_frame) of the program and of its libraries for the same, and
.sframe where a file has one, and reports each function in which an answer is wrong: hand-written assembly that
moves the stack pointer and does not say so, epilogues that were forgotten, register saves that are not mentioned.

Signal handlers, longjmp, exceptions, threads, and other stacks are followed; child processes run on their own. A
program takes a thousand times as long as usual or longer. Its standard input and output are its own; the report goes to
standard error, or to a file.

Where SFrame only repeats what the call frame information says wrongly, that is the latter's fault, and is
reported as such. SFrame is at fault where it says something else.

Flags:
`

const status = `
Exit status: 0 if no answer was wrong, 1 if one was, 2 if the program could not be followed. The program's own
exit status is in the report.

Examples:
  cfi-step ./prog input              a program with the libraries of the system
  cfi-step --made 2,3 /bin/ls        what cfi2sframe would make of all of them, too
  cfi-step --steps 1000000 gzip -k f the first million of instructions
`

// options are those of the command line.
type options struct {
	steps       uint64
	made        []int
	format, out string
	from        string
	cpu, most   int
	help        bool
	version     bool
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	var opt options
	flags := pflag.NewFlagSet("cfi-step", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetInterspersed(false) // what follows the program is the program's
	flags.SetOutput(io.Discard)
	flags.Uint64Var(&opt.steps, "steps", 0, "make `N` steps at most, then end the program; 0 for all")
	flags.IntSliceVar(&opt.made, "made", nil, "compare the .sframe of these `VERSIONS` as well, made in memory for files that have none: 1, 2, 3")
	flags.StringVar(&opt.from, "from", "", "begin at the entry point of `FILE`, the program: what the loader does before takes most of a short run")
	flags.StringVar(&opt.format, "report", "text", "text or json")
	flags.StringVarP(&opt.out, "report-file", "o", "", "write the report to `FILE`")
	flags.IntVar(&opt.most, "functions", 50, "list `N` functions at most in the text report, and as many without an answer; -1 for all")
	flags.IntVar(&opt.cpu, "cpu", -1, "run everything on processor `N`, which takes less time; -1 for any")
	flags.BoolVar(&opt.version, "version", false, "print the version")
	flags.BoolVarP(&opt.help, "help", "h", false, "print this")
	fail := func(err error) int {
		fmt.Fprintf(stderr, "cfi-step: %v\n", err)
		return 2
	}
	if err := flags.Parse(args); err != nil {
		return fail(fmt.Errorf("%w (cfi-step --help lists the flags)", err))
	}
	switch {
	case opt.help:
		fmt.Fprint(stdout, help, flags.FlagUsagesWrapped(110), status)
		return 0
	case opt.version:
		fmt.Fprintln(stdout, "cfi-step", version())
		return 0
	case flags.NArg() == 0:
		return fail(errors.New("a program to run was expected; cfi-step --help says more"))
	case opt.format != "text" && opt.format != "json":
		return fail(fmt.Errorf("--report %s: text or json was expected", opt.format))
	}
	var made []sframe.Version
	for _, v := range opt.made {
		if !slices.Contains(sframe.Versions(), sframe.Version(v)) {
			return fail(fmt.Errorf("--made %d: 1, 2 or 3 was expected", v))
		}
		made = append(made, sframe.Version(v))
	}
	if opt.from != "" {
		var err error
		if opt.from, err = filepath.Abs(opt.from); err == nil {
			opt.from, err = filepath.EvalSymlinks(opt.from)
		}
		if err != nil {
			return fail(err)
		}
	}
	rep, exit, err := trace(flags.Args(), step.Options{Made: made, Steps: opt.steps, CPU: opt.cpu, From: opt.from})
	if rep == nil {
		return fail(err)
	}
	if e := write(rep, exit, &opt, stderr); e != nil {
		return fail(e)
	}
	switch {
	case err != nil:
		return fail(fmt.Errorf("%s: after %d steps: %w", flags.Arg(0), rep.Steps, err))
	case rep.Wrong()+rep.Faults() > 0:
		return 1
	}
	return 0
}

// write writes the report: a file is there as a whole, or not at all.
func write(rep *step.Report, exit int, opt *options, stderr io.Writer) error {
	out := stderr
	var f *os.File
	if opt.out != "" {
		var err error
		if f, err = os.CreateTemp(filepath.Dir(opt.out), ".cfi-step-*"); err != nil {
			return err
		}
		defer os.Remove(f.Name())
		out = f
	}
	var err error
	if opt.format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", " ")
		err = enc.Encode(struct {
			*step.Report
			Exit int `json:"exit_status"`
		}{rep, exit})
	} else if err = rep.Text(out, opt.most); err == nil {
		_, err = fmt.Fprintf(out, "  the program's exit status: %d\n", exit)
	}
	if f == nil || err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), opt.out)
}

// version returns what Go has noted when it built this.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v += " " + s.Value
		}
	}
	return v
}
