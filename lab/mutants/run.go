package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// A stage is a part of a package's tests, run by one command.
type stage struct {
	pkg     string
	run     string // a regular expression, or "" for all
	skip    string
	timeout time.Duration
}

// A bench compiles and runs tests.
type bench struct {
	ctx  context.Context // of the whole run
	dir  string          // scratch
	root string          // of the module
	env  []string
}

// compile makes the test program of a package with the files of an overlay, "" for none.
func (b *bench) compile(pkg, overlay, out string) error {
	// Without the tables for debuggers, which take half of the time.
	args := []string{"test", "-c", "-vet=off", "-p=1", "-ldflags=-s -w", "-o", out}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(b.ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir, cmd.Env = b.root, b.env
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the tests of %s: %w\n%s", pkg, err, text)
	}
	return nil
}

// limit bounds the address space of tests, in KiB: a change may have them ask for memory without end.
const limit = 12 << 20

// execute runs a test program in its package's folder, and returns what it printed and whether it took too long.
func (b *bench) execute(program, overlay string, s stage, more ...string) (out []byte, late bool, err error) {
	tmp, err := os.MkdirTemp(b.dir, "tmp-")
	if err != nil {
		return nil, false, err
	}
	defer os.RemoveAll(tmp)
	args := []string{
		"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, limit), program,
		"-test.failfast", "-test.paniconexit0", "-test.timeout=" + s.timeout.String(),
	}
	if s.run != "" {
		args = append(args, "-test.run="+s.run)
	}
	if s.skip != "" {
		args = append(args, "-test.skip="+s.skip)
	}
	// The test program ends itself after its time, with a list of what it was at, unless it cannot.
	ctx, cancel := context.WithTimeout(b.ctx, s.timeout+20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append(args, more...)...)
	cmd.Dir = filepath.Join(b.root, s.pkg)
	cmd.Env = append(slices.Clone(b.env), "TMPDIR="+tmp)
	if overlay != "" { // for tests that build something
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	out, err = cmd.CombinedOutput()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what its tests may have left running
	late = err != nil && (ctx.Err() != nil || bytes.Contains(out, []byte("panic: test timed out")))
	return out, late, err
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: ([^\s/]+)`)

// An outcome is what became of a mutant.
type outcome struct {
	Noticed bool
	How     string  `json:",omitempty"` // failed, crashed, hung
	Package string  `json:",omitempty"` // whose test noticed it
	Test    string  `json:",omitempty"`
	Seconds float64 // that it took
	Sources string  // a sum of all that went into it
}

// try runs the tests of all stages for a mutant, until one fails.
func (b *bench) try(s *source, m *mutant, stages []stage) (outcome, error) {
	dir, err := os.MkdirTemp(b.dir, "mutant-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir)
	changed := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(changed, s.mutated(m), 0o600); err != nil {
		return outcome{}, err
	}
	replace := map[string]string{filepath.Join(b.root, m.File): changed}
	for _, st := range stages {
		// Examples are for readers, and to compile what they use, which may be everything, takes most of the time.
		if name := filepath.Join(b.root, st.pkg, "example_test.go"); exists(name) {
			replace[name] = ""
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return outcome{}, err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return outcome{}, err
	}
	programs := make(map[string]string)
	for _, st := range stages {
		program := programs[st.pkg]
		if program == "" {
			program = filepath.Join(dir, strings.ReplaceAll(st.pkg, "/", "-")+".test")
			if err := b.compile(st.pkg, overlay, program); err != nil {
				return outcome{}, fmt.Errorf("%s: %w", m, err)
			}
			programs[st.pkg] = program
		}
		out, late, err := b.execute(program, overlay, st)
		if err == nil {
			continue
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) && !late {
			return outcome{}, fmt.Errorf("%s: %w", m, err)
		}
		o := outcome{Noticed: true, How: "crashed", Package: st.pkg}
		if f := failed.FindSubmatch(out); f != nil {
			o.How, o.Test = "failed", string(f[1])
		}
		if late {
			o.How = "hung"
		}
		return o, nil
	}
	return outcome{}, nil
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// A pace says how long each test of a package takes when nothing is changed.
type pace struct {
	Sources string
	Tests   map[string]float64
}

var took = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)

// measure runs the tests of a package that nothing is changed in; they have to pass.
func (b *bench) measure(pkg, run string, timeout time.Duration) (map[string]float64, error) {
	program := filepath.Join(b.dir, "plain.test")
	if err := b.compile(pkg, "", program); err != nil {
		return nil, err
	}
	defer os.Remove(program)
	out, _, err := b.execute(program, "", stage{pkg: pkg, run: run, timeout: timeout}, "-test.v")
	if err != nil {
		return nil, fmt.Errorf("the tests of %s fail with nothing changed: %w\n%s", pkg, err, out)
	}
	tests := make(map[string]float64)
	for _, f := range took.FindAllSubmatch(out, -1) {
		var seconds float64
		if _, err := fmt.Sscan(string(f[3]), &seconds); err != nil {
			return nil, err
		}
		tests[string(f[2])] = seconds
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("%s has no tests", pkg)
	}
	return tests, nil
}

// parts divides a package's tests into those that are quick and the others, those above the bound left out.
func parts(pkg, run string, tests map[string]float64, bound float64) []stage {
	const quick = 0.4
	var slow, left []string
	sum, rest := 0.0, 0.0
	for name, t := range tests {
		switch {
		case t > bound:
			left = append(left, name)
		case t > quick:
			slow = append(slow, name)
			rest += t
		default:
			sum += t
		}
	}
	all := []stage{{pkg: pkg, run: run, skip: names(append(left, slow...)), timeout: patience(sum)}}
	if len(slow) > 0 {
		all = append(all, stage{pkg: pkg, run: names(slow), timeout: patience(rest)})
	}
	return all
}

// patience says how long tests may take that usually take so many seconds.
func patience(seconds float64) time.Duration { return time.Duration(30+8*seconds) * time.Second }

// names returns the regular expression for the tests, or "" for none.
func names(tests []string) string {
	if len(tests) == 0 {
		return ""
	}
	slices.Sort(tests)
	return "^(" + strings.Join(tests, "|") + ")$"
}
