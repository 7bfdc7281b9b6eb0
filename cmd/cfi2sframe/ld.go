//go:build linux

package main

import (
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cfi2sframe/cmd/cfi2sframe/internal/linker"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/outfile"
)

// The environment.
const (
	flagsVar   = "CFI2SFRAME_FLAGS"
	linkerVar  = "CFI2SFRAME_LD"
	linkingVar = "CFI2SFRAME_LINKING" // tells nested runs which linkers are running, and for which outputs
)

// A link is one run of a linker, with the conversion of its output.
type link struct {
	command string // the program to run, or ""
	name    string // if command is "": the name of the linker, or linker.Compiler
	program string // the path of either
	args    []string
	outputs []*linkOutput
	lenient bool // files without space for program headers are not an error
	stdout  io.Writer
	stderr  io.Writer
}

// A linkOutput is a possible output of the linker.
type linkOutput struct {
	path   string
	before fs.FileInfo // or nil
}

// runLinker handles cfi2sframe ld, and cfi2sframe called by the name of a linker. For other command lines, ok is false.
func runLinker(args []string, stdout, stderr io.Writer) (status int, ok bool) {
	l := &link{stdout: stdout, stderr: stderr}
	switch name := filepath.Base(args[0]); {
	case linker.IsName(name) || name == linker.Compiler:
		l.name, l.args = name, args[1:]
	case len(args) < 3 || args[1] != "ld", len(args) == 3 && slices.Contains(linkFlags, args[2]):
		return 0, false
	case args[2] == "--":
		l.name, l.args = "ld", args[3:]
	case strings.HasPrefix(args[2], "-") || strings.HasPrefix(args[2], "@"):
		l.name, l.args = "ld", args[2:]
	default:
		l.command, l.args = args[2], args[3:]
	}
	return l.run(), true
}

// linkFlags are the flags of ld. Each is recognized only as the sole argument; other arguments are passed to the
// linker.
var linkFlags = []string{"-h", "--help", "--print-dir"}

func (l *link) run() int {
	args := linker.Expand(l.args)
	names := linker.Outputs(args)
	for i, name := range names {
		if strings.HasPrefix(name, "-") { // the name must not be taken for a flag or standard input
			names[i] = "./" + name
		}
	}
	seen, within := excludedIDs(names)
	own := linker.OwnScript(args)
	var s *conversion
	if !within {
		var err error
		if s, err = l.settings(names); err != nil {
			fmt.Fprintf(l.stderr, "cfi2sframe: %s: %s\nTry 'cfi2sframe ld --help'.\n", flagsVar,
				report.PrintableMessage(err.Error()))
			return exitUsage
		}
	}
	if err := l.find(&linker.Search{Args: args, Skip: seen, Env: os.Getenv}); err != nil {
		fmt.Fprintf(l.stderr, "cfi2sframe: %s\n", report.PrintableMessage(err.Error()))
		return exitError
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, linkingVar+"=") })
	seen = append(seen, fileID(l.program)+"/"+filepath.Base(l.program)) // a compiler may have several names
	env = append(env, linkingVar+"="+strings.Join(seen, " ")+"\n"+absolutePaths(names))
	for _, name := range names {
		before, _ := os.Stat(name) // may not exist
		l.outputs = append(l.outputs, &linkOutput{name, before})
	}
	signals := make(chan os.Signal, 1)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	var copies inputCopies
	if linker.Refuses(l.program, args) {
		if err := copies.copyInputs(l, args, names, signals); err != nil {
			copies.remove()
			if sig, ok := err.(signalError); ok {
				return die(syscall.Signal(sig))
			}
			complain(l.stderr, l.program, err)
			return exitError
		}
	}
	argv := append([]string{l.program}, l.args...)
	if within && copies.dir == "" { // the outer cfi2sframe converts the output
		return l.printRunError(syscall.Exec(l.program, argv, env))
	}
	state, last, err := execute(l.program, argv, env, signals)
	copies.remove()
	switch {
	case err != nil:
		return l.printRunError(err)
	case state.Signaled():
		return die(state.Signal())
	case state.ExitStatus() != 0:
		return state.ExitStatus()
	case own || within:
		return exitDone
	case last != 0:
		l.discard()
		return die(last)
	}
	return l.convert(s, signals)
}

// find finds the program.
func (l *link) find(s *linker.Search) (err error) {
	name, message := l.name, "%w"
	if l.command != "" {
		name, message = l.command, "%w; use -- before arguments of ld"
	} else if named := os.Getenv(linkerVar); named != "" && name != linker.Compiler {
		name, message = named, linkerVar+": %w"
	}
	if l.program, err = s.Find(name); err != nil {
		return fmt.Errorf(message, err)
	}
	return nil
}

