// Package linker lets a program run in place of a linker. The package finds the linker that the compiler would have run
// and its output, and creates the directory in which compilers find this program.
package linker

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
// looks for linkers where gcc does (COMPILER_PATH, which gcc sets), in the directory of the clang that runs this
// program, and in PATH; it looks for other programs only in PATH.
func Find(name string) (string, error) {
	base := filepath.Base(name)
	names, dirs := []string{base}, filepath.SplitList(os.Getenv("PATH"))
	var running []string
	if IsName(base) || base == Compiler {
		running = filepath.SplitList(os.Getenv(Running))
	}
	if IsName(base) {
		if i := strings.LastIndex(base, "-ld"); i > 0 { // Debian's gcc prefers such names, which our directory contains
			names = append(names, base[i+1:])
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", os.Getppid()))
		if err == nil && strings.Contains(filepath.Base(exe), "clang") {
			dirs = append([]string{filepath.Dir(exe)}, dirs...)
		}
		dirs = append(filepath.SplitList(os.Getenv("COMPILER_PATH")), dirs...)
	}
	canRun := func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && !isSelf(path) &&
			!slices.Contains(running, path)
	}
	switch {
	case base == name:
	case canRun(name):
		return name, nil
	case !isSelf(name):
		return "", errors.New("not an executable file")
	}
	for _, n := range names {
		for _, dir := range dirs {
			if path := strings.TrimSuffix(cmp.Or(dir, "."), "/") + "/" + n; canRun(path) {
				return path, nil
			}
		}
	}
	return "", errors.New("not found in PATH or COMPILER_PATH, except cfi2sframe; use -- before arguments of ld, or " +
		"set CFI2SFRAME_LD to the path of a linker")
}

// isSelf reports whether path is the file of this program.
func isSelf(path string) bool {
	info, err := os.Stat(path)
	exe, _ := os.Executable()
	self, selfErr := os.Stat(exe)
	return err == nil && selfErr == nil && os.SameFile(info, self)
}

// Outputs returns the possible outputs of a linker or compiler. The result can have several elements, because only the
// linker knows which arguments are values of other flags (-mllvm -opaque-pointers). It is empty if the arguments name a
// linker script, on whose layout kernels and boot loaders depend, or make gold change its output in place later.
func Outputs(args []string) (out []string) {
	layout := regexp.MustCompile(`^(-T|--?script(=|$)|--?incremental)`)
	address := regexp.MustCompile(`^-T(text|data|bss|rodata|ldata)(-segment)?(=|$)`)
	args = expand(args, 0)
	for _, a := range strings.Split(strings.Join(args, ","), ",") { // also those after -Wl
		if layout.MatchString(a) && !address.MatchString(a) {
			return nil
		}
	}
	for i, arg := range args {
		long, isLong := strings.CutPrefix(arg, "--output=")
		switch {
		case (arg == "-o" || arg == "--output") && i+1 < len(args):
			out = append(out, args[i+1])
		case isLong:
			out = append(out, long)
		case strings.HasPrefix(arg, "-o"):
			out = append(out, arg[len("-o"):])
		}
	}
	if len(out) == 0 {
		out = []string{"a.out"}
	}
	return out
}

// expand returns the arguments with response files (@FILE) replaced by their contents, if they can be read. A file can
// include itself, so files more than 10 levels deep are not read.
func expand(args []string, level int) (out []string) {
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "@"); ok && level < 10 {
			if b, err := os.ReadFile(name); err == nil {
				out = append(out, expand(Split(string(b)), level+1)...)
				continue
			}
		}
		out = append(out, arg)
	}
	return out
}

// Split splits text, in any encoding, into words like linkers: quotes join words, and a backslash quotes the next byte.
func Split(text string) (words []string) {
	var word []byte
	in, quote := false, byte(0) // inside a word, and the open quote
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			in, word = true, append(word, text[i])
		case quote == 0 && strings.ContainsAny(text[i:i+1], `'"`):
			in, quote = true, c
		case quote == 0 && strings.ContainsAny(text[i:i+1], " \t\n\v\f\r"):
			if in {
				words = append(words, string(word))
			}
			in, word = false, nil
		case c == quote:
			quote = 0
		default:
			in, word = true, append(word, c)
		}
	}
	if in {
		words = append(words, string(word))
	}
	return words
}

// Dir returns a directory for a compiler's -B, with links to exe, this program, that are named like linkers. The
// directory is the installed one (libexec/cfi2sframe or lib/cfi2sframe next to bin) or is created in the user's cache.
func Dir(exe string) (string, error) {
	for _, lib := range []string{"libexec", "lib"} {
		dir := filepath.Join(exe, "../..", lib, "cfi2sframe")
		if isSelf(filepath.Join(dir, "ld")) {
			return dir, nil
		}
	}
	cache, err := os.UserCacheDir()
	dir := filepath.Join(cache, "cfi2sframe", fmt.Sprintf("linkers-%.8x", sha256.Sum256([]byte(exe))))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	for _, name := range links() {
		if failed := os.Symlink(exe, filepath.Join(dir, name)); !errors.Is(failed, fs.ErrExist) {
			err = cmp.Or(err, failed)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%w; set XDG_CACHE_HOME to a writable directory", err)
	}
	return dir, nil
}

// links returns the names of the links in a directory for -B.
func links() []string {
	all := []string{Compiler}
	for _, target := range []string{"", "x86_64-linux-gnu-", "aarch64-linux-gnu-", "s390x-linux-gnu-"} {
		for _, name := range Names {
			all = append(all, target+name)
		}
	}
	return all
}
