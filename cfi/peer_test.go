package cfi_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/testfile"
)

// subjects returns system files with call frame information, and the fixtures.
func subjects(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../testdata/bin/amd64/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	for _, f := range []string{
		"/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2",
		"/usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib/x86_64-linux-gnu/libgcc_s.so.1",
	} {
		if _, err := os.Stat(f); err == nil {
			files = append(files, f)
		}
	}
	return files
}

var registers = []string{
	"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
}

// readelfRow is a row as readelf prints it: columns by name.
type readelfRow struct {
	loc  uint64
	cols map[string]string
}

var numbered = regexp.MustCompile(`\br[0-9]+ \((\w+)\)`)

// readelfRows returns readelf's rows by start address of the function.
func readelfRows(t *testing.T, readelf, path string) map[uint64][]readelfRow {
	t.Helper()
	cmd := exec.Command(readelf, "--debug-dump=frames-interp", path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	// readelf also exits with an error if it finds no separate debug file.
	out, err := cmd.Output()
	if len(out) == 0 {
		t.Fatalf("readelf %s: %v", path, err)
	}
	all := make(map[uint64][]readelfRow)
	cies := make(map[string]readelfRow) // rows of CIEs by offset, for FDEs without instructions
	cie := ""
	var head []string
	var start uint64
	inFDE := false
	lines := bufio.NewScanner(strings.NewReader(string(out)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// readelf prints registers with number and name, as in "r3 (rbx)".
		f := strings.Fields(numbered.ReplaceAllString(lines.Text(), "$1"))
		switch {
		case len(f) == 0:
		case strings.Contains(lines.Text(), " FDE "):
			inFDE = true
			pc := lines.Text()[strings.Index(lines.Text(), "pc=")+3:]
			start = must.Get(strconv.ParseUint(pc[:16], 16, 64))(t)
			all[start] = []readelfRow{}
			if c, ok := cies[strings.TrimPrefix(f[4], "cie=")]; ok {
				c.loc = start
				all[start] = []readelfRow{c}
			}
		case strings.Contains(lines.Text(), " CIE "):
			inFDE, cie = false, f[0]
		case f[0] == "LOC":
			head = f
		case len(f[0]) == 16:
			loc, err := strconv.ParseUint(f[0], 16, 64)
			if err != nil {
				continue
			}
			r := readelfRow{loc, make(map[string]string)}
			for i := 1; i < len(f) && i < len(head); i++ {
				r.cols[head[i]] = f[i]
			}
			if inFDE {
				all[start] = append(all[start], r)
			} else {
				cies[cie] = r
			}
		}
	}
	return all
}

// word formats a rule as readelf does.
func word(r cfi.Rule) string {
	switch r.Rule {
	case frame.RuleCFA:
		// readelf prints the offset as an int.
		return fmt.Sprintf("%s%+d", registers[r.Reg], int32(r.Offset))
	case frame.RuleOffset:
		return fmt.Sprintf("c%+d", r.Offset)
	case frame.RuleValOffset:
		return fmt.Sprintf("v%+d", r.Offset)
	case frame.RuleRegister:
		return registers[r.Reg]
	case frame.RuleExpression:
		return "exp"
	case frame.RuleValExpression:
		return "vexp"
	case frame.RuleSameVal:
		return "s"
	}
	return "u" // readelf prints the same for an undefined value and for no rule
}

// TestReadelf compares every row with readelf's.
func TestReadelf(t *testing.T) {
	readelf := peer.Look(t, "readelf")
	for _, path := range subjects(t) {
		table, err := cfi.Load(elftest.Parse(t, testfile.Read(t, path)), cfi.EHFrame, nil)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if table.Len() == 0 {
			continue // far.so has .debug_frame only
		}
		theirs := readelfRows(t, readelf, path)
		if n := len(theirs); n != table.Len()+table.Dropped.ZeroLength+table.Dropped.Discarded {
			t.Errorf("%s: %d functions, readelf has %d", path, table.Len(), n)
		}
		compared, failed := 0, 0
		for fn := range table.Functions() {
			want := theirs[fn.Begin]
			for rows := range fn.Rows() {
				// Find readelf's last row that starts at or before this row.
				j := len(want)
				for j > 0 && want[j-1].loc > rows.Begin {
					j--
				}
				if j == 0 {
					t.Errorf("%s: readelf has no row at %#x", path, rows.Begin)
					failed++
					break
				}
				w := want[j-1]
				got := map[string]string{"CFA": word(rows.CFA), "ra": word(rows.RA), "rbp": word(rows.FP),
					"rsp": word(rows.SP)}
				// A register in the return address column is named ra.
				if name := registers[rows.RAReg]; got[name] != "" && got[name] == got["ra"] {
					delete(got, name)
				}
				for col, g := range got {
					if v, ok := w.cols[col]; ok && v != g || !ok && g != "u" {
						t.Errorf("%s at %#x: %s is %s, readelf says %q", path, rows.Begin, col, g, v)
						failed++
					}
				}
				compared++
			}
			if failed > 10 {
				break
			}
		}
		if compared == 0 {
			t.Errorf("%s: nothing was compared", path)
		}
	}
}

// TestUnwinder compares the rows with the location where libgcc finds the caller's rbp: on the stack, in the return
// address slot, or unchanged in its register.
func TestUnwinder(t *testing.T) {
	peer.Look(t, "gcc")
	dir := peer.Run(t, "", "gcc -O1 -fno-omit-frame-pointer -no-pie -o prog unwind.c && ./prog >out",
		"../testdata/c/unwind.c")
	out := testfile.Read(t, filepath.Join(dir, "out"))
	table, err := cfi.Load(elftest.Parse(t, testfile.Read(t, filepath.Join(dir, "prog"))), cfi.EHFrame, nil)
	if err != nil || len(table.Errors) > 0 {
		t.Fatalf("errors %v, %v", err, table.Errors)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 4 {
		t.Fatalf("output:\n%s", out)
	}
	for _, line := range lines {
		var name, want string
		var at uint64
		if _, err := fmt.Sscanf(line, "%s %x %s", &name, &at, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got := "no row"
		if row, ok := table.Lookup(at - 1); ok {
			switch {
			case row.FP.Rule == cfi.RuleArchitectural:
				got = "same"
			case cfi.SameRule(&row.FP, &row.RA):
				got = "ra"
			default:
				got = fmt.Sprintf("%+v", row.FP)
			}
		}
		if got != want {
			t.Errorf("%s: the caller's rbp is %s, but libgcc finds %s", name, got, want)
		}
	}
}
