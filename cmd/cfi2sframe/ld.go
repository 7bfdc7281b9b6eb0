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
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/inode"
	"cfi2sframe/internal/linker"
	"cfi2sframe/internal/outfile"
)

const linkUsage = `Usage: cfi2sframe ld PROGRAM ARGUMENT...
       cfi2sframe ld -- ARGUMENT...
       ld ARGUMENT...

Links, and adds an .sframe section to the output. The first form runs PROGRAM, a linker or a
compiler that links; the others run the linker ld. Under the name of a linker (ld, ld.bfd,
ld.gold, ld.lld, ld.mold), as in the directory that cfi2sframe --print-linker-dir prints, it
runs the linker of that name that the compiler would have run otherwise:

  gcc -B$(cfi2sframe --print-linker-dir) main.o -o prog
  clang -fuse-ld=lld -B$(cfi2sframe --print-linker-dir) main.o -o prog
  cargo build --config target.x86_64-unknown-linux-gnu.linker=\"$(cfi2sframe --print-linker-dir)/cc\"
  cmake -DCMAKE_C_LINKER_LAUNCHER='cfi2sframe;ld' -DCMAKE_CXX_LINKER_LAUNCHER='cfi2sframe;ld' ...

Programs and shared libraries are converted; objects (-r) and unsupported files are unchanged.
If a program cannot be converted, it is unchanged, and a warning says why; with --min-coverage
in CFI2SFRAME_FLAGS the link fails, and the program is removed. Otherwise the exit status is
that of PROGRAM.

Environment:
  CFI2SFRAME_FLAGS  flags of cfi2sframe, such as '--format 3 --min-coverage 99'. Without
                    --report, --report-file or -v nothing is reported
  CFI2SFRAME_LD     the linker to run, a path or a name, whatever the name of this one is
`

// The environment.
const (
	flagsVar   = "CFI2SFRAME_FLAGS"
	linkerVar  = "CFI2SFRAME_LD"
	linkingVar = "CFI2SFRAME_LINKING" // what is being linked, and by what, for those that are run by it
)

// A link is the run of a linker whose output is to be converted.
type link struct {
	name    string // of the linker, or linker.Compiler, that is to be run
	given   string // the program to run instead, or ""
	program string // its path
	args    []string
	outputs []*linkOutput
	lenient bool // nothing is said of a file without room for program headers, either
	stdout  io.Writer
	stderr  io.Writer

	mu     sync.Mutex
	child  *os.Process    // that runs
	signal syscall.Signal // that came, or 0
}

// A linkOutput is what may be the output.
type linkOutput struct {
	path   string
	before fs.FileInfo // or nil
}

// runLinker is the whole program for a command line that asks for a link; ok is false for others. Compilers run this
// program by the name of a linker only.
func runLinker(args []string, stdout, stderr io.Writer) (status int, ok bool) {
	l := &link{stdout: stdout, stderr: stderr}
	switch name := filepath.Base(args[0]); {
	case linker.IsName(name) || name == linker.Compiler:
		l.name, l.args = name, args[1:]
	case len(args) < 2 || args[1] != linkCommand:
		return 0, false
	case len(args) == 2:
		return l.wrong(errors.New("nothing to run: a program, or -- and the arguments of ld, was expected")), true
	case args[2] == "--help" && len(args) == 3:
		fmt.Fprint(stdout, linkUsage)
		return exitDone, true
	case args[2] == "--":
		l.name, l.args = "ld", args[3:]
	case strings.HasPrefix(args[2], "-") || strings.HasPrefix(args[2], "@"):
		l.name, l.args = "ld", args[2:]
	default:
		l.given, l.args = args[2], args[3:]
	}
	return l.run(), true
}

// wrong says what is wrong with the usage.
func (l *link) wrong(err error) int {
	fmt.Fprintf(l.stderr, "cfi2sframe: %s\nTry 'cfi2sframe ld --help'.\n", printable(err.Error()))
	return exitUsage
}

