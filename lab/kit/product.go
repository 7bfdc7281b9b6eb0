package kit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Top returns the top directory of the repository, which must contain the current directory.
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

// BuildProduct builds cfi2sframe without cgo, and writes it to path, or into path if that is an existing directory.
func BuildProduct(path string) error {
	top, err := Top()
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	return Run(top, "env", "CGO_ENABLED=0", "go", "build", "-o", path, "./cmd/cfi2sframe")
}

// WithProduct builds cfi2sframe in a temporary directory, and calls fn with its path and the directory.
func WithProduct(fn func(program, dir string) error) error {
	dir, err := os.MkdirTemp("", "lab-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "cfi2sframe")
	if err := BuildProduct(program); err != nil {
		return err
	}
	return fn(program, dir)
}

// Tests builds cfi2sframe, sets *program to its path, and runs the tests of a package.
func Tests(m interface{ Run() int }, program *string) (status int) {
	err := WithProduct(func(path, _ string) error {
		*program = path
		status = m.Run()
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// A Report is the part of cfi2sframe's JSON report that the laboratory reads.
type Report struct {
	Kept      string // why the file gets no section
	Described uint64
	Covered   uint64
	Gaps      []struct {
		Reason string
		Bytes  uint64
	} `json:"gaps_by_reason"`
}

// Convert runs the cfi2sframe built by BuildProduct. It returns no error if cfi2sframe skips the file.
func Convert(program, in, out string, flags ...string) (r Report, err error) {
	args := []string{"--skip-unsupported", "--skip-status", "--report", "json", "--no-sync", in, "-o", out}
	cmd := exec.Command(program, append(args, flags...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	const skipped = 4
	if err := cmd.Run(); err != nil && cmd.ProcessState.ExitCode() != skipped {
		return r, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return r, fmt.Errorf("%s: %w: %s", cmd, err, &stdout)
	}
	return r, nil
}
