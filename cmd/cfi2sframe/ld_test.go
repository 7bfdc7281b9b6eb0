//go:build linux

package main

import (
	"debug/elf"
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
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/suite"
)

// TestLinkerScript runs linkers, directly and from compilers, through cfi2sframe.
//
// The scripts can use some commands of TestScript, and the variable $LINKERS (the directory for -B).
func TestLinkerScript(t *testing.T) {
	long.Test(t)
	if os.Getenv(suite.Require) != "" {
		for _, name := range strings.Fields("gcc clang make cmake libtool rustc cargo readelf ld.gold ld.lld ld.mold " +
			"aarch64-linux-gnu-gcc qemu-aarch64-static") {
			peer.Look(t, name)
		}
	}
	program, cache := tool(t), t.TempDir()
	home := must.Get(os.UserHomeDir())(t)
	goCache := must.Get(exec.Command("go", "env", "GOCACHE").Output())(t)
	t.Setenv("XDG_CACHE_HOME", cache)
	dir := must.Get(exec.Command(program, "ld", "--print-dir").Output())(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/linker",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", toolDir+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("LINKERS", strings.TrimSpace(string(dir)))
			env.Setenv("LC_ALL", "C")
			env.Setenv("HOME", home) // of cargo and rustup
			env.Setenv("XDG_CACHE_HOME", cache)
			env.Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": scriptStatus, "mode": scriptMode},
	})
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
	waitFor := func(path string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(path); err == nil {
				return
			}
		}
		t.Fatalf("%s did not appear", path)
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
			waitFor(filepath.Join(cmd.Dir, "ready"))
			must.Do(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			ended(cmd, sig)
			if trap != "" {
				waitFor(filepath.Join(cmd.Dir, "got"))
			}
		}
		// The linker has exited, and its output is open for conversion.
		interruptOpen(t, sig, func() (*exec.Cmd, string) {
			cmd := command("cp '" + large + "' tmp; exec mv tmp out")
			return cmd, filepath.Join(cmd.Dir, "out")
		}, func(cmd *exec.Cmd) {
			ended(cmd, sig)
			entries, err := os.ReadDir(cmd.Dir)
			if f, failed := elf.Open(filepath.Join(cmd.Dir, "out")); failed == nil {
				defer f.Close()
				if f.Section(".sframe") != nil { // the conversion was faster
					entries = entries[:len(entries)-1]
				}
			}
			if err != nil || len(entries) != 1 {
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
