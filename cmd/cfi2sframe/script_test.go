package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/suite"
	"cfi2sframe/internal/testkit/testfile"

	"github.com/rogpeppe/go-internal/testscript"
)

const (
	fixtures   = "../../testdata/bin/amd64"
	tempPrefix = ".cfi2sframe-" // prefix of temporary files for results
)

func TestMain(m *testing.M) {
	commands := map[string]func(){"cfi2sframe": main, "measure": measure}
	if commands[filepath.Base(os.Args[0])] == nil { // the tests, not a command run by them
		syscall.Umask(0o022)
		os.Setenv("LC_ALL", "C") // tests compare messages of other programs
		for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
			if signal.Ignored(sig) {
				ignored = append(ignored, sig)
			}
		}
	}
	heed()
	testscript.Main(allTests{m}, commands)
}

// allTests runs all tests, and removes what they share.
type allTests struct{ *testing.M }

func (m allTests) Run() int {
	defer func() { os.RemoveAll(toolDir) }()
	return m.M.Run()
}

// toolDir is the directory of the program that buildTool builds.
var toolDir string

var buildTool = sync.OnceValue(func() error {
	var err error
	if toolDir, err = os.MkdirTemp("", "cfi2sframe-"); err != nil {
		return err
	}
	args := []string{"build", "-o", toolDir}
	// where coverage data goes
	if mode := testing.CoverMode(); mode != "" {
		args = append(args, "-cover", "-covermode="+mode, "-coverpkg=.")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return os.Chmod(toolDir, 0o755)
})

// tool returns the path of cfi2sframe, built once without the race detector, which multiplies memory use. The binary is
// alone in a readable directory, so that tests can add the directory to PATH and all users can run the binary.
func tool(t testing.TB) string {
	t.Helper()
	must.Do(t, buildTool())
	return filepath.Join(toolDir, "cfi2sframe")
}

// ignored lists the signals that were ignored when the tests started, as under nohup. Package signal reports ignored
// signals correctly only until they are caught.
var ignored []os.Signal

// heed catches the ignored signals, so that programs started by the tests do not ignore them.
func heed() {
	for _, sig := range ignored {
		signal.Notify(make(chan os.Signal, 1), sig)
	}
}

// TestScript runs the command as its users do.
//
// Besides testscript's own commands, the scripts have:
//
//	status N CMD ARG...          run a program, which exits with status N
//	refuse N FILE ARG...         run cfi2sframe, which exits with status N, says why on stderr after
//	                             "cfi2sframe: FILE: " (FILE may be "-" for none) and changes no file
//	json KEY VALUE               the JSON in stdout has the value at the key, such as gaps.0.reason or gaps.len
//	sframe FILE FDES FRES        decode the .sframe of the file, which has these numbers of FDEs and FREs
//	mode FILE MODE               the file has the octal mode
//	patch FILE OFFSET HEX        overwrite bytes of a file
//	truncate FILE SIZE           truncate a file
//	gaps FILE N                  write a library whose CFI has N ranges that SFrame cannot express
//	mknod FILE                   make a null device, if condition mknod holds
func TestScript(t *testing.T) {
	dir := must.Get(filepath.Abs(fixtures))(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("FIXTURES", dir)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "portable": // cfi2sframe was built without Linux-specific code
				return portable, nil
			case "root":
				return os.Geteuid() == 0, nil
			case "mknod":
				return makeNull(filepath.Join(t.TempDir(), "null")) == nil, nil
			case "terminal": // as ttyin creates
				f, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
				if err == nil {
					return true, f.Close()
				} else if os.Getenv(suite.Require) == "" {
					return false, nil
				}
				return false, fmt.Errorf("%w, and %s is set", err, suite.Require)
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status":   scriptStatus,
			"refuse":   scriptRefuse,
			"json":     scriptJSON,
			"sframe":   scriptSFrame,
			"mode":     scriptMode,
			"patch":    scriptPatch,
			"truncate": scriptTruncate,
			"gaps":     scriptGaps,
			"mknod":    scriptMknod,
		},
	})
}

// checkUsage checks the arguments of a script command.
func checkUsage(ts *testscript.TestScript, neg, ok bool, usage string) {
	if neg || !ok {
		ts.Fatalf("usage: %s", usage)
	}
}

