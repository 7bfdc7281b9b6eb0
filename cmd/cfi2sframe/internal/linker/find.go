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

// Names are the names by which compilers look for linkers in the -B directories, including those for -fuse-ld=.
var Names = []string{"ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold"}

// Compiler is the name of the symbolic link for build tools that accept only a compiler's path as the linker.
const Compiler = "cc"

// IsName reports whether name is the name of a linker, such as aarch64-linux-gnu-ld.bfd or ld.lld-14.
func IsName(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	return base == "ld" || strings.HasSuffix(base, "-ld")
}

// A Search finds the linker that a compiler would have run.
type Search struct {
	Args []string // the linker's arguments, with response files expanded
	// IDs of programs that must not be run, such as this one; ID/NAME excludes a program only under that name
	Skip []string
	Env  func(string) string // the environment
}

// Find returns the path of a program. If name is a path to this program, Find searches for its last element. Find
// looks for linkers where gcc does (COMPILER_PATH, which gcc sets), where clang does (its own directory and that of the
// GCC whose libraries it uses), and in PATH, preferring the target's linker; it looks for other programs only in PATH.
func (s *Search) Find(name string) (string, error) {
	if base := filepath.Base(name); base != name {
		switch {
		case s.canRun(name):
			return name, nil
		case !s.isSkipped(name):
			return "", fmt.Errorf("%s: not an executable file", name)
		case !IsName(base):
			return "", fmt.Errorf("%s: this is cfi2sframe, not a linker", name)
		}
		name = base
	}
	var paths []string
	if IsName(name) {
		for _, dir := range s.dirs() {
			paths = append(paths, join(dir, name))
		}
	}
	for _, n := range s.names(name) {
		for _, dir := range filepath.SplitList(s.Env("PATH")) {
			paths = append(paths, join(dir, n))
		}
	}
	if i := slices.IndexFunc(paths, s.canRun); i >= 0 {
		return paths[i], nil
	}
	if IsName(name) {
		return "", fmt.Errorf("%s: no linker with this name, except cfi2sframe, in COMPILER_PATH or PATH; "+
			"install it, or set CFI2SFRAME_LD to the path of a linker", name)
	}
	return "", fmt.Errorf("%s: not found in PATH", name)
}

// dirs returns the directories that are searched before PATH.
func (s *Search) dirs() []string {
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

// names returns the possible names of a program in PATH.
func (s *Search) names(name string) []string {
	var names []string
	if slices.Contains(Names, name) {
		for _, t := range s.triples() {
			if !isNative(t) {
				names = append(names, t+"-"+name)
			}
		}
	}
	names = append(names, name)
	if i := strings.LastIndex(name, "-ld"); i > 0 && isNative(name[:i]) {
		names = append(names, name[i+1:]) // gcc -print-prog-name=ld found the longer name in our directory
	}
	return names
}

// libraries returns the library directories of GCC, such as /usr/lib/gcc-cross/aarch64-linux-gnu/12.
func (s *Search) libraries() []string {
	var dirs []string
	for _, arg := range s.Args {
		if dir, ok := strings.CutPrefix(arg, "-L"); ok && triple(dir) != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// triple returns the target of a GCC from its library directory, or "".
func triple(lib string) string {
	target := filepath.Dir(filepath.Clean(lib))
	if gcc := filepath.Base(filepath.Dir(target)); gcc != "gcc" && gcc != "gcc-cross" {
		return ""
	}
	return filepath.Base(target)
}

// triples returns the possible targets of the compiler.
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

// isNative reports whether a target is the host.
func isNative(triple string) bool {
	var u unix.Utsname
	machine, _, _ := strings.Cut(triple, "-")
	return unix.Uname(&u) == nil && machine == unix.ByteSliceToString(u.Machine[:])
}

// join returns the path of a program in an element of PATH; "" is the current directory.
func join(dir, name string) string {
	if dir == "" {
		dir = "."
	}
	return strings.TrimSuffix(dir, "/") + "/" + name
}

// canRun reports whether path is an executable file that is not in s.Skip.
func (s *Search) canRun(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil && !s.isSkipped(path)
}

// isSkipped reports whether a program is in s.Skip.
func (s *Search) isSkipped(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	id, ok := inode.Of(info)
	return ok && (slices.Contains(s.Skip, id.String()) || slices.Contains(s.Skip, id.String()+"/"+filepath.Base(path)))
}
