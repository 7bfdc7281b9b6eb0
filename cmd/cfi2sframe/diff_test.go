package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/testkit/peer"
)

// cc makes a program of a source file in a folder, with the given flags, and returns its path.
func cc(t *testing.T, source, name string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	b, err := exec.Command(peer.Look(t, "gcc"), append(flags, source, "-lm", "-o", out)...).CombinedOutput()
	if err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	return out
}

// withSFrame converts a file, and returns the result's path.
func withSFrame(t *testing.T, in string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(in))
	var stderr bytes.Buffer
	if status := run(t.Context(), append(flags, "-q", "--force", in, "-o", out), &stderr, &stderr); status != exitDone {
		t.Fatalf("status %d\n%s", status, stderr.String())
	}
	return out
}

// diffed returns the difference of two files, and expects the same of it as text.
func diffed(t *testing.T, old, new string, flags ...string) *report.Diff {
	t.Helper()
	var stdout, stderr, text bytes.Buffer
	status := run(t.Context(), append([]string{"diff", "--report", "json", old, new}, flags...), &stdout, &stderr)
	if stdout.Len() == 0 {
		t.Fatalf("status %d\n%s", status, stderr.String())
	}
	d := &report.Diff{}
	if err := json.Unmarshal(stdout.Bytes(), d); err != nil {
		t.Fatal(err)
	}
	textStatus := run(t.Context(), append([]string{"diff", "-v", old, new}, flags...), &text, &stderr)
	if want := map[bool]int{true: 0, false: 1}[d.Same]; status != want || textStatus != want || stderr.Len() > 0 {
		t.Errorf("status %d and %d; want %d\n%s", status, textStatus, want, stderr.String())
	}
	if d.Same != strings.Contains(text.String(), "no difference") ||
		strings.Count(text.String(), " at 0x")+strings.Count(text.String(), " at .") < len(d.Changes) {
		t.Errorf("as text it is\n%s", text.String())
	}
	return d
}

// kinds returns the kinds of changes by function.
func kinds(d *report.Diff) map[string]string {
	all := make(map[string]string)
	for _, c := range d.Changes {
		all[c.Function] = c.Kind
	}
	return all
}

const before = `
#include <math.h>
#include <stdlib.h>
__attribute__((noipa)) int leaf(int x) { return x * 3; }
__attribute__((noipa)) int calls(int x) { return leaf(x) + abs(leaf(x + 1)); }
__attribute__((noipa)) int gone(int x) { return leaf(x) - 5; }
__attribute__((noipa)) static int hidden(int x) { return calls(x) + leaf(x) + 1; }
int main(int argc, char **argv) { return calls(argc) + gone(argc) + hidden(argc); }
`

// after has a new function in front, by which all code moves; calls has a frame that is larger, gone another name, and
// leaf more code in one row.
const after = `
#include <math.h>
#include <stdlib.h>
__attribute__((noipa)) int fresh(int x, int *p) { volatile int a[20]; a[x] = x; *p = a[x + 1]; return rand() + *p; }
__attribute__((noipa)) int leaf(int x) { return (x * 3) ^ (x >> 2) ^ (x * 77 + 12345); }
__attribute__((noipa)) int calls(int x) { volatile int a[50]; a[x] = x; return leaf(x) + abs(leaf(x + a[1])) + a[2]; }
__attribute__((noipa)) int went(int x) { return leaf(x) - 5; }
__attribute__((noipa)) static int hidden(int x) { return calls(x) + leaf(x) + 1; }
int main(int argc, char **argv) { int y; return calls(argc) + went(argc) + hidden(argc) + fresh(argc, &y); }
`

// TestDiffRebuilt compares a program with what becomes of it after a change of its source, of which it is known which
// functions it concerns.
func TestDiffRebuilt(t *testing.T) {
	dir := t.TempDir()
	programs := make([]string, 2)
	for i, text := range []string{before, after} {
		source := filepath.Join(dir, fmt.Sprintf("%d.c", i))
		if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		programs[i] = withSFrame(t, cc(t, source, "prog", "-O1", "-fno-inline", "-fcf-protection=none"))
	}
	d := diffed(t, programs[0], programs[1])
	got := kinds(d)
	for name, want := range map[string]string{
		"fresh": report.ChangeNew, "gone": report.ChangeOld, "went": report.ChangeNew, "calls": report.ChangeRows,
		"leaf":   report.ChangeOffsets,
		"hidden": "", "_start": "",
	} {
		if got[name] != want {
			t.Errorf("%s is %q; want %q", name, got[name], want)
		}
	}
	if d.Same || d.SameCode || d.Functions.Same < 2 || d.Functions.Rows == 0 {
		t.Errorf("%+v", d)
	}
	// The other way round it is the opposite.
	back := kinds(diffed(t, programs[1], programs[0]))
	if back["fresh"] != report.ChangeOld || back["gone"] != report.ChangeNew || back["calls"] != report.ChangeRows {
		t.Errorf("the other way round it is %v", back)
	}
	// Without symbols there is nothing to match by but the rows.
	strip := peer.Look(t, "strip")
	stripped := make([]string, 2)
	for i, p := range programs {
		stripped[i] = filepath.Join(dir, fmt.Sprint("stripped", i))
		if b, err := exec.Command(strip, "-o", stripped[i], p).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
	}
	if d := diffed(t, programs[0], stripped[0]); !d.Same || !d.SameCode {
		t.Errorf("stripped it is not the same: %+v", d)
	}
	if s := diffed(t, stripped[0], stripped[1]); s.Same || s.SameCode || s.Functions.Same < 2 {
		t.Errorf("without symbols: %+v", s.Functions)
	}
}