// exitStatus runs a program and returns its exit status.
func exitStatus(ts *testscript.TestScript, args []string) int {
	err := ts.Exec(args[0], args[1:]...)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	ts.Check(err)
	return 0
}

func scriptStatus(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) >= 2, "status N CMD ARG...")
	if got := exitStatus(ts, args[1:]); fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit status %d; want %s", got, args[0])
	}
}

func scriptRefuse(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) >= 2, "refuse N FILE ARG...")
	before, err := snapshot(ts.MkAbs("."))
	ts.Check(err)
	scriptStatus(ts, false, append([]string{args[0], "cfi2sframe"}, args[2:]...))
	prefix := "cfi2sframe: "
	if args[1] != "-" {
		prefix += args[1] + ": "
	}
	if got := ts.ReadFile("stderr"); !strings.HasPrefix(got, prefix) {
		ts.Fatalf("stderr does not start with %q", prefix)
	}
	if got := ts.ReadFile("stdout"); got != "" {
		ts.Fatalf("stdout is not empty")
	}
	after, err := snapshot(ts.MkAbs("."))
	ts.Check(err)
	if d := describeChanges(before, after); d != "" {
		ts.Fatalf("files have changed:\n%s", d)
	}
}

// snapshot describes the files below a directory: type, mode and contents.
func snapshot(dir string) (map[string]string, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrPermission) {
				break
			} else if err != nil {
				return err
			}
			what += fmt.Sprintf(" %x", sha256.Sum256(b))
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " -> " + to
		}
		files[path] = what
		return nil
	})
	return files, err
}

// describeChanges describes how two snapshots differ.
func describeChanges(before, after map[string]string) string {
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(before)) {
		if after[path] != before[path] {
			fmt.Fprintf(&b, "%s: %s, was %s\n", path, after[path], before[path])
		}
	}
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[path]; !ok {
			fmt.Fprintf(&b, "%s: is new\n", path)
		}
	}
	return b.String()
}

func scriptJSON(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) == 2, "json KEY VALUE")
	d := json.NewDecoder(strings.NewReader(ts.ReadFile("stdout")))
	d.UseNumber()
	var v any
	ts.Check(d.Decode(&v))
	for _, key := range strings.Split(args[0], ".") {
		switch x := v.(type) {
		case map[string]any:
			field, ok := x[key]
			if !ok {
				ts.Fatalf("%s: no field %q", args[0], key)
			}
			v = field
		case []any:
			i, err := strconv.Atoi(key)
			if key == "len" {
				v = len(x)
			} else if err == nil && i < len(x) {
				v = x[i]
			} else {
				ts.Fatalf("%s: no element %q of %d", args[0], key, len(x))
			}
		default:
			ts.Fatalf("%s: no %q in %v", args[0], key, v)
		}
	}
	if got := fmt.Sprint(v); got != args[1] {
		ts.Fatalf("%s is %s; want %s", args[0], got, args[1])
	}
}

func scriptSFrame(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) == 3, "sframe FILE FDES FRES")
	s, err := decodeOutput(ts.MkAbs(args[0]))
	ts.Check(err)
	if fmt.Sprint(s.Len()) != args[1] || fmt.Sprint(s.NumFREs) != args[2] {
		ts.Fatalf("%d FDEs and %d FREs; want %s and %s", s.Len(), s.NumFREs, args[1], args[2])
	}
}

func scriptMode(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) == 2, "mode FILE MODE")
	var st syscall.Stat_t
	ts.Check(syscall.Stat(ts.MkAbs(args[0]), &st))
	if got := fmt.Sprintf("%04o", st.Mode&0o7777); got != args[1] {
		ts.Fatalf("%s has mode %s; want %s", args[0], got, args[1])
	}
}

func scriptPatch(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) == 3, "patch FILE OFFSET HEX")
	off, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	b, err := hex.DecodeString(args[2])
	ts.Check(err)
	f, err := os.OpenFile(ts.MkAbs(args[0]), os.O_WRONLY, 0)
	ts.Check(err)
	_, err = f.WriteAt(b, off)
	ts.Check(errors.Join(err, f.Close()))
}

func scriptTruncate(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) == 2, "truncate FILE SIZE")
	size, err := strconv.ParseInt(args[1], 0, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), size))
}

func scriptGaps(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) == 2, "gaps FILE N")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	b, err := os.ReadFile(filepath.Join(fixtures, "pltlib.so"))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), withGaps(elftest.Patch(ts.Fatalf, b), n), 0o755))
}

