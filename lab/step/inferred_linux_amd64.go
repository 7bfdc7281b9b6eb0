package step

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/lab/kit"
)

// traceInferred follows calls to functions whose rows are inferred from instructions, in a program and the files that
// it is linked with, and returns a report. It follows plugins only if LD_PRELOAD names them.
func traceInferred(ctx context.Context, args []string, steps, calls uint64) (string, error) {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "step-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	list, report := filepath.Join(dir, "entries"), filepath.Join(dir, "report")
	preload := filepath.Join(dir, "inferred.so")
	top, err := kit.Top()
	if err == nil {
		build := []string{"gcc", "-O2", "-shared", "-fPIC", "-Iwalker", "lab/step/c/inferred.c", "-o", preload}
		err = errors.Join(kit.Run(top, build...), listInferred(program, list))
	}
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, program, args[1:]...)
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+preload+" "+os.Getenv("LD_PRELOAD"), "STEP_ENTRIES="+list,
		"STEP_PROGRAM="+program, "STEP_REPORT="+report, fmt.Sprintf("STEP_STEPS=%d", steps),
		fmt.Sprintf("STEP_CALLS=%d", calls))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	ran := cmd.Run()
	text, err := os.ReadFile(report)
	return string(text), errors.Join(ran, err)
}

// listInferred lists the functions whose rows are inferred from instructions, in a program and the files that it is
// linked with, as far as they are converted. Each line holds the address and the file.
func listInferred(program, list string) error {
	loaded, err := exec.Command("env", "LD_TRACE_LOADED_OBJECTS=1", program).Output() // ld.so(8): lists without running
	if err != nil {
		return err
	}
	paths := []string{program}
	for line := range strings.Lines(string(loaded)) {
		fields := strings.Fields(line) // NAME => PATH (ADDRESS), or PATH (ADDRESS)
		if path := fields[max(len(fields)-2, 0)]; filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	var entries bytes.Buffer
	for _, path := range paths {
		contents, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := elffile.New(bytes.NewReader(contents), int64(len(contents)))
		if err == nil && f.Section(".sframe") == nil {
			continue
		}
		var table *cfi.Table
		if err == nil {
			table, err = convert.LoadCFI(context.Background(), f, convert.Loading{Infer: true})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for fn := range table.Functions() {
			if fn.Inferred() {
				fmt.Fprintf(&entries, "%x %s\n", fn.Begin, path)
			}
		}
	}
	if entries.Len() == 0 {
		return fmt.Errorf("neither %s nor a file that it loads has rows from instructions; convert a copy with "+
			"--infer, or set LD_LIBRARY_PATH to such copies of its libraries (see ldd)", program)
	}
	return os.WriteFile(list, entries.Bytes(), 0o666)
}