func (l *link) run() int {
	args := linker.Expand(l.args)
	names := linker.Outputs(args)
	for i, name := range names {
		if strings.HasPrefix(name, "-") { // which is neither a flag nor standard input
			names[i] = "./" + name
		}
	}
	met, within := alreadyMet(names)
	own := linker.OwnScript(args)
	var s *settings
	if !within {
		var err error
		if s, err = l.settings(names); err != nil {
			return l.wrong(fmt.Errorf("%s: %w", flagsVar, err))
		}
	}
	if err := l.find(&linker.Search{Args: args, Skip: met, Env: os.Getenv}); err != nil {
		fmt.Fprintf(l.stderr, "cfi2sframe: %s\n", printable(err.Error()))
		return exitError
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, linkingVar+"=") })
	env = append(env, linkingVar+"="+meet(met, l.program, names))
	argv := append([]string{l.program}, l.args...)
	if within { // the outer cfi2sframe converts
		return l.cannot(syscall.Exec(l.program, argv, env))
	}
	for _, name := range names {
		before, _ := os.Stat(name) // there may be none
		l.outputs = append(l.outputs, &linkOutput{name, before})
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.catch(cancel)
	state, err := l.execute(argv, env)
	switch {
	case err != nil:
		return l.cannot(err)
	case state.Signaled():
		return die(state.Signal())
	case state.ExitStatus() != 0:
		return state.ExitStatus()
	}
	if own {
		return exitDone
	}
	return l.convert(ctx, s)
}

// find finds the program.
func (l *link) find(s *linker.Search) (err error) {
	if l.given != "" {
		if l.program, err = s.Find(l.given); err != nil {
			err = fmt.Errorf("%w; in front of arguments for ld put --", err)
		}
		return err
	}
	if named := os.Getenv(linkerVar); named != "" && l.name != linker.Compiler {
		if l.program, err = s.Find(named); err != nil {
			err = fmt.Errorf("%s: %w", linkerVar, err)
		}
		return err
	}
	l.program, err = s.Find(l.name)
	return err
}

// cannot says that the program cannot be run.
func (l *link) cannot(err error) int {
	complain(l.stderr, l.program, fmt.Errorf("cannot be run: %w", outfile.Plain(err)))
	return exitError
}

// alreadyMet returns the IDs of programs that are not to be run: this one, and if it was itself run to make these outputs
// by one such as it, which within says, all that were run for that. So a link comes to an end whatever leads to
// whatever, as copies of this program do, and scripts that run it in place of a linker.
func alreadyMet(names []string) (met []string, within bool) {
	ids, outputs, _ := strings.Cut(os.Getenv(linkingVar), "\n")
	if within = ids != "" && outputs == absolute(names); within {
		met = strings.Fields(ids)
	}
	if self, err := os.Stat("/proc/self/exe"); err == nil {
		if id, ok := inode.Of(self); ok {
			met = append(met, id.String())
		}
	}
	return met, within
}

// meet returns what alreadyMet goes by for what is about to be run.
func meet(met []string, program string, names []string) string {
	if info, err := os.Stat(program); err == nil {
		if id, ok := inode.Of(info); ok {
			met = append(met, id.String()+"/"+filepath.Base(program)) // some are compilers by another name
		}
	}
	return strings.Join(met, " ") + "\n" + absolute(names)
}

// absolute returns the paths of outputs, one in a line. Outputs in several directories can have the same name.
func absolute(names []string) string {
	paths := slices.Clone(names)
	for i, name := range paths {
		if path, err := filepath.Abs(name); err == nil {
			paths[i] = path
		}
	}
	return strings.Join(paths, "\n")
}

// settings are those of the environment.
func (l *link) settings(names []string) (*settings, error) {
	flags, err := linker.Split(os.Getenv(flagsVar))
	if err != nil {
		return nil, err
	}
	args := []string{"--in-place"}
	if !slices.ContainsFunc(flags, reports) {
		args = append(args, "--report", "none")
	}
	args = append(append(args, flags...), "--")
	s, err := parse(commandMode(linkCommand), append(args, names...), io.Discard)
	switch {
	case errors.Is(err, errDone):
		return nil, errors.New("flags for conversion alone were expected")
	case err != nil:
		return nil, err
	case len(s.files) > len(names):
		return nil, fmt.Errorf("%q: flags alone were expected", s.files[0])
	}
	// What is replaced was made a moment ago, and can be made again.
	s.NoSync = true
	l.lenient, s.SkipUnsupported = s.SkipUnsupported, true
	s.Update = !s.Remove && !s.Force // GNU ld may have merged sections that only a part of the objects have
	return s, s.distinct(l.stdout, l.stderr)
}

// reports reports whether a flag asks for a report.
func reports(flag string) bool {
	return strings.HasPrefix(flag, "--report") || flag == "-v" || flag == "--verbose"
}

