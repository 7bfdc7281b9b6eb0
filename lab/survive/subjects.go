package survive

import (
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/suite"
)

//go:embed testdata
var sources embed.FS

// sourceFolder is where the debug information says that the sources are.
const sourceFolder = "/build/subject"

// An arch is an architecture. Programs of one other than the machine's are built and
// run by programs of sid.
type arch struct {
	name   string // as Go calls it
	triple string // "" for the machine's
	qemu   string
}

var (
	amd64 = &arch{name: "amd64"}
	arm64 = &arch{"arm64", "aarch64-linux-gnu", "qemu-aarch64"}
	s390x = &arch{"s390x", "s390x-linux-gnu", "qemu-s390x"}
)

// A subject is a file to convert and to have changed by the tools.
type subject struct {
	name  string
	arch  *arch
	quick bool
	file  string // the name that it has to have
	build func(*subject, *workshop) error
	// runs are commands that show that it works, run in the file's folder.
	runs [][]string

	path        string // of the original
	interpreter string // another path of its interpreter, or ""
}

func (s *subject) String() string { return s.arch.name + " " + s.name }

func (s *subject) hasInterpreter() bool { return s.interpreter != "" }

// linksLibraries reports whether the loader looks for libraries of the file, which a
// static PIE looks like.
func (s *subject) linksLibraries() bool {
	return s.hasInterpreter() || strings.Contains(s.file, ".so")
}

// subjects are all there are, those that others need first.
func subjects() []*subject {
	var all []*subject
	add := func(a *arch, name, file string, build func(*subject, *workshop) error) *subject {
		s := &subject{name: name, arch: a, file: file, build: build}
		all = append(all, s)
		return s
	}
	add(amd64, "PIE", "prog", cc("gcc -pie -fPIE")).quick = true
	add(amd64, "ET_EXEC", "prog", cc("gcc -no-pie")).quick = true
	add(amd64, "static", "prog", cc("gcc -static -no-pie")).quick = true
	add(amd64, "static by lld", "prog", cc("gcc -static -no-pie -B{lld}"))
	add(amd64, "static by mold", "prog", cc("gcc -static -no-pie -B{mold}"))
	add(amd64, "static-PIE", "prog", cc("gcc -static-pie -fPIE"))
	add(amd64, "shared library", "libsubject.so", library("gcc -Wl,-z,now")).quick = true
	add(amd64, "musl static", "prog", musl("-static -no-pie"))
	add(amd64, "musl static-PIE", "prog", musl("-static-pie -fPIE"))
	add(amd64, "libc.so.6", "libc.so.6", libc)
	add(amd64, "ld.so", "ld.so", ldso)
	add(amd64, "PIE by lld", "prog", cc("gcc -pie -fPIE -B{lld}"))
	add(amd64, "ET_EXEC by lld", "prog", cc("gcc -no-pie -B{lld}"))
	add(amd64, "PIE by mold", "prog", cc("gcc -pie -fPIE -B{mold}"))
	add(amd64, "ET_EXEC by mold", "prog", cc("gcc -no-pie -B{mold}"))
	add(amd64, "PIE by gold", "prog", cc("gcc -pie -fPIE -fuse-ld=gold"))
	add(amd64, "ET_EXEC by gold", "prog", cc("gcc -no-pie -fuse-ld=gold"))
	add(amd64, "ET_EXEC by gold with exports", "prog", cc(exports+"gcc -no-pie -fuse-ld=gold -rdynamic exports.c"))
	add(amd64, "PIE with its own note", "prog", cc("gcc -pie -fPIE note.s"))
	add(amd64, "ET_EXEC with its own note", "prog", cc("gcc -no-pie note.s"))
	add(amd64, "Go", "prog", goBuild("go", "exe", "0"))
	add(amd64, "Go PIE", "prog", goBuild("go", "pie", "0"))
	add(amd64, "Go and C", "prog", goBuild("cgo", "exe", "1"))
	add(amd64, "Rust", "prog", rust)
	for _, a := range []*arch{arm64, s390x} {
		gcc := a.triple + "-gcc-16"
		add(a, "PIE", "prog", cross(gcc+" -pie -fPIE")).quick = a == arm64
		add(a, "ET_EXEC", "prog", cross(gcc+" -no-pie"))
		add(a, "static", "prog", cross(gcc+" -static -no-pie"))
		add(a, "static-PIE", "prog", cross(gcc+" -static-pie -fPIE"))
		add(a, "shared library", "libsubject.so", crossLibrary(gcc))
		add(a, "Go", "prog", goBuild("go", "exe", "0"))
	}
	add(arm64, "Go PIE", "prog", goBuild("go", "pie", "0")) // others need a C compiler for that
	return all
}

