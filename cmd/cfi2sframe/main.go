// Command cfi2sframe makes SFrame sections from the DWARF call frame information of ELF files,
// and adds them to the files.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"cfi2sframe/cmd/cfi2sframe/internal/linker"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/heap"
	"cfi2sframe/internal/outfile"
)

// Exit statuses of all verbs. The list of verbs describes them for help.
const (
	exitDone      = 0
	exitError     = 1
	exitDifferent = 1 // check found a mismatch, or lookup no row
	exitUsage     = 2
	exitTrouble   = 2 // an error in check or lookup
	exitCoverage  = 3
	exitSkipped   = 4
)

// statusesOf describes the exit statuses of a verb, the last of which depend on its flags.
func statusesOf(cmd *cobra.Command) string {
	var words []string
	for _, v := range allVerbs() {
		if v.name() == cmd.Name() {
			words = v.statuses
		}
	}
	if words == nil {
		words = []string{"done", "error", "wrong usage"}
		if cmd.Flags().Lookup("output") != nil {
			words[exitError] = "error; nothing is written for that file"
		}
	}
	if cmd.Flags().Lookup("min-coverage") != nil {
		words = append(words, "less than --min-coverage or --min-unwindable")
	}
	text := "\nExit status:\n"
	for status, word := range words {
		text += fmt.Sprintf("  %-4d %s\n", status, word)
	}
	if cmd.Flags().Lookup("skip-status") != nil {
		text += fmt.Sprintf("  %-4d %s\n", exitSkipped, "an unsupported file was skipped, with --skip-status")
	}
	return text + "  129, 130 or 143\n       interrupted by SIGHUP, SIGINT or SIGTERM\n"
}

func main() {
	heap.Limit()
	ctx, args := interruptContext(), os.Args[1:]
	switch name := filepath.Base(os.Args[0]); {
	case name == linker.Compiler:
		os.Exit(newCall(ctx, os.Stdout, os.Stderr).link(name, args))
	case linker.IsName(name):
		os.Exit(newCall(ctx, os.Stdout, os.Stderr).link(realLinker(name), args))
	}
	os.Exit(run(ctx, args, os.Stdout, os.Stderr))
}

// interruptContext returns a context that is canceled by the first termination signal. The second signal ends
// cfi2sframe even while it waits for a pipe, and leaves no temporary files.
func interruptContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as under nohup
			signal.Notify(signals, s)
		}
	}
	go func() {
		first := <-signals
		cancel(signalError(first.(syscall.Signal)))
		s := <-signals
		outfile.Abandon()
		signal.Reset(s)
		if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(s) != nil { // unsupported on Windows
			os.Exit(exitError)
		}
	}()
	return ctx
}

// A signalError is the signal that canceled a context.
type signalError syscall.Signal

func (s signalError) Error() string { return "interrupted" }

// Is makes errors.Is match context.Canceled.
func (s signalError) Is(err error) bool { return err == context.Canceled }

// interruptedStatus returns 128 plus the number of the signal, as shells do.
func interruptedStatus(ctx context.Context) int {
	var s signalError
	if errors.As(context.Cause(ctx), &s) {
		return 128 + int(s)
	}
	return exitError
}

// complain prints an error, preceded by the name of the file or step that it concerns.
func complain(w io.Writer, about string, err error) {
	name := report.Printable(about)
	if about == "" {
		name = `""`
	}
	fmt.Fprintf(w, "cfi2sframe: %s: %s\n", name, report.PrintableMessage(err.Error()))
}

// An output is a writer whose errors name it.
type output struct {
	io.Writer
	name string
	err  error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil {
		err = fmt.Errorf("cannot write to %s: %w", o.name, outfile.Plain(err))
		o.err = err
	}
	return n, err
}