// catch passes signals that end cfi2sframe on to the linker, or ends the conversion.
func (l *link) catch(cancel func()) {
	c := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	go func() {
		for s := range c {
			l.mu.Lock()
			first := l.signal == 0
			l.signal = s.(syscall.Signal)
			child := l.child
			l.mu.Unlock()
			cancel()
			switch {
			case child != nil:
				_ = child.Signal(s) // it may have ended
			case !first:
				outfile.Abandon()
				l.discard()
				die(s.(syscall.Signal))
			}
		}
	}()
}

// caught returns the signal that came, or 0.
func (l *link) caught() syscall.Signal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.signal
}

// execute runs the program to its end.
func (l *link) execute(argv, env []string) (state syscall.WaitStatus, err error) {
	l.mu.Lock()
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	p, err := os.StartProcess(l.program, argv, &os.ProcAttr{Env: env, Files: files})
	if err == nil {
		l.child = p
		if l.signal != 0 {
			_ = p.Signal(l.signal)
		}
	}
	l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	ended, err := p.Wait()
	l.mu.Lock()
	l.child = nil
	l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return ended.Sys().(syscall.WaitStatus), nil
}

// die ends the program by a signal, as another one ended by it. The runtime's own handlers, which would
// report a crash of this program, are taken away, and there is no core of it.
func die(s syscall.Signal) int {
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	var fallback [64]byte // a struct sigaction of zeros: SIG_DFL
	const setSize = 8     // bytes of a sigset_t
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&fallback)), 0, setSize, 0, 0)
	_ = unix.Kill(unix.Getpid(), s)
	time.Sleep(time.Second) // until it arrives
	return 128 + int(s)     // as a shell says it
}

// convert converts what was linked.
func (l *link) convert(ctx context.Context, s *settings) int {
	status := exitDone
	for _, o := range l.outputs {
		if !o.made() || !convertible(o.path) {
			continue
		}
		status = cmp.Or(status, l.convertOne(ctx, s, o))
	}
	if sig := l.caught(); sig != 0 {
		l.discard()
		return die(sig)
	}
	return status
}

// convertOne converts one file.
func (l *link) convertOne(ctx context.Context, s *settings, o *linkOutput) int {
	s.files = []string{o.path}
	w := &work{settings: s, stdout: l.stdout, stderr: l.stderr}
	status := w.run(ctx)
	if w.tally.stay[convert.NoRoom] > 0 && !l.lenient { // nothing for SFrame to say is one thing, this is another
		s.SkipUnsupported = false
		w = &work{settings: s, stdout: l.stdout, stderr: l.stderr}
		status = w.run(ctx)
	}
	switch {
	case status == exitDone || status == exitSkipped || w.interrupted:
		return exitDone
	case s.MinCoverage > 0:
		what := "removed"
		if err := o.remove(); err != nil {
			what = fmt.Sprintf("to be removed, and cannot be (%s)", outfile.Plain(err))
		}
		complain(l.stderr, o.path, fmt.Errorf("%s, as %s has --min-coverage", what, flagsVar))
		return status
	}
	complain(l.stderr, o.path, errors.New("stays as the linker made it"))
	return exitDone
}

// made reports whether a file is there now that was not there, or not so, before the linker ran.
func (o *linkOutput) made() bool {
	after, err := os.Stat(o.path)
	if err != nil || !after.Mode().IsRegular() {
		return false
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

// discard removes what was linked.
func (l *link) discard() {
	for _, o := range l.outputs {
		if o.made() {
			_ = o.remove() // a linker that fails does not say more
		}
	}
}

// incremental is the section by which gold finds what it may change in its own output the next time.
const incremental = ".gnu_incremental_inputs"

// convertible reports whether a file is linked, and not to be changed by the linker later.
func convertible(path string) bool {
	file, info, err := outfile.OpenRegular(path)
	if err != nil {
		return false
	}
	defer file.Close()
	f, err := elffile.New(file, info.Size())
	return err == nil && (elf.Type(f.Type) == elf.ET_EXEC || elf.Type(f.Type) == elf.ET_DYN) && f.Section(incremental) == nil
}

// printLinkerDir prints the directory with links to cfi2sframe by the names of linkers.
func printLinkerDir(stdout, stderr io.Writer) int {
	exe, err := os.Executable()
	if err == nil {
		_, err = os.Stat(exe) // it may have been replaced while it runs
	}
	var dir string
	if err == nil {
		dir, err = linker.Dir(exe)
	}
	if err != nil {
		complain(stderr, "--print-linker-dir", err)
		return exitError
	}
	fmt.Fprintln(stdout, dir)
	return exitDone
}
