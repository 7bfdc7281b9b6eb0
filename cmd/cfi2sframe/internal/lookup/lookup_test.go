package lookup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/lookup"
	"cfi2sframe/cmd/cfi2sframe/internal/report"
	"cfi2sframe/convert"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/files"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/internal/testkit/plain"
	"cfi2sframe/internal/testkit/testfile"
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
	l := must.Get(lookup.Lookup(t.Context(), p, places, fromCFI))(t)
	return l.PCs
}

// A printedRow is a row that a peer prints.
type printedRow struct {
	begin, end uint64
	text       string
}

// fullColumn matches a number that fills its column, so that no space separates it from the next column.
var fullColumn = regexp.MustCompile(`([0-9]\)?)([uc(])`)

// registerWord matches a register without an offset, which V2 prints without +0.
var registerWord = regexp.MustCompile(`\b([rxf][0-9]+|[rs]p|fp|r[a-d]x|r[sd]i)\+0\b`)

var numbered = regexp.MustCompile(`\br[0-9]+`)

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
		if rule == "unchanged" {
			return "u"
		}
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
	for _, v := range []struct {
		abi, prefix, fixed string
		id                 sframe.ABI
	}{
		{"amd64", "", "c-8", sframe.AMD64Little}, {"aarch64", "aarch64-linux-gnu-", "", sframe.AArch64Little},
		{"s390x", "s390x-linux-gnu-", "", sframe.S390XBig},
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
					text = numbered.ReplaceAllStringFunc(text, func(r string) string { // objdump prints DWARF numbers
						return arch.OfABI(v.id).Register(uint64(must.Get(strconv.Atoi(r[1:]))(t)))
					})
					got, text = registerWord.ReplaceAllString(got, "$1"), registerWord.ReplaceAllString(text, "$1")
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

// computed matches expressions and rules relative to SP and FP, which rows of .sframe can express differently.
var computed = regexp.MustCompile(`exp |(RA|FP) (\*\((sp|fp)|c\+)`)

// TestLookupSameText expects the same text for a row of .sframe and for the row of the CFI that it encodes. Ranges may
// differ, since functions can share rows.
func TestLookupSameText(t *testing.T) {
	for _, abi := range []string{"amd64", "aarch64", "s390x"} {
		compared := 0
		for _, path := range subjects(t, abi) {
			out := filepath.Join(t.TempDir(), "out")
			opt := files.Options{Work: files.Add(convert.Options{Force: true}, "")}
			_, err := files.Convert(t.Context(), path, out, opt)
			if err != nil || filepath.Base(path) == "racolumn" { // unusual return address registers
				continue
			}
			var pcs []uint64
			p := must.Get(files.OpenProgram(t.Context(), out, files.Sources{}))(t)
			for fn := range must.Get(p.CFI(t.Context()))(t).Functions() {
				for row := range fn.Rows() {
					pcs = append(pcs, row.Begin)
				}
			}
			p.Close()
			ofCFI := lookUp(t, out, pcs, true)
			for i, p := range lookUp(t, out, pcs, false) {
				want := ofCFI[i].Row
				if p.Row == nil || p.Row.Outermost || want.SP != "" || computed.MatchString(want.String()) {
					continue
				}
				if got := p.Row.String(); got != want.String() {
					t.Errorf("%s, %#x: %s; CFI: %v", path, p.PC, got, want)
				}
				compared++
			}
		}
		if compared < 50 {
			t.Errorf("%s: %d rows were compared", abi, compared)
		}
	}
}

// TestLookupManyRows asks for functions with as many rows as the limit, and with one more.
func TestLookupManyRows(t *testing.T) {
	for n, want := range map[int]string{4096: "", 4097: "lib_a: more than 4096 rows; use an address, or dump"} {
		p := elftest.Patch(t.Fatalf, testfile.Read(t, "../../../../testdata/bin/amd64/pltlib.so"))
		text := p.Code(n)
		var f elftest.Frames
		var program []byte
		for i := range n - 1 { // DW_CFA_advance_loc: 1, DW_CFA_def_cfa_offset: 16 or 24
			program = append(program, 0x41, 0x0e, byte(16+8*(i%2)))
		}
		f.FDE(f.CIE(elftest.Sound...), text, uint64(n), program...)
		p.Contents(".eh_frame", f.B)
		at := int(p.U64(p.Section(".dynsym") + elftest.ShOff))
		for p.U64(at+8) != text { // Elf64_Sym: st_value at 8, st_size at 16
			at += 24
		}
		p.Put64(at+16, uint64(n))
		path := filepath.Join(t.TempDir(), "many")
		must.Do(t, os.WriteFile(path, p.B, 0o600))
		in := must.Get(files.OpenProgram(t.Context(), path, files.Sources{}))(t)
		l, err := lookup.Lookup(t.Context(), in, []string{"lib_a"}, true)
		in.Close()
		if got := fmt.Sprint(err); err != nil && got != want || err == nil && (want != "" || len(l.PCs) != n) {
			t.Errorf("%d rows: %v, error %v, want %q", n, l, err, want)
		}
	}
}