// printRunError prints why the program cannot be run.
func (l *link) printRunError(err error) int {
	complain(l.stderr, l.program, fmt.Errorf("cannot be run: %w", outfile.Plain(err)))
	return exitError
}

// excludedIDs returns the IDs of programs that must not be run as the linker, because they would recurse endlessly:
// cfi2sframe itself and, if an outer cfi2sframe already links these outputs (within), every program that it has
// started.
func excludedIDs(outputs []string) (seen []string, within bool) {
	ids, of, _ := strings.Cut(os.Getenv(linkingVar), "\n")
	if within = ids != "" && of == absolutePaths(outputs); within {
		seen = strings.Fields(ids)
	}
	return append(seen, fileID("/proc/self/exe")), within
}

// fileID returns the ID of a file, or "".
func fileID(path string) string {
	if info, err := os.Stat(path); err == nil {
		if id, ok := inode.Of(info); ok {
			return id.String()
		}
	}
	return ""
}

// absolutePaths returns the absolute paths of outputs, one per line: outputs in different directories may share a name.
func absolutePaths(names []string) string {
	paths := slices.Clone(names)
	for i, name := range paths {
		if path, err := filepath.Abs(name); err == nil {
			paths[i] = path
		}
	}
	return strings.Join(paths, "\n")
}

// linkRefused lists flags that are rejected in CFI2SFRAME_FLAGS.
var linkRefused = []string{"output", "dry-run", "recursive", "skip-status", "report-file", "version", "help"}

// settings parses CFI2SFRAME_FLAGS.
func (l *link) settings(names []string) (*conversion, error) {
	args, err := linker.Split(os.Getenv(flagsVar))
	if err != nil {
		return nil, err
	}
	c := newCall(context.Background(), l.stdout, l.stderr)
	s := newConversion()
	cmd := c.convertCommand(s)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, flagError(cmd, err)
	}
	f := cmd.Flags()
	for _, name := range linkRefused {
		if f.Changed(name) {
			return nil, fmt.Errorf("--%s is not supported by ld", name)
		}
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag", f.Arg(0))
	}
	if !f.Changed("report") && !s.verbose {
		s.form = "none"
	}
	s.inPlace = true
	if err := s.validate(cmd, names); err != nil {
		return nil, err
	}
	s.to.NoSync = true // if the output is lost, the linker can be run again
	l.lenient, s.skip = s.skip, true
	s.Update = !s.Force // GNU ld may have merged .sframe from only some objects
	return s, s.distinct(l.stdout, l.stderr)
}

// inputCopies holds copies of inputs, without .sframe, in a temporary directory.
type inputCopies struct{ dir string }

func (c *inputCopies) remove() {
	if c.dir != "" {
		_ = os.RemoveAll(c.dir)
	}
}

// copyInputs copies objects and archives that contain .sframe, and makes the arguments name the copies.
// Response files in args must already be expanded. After a signal, the error is a signalError.
func (c *inputCopies) copyInputs(l *link, args, outputs []string, signals <-chan os.Signal) error {
	opt := files.Options{Work: files.Remove(""), Run: convert.Run{SkipUnsupported: true}, NoSync: true}
	changed := slices.Clone(args)
	for _, in := range linker.Inputs(args, outputs) {
		select {
		case s := <-signals:
			return signalError(s.(syscall.Signal))
		default:
		}
		opt.DryRun = true
		res, err := files.Convert(context.Background(), in.Path, "", opt)
		if err != nil || res.Stays != "" {
			continue // the linker reports the problem
		}
		if c.dir == "" {
			if c.dir, err = os.MkdirTemp("", "cfi2sframe-ld-"); err != nil {
				return outfile.Plain(err)
			}
		}
		sub := filepath.Join(c.dir, strconv.Itoa(in.Index)) // so that the copy has the name of the input
		if err := os.Mkdir(sub, 0o700); err != nil {
			return outfile.Plain(err)
		}
		changed[in.Index], opt.DryRun = filepath.Join(sub, filepath.Base(in.Path)), false
		if _, err := files.Convert(context.Background(), in.Path, changed[in.Index], opt); err != nil {
			return fmt.Errorf("copy of %s without .sframe: %w", in.Path, err)
		}
	}
	switch {
	case c.dir == "":
		return nil
	case slices.Equal(args, l.args):
		l.args = changed
		return nil
	}
	response := filepath.Join(c.dir, "args")
	l.args = []string{"@" + response}
	return outfile.Plain(os.WriteFile(response, []byte(linker.Quote(changed)), 0o600))
}

