package main

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"cfi2sframe/cmd/cfi2sframe/internal/linker"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
)

// linkCommand defines the verb ld.
func (c *call) linkCommand(cmd *cobra.Command) {
	cmd.DisableFlagParsing = true // --print-dir and --help are recognized only as the sole argument
	cmd.Flags().Bool("print-dir", false,
		"print the directory with linkers that convert their output, for a compiler's -B")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch all := strings.Join(args, " "); {
		case all == "":
			return errors.New("ld requires a program, or -- and the arguments of ld")
		case all == "--print-dir":
			exe, err := os.Executable()
			dir, failed := linker.Dir(exe)
			if err = cmp.Or(err, failed); err == nil {
				fmt.Fprintln(c.out, dir)
				return nil
			}
			complain(c.stderr, all, err)
			c.status = exitError
		case all == "--help" || all == "-h":
			c.printHelp(cmd, all == "--help")
		case args[0] == "--":
			c.status = c.link(realLinker("ld"), args[1:])
		default:
			c.status = c.link(args[0], args[1:])
		}
		return nil
	}
}

// realLinker returns the linker to run in place of one of the given name.
func realLinker(name string) string { return cmp.Or(os.Getenv("CFI2SFRAME_LD"), name) }

// link runs a linker or compiler, and converts its output. It returns the exit status.
func (c *call) link(name string, args []string) int {
	s, err := c.linkSettings()
	if err != nil {
		complain(c.stderr, "CFI2SFRAME_FLAGS", fmt.Errorf("%w; see cfi2sframe ld --help", err))
		return exitUsage
	}
	program, err := linker.Find(name)
	if err != nil {
		complain(c.stderr, name, err)
		return exitError
	}
	outputs := linker.Outputs(args)
	before := make(map[string]fs.FileInfo)
	for _, path := range outputs {
		before[path], _ = os.Stat(path) // may not exist
	}
	if status := c.runLinker(program, args); status != exitDone {
		return status
	}
	for _, path := range outputs {
		if wasMade(path, before[path]) {
			if status := c.convertLinked(s, path); status != exitDone {
				return status
			}
		}
	}
	if c.ctx.Err() != nil {
		return interruptedStatus(c.ctx)
	}
	return exitDone
}

// linkSettings parses CFI2SFRAME_FLAGS.
func (c *call) linkSettings() (*conversion, error) {
	s := newConversion()
	cmd := c.convertCommand(s)
	if err := cmd.ParseFlags(linker.Split(os.Getenv("CFI2SFRAME_FLAGS"))); err != nil {
		return nil, flagError(cmd, err)
	}
	f := cmd.Flags()
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("%q is not a flag", f.Arg(0))
	case s.reporting.file != "": // each link would overwrite the report of the one before
		return nil, errors.New("--report-file is not supported by ld")
	case !f.Changed("report") && !s.verbose:
		s.form = "none"
	}
	s.inPlace = true
	err := s.validate(cmd, []string{"OUTPUT"})
	s.to.NoSync = true // if the output is lost, the linker can be run again
	s.skip = true
	s.Update = !s.Force // a section that GNU ld merged from those of all objects may be right
	return s, err
}

// runLinker runs a linker, and returns its exit status.
func (c *call) runLinker(program string, args []string) int {
	cmd := exec.CommandContext(c.ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	running := append(filepath.SplitList(os.Getenv(linker.Running)), program)
	cmd.Env = append(os.Environ(), linker.Running+"="+strings.Join(running, string(filepath.ListSeparator)))
	cmd.Cancel = func() error { // the linker gets the signal too
		return cmd.Process.Signal(syscall.Signal(context.Cause(c.ctx).(signalError)))
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		complain(c.stderr, program, fmt.Errorf("cannot be run: %w", outfile.Plain(err)))
		return exitError
	}
	if state := cmd.ProcessState.Sys().(syscall.WaitStatus); state.Signaled() {
		return 128 + int(state.Signal()) // as shells do
	}
	return cmd.ProcessState.ExitCode()
}

// wasMade reports whether the linker created or changed a program or shared library.
func wasMade(path string, before fs.FileInfo) bool {
	after, err := os.Stat(path)
	if err != nil || !after.Mode().IsRegular() || before != nil && os.SameFile(before, after) &&
		before.Size() == after.Size() && before.ModTime().Equal(after.ModTime()) {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return outfile.OfMachine(err) // the conversion reports the error
	}
	defer f.Close()
	return f.Type == elf.ET_EXEC || f.Type == elf.ET_DYN
}

// convertLinked converts an output. If that must fail the link, it removes the output, so that the next build links
// again, and returns the exit status.
func (c *call) convertLinked(s *conversion, path string) int {
	s.files = []string{path}
	if path == files.Stdin {
		s.files[0] = "./" + path
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the report may go away
	w := &work{console: console{c.stdout, c.stderr}, settings: s}
	status, what, why := w.run(c.ctx), "is unchanged", ""
	if w.tally.stay[convert.NoRoom] > 0 {
		status, why = exitError, ": "+convert.NoRoom.Text()
	}
	switch {
	case status == exitDone || w.tally.Done > 0: // the report may have failed
		return exitDone
	case w.interrupted || w.machine || s.coverage > 0 || s.unwindable > 0:
		what = "removed"
		to, err := filepath.EvalSymlinks(path)
		if err = cmp.Or(err, os.Remove(to)); err != nil {
			what = fmt.Sprintf("cannot be removed: %v", outfile.Plain(err))
		}
	default:
		status = exitDone
	}
	complain(c.stderr, path, errors.New(what+why))
	return status
}