func scriptMknod(ts *testscript.TestScript, neg bool, args []string) {
	checkUsage(ts, neg, len(args) == 1, "mknod FILE")
	ts.Check(makeNull(ts.MkAbs(args[0])))
}

// makeNull makes a null device, so that the machine's own is not at risk.
func makeNull(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o666, 1<<8|3) }

// A countdown is a context that ends when Err is called for the nth time.
type countdown struct {
	context.Context
	left atomic.Int64
	done chan struct{}
}

func (c *countdown) Done() <-chan struct{} { return c.done }

func (c *countdown) Err() error {
	switch left := c.left.Add(-1); {
	case left >= 0:
		return nil
	case left == -1:
		close(c.done)
	}
	return context.Canceled
}

// TestInterruptedAnywhere cancels the context at each point where it is checked.
func TestInterruptedAnywhere(t *testing.T) {
	input := testfile.Read(t, filepath.Join(fixtures, "plt"))
	for _, inPlace := range []bool{false, true} {
		for n := int64(0); ; n++ {
			dir := t.TempDir()
			in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
			for _, path := range []string{in, out} {
				must.Do(t, os.WriteFile(path, input, 0o755))
			}
			args := []string{in, "-o", out}
			if inPlace {
				args = []string{"--in-place", in, out}
			}
			before := must.Get(snapshot(dir))(t)
			ctx := &countdown{Context: context.Background(), done: make(chan struct{})}
			ctx.left.Store(n)
			var stdout, stderr bytes.Buffer
			status := run(ctx, args, &stdout, &stderr)
			after := must.Get(snapshot(dir))(t)
			if status == exitDone {
				if n < 2 {
					t.Errorf("in place %t: the context is checked only %d times", inPlace, n)
				}
				break
			}
			// With --in-place, the first file may be complete when the second is not. A message must name each
			// incomplete file.
			var named []string
			for line := range strings.Lines(stderr.String()) {
				if rest, ok := strings.CutPrefix(line, "cfi2sframe: "); ok {
					named = append(named, strings.TrimSuffix(rest, ": interrupted, nothing written\n"))
				}
			}
			files := []string{in}
			if inPlace {
				files = []string{in, out}
			}
			for _, f := range files {
				if after[f] == before[f] {
					continue
				}
				before[f] = after[f]
				if _, err := decodeOutput(f); err != nil || slices.Contains(named, f) {
					t.Errorf("after %d: %s is replaced, error %v, stderr %q", n, f, err, stderr.String())
				}
				files = slices.DeleteFunc(slices.Clone(files), func(s string) bool { return s == f })
			}
			if d := describeChanges(before, after); status != exitError || d != "" {
				t.Errorf("in place %t, after %d: status %d\n%s", inPlace, n, status, d)
			}
			slices.Sort(named)
			if slices.Sort(files); len(named) == 0 || !slices.Equal(named, files) {
				t.Errorf("in place %t, after %d: stderr %q, not done are %q", inPlace, n, stderr.String(), files)
			}
			if n > 100 {
				t.Fatal("it never ends")
			}
		}
	}
}

// TestSignal sends signals while cfi2sframe reads a large file, and while it writes the result. The status must name
// the signal, and there must be no output.
func TestSignal(t *testing.T) {
	exe := must.Get(os.Executable())(t)
	in := filepath.Join(t.TempDir(), "in")
	must.Do(t, os.WriteFile(in, manyFunctions(t, 50_000), 0o755))
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		for _, file := range []string{in, dir} {
			interruptOpen(t, sig, func() (*exec.Cmd, string) {
				must.Do(t, os.RemoveAll(out))
				cmd := exec.Command(exe)
				cmd.Args = []string{"cfi2sframe", "-q", in, "-o", out} // TestMain checks the name
				cmd.Stderr = new(bytes.Buffer)
				return cmd, file
			}, func(cmd *exec.Cmd) {
				if got := cmd.ProcessState.ExitCode(); got != 128+int(sig) {
					t.Errorf("%v with %s open: %v", sig, file, cmd.ProcessState)
				}
				want := "cfi2sframe: " + in + ": interrupted, nothing written\n"
				if got := cmd.Stderr.(*bytes.Buffer).String(); got != want {
					t.Errorf("%v with %s open: stderr %q, want %q", sig, file, got, want)
				}
				if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
					t.Errorf("%v with %s open: %v are left, error %v", sig, file, entries, err)
				}
			})
		}
	}
}