// A workshop is where subjects are built. Its folder has the sources, and what is
// needed to build and to run.
type workshop struct {
	dir        string
	cfi2sframe string
}

func newWorkshop(dir, cfi2sframe string) (*workshop, error) {
	return &workshop{dir, cfi2sframe}, os.CopyFS(dir, sources)
}

func (w *workshop) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// source is the folder of the sources.
func (w *workshop) source() string { return w.path("testdata") }

// prepare builds a subject, and finds out what is to be known of it.
func (w *workshop) prepare(s *subject) error {
	folder := w.path(s.arch.name, strings.ReplaceAll(s.name, " ", "-"))
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	s.path = filepath.Join(folder, s.file)
	s.runs = [][]string{{"./" + s.file}}
	if err := s.build(s, w); err != nil {
		return err
	}
	if err := w.interpreter(s); err != nil {
		return err
	}
	return s.underQEMU()
}

// interpreter makes another path of the interpreter that the subject names.
func (w *workshop) interpreter(s *subject) error {
	f, done, err := open(s.path)
	if err != nil {
		return err
	}
	defer done()
	h := f.Prog(elf.PT_INTERP)
	if h == nil {
		return nil
	}
	b, err := f.ReadAt("PT_INTERP", h.Off, h.Filesz)
	if err != nil {
		return err
	}
	old := strings.TrimRight(string(b), "\x00")
	prefix, err := s.arch.prefix()
	if err != nil {
		return err
	}
	// Longer than any loader's own path, so that it has to be moved.
	s.interpreter = w.path(s.arch.name, "the-same-loader-by-another-name", filepath.Base(old))
	if err := os.MkdirAll(filepath.Dir(s.interpreter), 0o777); err != nil {
		return err
	}
	err = os.Symlink(filepath.Join(prefix, old), s.interpreter)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// prefix is the folder of the architecture's C library.
func (a *arch) prefix() (string, error) {
	if a.triple == "" {
		return "/", nil
	}
	root, err := suite.Folder("sid")
	return filepath.Join(root, "usr", a.triple), err
}

// underQEMU has the subject's commands run by qemu if it is not of this machine.
func (s *subject) underQEMU() error {
	if s.arch.triple == "" {
		return nil
	}
	qemu, err := suite.Program("sid", s.arch.qemu)
	if err != nil {
		return err
	}
	prefix, err := s.arch.prefix()
	if err != nil {
		return err
	}
	for i, r := range s.runs {
		s.runs[i] = append(append(qemu[:len(qemu):len(qemu)], "-L", prefix), r...)
	}
	return nil
}

func open(path string) (*elffile.File, func(), error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := r.Stat()
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	f, err := elffile.New(r, info.Size())
	if err != nil {
		r.Close()
		return nil, nil, err
	}
	return f, func() { r.Close() }, nil
}

const cflags = " -g -O2 -ffile-prefix-map=$PWD=" + sourceFolder + " "

// cc compiles the C program on this machine. {lld} and {mold} are folders in which
// that linker is called ld.
func cc(compiler string) func(*subject, *workshop) error {
	return func(s *subject, w *workshop) error {
		for _, linker := range []string{"lld", "mold"} {
			if !strings.Contains(compiler, "{"+linker+"}") {
				continue
			}
			if err := w.linker(linker); err != nil {
				return err
			}
			compiler = strings.ReplaceAll(compiler, "{"+linker+"}", w.path(linker))
		}
		return w.shell(compiler + cflags + "-o " + s.path + " subject.c")
	}
}

// exports makes a source file of many symbols, with which .gnu.hash gets larger than
// what a tool adds to .dynamic and .dynstr.
const exports = "seq 500 | sed 's/.*/int exported&;/' >exports.c\n"

// linker makes a folder in which a linker of sid is called ld.
func (w *workshop) linker(name string) error {
	program := map[string]string{"lld": "ld.lld-23", "mold": "mold"}[name]
	words, err := suite.Program("sid", program)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.path(name), 0o777); err != nil {
		return err
	}
	script := "#!/bin/sh\nexec " + strings.Join(words, " ") + " \"$@\"\n"
	return writeProgram(w.path(name, "ld"), []byte(script))
}

