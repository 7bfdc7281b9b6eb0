//go:build linux && amd64

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// lies builds a program whose CFI is wrong if n is 1.
func lies(t *testing.T, n string) string {
	out := filepath.Join(t.TempDir(), "prog")
	const source = "../../step/testdata/lies_amd64.s"
	cmd := exec.Command(peer.Look(t, "gcc"), "-nostdlib", "-static", "-Wa,--defsym,LIES="+n, "-o", out, source)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

func TestRun(t *testing.T) {
	bad, good := lies(t, "1"), lies(t, "0")
	file := filepath.Join(t.TempDir(), "report")
	for _, c := range []struct {
		name   string
		args   []string
		status int
		want   []string // in what it prints
		not    string
	}{
		{"lies", []string{bad}, 1, []string{
			"42 steps", "right in 28, wrong in 6", "liar of " + bad + ", CFI:",
			"3 steps: wrong CFA, RA; it says CFA rsp+8; the CFA is rsp+32",
			"keeper of", "epilogue of", "exit status: 0"}, "honest of"},
		{"no lies", []string{good}, 0, []string{"right in 34, wrong in 0", "exit status: 0"}, " of " + good},
		{"both formats", []string{"--made", "2,3", bad}, 1, []string{
			"SFrame V2: right in 28, repeats the CFI's errors in 6, wrong by itself in 0", "SFrame V3: right in 28"},
			"SFrame V1"},
		{"some steps", []string{"--steps", "10", bad}, 0, []string{"10 steps on amd64"}, "liar"},
		{"the program's status", []string{"/bin/sh", "-c", "exit 7"}, 0, []string{"exit status: 7"}, "%!"},
		{"a signal", []string{"/bin/sh", "-c", "kill -9 $$"}, 0, []string{"exit status: 137"}, "%!"},
		{"from the entry point", []string{"--entry", good}, 0, []string{"42 steps"}, " of " + good},
		{"no program", nil, 2, []string{"no program to run"}, "steps"},
		{"not there", []string{"/nowhere/prog"}, 2, []string{"/nowhere/prog"}, "steps"},
		{"no such flag", []string{"--lies"}, 2, []string{"--lies", "cfi-step --help"}, "steps"},
		{"no such version", []string{"--made", "4", good}, 2, []string{"not 1, 2 or 3"}, "steps on"},
		{"no directory", []string{"-o", "/nowhere/report", good}, 2, []string{"/nowhere"}, "%!"},
		{"file", []string{"-o", file, bad}, 1, nil, "steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := run(c.args, &out, &errs); status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			got := out.String() + errs.String()
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in\n%s", w, got)
				}
			}
			if strings.Contains(got, c.not) {
				t.Errorf("%q is in\n%s", c.not, got)
			}
		})
	}
	if b, err := os.ReadFile(file); err != nil || !bytes.Contains(b, []byte("liar of")) {
		t.Errorf("the file has %q, %v", b, err)
	}
}

// TestHelp expects the parts of a manual page in the help, and each flag.
func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run([]string{"--help"}, &out, &errs); status != 0 || errs.Len() > 0 {
		t.Errorf("exit status %d, %q", status, errs.String())
	}
	at := 0
	for _, w := range []string{"Usage: cfi-step [FLAG...] PROGRAM", "Flags:", "--steps N", "--entry",
		"--made VERSIONS", "--report-file FILE", "--help", "Exit status:\n  0 ",
		"Examples:"} {
		i := strings.Index(out.String()[at:], w)
		if i < 0 {
			t.Fatalf("%q is missing, or in another place", w)
		}
		at += i
	}
}
