//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/suite"
)

// linkerDir returns the directory of cfi2sframe's links for -B, below a directory of the test.
func linkerDir(t testing.TB) string {
	t.Helper()
	program := tool(t) // by Go's usual cache
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	out := must.Get(exec.Command(program, "ld", "--print-dir").Output())(t)
	return strings.TrimSuffix(string(out), "\n")
}

// TestLinkerScript runs linkers, directly and from compilers, through cfi2sframe.
//
// The scripts can use most commands of TestScript, the variable $LINKERS (the directory for -B), and the condition
// has:PROGRAM, which must be true where peers are required.
func TestLinkerScript(t *testing.T) {
	long.Test(t)
	cache := must.Get(exec.Command("go", "env", "GOCACHE").Output())(t)
	dir := linkerDir(t)
	home := must.Get(os.UserHomeDir())(t)
	inherit := map[string]string{ // the defaults are below HOME, which testscript changes
		"XDG_CACHE_HOME": os.Getenv("XDG_CACHE_HOME"),
		"GOCACHE":        strings.TrimSpace(string(cache)),
		"RUSTUP_HOME":    filepath.Join(home, ".rustup"),
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/linker",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", toolDir+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("LINKERS", dir)
			env.Setenv("LC_ALL", "C")
			for name, value := range inherit {
				if set := os.Getenv(name); set != "" {
					value = set
				}
				env.Setenv(name, value)
			}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if option, ok := strings.CutPrefix(cond, "rustc:"); ok { // only newer versions of rustc have this option
				help, err := exec.Command("rustc", "-C", "help").Output()
				return strings.Contains(string(help), option), err
			}
			program, ok := strings.CutPrefix(cond, "has:")
			if !ok {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			_, err := exec.LookPath(program)
			if err != nil && os.Getenv(suite.Require) != "" {
				return false, fmt.Errorf("%s is missing, and %s is set", program, suite.Require)
			}
			return err == nil, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": scriptStatus, "mode": scriptMode},
	})
}

// waitFor waits until a file exists.
func waitFor(t *testing.T, path string) {
	t.Helper()
	for range 6000 {
		if _, err := os.Stat(path); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s did not appear", path)
}

// TestLinkerSignals sends signals while the linker runs, and while its output is converted. The status must name the
// signal, and there must be no output.
func TestLinkerSignals(t *testing.T) {
	tool := tool(t)
	large := filepath.Join(t.TempDir(), "large")
	must.Do(t, os.WriteFile(large, manyFunctions(t, 50_000), 0o755))
	command := func(t *testing.T, script string) *exec.Cmd {
		t.Helper()
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, "ld"), []byte("#!/bin/sh\n"+script), 0o755))
		cmd := exec.Command(tool, "ld", "./ld", "-o", "out")
		cmd.Dir = dir
		cmd.Stderr = os.Stderr
		return cmd
	}
	run := func(t *testing.T, script string) (*exec.Cmd, string) {
		t.Helper()
		cmd := command(t, script)
		must.Do(t, cmd.Start())
		return cmd, cmd.Dir
	}
	endedBy := func(t *testing.T, state *os.ProcessState, want syscall.Signal) {
		t.Helper()
		if s := state.Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != want || s.CoreDump() {
			t.Errorf("got %v; want %v", state, want)
		}
	}
	ended := func(t *testing.T, cmd *exec.Cmd, want syscall.Signal) {
		t.Helper()
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		endedBy(t, cmd.ProcessState, want)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		// The linker also receives the signal. The run is interrupted even if the linker ignores the signal.
		for _, trap := range []string{"", fmt.Sprintf("trap 'echo got >got; exit 0' %d; ", sig)} {
			cmd, dir := run(t, trap+"echo >out; echo >ready; while :; do sleep 0.01; done")
			waitFor(t, filepath.Join(dir, "ready"))
			must.Do(t, cmd.Process.Signal(sig))
			ended(t, cmd, sig)
			if trap != "" {
				waitFor(t, filepath.Join(dir, "got"))
			}
		}
		// The linker has exited, and its output is open for conversion.
		interruptOpen(t, sig, func() (*exec.Cmd, string) {
			cmd := command(t, "cp '"+large+"' tmp; exec mv tmp out")
			return cmd, filepath.Join(cmd.Dir, "out")
		}, func(cmd *exec.Cmd) {
			endedBy(t, cmd.ProcessState, sig)
			if entries, err := os.ReadDir(cmd.Dir); err != nil || len(entries) != 1 {
				t.Errorf("%v leaves %v, %v", sig, entries, err)
			}
		})
	}
	// A crashing linker.
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGKILL, syscall.SIGABRT} {
		cmd, _ := run(t, fmt.Sprintf("kill -%d $$", sig))
		ended(t, cmd, sig)
	}
}
