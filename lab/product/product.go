// Package product builds the programs that are measured.
package product

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Top returns the top directory of the repository. The current directory must be in it.
func Top() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for top := dir; ; top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, "cmd/cfi2sframe")); err == nil {
			return top, nil
		}
		if top == filepath.Dir(top) {
			return "", fmt.Errorf("%s is not in the repository of cfi2sframe", dir)
		}
	}
}

// Build builds cfi2sframe, without the C library, into a file or an existing directory.
func Build(path string, flags ...string) error {
	top, err := Top()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, "./cmd/cfi2sframe")...)
	cmd.Dir, cmd.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}
