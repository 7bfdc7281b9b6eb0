package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/plain"
)

// An amount holds how much of a file's code is unwindable, and how much of the code that CFI describes is covered.
type amount struct {
	Unwindable, Code, Covered, Described uint64
	PercentUnwindable                    float64 `json:"unwindable_percent"`
	PercentCovered                       float64 `json:"covered_percent"`
	Startup                              uint64  // of without_cfi
}

func (a amount) String() string {
	return fmt.Sprintf("%d of %d bytes (%v %%), %d of %d (%v %%)", a.Unwindable, a.Code, a.PercentUnwindable, a.Covered,
		a.Described, a.PercentCovered)
}

// jsonAmount returns the amount at a path of keys in a command's JSON output.
func jsonAmount(t *testing.T, args []string, keys ...string) (a amount) {
	t.Helper()
	var out bytes.Buffer
	run(t.Context(), args, &out, io.Discard)
	value := json.RawMessage(out.Bytes())
	for _, key := range keys {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(value, &object); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, &out)
		}
		value = object[key]
	}
	if err := json.Unmarshal(value, &a); err != nil {
		t.Fatalf("%q: %v\n%s", args, err, &out)
	}
	return a
}

// headline matches the first line of a text report.
var headline = regexp.MustCompile(`^(.*: )?(\d+\.\d\d %) of the code is unwindable \(([\d,]+) of ([\d,]+) bytes?\)$`)

// coverageLine matches the second line of a text report.
var coverageLine = regexp.MustCompile(`(?m)^  SFrame V\d covers (\d+\.\d\d) % of .* \(([\d,]+) of ([\d,]+) bytes?\)$`)

// textAmount returns the amount in the given line of a command's output.
func textAmount(t *testing.T, line int, args ...string) (a amount, share string) {
	t.Helper()
	var out bytes.Buffer
	run(t.Context(), args, &out, &out)
	lines := strings.Split(out.String(), "\n")
	m := headline.FindStringSubmatch(lines[min(line, len(lines)-1)])
	if m == nil {
		t.Fatalf("%q: no headline in\n%s", args, &out)
	}
	percent := func(s string) float64 {
		return must.Get(strconv.ParseFloat(strings.TrimSuffix(s, " %"), 64))(t)
	}
	number := func(s string) uint64 {
		return must.Get(strconv.ParseUint(strings.ReplaceAll(s, ",", ""), 10, 64))(t)
	}
	a = amount{Unwindable: number(m[3]), Code: number(m[4]), PercentUnwindable: percent(m[2])}
	if c := coverageLine.FindStringSubmatch(out.String()); c != nil {
		a.Covered, a.Described, a.PercentCovered = number(c[2]), number(c[3]), percent(c[1])
	}
	return a, m[2]
}

// TestOneNumber expects the same number for the same file in all reports.
func TestOneNumber(t *testing.T) {
	dir := t.TempDir()
	strip := func(file string) string {
		out := filepath.Join(dir, "stripped-"+filepath.Base(file))
		must.Run(t, exec.Command(peer.Look(t, "strip"), "-o", out, file))
		return out
	}
	files := []string{"/bin/ls", strip(filepath.Join(fixtures, "static"))}
	if !testing.Short() {
		program := filepath.Join(dir, "go")
		if out, err := exec.Command(peer.Look(t, "go"), "build", "-o", program, "../../internal/testdata/outside/row").
			CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files = append(files, "/usr/bin/gdb", program, strip(program))
	}
	for _, name := range []string{
		"drap1", "plt", "static", "undefra", "signal", "padding", "rareg.so", "../s390x/stackclash",
	} {
		files = append(files, filepath.Join(fixtures, name))
	}
	for _, file := range files {
		file := plain.File(t, file)
		for _, format := range []string{"2", "3"} {
			out := filepath.Join(t.TempDir(), "out")
			expectRun(t, exitDone, "", io.Discard, "-q", "--format", format, file, "-o", out)
			want, share := textAmount(t, 0, "--dry-run", "--format", format, file)
			for name, got := range map[string]amount{
				"json":       jsonAmount(t, []string{"--dry-run", "--format", format, "--report", "json", file}),
				"check json": jsonAmount(t, []string{"check", "--report", "json", out}),
			} {
				if got != want {
					t.Errorf("%s, format %s: %s %v; text %v", file, format, name, got, want)
				}
			}
			if want.Described == 0 || want.Covered > want.Described {
				t.Errorf("%s, format %s: %v", file, format, want)
			}
			if got, _ := textAmount(t, 0, "check", out); got != want {
				t.Errorf("%s, format %s: check %v; text %v", file, format, got, want)
			}
			var page bytes.Buffer
			expectRun(t, exitDone, "", &page, "--dry-run", "--format", format, "--report", "html", file)
			if !strings.Contains(page.String(), share) {
				t.Errorf("%s, format %s: the page does not have %s", file, format, share)
			}
		}
	}
}
