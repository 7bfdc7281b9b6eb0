//go:build linux

package linker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/inode"
)

// Names are those that compilers look for in the folders of -B, and what -fuse-ld= leads to.
var Names = []string{"ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold"}

// Compiler is the name of the one in the folder for build tools that take the path of a compiler to link with, and
// nothing else.
const Compiler = "cc"

// IsName reports whether a program of the given name is a linker, such as aarch64-linux-gnu-ld.bfd or ld.lld-14.
func IsName(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	return base == "ld" || strings.HasSuffix(base, "-ld")
}

// A Search is how the linker is looked for that a compiler would have run.
type Search struct {
	Args []string            // those of the linker, with response files expanded
	Skip []string            // IDs of files that are not to be run, such as this program, or ID/NAME: not by that name
	Env  func(string) string // the environment
}

// Find returns the path of the program of the given name, or of the given path unless that is not to be run. A linker
// is looked for where gcc does (COMPILER_PATH, which gcc sets), where clang does (its own folder, and that of the GCC
// whose libraries it takes), and on PATH, where one for the target comes before one for this machine; any other
// program on PATH.
func (s *Search) Find(name string) (string, error) {
	if base := filepath.Base(name); base != name {
		switch {
		case s.runs(name):
			return name, nil
		case !s.skips(name):
			return "", fmt.Errorf("%s: a program that can be run was expected", name)
		case !IsName(base):
			return "", fmt.Errorf("%s: this is cfi2sframe, which runs a linker; one was expected", name)
		}
		name = base
	}
	var paths []string
	if IsName(name) {
		for _, dir := range s.folders() {
			paths = append(paths, join(dir, name))
		}
	}
	for _, n := range s.names(name) {
		for _, dir := range filepath.SplitList(s.Env("PATH")) {
			paths = append(paths, join(dir, n))
		}
	}
	if i := slices.IndexFunc(paths, s.runs); i >= 0 {
		return paths[i], nil
	}
	if IsName(name) {
		return "", fmt.Errorf("%s: no linker of this name is in COMPILER_PATH and PATH, other than cfi2sframe itself; "+
			"install it, or set CFI2SFRAME_LD to the path of a linker", name)
	}
	return "", fmt.Errorf("%s: no program of this name is in PATH", name)
}

// folders are those that are searched before PATH.
func (s *Search) folders() []string {
	dirs := filepath.SplitList(s.Env("COMPILER_PATH"))
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", os.Getppid()))
	if err == nil && strings.Contains(filepath.Base(exe), "clang") {
		dirs = append(dirs, filepath.Dir(exe))
	}
	for _, lib := range s.libraries() {
		dirs = append(dirs, lib+"/../../../../"+triple(lib)+"/bin")
	}
	return dirs
}

// names are what a program can be called on PATH.
func (s *Search) names(name string) []string {
	var names []string
	if slices.Contains(Names, name) {
		for _, t := range s.triples() {
			if !native(t) {
				names = append(names, t+"-"+name)
			}
		}
	}
	names = append(names, name)
	if i := strings.LastIndex(name, "-ld"); i > 0 && native(name[:i]) {
		names = append(names, name[i+1:]) // gcc -print-prog-name=ld finds the longer one in the folder
	}
	return names
}

// libraries are the folders with the libraries of a GCC, such as /usr/lib/gcc-cross/aarch64-linux-gnu/12.
func (s *Search) libraries() []string {
	var dirs []string
	for _, arg := range s.Args {
		if dir, ok := strings.CutPrefix(arg, "-L"); ok && triple(dir) != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// triple returns the target of a GCC by the folder of its libraries, or "".
func triple(lib string) string {
	target := filepath.Dir(filepath.Clean(lib))
	if gcc := filepath.Base(filepath.Dir(target)); gcc != "gcc" && gcc != "gcc-cross" {
		return ""
	}
	return filepath.Base(target)
}

// triples are the targets that the compiler can have.
func (s *Search) triples() []string {
	var all []string
	gcc := filepath.Base(s.Env("COLLECT_GCC")) // such as aarch64-linux-gnu-gcc-12
	for _, driver := range []string{"-gcc", "-g++", "-c++", "-gfortran"} {
		if i := strings.LastIndex(gcc, driver); i > 0 {
			all = append(all, gcc[:i])
		}
	}
	for _, lib := range s.libraries() {
		all = append(all, triple(lib))
	}
	return all
}

// native reports whether a target is this machine.
func native(triple string) bool {
	var u unix.Utsname
	machine, _, _ := strings.Cut(triple, "-")
	return unix.Uname(&u) == nil && machine == unix.ByteSliceToString(u.Machine[:])
}

// join returns the path of a program in an element of PATH, of which an empty one is the current folder.
func join(dir, name string) string {
	if dir == "" {
		dir = "."
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// runs reports whether a path leads to a program that may be run.
func (s *Search) runs(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil && !s.skips(path)
}

// skips reports whether a path leads to a program that is not to be run.
func (s *Search) skips(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	id, ok := inode.Of(info)
	return ok && (slices.Contains(s.Skip, id.String()) || slices.Contains(s.Skip, id.String()+"/"+filepath.Base(path)))
}
