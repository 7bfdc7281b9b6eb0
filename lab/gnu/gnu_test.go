// Package gnu compares the .sframe that GNU as and ld make from source with the section made from the same program's
// CFI: each of GNU's rows must be in ours, unless it contradicts the CFI.
package gnu

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/linked"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// sameButFP reports whether two rows differ only in FP, and the first row loads FP from the address in FP.
func sameButFP(abi sframe.ABI, row, other sframe.Row) bool {
	const rbp = 6
	fp := row.FP
	row.FP = other.FP
	return fp.Deref && fp.Offset == 0 && (fp.Base == sframe.FP || fp.Base == sframe.Register && fp.Reg == rbp) &&
		abi.SameRow(row, other)
}

// compare returns the functions in which GNU's rows contradict the CFI, and reports correct rows that ours lack.
func compare(t *testing.T, gnuPath, oursPath string) map[string]bool {
	t.Helper()
	source := strings.TrimSuffix(filepath.Base(gnuPath), ".gnu")
	f, gnu := must.Two(linked.Load(gnuPath))(t)
	_, ours := must.Two(linked.Load(oursPath))(t)
	table := must.Get(cfi.Load(f, cfi.Auto, nil))(t)
	check, err := verify.Check(table, gnu, f, verify.Options{Keep: 100})
	if err != nil { // rows that no reader can decode
		t.Logf("%s: %v", source, err)
		return map[string]bool{source: true}
	}
	if check.Total != len(check.Mismatches) {
		t.Fatalf("%d mismatches between GNU's rows and the CFI, too many to list", check.Total)
	}
	wrong := make(map[string]bool)
	equal := 0
	err = linked.Walk(gnu, ours, func(pc uint64, g, m *sframe.Match) {
		contradicts := slices.ContainsFunc(check.Mismatches, func(m verify.Mismatch) bool {
			return m.Begin <= pc && pc < m.End
		})
		switch {
		case m != nil && gnu.ABI.SameRow(g.Row, m.Row):
			equal++
		case contradicts:
			wrong[linked.Function(f, pc)] = true
		case m != nil && m.FP == (sframe.Rule{}) && sameButFP(gnu.ABI, g.Row, m.Row):
			// GNU as copies the CFI's rule for FP, which is wrong in epilogues: see translate/epilogue.go.
		default:
			t.Errorf("%s: %#x (%s): GNU's row CFA %v FP %v RA %v is correct and missing in ours",
				gnuPath, pc, linked.Function(f, pc), g.CFA, g.FP, g.RA)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if equal == 0 {
		t.Errorf("%s: no rows are equal", gnuPath)
	}
	return wrong
}

// gnuMistakes lists functions in which versions of GNU as contradict the CFI, and how.
var gnuMistakes = []struct{ versions, functions, what string }{
	{"1", ".plt .plt.sec", "V1 cannot give the size of repeated blocks"},
	{"1", "on_stack on_stack_last gap_a gap_b gap_larger endless_a endless_b endless_larger",
		"a CFA on rbx or rcx is covered as if it were on SP or FP"},
	{"12", "_start new_stack", "an undefined return address is covered"},
	{"12", "fp_lost", "an undefined frame pointer is covered"},
	{"12", "signal", "a signal frame is covered, but the version cannot mark it"},
	{"123", "fp_same", "same_value of the frame pointer is ignored"},
	{"123", "nested", "only one remembered state is kept"},
	{"123", "sp_popped", "an explicit rule for SP is ignored"},
	{"2", "ra_mid", "a return address in a register is ignored"},
	{"23", ".plt.got", "ld writes CFA sp+16, but the CFI and the code have CFA sp+8"},
	{"23", "ra_at_cfa", "a return address at CFA+0 is written as a word of 0, which reads as no rule"},
	{"3", ".plt", "on s390x, rows for blocks of 32 bytes, but the PLT starts inside a block"},
	{"3", "at_cfa", "on s390x, the same as ra_at_cfa"},
	{"3", "unaligned", "on s390x, a CFA offset that is not a multiple of 8 is rounded"},
	{"3", "fprules.s", "FP = CFA+16 is written with a control word of 0, which reads as no rule, and an offset word " +
		"after it"},
}

// isKnownMistake reports whether gnuMistakes lists a function for a version.
func isKnownMistake(version sframe.Version, function string) bool {
	for _, m := range gnuMistakes {
		if strings.Contains(m.versions, fmt.Sprint(int(version))) &&
			slices.Contains(strings.Fields(m.functions), function) {
			return true
		}
	}
	return false
}

// TestGNU compares GNU's rows with ours for the fixtures' sources and a C program, for every ABI and version that a
// release of binutils writes.
func TestGNU(t *testing.T) {
	for _, tt := range []struct {
		suite, prefix, abi, gcc string
		version                 sframe.Version
	}{
		{"", "", "amd64", "gcc", sframe.V1}, // Debian 12
		{"trixie", "", "amd64", "gcc", sframe.V2},
		{"sid", "", "amd64", "gcc-16", sframe.V3},
		{"trixie", "aarch64-linux-gnu-", "aarch64", "", sframe.V2},
		{"sid", "aarch64-linux-gnu-", "aarch64", "aarch64-linux-gnu-gcc-16", sframe.V3},
		{"sid", "s390x-linux-gnu-", "s390x", "s390x-linux-gnu-gcc-16", sframe.V3},
	} {
		t.Run(tt.suite+" "+tt.abi, func(t *testing.T) {
			if tt.suite == "" {
				peer.Binutils(t, "2.40")
				peer.Look(t, tt.gcc)
			}
			sources, err := filepath.Glob("../../testdata/asm/" + tt.abi + "/*.s")
			if err != nil || len(sources) == 0 {
				t.Fatalf("no sources: %v", err)
			}
			script := "for s in *.s; do " + tt.prefix + "as --gsframe $s -o $s.o 2>>log && " + tt.prefix +
				"ld -shared $s.o -o $s.gnu 2>>log || rm -f $s.gnu; done\n"
			if tt.gcc != "" {
				script += tt.gcc + " -O2 -Wa,--gsframe user.c -lm -o user.gnu 2>>log || { cat log; exit 1; }\n"
			}
			dir := peer.Run(t, tt.suite, script, append(sources, "../../testdata/c/user.c")...)
			programs, err := filepath.Glob(dir + "/*.gnu")
			if err != nil || len(programs) < len(sources)/2 {
				t.Fatalf("%d programs of %d sources: %v", len(programs), len(sources), err)
			}
			wrong := make(map[string]bool)
			for _, p := range programs {
				if filepath.Base(p) == "end.s.gnu" {
					continue // the terminator of .eh_frame, not code
				}
				ours := filepath.Join(t.TempDir(), "ours")
				opt := convert.Options{Version: tt.version, Force: true}
				if _, err := files.Convert(context.Background(), p, ours,
					files.Options{Work: files.Add(opt, "")}); err != nil {
					t.Errorf("%s: %v", p, err)
					continue
				}
				maps.Copy(wrong, compare(t, p, ours))
			}
			var names []string
			for name := range wrong {
				names = append(names, name)
				if !isKnownMistake(tt.version, name) {
					t.Errorf("GNU contradicts the CFI in %s, which is not in the list of mistakes", name)
				}
			}
			slices.Sort(names)
			t.Logf("GNU contradicts the CFI in %s", strings.Join(names, ", "))
		})
	}
}
