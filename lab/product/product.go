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
func Build(path string, flags ...string) error { return build(".", "./cmd/cfi2sframe", path, flags) }

// BuildStepper does that for cfi-step.
func BuildStepper(path string) error { return build("lab", "./cmd/cfi-step", path, nil) }

func build(module, pkg, path string, flags []string) error {
	top, err := Top()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	cmd := exec.Command("go", append(append([]string{"build"}, flags...), "-o", path, pkg)...)
	cmd.Dir, cmd.Env = filepath.Join(top, module), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}