// library compiles the C library on this machine, and the program that loads it. Each
// result of a tool is linked with, too.
func library(compiler string) func(*subject, *workshop) error {
	return func(s *subject, w *workshop) error {
		loader, object := s.path+".load", s.path+".linked.o"
		link := compiler + " -no-pie -o linked " + object + " ./" + s.file + " && ./linked"
		s.runs = [][]string{{loader, "./" + s.file}, {"sh", "-c", link}}
		return w.shell(libraryScript(compiler, s.path, loader) + "\n" +
			compiler + " -O2 -fno-pie -c -o " + object + " linked.c")
	}
}

func libraryScript(compiler, file, loader string) string {
	return compiler + cflags + "-DLIBRARY -shared -fPIC -o " + file + " subject.c\n" +
		compiler + " -o " + loader + " load.c"
}

// shell runs a script in the folder of the sources.
func (w *workshop) shell(script string) error { return suite.Script("", w.source(), script) }

// cross compiles the C program in sid.
func cross(compiler string) func(*subject, *workshop) error {
	return func(s *subject, w *workshop) error {
		return w.inSid(compiler+cflags+"-o prog subject.c", map[string]string{"prog": s.path})
	}
}

func crossLibrary(compiler string) func(*subject, *workshop) error {
	return func(s *subject, w *workshop) error {
		loader := s.path + ".load"
		s.runs = [][]string{{loader, "./" + s.file}}
		return w.inSid(libraryScript(compiler, "library", "load"), map[string]string{"library": s.path, "load": loader})
	}
}

func musl(flags string) func(*subject, *workshop) error {
	return cross("REALGCC=gcc-16 musl-gcc -DNO_UNWINDER " + flags) // libgcc_eh calls glibc
}

// inSid runs a script in sid, in a folder with the sources, and takes files from there.
func (w *workshop) inSid(script string, take map[string]string) error {
	dir, err := suite.TempDir("sid")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(w.source())); err != nil {
		return err
	}
	if err := suite.Script("sid", dir, script); err != nil {
		return err
	}
	for from, to := range take {
		if err := copyFile(filepath.Join(dir, from), to); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeProgram(to, b)
}

// writeProgram writes a file that is to be run. A process that is forked meanwhile would have
// it open for writing for a moment, and a program that is open for writing cannot be run.
func writeProgram(path string, b []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, b, 0o777)
}

// goBuild compiles one of the Go programs for the subject's architecture.
func goBuild(folder, mode, cgo string) func(*subject, *workshop) error {
	return func(s *subject, w *workshop) error {
		cmd := exec.Command("go", "build", "-trimpath", "-buildmode="+mode, "-o", s.path, "main.go")
		cmd.Dir = filepath.Join(w.source(), folder)
		cmd.Env = append(os.Environ(), "GOARCH="+s.arch.name, "CGO_ENABLED="+cgo)
		return check(cmd)
	}
}

func rust(s *subject, w *workshop) error {
	cmd := exec.Command("rustc", "-g", "-O", "--remap-path-prefix", w.source()+"="+sourceFolder, "-o", s.path, "subject.rs")
	cmd.Dir = w.source()
	return check(cmd)
}

func check(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

const libraryFolder = "/usr/lib/x86_64-linux-gnu"

// libc is the machine's C library, which runs as a program, too.
func libc(s *subject, w *workshop) error {
	program, err := w.program(s)
	if err != nil {
		return err
	}
	s.runs = append(s.runs, []string{"env", "LD_LIBRARY_PATH=.", program})
	return copyFile(filepath.Join(libraryFolder, "libc.so.6"), s.path)
}

// ldso is the machine's loader, which is run by hand and by the kernel.
func ldso(s *subject, w *workshop) error {
	program, err := w.program(s)
	if err != nil {
		return err
	}
	// The kernel takes the path from the folder that the program is run in.
	loaded := program + ".loaded"
	if err := w.shell("gcc -Wl,-dynamic-linker=./" + s.file + " -o " + loaded + " subject.c"); err != nil {
		return err
	}
	s.runs = [][]string{{"./ld.so", "--version"}, {"./ld.so", "--list", program}, {"./ld.so", program}, {loaded}}
	return copyFile(filepath.Join(libraryFolder, "ld-linux-x86-64.so.2"), s.path)
}

// program compiles the C program to be run with a subject.
func (w *workshop) program(s *subject) (string, error) {
	program := s.path + ".prog"
	return program, w.shell("gcc -o " + program + " subject.c")
}
