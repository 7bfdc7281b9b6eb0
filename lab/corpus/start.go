package corpus

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"cfi2sframe/lab/kit"
)

// timeout bounds a start. Loaders under emulation on a busy machine take several seconds.
const timeout = 3 * time.Minute

//go:embed c
var sources embed.FS

// A system can run files of one machine, if necessary in an emulator.
type system struct {
	name     string   // as printed
	root     string   // its root directory
	emulator []string // arguments that precede the file on the command line, or nil
	helpers  string   // directory inside the root with preload.so and load
}

// A way is a method of starting a file.
type way string

const (
	// program: the loader first calls the constructor of a preloaded library, which ends the process. None of the
	// program's own code runs.
	program way = "program"
	// library: dlopen.
	library way = "library"
	// interpreter: ld.so loads a program given as its argument.
	interpreter way = "interpreter"
)

// start starts a file, with s.root as its root directory. It returns the mark that the started code prints, or why it
// prints none.
func (s *system) start(w way, path string, libraryDirs []string) (mark, why string) {
	dir, inside, load := filepath.Dir(path), within(s.root, path), filepath.Join(s.helpers, "load")
	env := []string{"LD_BIND_NOW=1", "LD_LIBRARY_PATH=" + strings.Join(libraryDirs, ":")}
	switch w {
	case program:
		return s.run(dir, append(env, "LD_PRELOAD="+filepath.Join(s.helpers, "preload.so")), inside)
	case interpreter:
		return s.run(dir, nil, inside, load)
	default:
		return s.run(dir, env, load, inside)
	}
}

// run runs a command with the given environment, and looks for the mark. Constructors of libraries run, but they cannot
// write to files, and processes that they start are killed.
func (s *system) run(dir string, env []string, args ...string) (mark, why string) {
	argv := []string{"/usr/bin/prlimit", "--core=0", "--fsize=0", "--cpu=60", "/usr/bin/env", "-i"}
	if s.emulator == nil {
		argv = append(argv, env...)
	} else {
		argv = append(argv, s.emulator...)
		for _, e := range env {
			argv = append(argv, "-E", e) // set for the program, not for the emulator
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], args...)...)
	cmd.Dir = within(s.root, dir)
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.root != "/" {
		cmd.SysProcAttr.Chroot = s.root
	}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = kill
	cmd.WaitDelay = time.Second // for processes that left the group
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.Process != nil {
		kill()
	}
	if ctx.Err() != nil {
		return "", "timeout"
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		for line := range strings.Lines(out.String()) {
			if mark, ok := strings.CutPrefix(line, "cfi2sframe: "); ok {
				return strings.TrimSpace(mark), ""
			}
		}
		err = errors.New("exit status 0")
	}
	said := out.Bytes()
	return "", fmt.Sprintf("%v, %.120q", err, generalize(string(said[max(0, len(said)-2000):])))
}

// within returns a path as seen by a process whose root directory is root.
func within(root, path string) string {
	return filepath.Join("/", strings.TrimPrefix(path, strings.TrimSuffix(root, "/")))
}

// A starter starts originals and results, and counts them. It runs copies, which have no
// set-user-ID bits or capabilities.
type starter struct {
	root    string // an absolute path without symbolic links
	dir     string // temporary directory inside it
	systems map[elf.Machine][]*system

	mu     sync.Mutex
	counts map[string]uint64 // number of files by outcome: the way of starting, or the reason for not starting
}

// machines maps machines to the names that compilers and emulators contain.
var machines = map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "aarch64", elf.EM_S390: "s390x"}

const native = elf.EM_X86_64

func newStarter(root string) (*starter, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	temp := os.TempDir()
	if root != "/" {
		temp = filepath.Join(root, "tmp")
	}
	dir, err := os.MkdirTemp(temp, "corpus-")
	if err != nil {
		return nil, err
	}
	s := &starter{
		root: root, dir: dir,
		systems: make(map[elf.Machine][]*system), counts: make(map[string]uint64),
	}
	for m, name := range machines {
		s.systems[m] = s.prepare(m, name)
	}
	// Programs may switch to a different user, who needs access to the directory.
	return s, os.Chmod(dir, 0o755)
}

func (s *starter) close() { os.RemoveAll(s.dir) }

// prepare returns the systems that run files of a machine.
func (s *starter) prepare(m elf.Machine, name string) (systems []*system) {
	helpers := filepath.Join(s.dir, name)
	if err := s.compile(m, name, helpers); err != nil {
		s.count("%v", err)
		return nil
	}
	for _, e := range s.emulators(m, name) {
		e.root, e.helpers = s.root, within(s.root, helpers)
		if mark, why := e.run(s.dir, nil, filepath.Join(e.helpers, "load")); mark == "" {
			s.count("%s does not run: %s", e.name, why)
			continue
		}
		systems = append(systems, e)
	}
	return systems
}

