//go:build linux

package main

import (
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
// signal, and there must be no output that is not converted.
func TestLinkerSignals(t *testing.T) {
	tool := tool(t)
	large := filepath.Join(t.TempDir(), "large")
	must.Do(t, os.WriteFile(large, manyFunctions(t, 50_000), 0o755))
	command := func(script string) *exec.Cmd {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, "ld"), []byte("#!/bin/sh\n"+script), 0o755))
		cmd := exec.Command(tool, "ld", "./ld", "-o", "out")
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		return cmd
	}
	ended := func(cmd *exec.Cmd, want syscall.Signal) {
		t.Helper()
		if got := cmd.ProcessState.ExitCode(); got != 128+int(want) {
			t.Errorf("got status %d; want %d", got, 128+int(want))
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// The linker also receives the signal. The run is interrupted even if the linker then succeeds.
		for _, trap := range []string{"", fmt.Sprintf("trap 'echo got >got; exit 0' %d; ", sig)} {
			cmd := command(trap + "echo >out; echo >ready; while :; do sleep 0.01; done")
			must.Do(t, cmd.Start())
			waitFor(t, filepath.Join(cmd.Dir, "ready"))
			must.Do(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			ended(cmd, sig)
			if trap != "" {
				waitFor(t, filepath.Join(cmd.Dir, "got"))
			}
		}
		// The linker has exited, and its output is open for conversion.
		interruptOpen(t, sig, func() (*exec.Cmd, string) {
			cmd := command("cp '" + large + "' tmp; exec mv tmp out")
			return cmd, filepath.Join(cmd.Dir, "out")
		}, func(cmd *exec.Cmd) {
			ended(cmd, sig)
			if entries, err := os.ReadDir(cmd.Dir); err != nil || len(entries) != 1 {
				t.Errorf("%v leaves %v, %v", sig, entries, err)
			}
		})
	}
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGKILL} { // of a crashing linker
		cmd := command(fmt.Sprintf("kill -%d $$", sig))
		_ = cmd.Run()
		ended(cmd, sig)
	}
}