// execute runs a program and waits for it. execute forwards signals to the program, and returns the last signal, or 0.
func execute(program string, argv, env []string, signals <-chan os.Signal) (syscall.WaitStatus, syscall.Signal, error) {
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	p, err := os.StartProcess(program, argv, &os.ProcAttr{Env: env, Files: files})
	if err != nil {
		return 0, 0, err
	}
	var state *os.ProcessState
	done := make(chan error)
	go func() {
		var err error
		state, err = p.Wait()
		done <- err
	}()
	var last syscall.Signal
	for {
		select {
		case s := <-signals:
			last = s.(syscall.Signal)
			_ = p.Signal(s) // it may have ended
		case err := <-done:
			if err != nil {
				return 0, last, err
			}
			return state.Sys().(syscall.WaitStatus), last, nil
		}
	}
}

// die kills cfi2sframe with the signal that killed the linker, without a core dump and without the signal handlers of
// the Go runtime, which would report a crash.
func die(s syscall.Signal) int {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	var fallback [64]byte // a struct sigaction of zeros: SIG_DFL
	const setSize = 8     // bytes of a sigset_t
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&fallback)), 0, setSize, 0, 0)
	_ = unix.Kill(unix.Getpid(), s)
	time.Sleep(time.Second) // until the signal arrives
	return 128 + int(s)     // as shells do
}

// convert converts the outputs of the linker. After a signal, it removes the outputs and ends the process.
func (l *link) convert(s *conversion, signals <-chan os.Signal) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		cancel(signalError((<-signals).(syscall.Signal)))
		second := <-signals
		outfile.Abandon()
		l.discard()
		die(second.(syscall.Signal))
	}()
	status := exitDone
	for _, o := range l.outputs {
		if o.wasMade() && isConvertible(o.path) {
			status = cmp.Or(status, l.convertOne(ctx, s, o))
		}
	}
	var sig signalError
	if errors.As(context.Cause(ctx), &sig) {
		l.discard()
		return die(syscall.Signal(sig))
	}
	return status
}

// convertOne converts one file.
func (l *link) convertOne(ctx context.Context, s *conversion, o *linkOutput) int {
	s.files = []string{o.path}
	w := &work{console: console{stdout: l.stdout, stderr: l.stderr}, settings: s}
	status := w.run(ctx)
	if w.tally.stay[convert.NoRoom] > 0 && !l.lenient { // convert again, to get the error
		s.skip = false
		w = &work{console: console{stdout: l.stdout, stderr: l.stderr}, settings: s}
		status = w.run(ctx)
	}
	switch {
	case status == exitDone || status == exitSkipped || w.interrupted:
		return exitDone
	case w.machine || s.coverage > 0 || s.unwindable > 0:
		what := errors.New("removed; link again")
		if !w.machine && s.coverage > 0 {
			what = fmt.Errorf("removed, because %s contains --min-coverage", flagsVar)
		} else if !w.machine {
			what = fmt.Errorf("removed, because %s contains --min-unwindable", flagsVar)
		}
		if err := o.remove(); err != nil {
			what = fmt.Errorf("cannot be removed: %w", outfile.Plain(err))
		}
		complain(l.stderr, o.path, what)
		return status
	}
	complain(l.stderr, o.path, errors.New("is unchanged"))
	return exitDone
}

// wasMade reports whether the linker created or changed the file.
func (o *linkOutput) wasMade() bool {
	after, err := os.Stat(o.path)
	if err != nil || !after.Mode().IsRegular() {
		return outfile.OfMachine(err) // the conversion reports the error
	}
	if o.before == nil || !os.SameFile(o.before, after) {
		return true
	}
	was, now := o.before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	return was.Size != now.Size || was.Mtim != now.Mtim || was.Ctim != now.Ctim
}

// remove removes the output, so that the next build links again.
func (o *linkOutput) remove() error {
	path, err := filepath.EvalSymlinks(o.path)
	if err == nil {
		err = os.Remove(path)
	}
	return err
}

// discard removes the outputs.
func (l *link) discard() {
	for _, o := range l.outputs {
		if o.wasMade() {
			_ = o.remove() // a failing linker does not report such errors either
		}
	}
}

// incremental is the section that gold writes to outputs that it may change in the next link.
const incremental = ".gnu_incremental_inputs"

// isConvertible reports whether a file is a program or library that later links do not modify in place.
func isConvertible(path string) bool {
	file, info, err := outfile.OpenRegular(path)
	if err != nil {
		return outfile.OfMachine(err) // the conversion reports the error
	}
	defer file.Close()
	f, err := elffile.New(file, info.Size())
	if outfile.OfMachine(err) {
		return true
	}
	if err != nil || f.Section(incremental) != nil {
		return false
	}
	return elf.Type(f.Type) == elf.ET_EXEC || elf.Type(f.Type) == elf.ET_DYN
}

// linkersDir returns the directory with links to cfi2sframe that are named like linkers.
func linkersDir() (string, error) {
	exe, err := os.Executable()
	if err == nil {
		_, err = os.Stat(exe) // the executable may have been replaced since the start
	}
	if err != nil {
		return "", err
	}
	return linker.Dir(exe)
}
