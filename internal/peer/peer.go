// Package peer finds the programs that tests compare with.
package peer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Require is the environment variable that makes a missing peer a failure. It is
// set where a test run that compared with nothing must not count as a pass.
const Require = "CFI2SFRAME_REQUIRE_PEERS"

// Look returns the path of a program, and skips the test without it.
func Look(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name)
	}
	return path
}

// Binutils skips the test unless the machine's own as, ld and objdump are of the given
// version of GNU binutils.
func Binutils(t testing.TB, version string) {
	t.Helper()
	for _, name := range []string{"as", "ld", "objdump"} {
		out, err := exec.Command(Look(t, name), "--version").Output()
		if first, _, _ := strings.Cut(string(out), "\n"); err != nil || !strings.HasSuffix(first, " "+version) {
			Missing(t, name+" of GNU binutils "+version)
		}
	}
}

// Missing skips the test for want of something, or fails it.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(Require) != "" {
		t.Fatalf("%s is missing, and %s is set", what, Require)
	}
	t.Skipf("%s is missing", what)
}

// File returns path if there is such a file, and skips the test without it.
func File(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Missing(t, path)
	}
	return path
}

// Root returns the folder of a Debian suite prepared by scripts/peers, and skips the
// test without it.
func Root(t testing.TB, suite string) string {
	t.Helper()
	root := os.Getenv("CFI2SFRAME_PEERS")
	if root == "" {
		root = "/var/cache/cfi2sframe-peers"
	}
	return File(t, filepath.Join(root, suite))
}

// Tool returns a maker of commands that run a program of a Debian suite, and skips
// the test without it. The program sees the machine's own files; its libraries are
// the suite's. The suite "" is the machine itself.
func Tool(t testing.TB, suite, name string) func(args ...string) *exec.Cmd {
	t.Helper()
	if suite == "" {
		path := Look(t, name)
		return func(args ...string) *exec.Cmd {
			cmd := exec.Command(path, args...)
			cmd.Env = append(os.Environ(), "LC_ALL=C")
			return cmd
		}
	}
	root := Root(t, suite)
	path, err := filepath.EvalSymlinks(filepath.Join(root, "usr/bin", name))
	if err != nil {
		Missing(t, suite+"'s "+name)
	}
	loader := filepath.Join(root, "lib64/ld-linux-x86-64.so.2")
	libs := filepath.Join(root, "usr/lib/x86_64-linux-gnu")
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(loader, append([]string{"--library-path", libs, path}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		return cmd
	}
}

// Run runs a shell script inside a Debian suite, in a folder with the given files,
// and returns that folder. It needs root, and skips the test without it. The suite ""
// is the machine itself.
func Run(t testing.TB, suite, script string, files ...string) string {
	t.Helper()
	tmp := os.TempDir()
	if suite != "" {
		tmp = filepath.Join(Root(t, suite), "tmp")
		if os.Getuid() != 0 {
			Missing(t, "root")
		}
	}
	dir, err := os.MkdirTemp(tmp, "cfi2sframe-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	Again(t, suite, dir, script)
	return dir
}

// Again runs another script in the folder that Run returned.
func Again(t testing.TB, suite, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", "cd "+dir+"\n"+script)
	if suite != "" {
		cmd = exec.Command("chroot", Root(t, suite), "sh", "-ec", "cd /tmp/"+filepath.Base(dir)+"\n"+script)
	}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/root"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s in %s: %v\n%s", script, suite, err, out)
	}
}