// interruptOpen interrupts a command once it has opened a path. If the command ends before the signal is sent, as on a
// busy machine, it is run again.
func interruptOpen(t *testing.T, sig syscall.Signal, command func() (cmd *exec.Cmd, path string),
	check func(*exec.Cmd)) {
	t.Helper()
	for range 100 {
		cmd, path := command()
		must.Do(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var err error
		for waiting := true; waiting; {
			select {
			case err = <-ended:
				waiting = false
			default:
				if !hasOpen(cmd.Process.Pid, path) {
					time.Sleep(time.Millisecond)
					continue
				}
				_ = cmd.Process.Signal(sig) // it may have ended
				err, waiting = <-ended, false
			}
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			check(cmd)
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Errorf("%v: no run was interrupted", sig)
}

// TestSecondSignal signals cfi2sframe while it waits for the reader of a pipe.
func TestSecondSignal(t *testing.T) {
	exe := must.Get(os.Executable())(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	must.Do(t, syscall.Mkfifo(pipe, 0o600))
	cmd := exec.Command(exe)
	cmd.Args = []string{"cfi2sframe", "-q", filepath.Join(fixtures, "plt"), "-o", pipe}
	tmp := t.TempDir()
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for range 1200 {
		if hasOpen(cmd.Process.Pid, tmp) {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		}
		select {
		case err := <-ended:
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || status.Signaled() &&
				status.Signal() != syscall.SIGTERM {
				t.Errorf("it ended with %v", err)
			}
			if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
				t.Errorf("it left %v, error %v", files, err)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	_ = cmd.Process.Kill() // cannot be ignored
	t.Errorf("it did not end: %v", <-ended)
}

// TestIgnoredSignal starts cfi2sframe with a signal ignored, as under nohup. While cfi2sframe waits for input, this
// signal must have no effect, and another must end the wait.
func TestIgnoredSignal(t *testing.T) {
	exe := must.Get(os.Executable())(t)
	input := must.Get(os.Open(filepath.Join(fixtures, "plt")))(t)
	defer input.Close()
	for sig, ignored := range map[syscall.Signal]bool{syscall.SIGHUP: true, syscall.SIGTERM: false} {
		tmp, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
		cmd := exec.Command("bash", "-c", `trap "" HUP; exec -a cfi2sframe "$0" -q - -o "$1"`, exe, out)
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		stdin := startReading(t, cmd, tmp)
		must.Do(t, cmd.Process.Signal(sig))
		time.Sleep(20 * time.Millisecond)
		if ignored {
			if _, err := io.Copy(stdin, input); err != nil {
				t.Error(err)
			}
			stdin.Close()
		}
		err := cmd.Wait()
		_, missing := os.Stat(out)
		if ignored != (err == nil) || ignored != (missing == nil) {
			t.Errorf("%v: %v, and the output: %v", sig, err, missing)
		}
	}
}

// startReading starts cfi2sframe, and waits until it reads from the returned pipe. cfi2sframe copies the pipe to a file
// in tmp.
func startReading(t *testing.T, cmd *exec.Cmd, tmp string) io.WriteCloser {
	t.Helper()
	stdin := must.Get(cmd.StdinPipe())(t)
	must.Do(t, cmd.Start())
	for i := 0; !hasOpen(cmd.Process.Pid, tmp); i++ {
		if i == 6000 {
			t.Fatal("cfi2sframe does not start to read")
		}
		time.Sleep(10 * time.Millisecond)
	}
	return stdin
}

// hasOpen reports whether a process has path open, or a file in it if path is a directory, even if that file was
// deleted.
func hasOpen(pid int, path string) bool {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(fds, func(fd string) bool {
		to, err := os.Readlink(fd)
		return err == nil && (to == path || strings.HasPrefix(to, path+"/"))
	})
}

// expectRun runs cfi2sframe in this process, checks its exit status and that standard error contains want, and returns
// standard error.
func expectRun(t *testing.T, status int, want string, stdout io.Writer, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	got := run(t.Context(), args, stdout, &stderr)
	if got != status || !strings.Contains(stderr.String(), want) {
		t.Errorf("%q: status %d, %q; want %d, %q", args, got, stderr.String(), status, want)
	}
	return stderr.String()
}
