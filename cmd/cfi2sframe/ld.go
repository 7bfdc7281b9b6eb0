//go:build linux

package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"cfi2sframe/cmd/cfi2sframe/internal/linker"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/outfile"
	"cfi2sframe/sframe"
)

// The environment.
const (
	flagsVar  = "CFI2SFRAME_FLAGS"
	linkerVar = "CFI2SFRAME_LD"
)

// A link is one run of a linker, with the conversion of its output.
type link struct {
	console
	settings *conversion
	lenient  bool // files without space for program headers are not an error
}

// linkFlags are the flags of ld. Each is recognized only as the sole argument; other arguments are passed to the
// linker.
var linkFlags = []string{"-h", "--help", "--print-dir"}

// runLinker handles cfi2sframe ld, and cfi2sframe called by the name of a linker. For other command lines, ok is false.
func runLinker(args []string, stdout, stderr io.Writer) (status int, ok bool) {
	name, rest, message := "ld", []string(nil), "%w"
	switch base := filepath.Base(args[0]); {
	case linker.IsName(base) || base == linker.Compiler:
		name, rest = base, args[1:]
	case len(args) < 3 || args[1] != "ld", len(args) == 3 && slices.Contains(linkFlags, args[2]):
		return 0, false
	case args[2] == "--":
		rest = args[3:]
	case strings.HasPrefix(args[2], "-") || strings.HasPrefix(args[2], "@"):
		rest = args[2:]
	default:
		name, rest, message = args[2], args[3:], "%w; use -- before arguments of ld"
	}
	if named := os.Getenv(linkerVar); named != "" && message == "%w" && name != linker.Compiler {
		name, message = named, linkerVar+": %w"
	}
	l := &link{console: console{stdout: stdout, stderr: stderr}}
	if err := l.parseFlags(); err != nil {
		fmt.Fprintf(stderr, "cfi2sframe: %s: %s\nTry 'cfi2sframe ld --help'.\n", flagsVar,
			report.PrintableMessage(err.Error()))
		return exitUsage, true
	}
	expanded := linker.Expand(rest)
	program, err := linker.Find(name, expanded)
	if err != nil {
		fmt.Fprintf(stderr, "cfi2sframe: %s\n", report.PrintableMessage(fmt.Errorf(message, err).Error()))
		return exitError, true
	}
	var outputs []string
	if !linker.OwnLayout(expanded) {
		outputs = linker.Outputs(expanded)
	}
	return l.run(interruptContext(), program, rest, outputs), true
}

// linkRefused lists flags that are rejected in CFI2SFRAME_FLAGS.
var linkRefused = []string{"output", "dry-run", "recursive", "skip-status", "report-file", "version", "help"}

// parseFlags parses CFI2SFRAME_FLAGS.
func (l *link) parseFlags() error {
	args, err := linker.Split(os.Getenv(flagsVar))
	if err != nil {
		return err
	}
	s := newConversion()
	cmd := newCall(context.Background(), l.stdout, l.stderr).convertCommand(s)
	if err := cmd.ParseFlags(args); err != nil {
		return flagError(cmd, err)
	}
	f := cmd.Flags()
	for _, name := range linkRefused {
		if f.Changed(name) {
			return fmt.Errorf("--%s is not supported by ld", name)
		}
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is not a flag", f.Arg(0))
	}
	if !f.Changed("report") && !s.verbose {
		s.form = "none"
	}
	s.inPlace = true
	if err := s.validate(cmd, []string{"OUTPUT"}); err != nil {
		return err
	}
	s.to.NoSync = true // if the output is lost, the linker can be run again
	l.lenient, s.skip = s.skip, true
	s.Update = !s.Force // a section that GNU ld merged from those of all objects may be right
	l.settings = s
	return nil
}

// run runs the linker, and converts those of the possible outputs that it makes.
func (l *link) run(ctx context.Context, program string, args, outputs []string) int {
	before := make(map[string]fs.FileInfo)
	for _, path := range outputs {
		before[path], _ = os.Stat(path) // may not exist
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	running := append(filepath.SplitList(os.Getenv(linker.Running)), program)
	cmd.Env = append(os.Environ(), linker.Running+"="+strings.Join(running, string(filepath.ListSeparator)))
	cmd.Cancel = func() error { // the linker gets the signal too
		var s signalError
		errors.As(context.Cause(ctx), &s)
		return cmd.Process.Signal(syscall.Signal(s))
	}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		complain(l.stderr, program, fmt.Errorf("cannot be run: %w", outfile.Plain(err)))
		return exitError
	}
	switch state := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case state.Signaled():
		return 128 + int(state.Signal()) // as shells do
	case state.ExitStatus() != 0:
		return state.ExitStatus()
	}
	for _, path := range outputs {
		if wasMade(path, before[path]) {
			if status := l.convert(ctx, path); status != exitDone {
				return status
			}
		}
	}
	if ctx.Err() != nil {
		return interruptedStatus(ctx)
	}
	return exitDone
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

// convert converts an output. If that must fail the link, convert removes the output, so that the next build links
// again, and returns the exit status.
func (l *link) convert(ctx context.Context, path string) int {
	l.settings.files = []string{path}
	if path == files.Stdin {
		l.settings.files[0] = "./" + path
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the report may go away
	w := &work{console: l.console, settings: l.settings}
	status := w.run(ctx)
	reason := ""
	if w.tally.stay[convert.NoRoom] > 0 && !l.lenient {
		status, reason = exitError, convert.NoRoom.Text()+"; "
	}
	what := "is unchanged"
	switch {
	case status == exitDone || w.tally.done > 0: // the report may have failed
		return exitDone
	case w.interrupted || w.machine || l.settings.coverage > 0 || l.settings.unwindable > 0:
		what = "removed"
		to, err := filepath.EvalSymlinks(path)
		if err == nil {
			err = os.Remove(to)
		}
		if err != nil {
			what = fmt.Sprintf("cannot be removed: %v", outfile.Plain(err))
		}
	default:
		status = exitDone
		if isConcatenated(path) {
			remover := *l.settings
			remover.work = func() files.Work { return files.Remove("") }
			w := &work{console: l.console, settings: &remover}
			if status = w.run(ctx); status == exitDone {
				what = "the linker's .sframe is removed, because it is incomplete"
			}
		}
	}
	complain(l.stderr, path, errors.New(reason+what))
	return status
}

// isConcatenated reports whether the linker concatenated the .sframe sections of objects, as lld and gold do. Readers
// see only the first of them. Linkers that merge the sections add the segment.
func isConcatenated(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Section(".sframe") != nil &&
		!slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.ProgType(sframe.PTGNUSFrame) })
}

// linkersDir returns the directory with links to cfi2sframe that are named like linkers.
func linkersDir() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return linker.Dir(exe)
}
