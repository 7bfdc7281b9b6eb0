package main

import (
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/peer"
)

// TestKnown links a program of functions that SFrame V2 cannot express: DRAP, a CFA on rbx
// and on rcx, a return address in a register, and signal frames. Each form of the report
// lists exactly what readelf's view of the CFI says that has to be left out.
func TestKnown(t *testing.T) {
	for _, tool := range []string{"as", "ld", "objcopy", "readelf", "nm"} {
		peer.Look(t, tool)
	}
	dir := t.TempDir()
	prog := filepath.Join(dir, "known")
	link := []string{"-o", prog}
	for _, source := range []string{"drap1", "rbxcfa", "rareg", "signal"} {
		object := filepath.Join(dir, source+".o")
		command(t, "as", "--64", "-o", object, "../../testdata/asm/amd64/"+source+".s")
		if len(link) > 2 { // one of each name is enough for the linker
			command(t, "objcopy", "--localize-symbol=leaf", "--localize-symbol=_start", object)
		}
		link = append(link, object)
	}
	command(t, "ld", link...)
	want := inexpressible(t, prog)
	if len(want) == 0 {
		t.Fatal("readelf shows nothing that has to be left out")
	}

	var report struct {
		Gaps []struct {
			Function   string
			Begin, End uint64
		}
	}
	if err := json.Unmarshal([]byte(reported(t, "json", prog)), &report); err != nil {
		t.Fatal(err)
	}
	got := make(map[uint64]string)
	for _, g := range report.Gaps {
		for pc := g.Begin; pc < g.End; pc++ {
			got[pc] = g.Function
		}
	}
	compareGaps(t, "JSON", got, want)

	compareGaps(t, "text", listed(t, reported(t, "text", prog),
		`(?m)^    (0x[0-9a-f]+)-(0x[0-9a-f]+) (\S+)\+0x[0-9a-f]+: `, 3), want)
	_, data, _ := strings.Cut(reported(t, "html", prog), `"gaps":[`)
	data, _, _ = strings.Cut(data, "]]")
	compareGaps(t, "HTML", listed(t, data, `,"([^"]+)","(0x[0-9a-f]+)-(0x[0-9a-f]+)",`, 1), want)
}

// command runs a program and returns what it prints on standard output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	b, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(b)
}

// reported returns the report of a program in a form.
func reported(t *testing.T, form, prog string) string {
	t.Helper()
	var out, errs strings.Builder
	if status := run(t.Context(), []string{"--dry-run", "-v", "--format", "2", "--report", form, prog}, &out,
		&errs); status != exitDone {
		t.Fatalf("status %d\n%s", status, errs.String())
	}
	return out.String() + errs.String()
}

// listed returns the addresses of the ranges that a pattern finds, with the functions, whose
// group is given; the other two groups are the range.
func listed(t *testing.T, s, pattern string, function int) map[uint64]string {
	t.Helper()
	out := make(map[uint64]string)
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(s, -1) {
		groups := slices.Delete(slices.Clone(m[1:]), function-1, function)
		for pc := number(t, groups[0]); pc < number(t, groups[1]); pc++ {
			out[pc] = m[function]
		}
	}
	return out
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func compareGaps(t *testing.T, form string, got, want map[uint64]string) {
	t.Helper()
	for _, pc := range slices.Sorted(maps.Keys(want)) {
		if got[pc] != want[pc] {
			t.Errorf("%s: %#x is listed in %q, want %q", form, pc, got[pc], want[pc])
		}
	}
	for _, pc := range slices.Sorted(maps.Keys(got)) {
		if want[pc] == "" {
			t.Errorf("%s: %#x is listed in %q, and readelf shows a row for it that V2 has", form, pc, got[pc])
		}
	}
}

// inexpressible returns the addresses whose rows V2 cannot express, as readelf shows them, with
// the functions that nm says they are in.
func inexpressible(t *testing.T, prog string) map[uint64]string {
	t.Helper()
	symbols := make(map[uint64]string)
	for _, line := range strings.Split(command(t, "nm", prog), "\n") {
		if f := strings.Fields(line); len(f) == 3 && strings.EqualFold(f[1], "t") {
			symbols[number(t, f[0])] = f[2]
		}
	}
	out := make(map[uint64]string)
	signal := make(map[string]bool) // CIEs of signal frames, by offset
	var columns []string
	var function string
	var end, first uint64 // of the FDE, and of the row that cannot be expressed, or 0
	whole := false        // nothing of the FDE can be
	until := func(at uint64) {
		for pc := first; first > 0 && pc < at; pc++ {
			out[pc] = function
		}
		first = 0
	}
	fde := regexp.MustCompile(`FDE cie=(\S+) pc=(\S+)\.\.(\S+)`)
	for _, line := range strings.Split(command(t, "readelf", "--debug-dump=frames-interp", "-W", prog), "\n") {
		f := strings.Fields(line)
		switch m := fde.FindStringSubmatch(line); {
		case m != nil:
			until(end)
			begin := number(t, m[2])
			if function = symbols[begin]; function == "" {
				function = symbols[begin+1] // a signal trampoline's FDE begins a byte before it
			}
			columns, end = nil, number(t, m[3])
			if whole = signal[m[1]]; whole {
				first = begin
			}
		case strings.Contains(line, " CIE "):
			until(end)
			columns, end = nil, 0
			signal[f[0]] = strings.Contains(line, `S"`)
		case len(f) > 0 && f[0] == "LOC":
			columns = f
		case len(columns) > 0 && len(f) >= len(columns) && end > 0 && !whole:
			at := number(t, f[0])
			until(at)
			if !expressible(columns, f) {
				first = at
			}
		}
	}
	until(end)
	return out
}

// expressible reports whether V2 has a form for a row of readelf's.
func expressible(columns, row []string) bool {
	for i, c := range columns {
		ok := true
		switch c {
		case "CFA":
			ok = strings.HasPrefix(row[i], "rsp+") || strings.HasPrefix(row[i], "rbp+")
		case "rbp":
			ok = row[i] == "u" || strings.HasPrefix(row[i], "c-")
		case "ra":
			ok = row[i] == "c-8"
		}
		if !ok {
			return false
		}
	}
	return true
}
