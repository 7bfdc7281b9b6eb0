// Package peer finds the programs with which tests compare results.
package peer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/internal/testkit/testfile"
)

// Look returns the path of a program, or skips the test.
func Look(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" is missing")
	}
	return path
}

// Binutils skips the test unless this machine's as, ld and objdump are GNU binutils of the given version.
func Binutils(t testing.TB, version string) {
	t.Helper()
	for _, name := range []string{"as", "ld", "objdump"} {
		out, err := exec.Command(Look(t, name), "--version").Output()
		if first, _, _ := strings.Cut(string(out), "\n"); err != nil || !strings.HasSuffix(first, " "+version) {
			Missing(t, name+" of GNU binutils "+version+" is missing")
		}
	}
}

// Assembled assembles source for amd64 and returns the object's path.
func Assembled(t testing.TB, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.o")
	as := exec.Command(Look(t, "as"), "--64", "-", "-o", path)
	as.Stdin = strings.NewReader(source)
	must.Run(t, as)
	return path
}

// Linked links an amd64 object with the given flags and returns the output's path.
func Linked(t testing.TB, object string, flags ...string) string {
	t.Helper()
	prog := filepath.Join(t.TempDir(), "prog")
	must.Run(t, exec.Command(Look(t, "ld"), append(flags, "-m", "elf_x86_64", object, "-o", prog)...))
	return prog
}

// Missing skips the test because a program or file is missing, or fails it if suite.Require is set.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(suite.Require) != "" {
		t.Fatalf("%s, and %s is set", what, suite.Require)
	}
	t.Skip(what)
}

// File returns path, or skips the test if there is no such file.
func File(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Missing(t, path+" is missing")
	}
	return path
}

// Root returns the directory of a Debian suite prepared by scripts/peers, or skips the test.
func Root(t testing.TB, name string) string {
	t.Helper()
	root, err := suite.Dir(name)
	if err != nil {
		Missing(t, err.Error())
	}
	return root
}

// Tool returns a function that makes commands for a program of a suite. Without the program, the test is skipped.
func Tool(t testing.TB, name, program string) func(args ...string) *exec.Cmd {
	t.Helper()
	words, err := suite.Program(name, program)
	if err != nil {
		Missing(t, err.Error())
	}
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(words[0], append(words[1:len(words):len(words)], args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		return cmd
	}
}

// Run runs a shell script inside a Debian suite, or on this machine for "", in a directory with the given files, and
// returns the directory. Running in a suite requires root; otherwise the test is skipped.
func Run(t testing.TB, name, script string, files ...string) string {
	t.Helper()
	dir, err := suite.TempDir(name)
	if err != nil {
		Missing(t, err.Error())
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, f := range files {
		must.Do(t, os.WriteFile(filepath.Join(dir, filepath.Base(f)), testfile.Read(t, f), 0o777))
	}
	Again(t, name, dir, script)
	return dir
}

// Again runs another script in the directory that Run returned.
func Again(t testing.TB, name, dir, script string) {
	t.Helper()
	must.Do(t, suite.Script(name, dir, script))
}
