//go:build linux

package linker

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Names are the names by which compilers look for linkers in the -B directories, including those for -fuse-ld=.
var Names = []string{"ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold"}

// Compiler is the name of the symbolic link for build tools that accept only a compiler's path as the linker.
const Compiler = "cc"

// Running is the environment variable with the paths of the programs that this program has run under the name of a
// linker or of Compiler. Such a program may be a script or a copy that runs this program again.
const Running = "CFI2SFRAME_LINKING"

// IsName reports whether name is the name of a linker, such as aarch64-linux-gnu-ld.bfd or ld.lld-14.
func IsName(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	return base == "ld" || strings.HasSuffix(base, "-ld")
}

// Find returns the path of a program. If name is a path to this program, Find searches for its last element. Find
// looks for linkers where gcc does (COMPILER_PATH, which gcc sets), where clang does (its own directory and that of the
// GCC whose libraries it uses), and in PATH; it looks for other programs only in PATH. The arguments are those of the
// linker, with response files expanded.
func Find(name string, args []string) (string, error) {
	base := filepath.Base(name)
	is := IsName(base)
	var running []string
	if is || base == Compiler {
		running = filepath.SplitList(os.Getenv(Running))
	}
	canRun := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular() && unix.Access(path, unix.X_OK) == nil && !isSelf(path) &&
			!slices.Contains(running, path)
	}
	if base != name {
		switch {
		case canRun(name):
			return name, nil
		case !isSelf(name):
			return "", fmt.Errorf("%s: not an executable file", name)
		case !is:
			return "", fmt.Errorf("%s: this is cfi2sframe, not a linker", name)
		}
	}
	names, dirs := []string{base}, filepath.SplitList(os.Getenv("PATH"))
	if is {
		if i := strings.LastIndex(base, "-ld"); i > 0 { // Debian's gcc prefers such names, which our directory contains
			names = append(names, base[i+1:])
		}
		dirs = append(compilerDirs(args), dirs...)
	}
	for _, n := range names {
		for _, dir := range dirs {
			if path := strings.TrimSuffix(cmp.Or(dir, "."), "/") + "/" + n; canRun(path) {
				return path, nil
			}
		}
	}
	if is {
		return "", fmt.Errorf("%s: no linker with this name, except cfi2sframe, in COMPILER_PATH or PATH; "+
			"install it, or set CFI2SFRAME_LD to the path of a linker", base)
	}
	return "", fmt.Errorf("%s: not found in PATH", base)
}

// compilerDirs returns the directories that compilers search before PATH.
func compilerDirs(args []string) []string {
	dirs := filepath.SplitList(os.Getenv("COMPILER_PATH"))
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", os.Getppid()))
	if err == nil && strings.Contains(filepath.Base(exe), "clang") {
		dirs = append(dirs, filepath.Dir(exe))
	}
	for _, arg := range args { // such as -L/usr/lib/gcc-cross/aarch64-linux-gnu/12
		lib, ok := strings.CutPrefix(arg, "-L")
		target := filepath.Dir(filepath.Clean(lib))
		if gcc := filepath.Base(filepath.Dir(target)); ok && (gcc == "gcc" || gcc == "gcc-cross") {
			dirs = append(dirs, lib+"/../../../../"+filepath.Base(target)+"/bin")
		}
	}
	return dirs
}

// isSelf reports whether path is the file of this program.
func isSelf(path string) bool {
	info, err := os.Stat(path)
	self, selfErr := os.Stat("/proc/self/exe")
	return err == nil && selfErr == nil && os.SameFile(info, self)
}
