// Package suite runs programs of the Debian suites that scripts/peers installs. The suite "" is this machine.
package suite

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Require is the environment variable, set by CI, that makes tests fail, not be skipped, if a program is missing.
const Require = "CFI2SFRAME_REQUIRE_PEERS"

// Dir returns the directory of a suite.
func Dir(name string) (string, error) {
	root := os.Getenv("CFI2SFRAME_PEERS")
	if root == "" {
		root = "/var/cache/cfi2sframe-peers"
	}
	root = filepath.Join(root, name)
	if _, err := os.Stat(root); err != nil {
		return "", fmt.Errorf("%s is missing; run scripts/peers --prepare", root)
	}
	return root, nil
}

// Program returns the start of a command that runs a suite's program, with its libraries, on this machine's files.
func Program(suite, name string) ([]string, error) {
	if suite == "" {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("%s is missing", name)
		}
		return []string{path}, nil
	}
	root, err := Dir(suite)
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
		// Many LLVM tools are links to a few programs, which check the name they are run under.
		"--argv0", name, path,
	}, nil
}

// TempDir makes a directory in which scripts can run inside a suite.
func TempDir(suite string) (string, error) {
	if suite == "" {
		return os.MkdirTemp("", "cfi2sframe-")
	}
	root, err := Dir(suite)
	if err != nil {
		return "", err
	}
	if os.Getuid() != 0 {
		return "", fmt.Errorf("running inside %s requires root", root)
	}
	return os.MkdirTemp(filepath.Join(root, "tmp"), "cfi2sframe-")
}

// Script runs a shell script inside a suite, in a directory made by TempDir.
func Script(suite, dir, script string) error {
	cmd := exec.Command("sh", "-ec", "cd "+dir+"\n"+script)
	if suite != "" {
		root, err := Dir(suite)
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
