// Package suite runs programs of the Debian suites that scripts/peers prepares, each
// in its own directory. The suite "" is the machine itself.
package suite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Require is the environment variable that makes a missing program a failure. It is
// set where a run that compared with nothing must not count as a pass.
const Require = "CFI2SFRAME_REQUIRE_PEERS"

// Folder returns the directory of a suite.
func Folder(name string) (string, error) {
	root := os.Getenv("CFI2SFRAME_PEERS")
	if root == "" {
		root = "/var/cache/cfi2sframe-peers"
	}
	root = filepath.Join(root, name)
	if _, err := os.Stat(root); err != nil {
		return "", fmt.Errorf("%s is missing; scripts/peers --prepare makes it", root)
	}
	return root, nil
}

// Program returns the words that begin a command with a program of a suite. The
// program sees the machine's own files; its libraries are the suite's.
func Program(suite, name string) ([]string, error) {
	if suite == "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("%s is missing", name)
		}
		return []string{path}, nil
	}
	root, err := Folder(suite)
	if err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(filepath.Join(root, "usr/bin", name))
	if err != nil {
		return nil, fmt.Errorf("%s's %s is missing", suite, name)
	}
	return []string{
		filepath.Join(root, "lib64/ld-linux-x86-64.so.2"),
		"--library-path", filepath.Join(root, "usr/lib/x86_64-linux-gnu"),
		// LLVM's tools are links to few programs, which go by their names.
		"--argv0", name, path,
	}, nil
}

// TempDir makes a directory that scripts of a suite can work in.
func TempDir(suite string) (string, error) {
	if suite == "" {
		return os.MkdirTemp("", "cfi2sframe-")
	}
	root, err := Folder(suite)
	if err != nil {
		return "", err
	}
	if os.Getuid() != 0 {
		return "", fmt.Errorf("root is missing, to work inside %s", root)
	}
	return os.MkdirTemp(filepath.Join(root, "tmp"), "cfi2sframe-")
}

// Script runs a shell script inside a suite, in a directory that TempDir made.
func Script(suite, dir, script string) error {
	cmd := exec.Command("sh", "-ec", "cd "+dir+"\n"+script)
	if suite != "" {
		root, err := Folder(suite)
		if err != nil {
			return err
		}
		cmd = exec.Command("chroot", root, "sh", "-ec", "cd /tmp/"+filepath.Base(dir)+"\n"+script)
	}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/root"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s in %s: %v\n%s", script, suite, err, out)
	}
	return nil
}
