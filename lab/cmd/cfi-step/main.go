// Command cfi-step runs a program instruction by instruction, and reports the functions whose call frame information or
// SFrame is wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"cfi2sframe/lab/step"
	"cfi2sframe/sframe"
)

const help = `Usage: cfi-step [FLAG...] PROGRAM [ARGUMENT...]

Runs a program one instruction at a time (Linux, amd64), with a second stack of
all calls: the caller's return address, stack pointer and frame pointer at each
instruction. The call frame information (.eh_frame, .debug_frame) of the program
and its libraries, and .sframe if a file has one, are compared with that.

Each function with a wrong answer is reported: assembly that moves the stack
pointer without CFI, epilogues without CFI, register saves that CFI does not
mention. If .sframe repeats a wrong answer of CFI, CFI is reported; .sframe is
reported if it differs.

Signal handlers, longjmp, exceptions, threads and other stacks are followed;
child processes are not. A program takes a thousand times as long as usual or
longer. The report goes to standard error, or to a file.

Flags:
`

const more = `
Exit status:
  0    no answer was wrong; the program's own exit status is in the report
  1    an answer was wrong
  2    wrong usage, or the program could not be followed

Examples:
  cfi-step ./prog input                     a program, and its libraries
  cfi-step --made 2,3 /bin/ls               also the sections that cfi2sframe
                                            would write
  cfi-step --steps 1000000 gzip -k f        the first million instructions
`

// helpWidth is the number of columns of the help.
const helpWidth = 80

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	var opt step.Options
	flags := pflag.NewFlagSet("cfi-step", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetInterspersed(false) // the arguments after the program are the program's
	flags.SetOutput(io.Discard)
	flags.Uint64Var(&opt.Steps, "steps", 0, "end the program after `N` steps; 0 for no limit")
	flags.BoolVar(&opt.Entry, "entry", false, "begin at the program's entry point, after the loader")
	made := flags.IntSlice("made", nil, "compare .sframe of these `VERSIONS` as well; files get it in memory: 1, 2, 3")
	out := flags.StringP("report-file", "o", "", "write the report to `FILE`")
	asked := flags.BoolP("help", "h", false, "print this")
	fail := func(err error) int {
		fmt.Fprintf(stderr, "cfi-step: %v\n", err)
		return 2
	}
	if err := flags.Parse(args); err != nil {
		return fail(fmt.Errorf("%w (cfi-step --help lists the flags)", err))
	}
	switch {
	case *asked:
		const either = "[=true|false]" // which pflag has for switches
		usages := strings.ReplaceAll(flags.FlagUsagesWrapped(helpWidth), either, strings.Repeat(" ", len(either)))
		fmt.Fprint(stdout, help, usages, more)
		return 0
	case flags.NArg() == 0:
		return fail(errors.New("no program to run; see cfi-step --help"))
	}
	for _, v := range *made {
		if !slices.Contains(sframe.Versions(), sframe.Version(v)) {
			return fail(fmt.Errorf("--made %d: not 1, 2 or 3", v))
		}
		opt.Made = append(opt.Made, sframe.Version(v))
	}
	report := stderr
	if *out != "" {
		f, err := os.Create(*out)
		if err != nil {
			return fail(err)
		}
		defer f.Close()
		report = f
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.Command(flags.Arg(0), flags.Args()[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	r, exit, err := step.Trace(ctx, cmd, opt)
	if r == nil {
		return fail(err)
	}
	r.Text(report)
	fmt.Fprintf(report, "  the program's exit status: %d\n", exit)
	switch {
	case err != nil:
		return fail(fmt.Errorf("%s: after %d steps: %w", flags.Arg(0), r.Steps, err))
	case len(r.Findings) > 0:
		return 1
	}
	return 0
}
