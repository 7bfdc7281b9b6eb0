package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// foreign are words of what the program is made with, which say nothing to its users.
var foreign = regexp.MustCompile(`(?i)strconv|context|syscall|pflag|goroutine|panic|runtime|%!|<nil>|invalid syntax|shorthand|invalid argument ".*" for|\b(open|stat|lstat|read|write) \S*missing|(missing: .*){2}|EOF`)

// flagsOf returns the flags that --help lists: how they are written, and whether they take a value.
func flagsOf(t *testing.T) (names []string, value map[string]bool) {
	t.Helper()
	var out bytes.Buffer
	if status := run(t.Context(), []string{"--help"}, &out, &out); status != exitDone {
		t.Fatalf("--help: status %d", status)
	}
	value = make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^  (?:(-\w), |    )(--[a-z0-9-]+)( [A-Za-z]\S*)?  `).FindAllStringSubmatch(out.String(), -1) {
		for _, name := range m[1:3] {
			if name != "" {
				names = append(names, name)
				value[name] = m[3] != ""
			}
		}
	}
	if len(names) < 25 {
		t.Fatalf("flags are %v", names)
	}
	return names, value
}

// TestMessages gives every flag values that are none, in every way, and expects the messages to be of this program.
func TestMessages(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	names, value := flagsOf(t)
	check := func(usage bool, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		status := run(t.Context(), args, &stdout, &stderr)
		message := stderr.String()
		if m := foreign.FindString(message); m != "" || status != exitDone &&
			!strings.HasPrefix(message, "cfi2sframe: ") {
			t.Errorf("%q: %q in %q", args, m, message)
		}
		if usage && status != exitUsage {
			t.Errorf("%q: status %d, %q", args, status, message)
		}
	}
	types := 0
	for _, name := range names {
		for _, v := range []string{"", "x", "missing/file", "-1", "99999999999999999999", "1e999", "NaN", "0x",
			"\x1b[2J", "%s"} {
			check(false, name, v, "missing", "-o", "out")
			check(false, name, v, "missing")
			if strings.HasPrefix(name, "--") {
				check(false, name+"="+v, "missing", "-o", "out")
			} else {
				check(false, name+v, "missing", "-o", "out")
			}
			check(false, name, v)
		}
		if value[name] {
			check(true, name) // its value is missing
			continue
		}
		if strings.HasPrefix(name, "--") {
			types++
			check(true, name+"=maybe", "missing", "-o", "out")
		}
	}
	if types < 10 {
		t.Errorf("%d flags without a value", types)
	}
	for _, name := range []string{"--format", "--jobs", "--min-coverage"} {
		for _, v := range []string{"", "x", "-", "1e999", "0x", "-1"} {
			check(true, name+"="+v, "missing", "-o", "out")
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("there are files now: %v, %v", entries, err)
	}
}

// TestInterruptedModes ends each mode with each signal before its first file, and expects the exit status to tell which
// it was, and all files to be named.
func TestInterruptedModes(t *testing.T) {
	plain, err := os.ReadFile(filepath.Join(fixtures, "plt"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(name, plain, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	before, err := snapshot(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		for _, tt := range []struct{ args, want string }{
			{"-q a -o out", "a: interrupted, nothing written"},
			{"-q a -o -", "a: interrupted, nothing written"},
			{"-q --in-place a b c", "a: interrupted, nothing written;b: interrupted, nothing written;c: interrupted, nothing written"},
			{"-q --no-sync --in-place a b c",
				"a: interrupted, nothing written;b: interrupted, nothing written;c: interrupted, nothing written"},
			{"-q --dry-run a b", "a: interrupted, nothing written;b: interrupted, nothing written"},
			{"--report json --dry-run a b", "a: interrupted, nothing written;b: interrupted, nothing written"},
			{"-q -r --in-place .", ".: interrupted, nothing written"},
			{"check -r .", ".: interrupted, not checked"},
			{"survey a b c", "survey: interrupted, nothing written"},
			{"check a b c", "a: interrupted, not checked;b: interrupted, not checked;c: interrupted, not checked"},
			{"diff a b", "a: interrupted, not compared;b: interrupted, not compared"},
			{"dump a b c", "a: interrupted, not printed;b: interrupted, not printed;c: interrupted, not printed"},
		} {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(signalError(sig))
			var stdout, stderr bytes.Buffer
			status := run(ctx, strings.Fields(tt.args), &stdout, &stderr)
			want := "cfi2sframe: " + strings.ReplaceAll(tt.want, ";", "\ncfi2sframe: ") + "\n"
			if status != 128+int(sig) || stderr.String() != want || stdout.Len() > 0 {
				t.Errorf("%v, %s: status %d, stdout %q, stderr %q", sig, tt.args, status, stdout.String(),
					stderr.String())
			}
		}
	}
	after, err := snapshot(".")
	if err != nil {
		t.Fatal(err)
	}
	if d := changes(before, after); d != "" {
		t.Errorf("files have changed:\n%s", d)
	}
}

// TestSignalStatus signals the program itself, in each mode, while it waits for its input.
func TestSignalStatus(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		for args, want := range map[string]string{
			"-q - -o out": "cfi2sframe: -: interrupted, nothing written\n",
			"check -":     "cfi2sframe: -: interrupted, not checked\n",
			"dump - x":    "cfi2sframe: -: interrupted, not printed\ncfi2sframe: x: interrupted, not printed\n",
		} {
			tmp := t.TempDir()
			var stderr bytes.Buffer
			cmd := exec.Command(exe)
			cmd.Args = append([]string{"cfi2sframe"}, strings.Fields(args)...)
			cmd.Env, cmd.Dir, cmd.Stderr = append(os.Environ(), "TMPDIR="+tmp), t.TempDir(), &stderr
			stdin := startReading(t, cmd, tmp)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // the status is looked at
			stdin.Close()
			if got := cmd.ProcessState.ExitCode(); got != 128+int(sig) || stderr.String() != want {
				t.Errorf("%v, %s: %v, stderr %q", sig, args, cmd.ProcessState, stderr.String())
			}
		}
	}
}
