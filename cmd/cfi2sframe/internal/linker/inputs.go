//go:build linux

package linker

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// refusing matches linkers that fail on objects with .sframe. lld and gold concatenate these sections, and reject FDEs
// of discarded COMDAT groups; Zig's linker does not support the relocations of .sframe.
const refusing = `(^|[.-])(lld|gold|zig)($|[.-])`

// Refuses reports whether program is a linker that can fail on objects with .sframe, or a compiler that runs one for
// these arguments.
func Refuses(program string, args []string) bool {
	for _, arg := range args {
		for _, flag := range []string{"-fuse-ld=", "--ld-path="} {
			if name, ok := strings.CutPrefix(arg, flag); ok {
				program = name // the last one counts
			}
		}
	}
	real, err := filepath.EvalSymlinks(program)
	is := regexp.MustCompile(refusing).MatchString
	return is(filepath.Base(program)) || err == nil && is(filepath.Base(real))
}

// An Input is an argument that may name an object or archive.
type Input struct {
	Index int // in the arguments
	Path  string
}

// Inputs returns the inputs that the arguments name by path, and -l libraries in -L directories. Inputs ignores other
// libraries, names in linker scripts, and the given outputs.
func Inputs(args, outputs []string) []Input {
	var all []Input
	static := false
	for i, arg := range args {
		switch arg {
		case "-static", "-Bstatic", "-dn", "-non_shared":
			static = true
		case "-Bdynamic", "-dy", "-call_shared":
			static = false
		}
		name, library := strings.CutPrefix(arg, "-l")
		switch {
		case library:
			if path := findLibrary(name, args, static); path != "" {
				all = append(all, Input{i, path})
			}
		case strings.HasPrefix(arg, "-") || slices.Contains(outputs, arg) ||
			i > 0 && slices.Contains(nameFlags, args[i-1]):
		default:
			if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
				all = append(all, Input{i, arg})
			}
		}
	}
	return all
}

// nameFlags are flags that are followed by a name, not by the path of an input.
var nameFlags = []string{"-soname", "--soname", "-h"}

// findLibrary returns the path of the static library that -lNAME stands for, or "".
func findLibrary(name string, args []string, static bool) string {
	exact, ok := strings.CutPrefix(name, ":")
	if name == "" {
		return ""
	}
	for i, arg := range args {
		dir, found := strings.CutPrefix(arg, "-L")
		if found && dir == "" && i+1 < len(args) {
			dir = args[i+1]
		}
		switch {
		case !found:
		case ok && exists(filepath.Join(dir, exact)):
			return filepath.Join(dir, exact)
		case ok:
		case !static && exists(filepath.Join(dir, "lib"+name+".so")):
			return ""
		case exists(filepath.Join(dir, "lib"+name+".a")):
			return filepath.Join(dir, "lib"+name+".a")
		}
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Quote returns arguments as the contents of a response file.
func Quote(args []string) string {
	var b strings.Builder
	for _, arg := range args {
		if arg == "" {
			b.WriteString(`""`)
		}
		for _, c := range arg {
			if strings.ContainsRune(" \t\n\v\f\r'\"\\", c) {
				b.WriteByte('\\')
			}
			b.WriteRune(c)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
