package step

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// build runs a compiler.
func build(t *testing.T, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "prog")
	peer.Look(t, args[0])
	must.Do(t, kit.Run("", append(args, "-o", out)...))
	return out
}

func lies(t *testing.T, n int) string {
	return build(t, "gcc", "-nostdlib", "-static", fmt.Sprintf("-Wa,--defsym,LIES=%d", n), "testdata/lies_amd64.s")
}

func trace(t *testing.T, opt Options, args ...string) *Report {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	r, status, err := Trace(t.Context(), cmd, opt)
	if err != nil || status != 0 {
		t.Fatalf("%v: exit status %d, %v", args, status, err)
	}
	return r
}

// found formats the findings.
func found(r *Report) []string {
	var s []string
	for _, f := range r.Findings {
		s = append(s, fmt.Sprintf("%s %s +%d..+%d %s: %s; %s; %d",
			f.Side, f.Function, f.Offset, f.Offset+f.Last-f.Begin, f.Wrong, f.Says, f.Truth, f.Steps))
	}
	return s
}

// TestLies expects each wrong rule in the CFI of a program to be reported at the right instructions, and no findings in
// the same program with correct CFI. The expected numbers of steps follow from its source.
func TestLies(t *testing.T) {
	made := Options{Made: []sframe.Version{sframe.V2, sframe.V3}}
	r := trace(t, made, lies(t, 1))
	want := []string{
		// nop, call, and the addition after the return; a wrong CFA also means a wrong RA.
		"CFI liar +4..+10 CFA, RA: CFA rsp+8; the CFA is rsp+32; 3",
		"CFI keeper +6..+7 FP: CFA rsp+16; the caller's rbp is at c-16; 2",
		"CFI epilogue +5..+5 address: CFA rbp+16, rbp *(c-16); the CFA is rsp+8; 1",
	}
	if got := found(r); !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// 8 in _start, 10 in each of two calls to honest, 5 in liar, 5 in keeper, 4 in epilogue.
	if r.Steps != 42 || r.Outermost != 8 || r.Calls != 5 || r.Returns != 5 || r.Unknown != 0 || r.Silent != 0 {
		t.Errorf("%d steps, %d outermost, %d calls, %d returns, %d unknown, %d silent",
			r.Steps, r.Outermost, r.Calls, r.Returns, r.Unknown, r.Silent)
	}
	section := Side{Right: 28, Repeats: 6}
	if r.Sides != [sides]Side{{Right: 28, Wrong: 6}, {}, section, section} {
		t.Errorf("%+v", r.Sides)
	}

	r = trace(t, made, lies(t, 0))
	section = Side{Right: 34}
	if got := found(r); got != nil || r.Sides != [sides]Side{section, {}, section, section} {
		t.Errorf("findings in correct CFI: %v; %+v", got, r.Sides)
	}
}

// TestFault changes a row of a program's section. The CFI is correct, so the section is at fault.
func TestFault(t *testing.T) {
	prog := lies(t, 0)
	must.Do(t, kit.WithProduct(func(program, _ string) error {
		return kit.Run("", program, "-q", "--format", "2", "--in-place", prog)
	}))
	converted := testfile.Read(t, prog)
	r := trace(t, Options{}, prog)
	if r.Faults() != 0 || r.Sides[sframe.V2].Right != 34 {
		t.Errorf("before the change: %+v", r.Sides)
	}
	// A row of the function honest: from offset 1 on, its CFA is SP (bit 0) + 16.
	row := []byte{1, 1 | 1<<1, 16}
	if n := bytes.Count(converted, row); n != 1 {
		t.Fatalf("the row of honest is %d times in the file", n)
	}
	testfile.Write(t, prog, bytes.Replace(converted, row, []byte{1, 1 | 1<<1, 24}, 1)) // keeps the mode
	r = trace(t, Options{}, prog)
	want := []string{"SFrame V2 honest +1..+10 CFA, RA: CFA rsp+24; the CFA is rsp+16; 16"}
	if got := found(r); !slices.Equal(got, want) || r.Faults() != 16 || r.Sides[0].Wrong != 0 {
		t.Errorf("found %q, want %q; %d faults, %d wrong", got, want, r.Faults(), r.Sides[0].Wrong)
	}
}

// TestJumps steps through longjmp, signal handlers, faults, other stacks and threads, where the CFI is correct.
func TestJumps(t *testing.T) {
	prog := build(t, "gcc", "-O2", "-pthread", "testdata/jumps.c")
	r := trace(t, Options{Entry: true}, prog, "1")
	for _, f := range r.Findings {
		if f.File == prog || f.Side != "CFI" {
			t.Errorf("%+v", f)
		}
	}
	// In the source: 5 + 3 + 5 + 3 signals, 4 threads and the main thread, 10 + 3 + 3 jumps. Three jumps lead to the
	// other stack.
	if r.Signals != 16 || r.Threads != 5 || r.Jumps < 13 || r.Target == 0 || r.Switches < 11+6 {
		t.Errorf("%d signals, %d threads, %d jumps, %d steps that say where, %d switches",
			r.Signals, r.Threads, r.Jumps, r.Target, r.Switches)
	}
	if lost := r.Unknown; lost*100 > r.Steps {
		t.Errorf("the frame is unknown in %d of %d steps", lost, r.Steps)
	}
}

// TestRealigned runs functions that realign their stack. At the end of each function, GCC's CFI is wrong, and the V3
// row is correct.
func TestRealigned(t *testing.T) {
	for _, level := range []string{"-O0", "-O2", "-Os"} {
		r := trace(t, Options{Made: []sframe.Version{sframe.V3}, Entry: true},
			build(t, "gcc", level, "-mforce-drap", "-Wno-psabi", "testdata/realign.c"))
		wrong := make(map[string]bool)
		for _, f := range r.Findings {
			if f.Side != "CFI" {
				t.Errorf("%s: %+v", level, f)
			}
			wrong[f.Function] = true
		}
		for _, name := range []string{"many", "tail", "variadic", "sized"} {
			if !wrong[name] {
				t.Errorf("%s: the CFI of %s is correct: does this GCC describe the epilogue?", level, name)
			}
		}
		if v3 := r.Sides[sframe.V3]; v3.Repeats > 0 || v3.Right < r.Sides[0].Right+150 {
			t.Errorf("%s: V3 %+v, CFI %+v", level, v3, r.Sides[0])
		}
	}
}

// TestRetpoline steps through the PLTs that lld -z retpolineplt writes: their stubs jump by call and ret. V3 has no row
// at the ret.
func TestRetpoline(t *testing.T) {
	peer.Look(t, "ld.lld")
	for _, mode := range []string{"lazy", "now"} {
		r := trace(t, Options{Made: []sframe.Version{sframe.V3}, Entry: true},
			build(t, "gcc", "-fuse-ld=lld", "-Wl,-z,retpolineplt,-z,"+mode, "testdata/retpoline.c"))
		cfi, v3 := r.Sides[0], r.Sides[sframe.V3]
		if v3.Wrong+v3.Repeats+v3.Gaps > 0 || v3.Right < cfi.Right+6 {
			t.Errorf("-z %s: V3 %+v, CFI %+v", mode, v3, cfi)
		}
	}
}
