package faults

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// newTestHarness returns a harness whose failures fail the test.
func newTestHarness(t *testing.T) *harness {
	t.Helper()
	for _, name := range []string{"as", "ar", "cp", "setfattr"} {
		peer.Look(t, name)
	}
	h := must.Get(newHarness(t.TempDir()))(t)
	h.tell = func(s string) { t.Error(s) }
	if _, err := h.trace(&scenario{args: "--version"}, h.dir, nil, nil); err != nil { // the system may forbid tracing
		peer.Missing(t, err.Error())
	}
	return h
}

// TestOtherNames makes each stat call fail, including those that find the other names of a file. If a name still refers
// to the old file, an error must be reported.
func TestOtherNames(t *testing.T) {
	h := newTestHarness(t)
	s := named("three files, one with two names")
	must.Do(t, h.prepare([]*scenario{s}))
	f := &fault{name: "EIO", action: action{fail: unix.EIO}, calls: []string{"newfstatat", "fstat"}}
	must.Do(t, h.failEach(s, f))
	if h.runs < 50 {
		t.Errorf("%d calls failed", h.runs)
	}
}

// TestLinksInterrupted interrupts a run at each system call, also twice. The names of one file must not be parted.
func TestLinksInterrupted(t *testing.T) {
	h := newTestHarness(t)
	s := named("three files, one with two names")
	must.Do(t, h.prepare([]*scenario{s}))
	for _, signals := range [][]syscall.Signal{{syscall.SIGTERM}, {syscall.SIGTERM, syscall.SIGHUP}} {
		f := &fault{action: action{signals: signals}}
		for nth := 0; ; nth++ {
			hit, _, _, err := h.runWithFault(s, nth, f, nil)
			if must.Do(t, err); hit == "" {
				break
			}
			p := must.Get(os.Stat(filepath.Join(h.dir, "run", "p")))(t)
			if q := must.Get(os.Stat(filepath.Join(h.dir, "run", "q")))(t); !os.SameFile(p, q) {
				t.Errorf("%v at %s: the names are parted", signals, hit)
			}
		}
	}
}

