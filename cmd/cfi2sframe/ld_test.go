//go:build linux

package main

import (
	"bytes"
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
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/internal/testkit/testfile"
)

// linkerDir returns the directory of cfi2sframe's links for -B, below a directory of the test.
func linkerDir(t testing.TB) string {
	t.Helper()
	program := tool(t) // by Go's usual cache
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	out := must.Get(exec.Command(program, "ld", "--print-dir").Output())(t)
	return strings.TrimSuffix(string(out), "\n")
}

// TestLinkerScript runs compilers and linkers with cfi2sframe in between.
//
// In addition to most commands of TestScript, the scripts have $LINKERS, the directory for -B, and the condition
// has:PROGRAM, which must be true where peers are required.
func TestLinkerScript(t *testing.T) {
	long.Test(t)
	cache := must.Get(exec.Command("go", "env", "GOCACHE").Output())(t)
	dir := linkerDir(t)
	home := must.Get(os.UserHomeDir())(t)
	inherit := map[string]string{ // for programs that would look in the home directory
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
			if option, ok := strings.CutPrefix(cond, "rustc:"); ok { // an option of newer versions
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

// TestLinkers links programs with all compilers and linkers of this machine. The output must equal that of the linker
// alone, except for an .sframe that agrees with the CFI.
func TestLinkers(t *testing.T) {
	long.Test(t)
	for _, name := range []string{"gcc", "g++", "clang", "clang++", "readelf", "ld.bfd", "ld.gold", "ld.lld",
		"ld.mold"} {
		peer.Look(t, name)
	}
	tool, dir := tool(t), linkerDir(t)
	work := t.TempDir()
	for name, text := range map[string]string{
		"main.c": "#include <stdio.h>\nint main(int argc, char **argv) { printf(\"%d\\n\", argc + 41); return 7; }\n",
		"lib.c":  "int twice(int x) { return 2 * x; }\n",
		"throw.cc": "#include <iostream>\n#include <stdexcept>\nstatic void f(int n) { if (n > 0) throw " +
			"std::runtime_error(\"caught\"); }\n" +
			"int main(int argc, char **) { try { f(argc); } catch (std::exception &e) { std::cout << e.what() << " +
			"std::endl; return 7; } }\n",
		"bare.c": "void _start(void) { __asm__ volatile (\"syscall\" : : \"a\"(60), \"D\"(7)); }\n",
		"data.c": "int there = 1;\n",
	} {
		testfile.Write(t, filepath.Join(work, name), text)
	}
	// link links in a new directory and returns the output.
	link := func(t *testing.T, args ...string) (string, error) {
		t.Helper()
		out := filepath.Join(t.TempDir(), "out")
		cmd := exec.Command(args[0], append(args[1:], "-o", out)...)
		cmd.Dir = work
		said, err := cmd.CombinedOutput()
		if err == nil && len(said) > 0 && !strings.Contains(string(said), "/ld") { // the linker's warnings
			t.Errorf("%q says %s", args, said)
		}
		return out, err
	}
	// start runs a program and returns its output and status.
	start := func(path string) string {
		var stdout bytes.Buffer
		cmd := exec.Command(path)
		cmd.Stdout = &stdout
		err := cmd.Run()
		return fmt.Sprint(stdout.String(), err)
	}
	linked := 0
	for _, test := range []struct {
		name, compiler, compile, link string
		runs, stays                   bool // it can be run; nothing is added
	}{
		{"c", "gcc", "../main.c", "", true, false},
		{"optimised", "gcc", "-O2 ../main.c", "-s -Wl,-O1,--gc-sections", true, false},
		{"no-pie", "gcc", "-fno-pie ../main.c", "-no-pie", true, false},
		{"static", "gcc", "../main.c", "-static", true, false},
		{"static-pie", "gcc", "../main.c", "-static-pie", true, false},
		{"lto", "gcc", "-flto -O2 ../main.c ../lib.c", "-flto -O2", true, false},
		{"shared", "gcc", "-fPIC ../lib.c", "-shared", false, false},
		{"nostdlib", "gcc", "../bare.c", "-nostdlib -static", true, false},
		{"relocatable", "gcc", "../lib.c", "-r -nostdlib", false, true},
		{"data", "gcc", "-fno-asynchronous-unwind-tables ../data.c", "-shared -nostdlib", false, true},
		{"i386", "gcc", "-m32 ../lib.c", "-m32 -shared -nostdlib", false, true},
		{"exceptions", "g++", "-O2 ../throw.cc", "", true, false},
		{"clang", "clang", "-O2 ../main.c", "", true, false},
		{"clang-static", "clang", "../main.c", "-static", true, false},
		{"clang-exceptions", "clang++", "../throw.cc", "", true, false},
	} {
		objects := filepath.Join(work, test.name)
		must.Do(t, os.Mkdir(objects, 0o777))
		compile := exec.Command(test.compiler, append(strings.Fields(test.compile), "-c")...)
		compile.Dir = objects
		must.Run(t, compile)
		for _, ld := range []string{"", "bfd", "gold", "lld", "mold"} {
			t.Run(test.name+"-"+ld, func(t *testing.T) {
				args := append([]string{test.compiler}, strings.Fields(test.link)...)
				args = append(args, must.Get(filepath.Glob(objects+"/*.o"))(t)...)
				if ld != "" {
					args = append(args, "-fuse-ld="+ld)
				}
				want, wantErr := link(t, args...)
				got, gotErr := link(t, append(args, "-B"+dir)...)
				if wantErr != nil {
					// Not all linkers support all options. Then there is no output, and the compiler prints the same.
					if _, err := os.Stat(got); fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || err == nil {
						t.Errorf("error %v; want and %v; %s: %v", gotErr, wantErr, got, err)
					}
					t.Logf("this combination cannot be linked: %v", wantErr)
					return
				}
				if gotErr != nil {
					t.Fatal(gotErr)
				}
				linked++
				sections := must.Get(exec.Command("readelf", "-SW", got).Output())(t)
				if there := bytes.Contains(sections, []byte(" .sframe ")); there == test.stays {
					t.Errorf(".sframe is there: %t\n%s", there, sections)
				}
				if test.stays {
					a, errA := os.ReadFile(want)
					b, errB := os.ReadFile(got)
					if !bytes.Equal(a, b) || errA != nil || errB != nil {
						t.Errorf("it has changed; %v, %v", errA, errB)
					}
					return
				}
				if out, err := exec.Command(tool, "check", got).CombinedOutput(); err != nil {
					t.Errorf("check: %v\n%s", err, out)
				}
				if test.runs {
					if want, got := start(want), start(got); got != want || !strings.HasSuffix(want, "exit status 7") {
						t.Errorf("it runs as %q; want %q", got, want)
					}
				}
			})
		}
	}
	if linked < 65 {
		t.Errorf("only %d links succeeded", linked)
	}
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
		// The linker also receives it. The run is interrupted even if the linker ignores it.
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
