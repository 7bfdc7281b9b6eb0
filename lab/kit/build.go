package kit

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// Run runs a command in a directory. The error includes the command's output.
func Run(dir string, command ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, out)
	}
	return nil
}

// Build builds a program with a command that runs in the directory of the sources. It returns the path of the
// program: ProgramPath(dir, name). In the command, OUT stands for the program and SRC for the sources.
func Build(command, sources, dir, name string) (program string, err error) {
	program = ProgramPath(dir, name)
	args := strings.Fields(strings.NewReplacer("OUT", program, "SRC", sources).Replace(command))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = sources
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1", "GO111MODULE=off")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", args, err, b)
	}
	return program, nil
}

// ProgramPath returns the path of a program made by Build.
func ProgramPath(dir, name string) string {
	return filepath.Join(dir, strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' {
			return r
		}
		return '-'
	}, name))
}

// Ranked returns a line for each key with its count, in descending order of counts.
func Ranked(counts map[string]uint64) (lines []string) {
	for _, what := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		lines = append(lines, fmt.Sprintf("%d: %s", counts[what], what))
	}
	return lines
}
