package faults

import (
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/peer"
)

// prepared returns a harness whose failures are errors of the test.
func prepared(t *testing.T) *harness {
	t.Helper()
	for _, name := range []string{"as", "ar", "cp", "setfattr"} {
		peer.Look(t, name)
	}
	h, err := newHarness(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h.tell = func(s string) { t.Error(s) }
	if _, err := h.trace(&scenario{args: "--version"}, h.dir, nil, nil); err != nil { // machines may forbid tracing
		peer.Missing(t, err.Error())
	}
	return h
}

// TestSystemCalls lets each system call on files of a run fail once, and kills cfi2sframe at each.
// scripts/lab faults does that for all modes.
func TestSystemCalls(t *testing.T) {
	long.Test(t)
	h := prepared(t)
	s := named("report file")
	if err := h.prepare([]*scenario{s}); err != nil {
		t.Fatal(err)
	}
	for i := range faults {
		f := &faults[i]
		if f.name == "EIO" || f.name == "end of file" || f.signals != nil || strings.HasPrefix(f.name, "no ") {
			if err := h.failEach(s, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	failed := h.runs
	moments, left, err := h.killEach(s)
	if err != nil {
		t.Fatal(err)
	}
	if failed < 100 || moments < 100 || left > 6 {
		t.Errorf("%d system calls failed, and %d kills left %d second names", failed, moments, left)
	}
}

// TestOtherNames has a disk that fails when the tool looks which names a file has: no name keeps the old file without
// an error.
func TestOtherNames(t *testing.T) {
	h := prepared(t)
	s := named("three files, two names of one")
	if err := h.prepare([]*scenario{s}); err != nil {
		t.Fatal(err)
	}
	f := &fault{name: "EIO", action: action{fail: unix.EIO}, calls: []string{"newfstatat", "fstat"}}
	if err := h.failEach(s, f); err != nil {
		t.Fatal(err)
	}
	if h.runs < 50 {
		t.Errorf("%d calls failed", h.runs)
	}
}

// TestSyncOrder checks the order of system calls: a file is synced before it replaces another one, and its directory
// afterwards. A new file need not be.
func TestSyncOrder(t *testing.T) {
	h := prepared(t)
	for name, want := range map[string][]string{
		"in place":          {"fsync", "linkat", "renameat", "fsync"},
		"existing output":   {"fsync", "linkat", "renameat", "fsync"},
		"in place, no sync": {"linkat", "renameat"},
		"new output":        {"linkat"},
		"three files, two names of one": {
			"fsync", "fsync", "fsync", // all files first
			"linkat", "renameat", "linkat", "renameat", "linkat", "renameat", "linkat", "renameat",
			"fsync", // of the directory, once
		},
	} {
		s := named(name)
		if err := h.prepare([]*scenario{s}); err != nil {
			t.Fatal(err)
		}
		var got []string
		if _, _, err := h.run(s, nil, func(c *call) {
			if slices.Contains([]string{"fsync", "linkat", "renameat", "unlinkat"}, c.name) {
				got = append(got, c.name)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if err := os.RemoveAll(s.template); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJudge checks runs with and without mistakes.
func TestJudge(t *testing.T) {
	s := &scenario{
		before: map[string]string{"p": "old", "report": "old", "m": "same"},
		after:  map[string]string{"p": "new", "report": "new", "m": "same"},
		stdout: "all",
	}
	old, done := maps.Clone(s.before), maps.Clone(s.after)
	with := func(m map[string]string, name, what string) map[string]string {
		m = maps.Clone(m)
		m[name] = what
		if what == "" {
			delete(m, name)
		}
		return m
	}
	exit := func(status int) syscall.WaitStatus { return syscall.WaitStatus(status << 8) }
	for _, tt := range []struct {
		name           string
		status         syscall.WaitStatus
		stdout, stderr string
		now            map[string]string
		harmless, ok   bool
	}{
		{"all is done", exit(0), "all", "", done, true, true},
		{"nothing is done", exit(1), "", "cfi2sframe: p: no", old, false, true},
		{"the report failed", exit(1), "",
			"cfi2sframe: files that are replaced nevertheless: 1", with(done, "report", "old"), false, true},
		{"nothing is done, and nothing said", exit(0), "all", "", old, false, false},
		{"half is done", exit(0), "all", "", with(done, "p", "old"), false, false},
		{"the report is not the same", exit(0), "al", "", done, false, false},
		{"harmless, but it fails", exit(1), "", "cfi2sframe: p: no", old, true, false},
		{"all is done, and it fails", exit(1), "all", "cfi2sframe: p: no", done, false, false},
		{"a report on what is not done", exit(1), "", "cfi2sframe: p: no", with(done, "p", "old"), false, false},
		{"no message", exit(1), "", "", old, false, false},
		{"a panic", exit(2), "", "panic", old, false, false},
		{"a signal", syscall.WaitStatus(11), "", "", old, false, false},
		{"something is left", exit(1), "", "cfi2sframe: p: no", with(old, prefix+"1", "new"), false, false},
		{"something is left, and named", exit(1), "",
			"cfi2sframe: p: no; " + prefix + "1 is left behind", with(old, prefix+"1", "new"), false, true},
		{"a broken file", exit(1), "", "cfi2sframe: p: no", with(old, "p", "half"), false, false},
		{"a broken input", exit(0), "all", "", with(done, "m", "half"), false, false},
		{"a file is gone", exit(1), "", "cfi2sframe: p: no", with(old, "p", ""), false, false},
	} {
		out := &outcome{status: tt.status, stdout: tt.stdout, stderr: tt.stderr}
		err := s.judge(&fault{harmless: tt.harmless}, out, tt.now)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestJudgeSignals checks runs that ended by a signal.
func TestJudgeSignals(t *testing.T) {
	s := &scenario{before: map[string]string{"p": "old"}, after: map[string]string{"p": "new"}}
	one, two := []syscall.Signal{syscall.SIGINT}, []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}
	for _, tt := range []struct {
		name string
		sent []syscall.Signal
		by   syscall.Signal
		now  map[string]string
		ok   bool
	}{
		{"before anything is done", one, syscall.SIGINT, s.before, true},
		{"after a file is replaced", one, syscall.SIGINT, s.after, false},
		{"by the second signal", two, syscall.SIGHUP, s.after, true},
		{"by another signal", two, syscall.SIGSEGV, s.before, false},
		{"a name is left", two, syscall.SIGHUP, map[string]string{"p": "old", prefix + "1": "new"}, false},
	} {
		out := &outcome{status: syscall.WaitStatus(tt.by)}
		if err := s.judge(&fault{action: action{signals: tt.sent}}, out, tt.now); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestHonest checks runs of two files that got a signal.
func TestHonest(t *testing.T) {
	s := &scenario{before: map[string]string{"p": "old", "q": "old"}, after: map[string]string{"p": "new", "q": "new"}}
	half := map[string]string{"p": "new", "q": "old"}
	const said = "cfi2sframe: q: interrupted, nothing written"
	for _, tt := range []struct {
		name    string
		status  int
		stderr  string
		signals []syscall.Signal
		now     map[string]string
		ok      bool
	}{
		{"half is done", 130, said, []syscall.Signal{syscall.SIGINT}, half, true},
		{"nothing is done", 130, "cfi2sframe: p: interrupted, nothing written\n" + said,
			[]syscall.Signal{syscall.SIGINT}, s.before, true},
		{"by the second signal", 129, said, []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP}, half, true},
		{"it failed before", 1, "cfi2sframe: q: no", []syscall.Signal{syscall.SIGINT}, half, true},
		{"no signal came", 130, said, nil, half, false},
		{"another signal came", 130, said, []syscall.Signal{syscall.SIGTERM}, half, false},
		{"another status", 3, said, []syscall.Signal{syscall.SIGINT}, half, false},
		{"all is done", 130, said, []syscall.Signal{syscall.SIGINT}, s.after, false},
		{"not a word of it", 130, "cfi2sframe: q: no", []syscall.Signal{syscall.SIGINT}, half, false},
		{"another file is named", 130, "cfi2sframe: p: interrupted, nothing written",
			[]syscall.Signal{syscall.SIGINT}, half, false},
	} {
		f := &fault{action: action{signals: tt.signals}}
		err := s.honest(f, &outcome{status: syscall.WaitStatus(tt.status << 8), stderr: tt.stderr}, tt.now)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
