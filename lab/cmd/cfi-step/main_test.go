//go:build linux && amd64

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/lab/step"
)

// lies builds a program that lies, or not.
func lies(t *testing.T, n string) string {
	out := filepath.Join(t.TempDir(), "prog")
	cmd := exec.Command(peer.Look(t, "gcc"), "-nostdlib", "-static", "-Wa,--defsym,LIES="+n, "-o", out, "../../step/testdata/lies_amd64.s")
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
			"42 steps", "right in 28, wrong in 6", "liar of " + bad + ", CFI:", "3 steps: wrong CFA, RA; it says CFA rsp+8; the CFA is rsp+32",
			"keeper of", "epilogue of", "exit status: 0"}, "honest of"},
		{"no lies", []string{good}, 0, []string{"right in 34, wrong in 0", "exit status: 0"}, " of " + good},
		{"both formats", []string{"--made", "2,3", bad}, 1, []string{"SFrame V2: right in 28, repeats what is wrong in 6, faults of its own in 0", "SFrame V3: right in 28"}, "SFrame V1"},
		{"some steps", []string{"--steps", "10", bad}, 0, []string{"10 steps on amd64"}, "liar"},
		{"few functions", []string{"--functions", "1", bad}, 1, []string{"liar of", "..."}, "keeper"},
		{"on a processor", []string{"--cpu", "0", good}, 0, []string{"42 steps"}, " of " + good},
		{"the program's status", []string{"/bin/sh", "-c", "exit 7"}, 0, []string{"exit status: 7"}, "%!"},
		{"a signal", []string{"/bin/sh", "-c", "kill -9 $$"}, 0, []string{"exit status: 137"}, "%!"},
		{"from the entry point", []string{"--from", good, good}, 0, []string{"42 steps"}, " of " + good},
		{"no program", nil, 2, []string{"a program to run was expected"}, "steps"},
		{"not there", []string{"/nowhere/prog"}, 2, []string{"/nowhere/prog"}, "steps"},
		{"no such flag", []string{"--lies"}, 2, []string{"--lies", "cfi-step --help"}, "steps"},
		{"no such report", []string{"--report", "xml", good}, 2, []string{"text or json was expected"}, "steps"},
		{"no such version", []string{"--made", "4", good}, 2, []string{"1, 2 or 3 was expected"}, "steps on"},
		{"no such entry point", []string{"--from", bad, good}, 2, []string{"does not load it"}, "%!"},
		{"no folder", []string{"-o", "/nowhere/report", good}, 2, []string{"/nowhere"}, "%!"},
		{"file", []string{"-o", file, bad}, 1, nil, "steps"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			if status := run(c.args, &out, &errs); status != c.status {
				t.Errorf("exit status %d, expected %d", status, c.status)
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

func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if status := run([]string{"--report", "json", lies(t, "1")}, &out, &out); status != 1 {
		t.Errorf("exit status %d", status)
	}
	var r struct {
		step.Report
		Exit *int `json:"exit_status"`
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	if r.Steps != 42 || len(r.Functions) != 3 || r.Functions[0].Name != "liar" || r.Functions[0].Places[0].Offset != 4 || r.Exit == nil || *r.Exit != 0 {
		t.Errorf("%+v", r)
	}
}

// TestHelp expects each flag to be in the help, and the help in the form of a manual: what it is, how it is used, the flags, what the exit
// status means.
func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	if status := run([]string{"--help"}, &out, &errs); status != 0 || errs.Len() > 0 {
		t.Errorf("exit status %d, %q", status, errs.String())
	}
	at := 0
	for _, w := range []string{"cfi-step - ", "Usage: cfi-step [flags] PROGRAM", "Flags:", "--steps N", "--made VERSIONS", "--from FILE", "--report", "--report-file FILE",
		"--functions N", "--cpu N", "--version", "--help", "Exit status: 0", "Examples:"} {
		i := strings.Index(out.String()[at:], w)
		if i < 0 {
			t.Fatalf("%q is not there, or in another place", w)
		}
		at += i
	}
	out.Reset()
	if status := run([]string{"--version"}, &out, &errs); status != 0 || !strings.HasPrefix(out.String(), "cfi-step ") {
		t.Errorf("version: %q", out.String())
	}
}
