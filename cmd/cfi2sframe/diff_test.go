package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/internal/testkit/long"
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

// TestDiffGNU compares the .sframe of GNU as and ld with ours, and expects those functions to be different whose rows
// are as objdump prints them.
func TestDiffGNU(t *testing.T) {
	for _, tt := range []struct{ suite, format string }{{"", "1"}, {"trixie", "2"}} {
		if tt.suite == "" {
			peer.Binutils(t, "2.40")
		}
		dir := peer.Run(t, tt.suite, "gcc -O2 -Wa,--gsframe user.c -lm -o gnu\n", "../../testdata/c/user.c")
		gnu := filepath.Join(dir, "gnu")
		ours := withSFrame(t, gnu, "--format", tt.format, "--share", "off")
		d := diffed(t, gnu, ours)
		if !d.SameCode || d.Same {
			t.Errorf("%s: %+v", tt.suite, d)
		}
		changed := make(map[uint64]bool)
		for _, c := range d.Changes {
			if c.New != nil {
				changed[c.New.Begin] = true
			}
		}
		objdump := peer.Tool(t, tt.suite, "objdump")
		a, masked := rowsOf(t, objdump, gnu)
		b, maskedToo := rowsOf(t, objdump, ours)
		same, different := 0, 0
		for begin, end := range functionsOf(t, gnu) {
			if slices.ContainsFunc(append(masked, maskedToo...),
				func(pc uint64) bool { return begin <= pc && pc < end }) {
				continue // whose blocks objdump does not print
			}
			want := false
			for pc := begin; pc < end; pc++ {
				want = want || a[pc] != b[pc]
			}
			if want != changed[begin] {
				t.Errorf("%s: function at %#x: different is %t, by objdump it is %t", tt.suite, begin,
					changed[begin], want)
			}
			if want {
				different++
			} else {
				same++
			}
		}
		if same == 0 || different == 0 {
			t.Errorf("%s: %d functions are the same, and %d different", tt.suite, same, different)
		}
		var covered uint64
		for begin, end := range functionsOf(t, gnu) {
			for pc := begin; pc < end; pc++ {
				if b[pc] != "" {
					covered++
				}
			}
		}
		if len(maskedToo) == 0 && covered != d.New.Covered-d.New.Outermost {
			t.Errorf("%s: %d bytes are covered; by objdump it is %d", tt.suite, d.New.Covered, covered)
		}
	}
}

// rowsOf returns the rows that objdump prints, by pc, and where FDEs with blocks begin, of which it does not print any
// but the first.
func rowsOf(t *testing.T, objdump func(...string) *exec.Cmd, path string) (rows map[uint64]string, masked []uint64) {
	t.Helper()
	b, err := objdump("--sframe=.sframe", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	rows = make(map[uint64]string)
	fde := regexp.MustCompile(`pc = 0x([0-9a-f]+), size = (\d+) bytes`)
	line := regexp.MustCompile(`^    ([0-9a-f]{16})  (.*\S) *$`)
	var start, end uint64
	mask := false
	for _, l := range strings.Split(string(b), "\n") {
		if m := fde.FindStringSubmatch(l); m != nil {
			start = number(t, m[1])
			fmt.Sscan(m[2], &end)
			end, mask = start+end, false
		}
		if strings.Contains(l, "STARTPC[m]") {
			mask = true
			masked = append(masked, start)
		}
		if m := line.FindStringSubmatch(l); m != nil && !mask {
			for pc := number(t, m[1]); pc < end; pc++ {
				rows[pc] = strings.Join(strings.Fields(m[2]), " ")
			}
		}
	}
	if len(rows) == 0 {
		t.Fatalf("objdump prints no rows\n%.1000s", b)
	}
	return rows, masked
}

// functionsOf returns the functions that readelf sees in .eh_frame: where they end, by where they begin.
func functionsOf(t *testing.T, path string) map[uint64]uint64 {
	t.Helper()
	all := make(map[uint64]uint64)
	for _, m := range regexp.MustCompile(`FDE cie=\S+ pc=([0-9a-f]+)\.\.([0-9a-f]+)`).FindAllStringSubmatch(command(t,
		"readelf", "--debug-dump=frames", "-W", path), -1) {
		all[number(t, m[1])] = number(t, m[2])
	}
	if len(all) < 5 {
		t.Fatalf("readelf sees %d functions", len(all))
	}
	return all
}

// TestDiffDamaged changes every byte of a section, in the old or the new file. Whatever is wrong, it is a difference or
// an error.
func TestDiffDamaged(t *testing.T) {
	sound := withSFrame(t, filepath.Join(fixtures, "plt"), "--format", "2", "--share", "off")
	b, err := os.ReadFile(sound)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte{0xe2, 0xde, 2})
	damaged := filepath.Join(t.TempDir(), "damaged")
	errors, different := 0, 0
	step := long.Pick(t, 7, 1)
	if racing {
		step = 7
	}
	for i := 0; i < 184; i += step { // bytes, which --dry-run reports
		for _, value := range []byte{0, 0xff, b[at+i] ^ 1, b[at+i] + 8} {
			if value == b[at+i] {
				continue
			}
			c := bytes.Clone(b)
			c[at+i] = value
			if err := os.WriteFile(damaged, c, 0o777); err != nil {
				t.Fatal(err)
			}
			for _, files := range [][]string{{sound, damaged}, {damaged, sound}} {
				var stdout, stderr bytes.Buffer
				status := run(t.Context(), append([]string{"diff"}, files...), &stdout, &stderr)
				switch {
				case status == exitTrouble && strings.HasPrefix(stderr.String(), "cfi2sframe: "+damaged+": ") &&
					stdout.Len() == 0:
					errors++
				case status == exitDifferent && stderr.Len() == 0:
					different++
				case status == exitDone && (i < 28 || 20 <= (i-28)%20 || (i-28)%20 >= 16): // no reader uses it
				default:
					t.Errorf("byte %d is %#x: status %d\n%s%s", i, value, status, stdout.String(), stderr.String())
				}
			}
		}
	}
	if errors < 100/step || different < 50/step {
		t.Errorf("%d errors, and %d differences", errors, different)
	}
}