// TestSyncOrder checks the order of system calls: a file is synced before it replaces another, and its directory after
// that. New files need no sync. Several files are replaced concurrently, so that their calls are sorted.
func TestSyncOrder(t *testing.T) {
	h := newTestHarness(t)
	for name, want := range map[string][]string{
		"in place":          {"fsync", "linkat", "renameat", "fsync"},
		"existing output":   {"fsync", "linkat", "renameat", "fsync"},
		"in place, no sync": {"linkat", "renameat"},
		"new output":        {"linkat"},
		"three files, one with two names": {
			"fsync", "fsync", "fsync", "linkat", "linkat", "linkat", "linkat",
			"renameat", "renameat", "renameat", "renameat",
			"fsync", // the directory, once
		},
	} {
		s := named(name)
		must.Do(t, h.prepare([]*scenario{s}))
		var got []string
		if _, _, err := h.run(s, nil, func(c *call) {
			if slices.Contains([]string{"fsync", "linkat", "renameat", "unlinkat"}, c.name) {
				got = append(got, c.name)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) == len(want) && name == "three files, one with two names" {
			slices.Sort(got[:len(got)-1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		must.Do(t, os.RemoveAll(s.template))
	}
}

// TestJudge judges correct and incorrect runs.
func TestJudge(t *testing.T) {
	type states = map[string]string
	s := &scenario{
		before: states{"p": "old", "report": "old", "m": "same"},
		after:  states{"p": "new", "report": "new", "m": "same"},
		stdout: "all",
	}
	two := &scenario{before: states{"p": "old", "q": "old"}, after: states{"p": "new", "q": "new"}}
	half := states{"p": "new", "q": "old"}
	with := func(m states, name, what string) states {
		m = maps.Clone(m)
		m[name] = what
		if what == "" {
			delete(m, name)
		}
		return m
	}
	const said, interrupted = "cfi2sframe: p: no", "cfi2sframe: q: interrupted, nothing written"
	done, interrupt := fault{harmless: true}, fault{action: action{signals: []syscall.Signal{syscall.SIGINT}}}
	twice := fault{action: action{signals: []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}}}
	for _, tt := range []struct {
		name           string
		s              *scenario
		fault          fault
		status         int // exit status, or a negative signal
		stdout, stderr string
		now            states
		ok             bool
	}{
		{"success", s, done, 0, "all", "", s.after, true},
		{"failure, nothing written", s, fault{}, 1, "", said, s.before, true},
		{"the report failed", s, fault{}, 1, "", "cfi2sframe: files replaced despite the error: 1",
			with(s.after, "report", "old"), true},
		{"status 0, nothing written", s, fault{}, 0, "all", "", s.before, false},
		{"status 0, one file not written", s, fault{}, 0, "all", "", with(s.after, "p", "old"), false},
		{"a truncated report", s, fault{}, 0, "al", "", s.after, false},
		{"failure despite a harmless fault", s, done, 1, "", said, s.before, false},
		{"failure, all written", s, fault{}, 1, "all", said, s.after, false},
		{"failure, only the report written", s, fault{}, 1, "", said, with(s.after, "p", "old"), false},
		{"no message", s, fault{}, 1, "", "", s.before, false},
		{"a panic", s, fault{}, 2, "", "panic", s.before, false},
		{"a signal", s, fault{}, -11, "", "", s.before, false},
		{"a temporary file remains", s, fault{}, 1, "", said, with(s.before, prefix+"1", "new"), false},
		{"a named temporary file remains", s, fault{}, 1, "",
			said + "; cannot remove the temporary file " + prefix + "1", with(s.before, prefix+"1", "new"), true},
		{"a broken file", s, fault{}, 1, "", said, with(s.before, "p", "half"), false},
		{"a broken input", s, fault{}, 0, "all", "", with(s.after, "m", "half"), false},
		{"a missing file", s, fault{}, 1, "", said, with(s.before, "p", ""), false},
		{"ended by the first signal", two, interrupt, -int(syscall.SIGINT), "", "", two.before, false},
		{"ended by the second signal", two, twice, -int(syscall.SIGHUP), "", "", two.after, true},
		{"ended by another signal", two, twice, -int(syscall.SIGSEGV), "", "", two.before, false},
		{"ended by the second signal, a temporary file remains", two, twice, -int(syscall.SIGHUP), "", "",
			with(two.before, prefix+"1", "new"), false},
		{"interrupted, one file written", two, interrupt, 130, "", interrupted, half, true},
		{"interrupted, nothing written", two, interrupt, 130, "",
			"cfi2sframe: p: interrupted, nothing written\n" + interrupted, two.before, true},
		{"status of the second signal", two, twice, 129, "", interrupted, half, true},
		{"failed before the signal", two, interrupt, 1, "", "cfi2sframe: q: no", half, true},
		{"interrupted without a signal", two, fault{}, 130, "", interrupted, half, false},
		{"the status of a different signal", two, twice, 130, "", interrupted, half, false},
		{"an unrelated status", two, interrupt, 3, "", interrupted, half, false},
		{"interrupted, all written", two, interrupt, 130, "", interrupted, two.after, false},
		{"interrupted without a message", two, interrupt, 130, "", "cfi2sframe: q: no", half, false},
		{"interrupted, wrong file named", two, interrupt, 130, "", "cfi2sframe: p: interrupted, nothing written",
			half, false},
	} {
		status := syscall.WaitStatus(tt.status << 8)
		if tt.status < 0 {
			status = syscall.WaitStatus(-tt.status)
		}
		err := tt.s.judge(&tt.fault, &outcome{status: status, stdout: tt.stdout, stderr: tt.stderr}, tt.now)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
