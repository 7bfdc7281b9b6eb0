package stepping

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/lab/step"
	"cfi2sframe/sframe"
)

var errMissing = errors.New("not installed")

// A workshop builds, converts and runs programs.
type workshop struct {
	dir, root, testdata string

	mu        sync.Mutex
	converted map[string]bool
}

// newWorkshop makes a directory with a short name: paths in it are shorter than the loader's.
func newWorkshop() (*workshop, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "s")
	testdata := filepath.Join(root, "lab/stepping/testdata")
	return &workshop{dir: dir, root: root, testdata: testdata, converted: make(map[string]bool)}, err
}

// command runs a command that makes something.
func command(name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		return errMissing
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// compilers are those of source files, by their extensions.
var compilers = map[string][]string{
	".c":  {"gcc", "-O2", "-pthread"},
	".cc": {"g++", "-O2"},
	".rs": {"rustc", "-O"},
}

// build compiles a program, or finds the one that is installed, and returns its path.
func (w *workshop) build(p *program) (string, error) {
	compiler, compile := compilers[filepath.Ext(p.source)]
	out := filepath.Join(w.dir, p.abi+"-"+p.name)
	args := append([]string{"-o", out, filepath.Join(w.testdata, p.source)}, p.flags...)
	switch {
	case p.abi == "aarch64_be":
		return out, command("clang", append(args, "--target=aarch64_be-linux-gnu", "-O2", "-fuse-ld=lld")...)
	case strings.HasPrefix(p.source, "cmd/"):
		return out, command("go", "build", "-ldflags=-compressdwarf=false", "-o", out, p.source)
	case compile && p.abi != "amd64":
		return out, command(p.abi+"-linux-gnu-"+compiler[0], append(compiler[1:], args...)...)
	case compile:
		return out, command(compiler[0], append(compiler[1:], args...)...)
	}
	name, err := exec.Command("gcc", "-print-prog-name="+p.source).Output() // finds cc1 as well
	if err != nil {
		return "", errMissing
	}
	path, err := exec.LookPath(strings.TrimSpace(string(name)))
	if err != nil {
		return "", errMissing
	}
	return filepath.EvalSymlinks(path)
}

// convert converts a file into a directory, once.
func (w *workshop) convert(ctx context.Context, from, to string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.converted[to] {
		return nil
	}
	w.converted[to] = true
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	opt := files.Options{Options: convert.Options{Version: sframe.V3, Force: true}, NoSync: true}
	_, err := files.Convert(ctx, from, to, opt)
	if errors.Is(err, convert.ErrNoCode) || errors.Is(err, cfi.ErrNone) {
		return command("cp", from, to)
	}
	return err
}

// libraries converts the loader of a program for this machine and the libraries that it names, and has the program use
// that loader.
func (w *workshop) libraries(ctx context.Context, program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	interp := f.Section(".interp")
	if interp == nil {
		return nil
	}
	b, err := interp.Data()
	if err != nil {
		return err
	}
	loader := string(bytes.TrimRight(b, "\x00"))
	own := filepath.Join(w.dir, "ld.so")
	if len(own) >= len(b) {
		return fmt.Errorf("%s: the path of the loader is longer than %s", own, loader)
	}
	if err := w.convert(ctx, loader, own); err != nil {
		return err
	}
	out, err := exec.Command(loader, "--list", program).Output()
	if err != nil {
		return fmt.Errorf("%s --list %s: %w", loader, program, err)
	}
	paths := []string{"/lib/x86_64-linux-gnu/libgcc_s.so.1"} // loaded when a thread ends, or an exception is thrown
	for line := range strings.Lines(string(out)) {           // name => path (address)
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[2], "/") {
			paths = append(paths, f[2])
		}
	}
	for _, p := range paths {
		if err := w.convert(ctx, p, filepath.Join(w.dir, "lib", filepath.Base(p))); err != nil {
			return err
		}
	}
	file, err := os.OpenFile(program, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(append([]byte(own), make([]byte, len(b)-len(own))...), int64(interp.Offset))
	return errors.Join(err, file.Close())
}

// follow converts a program and its libraries, and follows it.
func (w *workshop) follow(ctx context.Context, p *program, steps uint64, cpu int) (*step.Report, error) {
	plain, err := w.build(p)
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(w.dir, "bin", p.abi+"-"+p.name)
	if err := w.convert(ctx, plain, bin); err != nil {
		return nil, err
	}
	pin(cpu)
	var args []string
	for _, a := range p.args {
		args = append(args, strings.NewReplacer("{T}", w.testdata, "{R}", w.root).Replace(a))
	}
	opt := step.Options{Made: []sframe.Version{sframe.V2, sframe.V3}, Steps: steps, Entry: true}
	var r *step.Report
	var status int
	if p.abi == "amd64" {
		if err := w.libraries(ctx, bin); err != nil {
			return nil, err
		}
		cmd := exec.Command(bin, args...)
		env := []string{"PATH=/usr/bin:/bin", "HOME=" + w.dir, "LC_ALL=C"}
		cmd.Env = append(append(env, "LD_LIBRARY_PATH="+filepath.Join(w.dir, "lib")), p.env...)
		cmd.Dir, cmd.Stderr = w.dir, os.Stderr
		r, status, err = step.Trace(ctx, cmd, opt)
	} else {
		root, missing := suite.Folder("sid")
		if missing != nil {
			return nil, errMissing
		}
		opt.Steps /= emulated
		qemu := filepath.Join(root, "usr/bin/qemu-"+p.abi)
		r, status, err = step.Remote(ctx, append([]string{qemu, bin}, args...), opt)
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d", status)
	}
	return r, err
}
