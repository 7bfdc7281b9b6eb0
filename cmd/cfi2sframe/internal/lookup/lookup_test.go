package lookup_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/lookup"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/plain"
	"cfi2sframe/sframe"
)

// subjects returns the paths of an ABI's fixtures and, for amd64, of /bin/ls.
func subjects(t *testing.T, abi string) []string {
	t.Helper()
	paths, err := filepath.Glob("../../../../testdata/bin/" + abi + "/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no fixtures: %v", err)
	}
	if abi == "amd64" {
		paths = append(paths, plain.File(t, "/bin/ls"))
	}
	return paths
}

// lookUp returns the rows for pcs of a file.
func lookUp(t *testing.T, path string, pcs []uint64, fromCFI bool) []report.PC {
	t.Helper()
	p := must.Get(files.OpenProgram(t.Context(), path, files.Sources{}))(t)
	defer p.Close()
	var places []string
	for _, pc := range pcs {
		places = append(places, fmt.Sprintf("%#x", pc))
	}
	l := must.Get(lookup.Lookup(p, places, fromCFI))(t)
	return l.PCs
}

// A printedRow is a row that a peer prints.
type printedRow struct {
	begin, end uint64
	text       string
}

// fullColumn matches a number that fills its column, so that no space separates it from the next column.
var fullColumn = regexp.MustCompile(`([0-9]\)?)([uc(])`)

var registerWord = regexp.MustCompile(`\b(r[0-9]+)\+0\b`)

// sframeRows returns the rows that objdump prints, except those of PC-mask FDEs.
func sframeRows(t *testing.T, printed string) (rows []printedRow) {
	t.Helper()
	var end uint64
	mask := false
	fde := regexp.MustCompile(`pc = 0x([0-9a-f]+), size = (\d+) bytes`)
	line := regexp.MustCompile(`^    ([0-9a-f]{16})  (.*\S) *$`)
	for l := range strings.Lines(printed) {
		if m := fde.FindStringSubmatch(l); m != nil {
			start, _ := strconv.ParseUint(m[1], 16, 64)
			size, _ := strconv.ParseUint(m[2], 10, 64)
			end, mask = start+size, false
		}
		mask = mask || strings.Contains(l, "STARTPC[m]")
		if m := line.FindStringSubmatch(strings.TrimSuffix(l, "\n")); m != nil && !mask {
			begin, _ := strconv.ParseUint(m[1], 16, 64)
			if n := len(rows); n > 0 && rows[n-1].end > begin {
				rows[n-1].end = begin
			}
			columns := strings.ReplaceAll(fullColumn.ReplaceAllString(m[2], "$1 $2"), "+-", "-")
			rows = append(rows, printedRow{begin, end, strings.Join(strings.Fields(columns), " ")})
		}
	}
	return rows
}

// asPrinted returns a row as objdump prints it. RA is printed as "f" if its location equals fixed, which the ABI
// defines.
func asPrinted(r *report.PCRow, fixed string) string {
	if r.Outermost {
		return "RA undefined"
	}
	plain := func(rule string) string {
		if at, ok := strings.CutPrefix(rule, "*"); ok && strings.HasPrefix(at, "(c") {
			return strings.Trim(at, "()")
		} else if ok {
			return at
		}
		return rule
	}
	ra := plain(r.RA)
	if ra == fixed {
		ra = "f"
	}
	if r.Signed {
		ra += "[s]"
	}
	return plain(r.CFA) + " " + plain(r.FP) + " " + ra
}

// TestLookupObjdump looks up the first and the last pc of each row that objdump prints.
func TestLookupObjdump(t *testing.T) {
	for _, v := range []struct{ abi, prefix, fixed string }{
		{"amd64", "", "c-8"}, {"aarch64", "aarch64-linux-gnu-", ""}, {"s390x", "s390x-linux-gnu-", ""},
	} {
		objdump := peer.Tool(t, "sid", v.prefix+"objdump")
		compared := 0
		for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
			for _, path := range subjects(t, v.abi) {
				out := filepath.Join(t.TempDir(), "out")
				opt := convert.Options{Version: version, Force: true, Outermost: version == sframe.V2}
				if _, err := files.Convert(t.Context(), path, out,
					files.Options{Work: files.Add(opt, "")}); err != nil {
					continue
				}
				b := must.Get(objdump("--sframe=.sframe", out).Output())(t)
				var pcs []uint64
				rows := sframeRows(t, string(b))
				for _, r := range rows {
					pcs = append(pcs, r.begin, r.end-1)
				}
				for i, p := range lookUp(t, out, pcs, false) {
					want := rows[i/2]
					got := "none"
					if p.Row != nil {
						got = asPrinted(p.Row, v.fixed)
					}
					text := want.text
					if v.fixed != "" {
						text = strings.Replace(text, " U", " f", 1) // a flexible FDE without a data word for RA
					} else {
						text = strings.Replace(text, " U", " u", 1)
					}
					if version == sframe.V2 { // V2 encodes a register as a word without an offset
						got = registerWord.ReplaceAllString(got, "$1")
					}
					if got != text || p.Row.Begin != want.begin || p.Row.End != want.end {
						t.Fatalf("%s, V%d, %#x: %+v, %q; objdump prints %+v", path, version, p.PC, p.Row, got, want)
					}
					compared++
				}
			}
		}
		if compared < 50 {
			t.Errorf("%s: %d pcs were compared", v.abi, compared)
		}
	}
}
