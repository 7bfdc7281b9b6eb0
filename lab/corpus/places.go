package corpus

import (
	"bytes"
	"context"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// timeout is how long one start may take. Loaders under an emulator on a busy machine
// take some seconds.
const timeout = 60 * time.Second

// A system runs files of one machine.
type system struct {
	name     string   // as printed
	root     string   // what it sees as /
	emulator []string // in front of the file, or nil
	helpers  string   // folder inside the root with preload.so and load
}

// start starts a file, which lies inside the root, in a certain way.
func (s *system) start(w way, path string, libraryDirs []string) outcome {
	scratch := filepath.Dir(path)
	inside := within(s.root, path)
	env := []string{"LD_BIND_NOW=1", "LD_LIBRARY_PATH=" + strings.Join(libraryDirs, ":")}
	load := filepath.Join(s.helpers, "load")
	switch w {
	case static:
		return trace(s.root, within(s.root, scratch), inside)
	case program:
		return s.run(scratch, append(env, "LD_PRELOAD="+filepath.Join(s.helpers, "preload.so")), inside)
	case interpreter:
		return s.run(scratch, nil, inside, load)
	default:
		return s.run(scratch, env, load, inside)
	}
}

// run runs a command with no environment but the given one, and looks for the mark.
// Library constructors do run: they cannot write to files, and what they start is
// killed with them.
func (s *system) run(dir string, env []string, args ...string) outcome {
	argv := []string{"/usr/bin/prlimit", "--core=0", "--fsize=0", "--cpu=60", "/usr/bin/env", "-i"}
	if s.emulator == nil {
		argv = append(argv, env...)
	} else {
		argv = append(argv, s.emulator...)
		for _, e := range env {
			argv = append(argv, "-E", e) // not for the emulator itself
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
	cmd.WaitDelay = time.Second // for what left the process group
	var out head
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if cmd.Process != nil {
		kill()
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		for line := range strings.Lines(out.String()) {
			if mark, ok := strings.CutPrefix(line, "cfi2sframe: "); ok {
				return outcome{mark: strings.TrimSpace(mark)}
			}
		}
		err = errors.New("exit status 0")
	}
	if ctx.Err() != nil {
		return outcome{why: "timeout"}
	}
	return outcome{why: because(out.String(), err.Error())}
}

// head keeps the beginning of what is written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(b []byte) (int, error) {
	if room := 1<<16 - h.Len(); room > 0 {
		h.Buffer.Write(b[:min(room, len(b))])
	}
	return len(b), nil
}

// within returns how a path is called inside a root.
func within(root, path string) string {
	return filepath.Join("/", strings.TrimPrefix(path, strings.TrimSuffix(root, "/")))
}

//go:embed c
var sources embed.FS

// places are the systems below one root, prepared when they are needed.
type places struct {
	root  string // an absolute path without symbolic links
	dir   string // scratch folder inside it
	mu    sync.Mutex
	known map[elf.Machine]*prepared
	notes []string
}

type prepared struct {
	systems []*system
	err     error
}

func newPlaces(root string) (*places, error) {
	p := &places{root: root, known: make(map[elf.Machine]*prepared)}
	var err error
	p.dir, err = os.MkdirTemp(p.temp(), "corpus-")
	if err != nil {
		return nil, err
	}
	// What is run may have another user's rights only to read.
	return p, os.Chmod(p.dir, 0o755)
}

func (p *places) temp() string {
	if p.root == "/" {
		return os.TempDir()
	}
	return filepath.Join(p.root, "tmp")
}

func (p *places) close() { os.RemoveAll(p.dir) }

func (p *places) inside(path string) string { return within(p.root, path) }

// systems returns what runs files of a machine, or why nothing does.
func (p *places) systems(m elf.Machine) ([]*system, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[m] == nil {
		s, err := p.prepare(m)
		p.known[m] = &prepared{s, err}
	}
	return p.known[m].systems, p.known[m].err
}

// machines are the names of those that can be prepared, as compilers and emulators
// have them.
var machines = map[elf.Machine]string{
	elf.EM_X86_64:  "x86_64",
	elf.EM_AARCH64: "aarch64",
	elf.EM_S390:    "s390x",
}

const native = elf.EM_X86_64 // the only one that trace knows

func (p *places) prepare(m elf.Machine) ([]*system, error) {
	name, ok := machines[m]
	if !ok {
		return nil, fmt.Errorf("nothing runs files for %v", m)
	}
	helpers := filepath.Join(p.dir, name)
	if err := p.compile(m, name, helpers); err != nil {
		return nil, err
	}
	base := system{name: name, root: p.root, helpers: p.inside(helpers)}
	if m == native {
		if o := base.ready(); o.mark == "" {
			return nil, fmt.Errorf("programs for %s do not run: %v", name, o)
		}
		return []*system{&base}, nil
	}
	var systems []*system
	for _, e := range p.emulators(name) {
		s := base
		s.emulator = append(e.command, "-L", "/usr/"+name+"-linux-gnu")
		s.name += e.suffix
		if o := s.ready(); o.mark != e.ready && e.ready != "" || o.mark == "" {
			p.notes = append(p.notes, fmt.Sprintf("%q is not used for %s: %v", strings.Join(e.command, " "), s.name, o))
			continue
		}
		systems = append(systems, &s)
	}
	if len(systems) == 0 {
		return nil, fmt.Errorf("no emulator for %s", name)
	}
	return systems, nil
}

// ready runs the helper itself.
func (s *system) ready() outcome {
	return s.run(filepath.Join(s.root, s.helpers), nil, filepath.Join(s.helpers, "load"))
}

// An emulator is qemu-user with one page size.
type emulator struct {
	command []string
	suffix  string // of the system's name
	ready   string // what the helper says, if that is known
}

// emulators returns those that there may be. qemu before version 9 can pretend that
// pages are larger; a static one of the machine itself runs inside any root.
func (p *places) emulators(machine string) []emulator {
	list := []emulator{{command: []string{"/usr/bin/qemu-" + machine}}}
	if machine != "aarch64" {
		return list // the only one with pages of several sizes
	}
	path := "/usr/bin/qemu-aarch64"
	if found, err := exec.LookPath("qemu-aarch64-static"); err == nil {
		copied := filepath.Join(p.dir, "qemu-aarch64-static")
		if err := copyFile(found, copied); err == nil {
			path = p.inside(copied)
		}
	}
	return append(list, emulator{[]string{path, "-p", "65536"}, ", 64 KiB pages", "ready 65536"})
}

// compile makes preload.so and load.
func (p *places) compile(m elf.Machine, name, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, file := range []string{"preload.c", "load.c"} {
		b, err := sources.ReadFile("c/" + file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
			return err
		}
	}
	cc, root := "cc", "/"
	if m != native {
		root = p.root
		found, _ := filepath.Glob(filepath.Join(root, "usr/bin", name+"-linux-gnu-gcc-[0-9]*"))
		if len(found) == 0 {
			return fmt.Errorf("no compiler for %s", name)
		}
		cc = within(root, found[0])
	}
	for _, args := range [][]string{
		{"-O1", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector", "-Wl,-z,initfirst", "-o", "preload.so", "preload.c"},
		{"-O1", "-o", "load", "load.c", "-ldl"},
	} {
		cmd := exec.Command(cc, args...)
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