// emulators returns systems that run files with qemu-user, unless the machine is the host. Only QEMU before version 9
// can emulate pages larger than the host's. The host's static QEMU runs in any root directory.
func (s *starter) emulators(m elf.Machine, name string) []*system {
	if m == native {
		return []*system{{name: name}}
	}
	libraries := "/usr/" + name + "-linux-gnu"
	list := []*system{{name: name, emulator: []string{"/usr/bin/qemu-" + name, "-L", libraries}}}
	if m != elf.EM_AARCH64 { // the only machine with several page sizes
		return list
	}
	copied := filepath.Join(s.dir, "qemu-aarch64-static")
	found, err := exec.LookPath("qemu-aarch64-static")
	if err == nil {
		err = copyFile(found, copied)
	}
	if err != nil {
		s.count("64 KiB pages: %v", err)
		return list
	}
	large := []string{within(s.root, copied), "-p", "65536", "-L", libraries}
	return append(list, &system{name: name + ", 64 KiB pages", emulator: large})
}

// compile builds preload.so and load.
func (s *starter) compile(m elf.Machine, name, dir string) error {
	if err := os.CopyFS(dir, sources); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	cc, root := "cc", "/"
	if m != native {
		root = s.root
		found, _ := filepath.Glob(filepath.Join(root, "usr/bin", name+"-linux-gnu-gcc-[0-9]*"))
		if len(found) == 0 {
			return fmt.Errorf("no compiler for %s", name)
		}
		cc = within(root, found[0])
	}
	for _, args := range []string{
		"-O1 -shared -fPIC -nostdlib -fno-stack-protector -Wl,-z,initfirst -o preload.so c/preload.c",
		"-O1 -o load c/load.c -ldl",
	} {
		cmd := exec.Command(cc, strings.Fields(args)...)
		cmd.Dir = within(root, dir)
		if root != "/" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
			cmd.Env = []string{"PATH=/usr/bin:/bin"}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s for %s: %w: %.300q", cc, name, err, out)
		}
	}
	return nil
}

// check starts a file and its converted copy in all ways, in a temporary directory inside the root directory.
func (s *starter) check(j *job) error {
	original := j.path
	f, err := elf.Open(original)
	if err != nil {
		s.count("not started: debug/elf cannot read it: %s", generalize(err.Error()))
		return nil
	}
	defer f.Close()
	ways := waysOf(f, filepath.Base(original))
	if len(ways) == 0 {
		s.count("not started: a static program, or an object")
		return nil
	}
	if len(s.systems[f.Machine]) == 0 {
		s.count("not started: files for %v cannot run here", f.Machine)
		return nil
	}
	name := filepath.Base(original)
	before, after := filepath.Join(j.dir, "before", name), filepath.Join(j.dir, "after", name)
	if err := cmp.Or(copyFile(original, before), copyFile(j.out, after)); err != nil {
		return err
	}
	dirs := libraryDirs(f, within(s.root, filepath.Dir(original)))
	var errs []error
	for _, sys := range s.systems[f.Machine] {
		for _, w := range ways {
			what := sys.name + " " + string(w)
			mark, why := sys.start(w, before, dirs)
			now, whyNow := sys.start(w, after, dirs)
			switch {
			case mark == "":
				s.count("not started as %s: %s", what, why)
			case mark == now:
				s.count("started as %s", what)
			default:
				errs = append(errs, fmt.Errorf("as a %s: original %q, converted %q %s", what, mark, now, whyNow))
			}
		}
	}
	return errors.Join(errs...)
}

func (s *starter) count(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[fmt.Sprintf(format, args...)]++
}

// waysOf returns the ways in which a file can be started.
func waysOf(f *elf.File, name string) (ways []way) {
	loaded := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	flags, _ := f.DynValue(elf.DT_FLAGS_1)
	pie := len(flags) > 0 && elf.DynFlag1(flags[0])&elf.DF_1_PIE != 0
	soname, _ := f.DynString(elf.DT_SONAME)
	if loaded {
		ways = append(ways, program)
	} else if f.Type == elf.ET_DYN && !pie && f.Entry != 0 && strings.HasPrefix(name, "ld") {
		ways = append(ways, interpreter)
	}
	// libc.so.6 is a library with an interpreter; ld.so is one without.
	if f.Type == elf.ET_DYN && !pie && (!loaded || len(soname) > 0) {
		ways = append(ways, library)
	}
	return ways
}

// libraryDirs returns the directories in which a copy of a file must search for libraries: its run paths and its
// original directory. Plugins may need libraries in their original directory, which the program
// that loads them must search.
func libraryDirs(f *elf.File, origin string) (dirs []string) {
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, _ := f.DynString(tag)
		for _, p := range strings.Split(strings.Join(values, ":"), ":") {
			p = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(p)
			if filepath.IsAbs(p) {
				dirs = append(dirs, filepath.Clean(p))
			}
		}
	}
	return append(dirs, origin)
}

// copyFile makes an executable copy. If this process wrote the copy, a child forked meanwhile could have it open for
// writing, and running it would fail.
func copyFile(from, to string) error { return kit.Run("", "install", "-D", "-m", "755", from, to) }
