package step

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
)

// build runs a compiler.
func build(t *testing.T, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	if b, err := exec.Command(peer.Look(t, args[0]), append(args[1:], "-o", out)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, b)
	}
	return out
}

func lies(t *testing.T, n int) string {
	return build(t, "gcc", "-nostdlib", "-static", fmt.Sprintf("-Wa,--defsym,LIES=%d", n), "testdata/lies_amd64.s")
}

func trace(t *testing.T, opt Options, args ...string) *Report {
	t.Helper()
	opt.CPU = -1
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	r, status, err := Trace(cmd, opt)
	if err != nil || status != 0 {
		t.Fatalf("%v: exit status %d, %v", args, status, err)
	}
	return r
}

// found returns what a report has of functions, as text.
func found(r *Report) []string {
	var s []string
	for _, f := range r.Functions {
		for _, p := range f.Places {
			s = append(s, fmt.Sprintf("%s %s +%d..+%d %s: %s; %s; %d %d", f.Side, f.Name, p.Offset, p.Offset+p.Last-p.Begin, p.What, p.Says, p.Truth, p.Steps, p.Confirmed))
		}
	}
	return s
}

// TestLies expects each lie of a program to be found at its instructions, no other one, and none in the same program with CFI that is
// right. The steps are those that one counts in the source.
func TestLies(t *testing.T) {
	made := Options{Made: []sframe.Version{sframe.V2, sframe.V3}}
	r := trace(t, made, lies(t, 1))
	want := []string{
		// nop and call, and after the return of that the addition; the lie about the CFA is one about RA, too.
		"CFI liar +4..+10 CFA, RA: CFA rsp+8; the CFA is rsp+32; 3 3",
		"CFI keeper +6..+7 FP: CFA rsp+16; the caller's rbp is at c-16; 2 2",
		"CFI epilogue +5..+5 address: CFA rbp+16, rbp *(c-16); the CFA is rsp+8; 1 1",
	}
	if got := found(r); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// 8 of _start, two times 10 of honest, 5 of liar, 5 of keeper, 4 of epilogue.
	if r.Steps != 42 || r.Outermost != 8 || r.Right != 42-8-6 || r.Wrong() != 6 || r.Calls != 5 || r.Returns != 5 || r.Unknown != 0 || r.Silent != 0 {
		t.Errorf("%d steps, %d outermost, %d right, %d wrong, %d calls, %d returns, %d unknown, %d silent",
			r.Steps, r.Outermost, r.Right, r.Wrong(), r.Calls, r.Returns, r.Unknown, r.Silent)
	}
	for _, s := range r.Sections[1:] {
		if s.Right != 28 || s.Repeats != 6 || s.Faults != 0 || s.Gaps != 0 {
			t.Errorf("V%d: %+v", s.Version, s)
		}
	}

	r = trace(t, made, lies(t, 0))
	if got := found(r); got != nil || r.Right != 34 || r.Sections[1].Right != 34 || r.Sections[2].Right != 34 || r.Sections[0].Right != 0 {
		t.Errorf("found in CFI that is right: %v; %d right; %+v", got, r.Right, r.Sections)
	}
}

// TestFault changes a row of the section in a program: the CFI is right, and so it is the section's fault.
func TestFault(t *testing.T) {
	prog := lies(t, 0)
	in, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := convert.Convert(context.Background(), bytes.NewReader(in), int64(len(in)), &out, convert.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(prog, out.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	r := trace(t, Options{}, prog)
	if r.Faults() != 0 || r.Sections[1].Right != 34 {
		t.Errorf("before the change: %+v", r.Sections)
	}
	// From +1 on, the CFA of honest is SP (bit 0) + 16.
	row := []byte{1, 1 | 1<<1, 16}
	if n := bytes.Count(out.Bytes(), row); n != 1 {
		t.Fatalf("the row of honest is %d times in the file", n)
	}
	if err := os.WriteFile(prog, bytes.Replace(out.Bytes(), row, []byte{1, 1 | 1<<1, 24}, 1), 0o755); err != nil {
		t.Fatal(err)
	}
	r = trace(t, Options{}, prog)
	want := []string{"SFrame V2 honest +1..+10 CFA, RA: CFA rsp+24; the CFA is rsp+16; 16 16"}
	if got := found(r); !slices.Equal(got, want) || r.Faults() != 16 || r.Wrong() != 0 {
		t.Errorf("found %q, expected %q; %d faults, %d wrong", got, want, r.Faults(), r.Wrong())
	}
}

// TestJumps follows longjmp, signal handlers, faults, other stacks and threads: the CFI of a compiler is right there, too.
func TestJumps(t *testing.T) {
	prog := build(t, "gcc", "-O2", "-pthread", "../stepping/testdata/jumps.c")
	r := trace(t, Options{From: prog}, prog, "1")
	for _, f := range r.Functions {
		if f.File == prog || f.Side != "CFI" {
			t.Errorf("%s %s", f.Name, f.Side)
		}
	}
	// In the source: 5 + 3 + 5 + 3 signals, 4 threads and the first one, 10 + 3 + 3 jumps, of which three lead to the other stack.
	if r.Signals != 16 || r.Threads != 5 || r.Jumps < 13 || r.Target == 0 || r.Switches < 11+6 {
		t.Errorf("%d signals, %d threads, %d jumps, %d steps that say where, %d switches", r.Signals, r.Threads, r.Jumps, r.Target, r.Switches)
	}
	if lost := r.Unknown; lost*100 > r.Steps {
		t.Errorf("nothing is known of %d of %d steps", lost, r.Steps)
	}
}

// TestExceptions follows an unwinder to the handlers.
func TestExceptions(t *testing.T) {
	prog := build(t, "g++", "-O2", "../stepping/testdata/throws.cc")
	r := trace(t, Options{From: prog, Steps: 300000, Made: []sframe.Version{sframe.V3}}, prog, "1000000")
	if r.Steps != 300000 || r.Jumps < 10 || r.Faults() != 0 {
		t.Errorf("%d steps, %d jumps, %d faults", r.Steps, r.Jumps, r.Faults())
	}
	for _, f := range r.Functions {
		if f.File == prog || strings.Contains(f.File, "libstdc++") {
			t.Errorf("%s of %s: %+v", f.Name, f.File, f.Places)
		}
	}
}

// TestNotAProgram expects errors that say what is wrong.
func TestNotAProgram(t *testing.T) {
	if _, _, err := Trace(exec.Command("/nowhere"), Options{CPU: -1}); err == nil {
		t.Error("a program that is not there was followed")
	}
	prog := lies(t, 0)
	_, _, err := Trace(exec.Command(prog), Options{CPU: -1, From: "/bin/sh"})
	if err == nil || !strings.Contains(err.Error(), "does not load it") {
		t.Errorf("entry point of another program: %v", err)
	}
}
