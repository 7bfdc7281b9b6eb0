package readers

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

const fixtures = "../../testdata/bin/"

func librariesForTest(t *testing.T) []*library {
	t.Helper()
	folder := os.Getenv("CFI2SFRAME_READERS")
	if folder == "" {
		folder = "/var/cache/cfi2sframe-readers"
	}
	libs, err := libraries(folder + "/libsframe")
	if err != nil {
		peer.Missing(t, err.Error())
	}
	return libs
}

// rowBytes returns where in the section rows are: all of the sub-section for them but V3's attributes, of which some bits
// mean nothing.
func rowBytes(s *subject) []int {
	le := s.section.ABI.Order()
	const header, entry, attribute = 28, 16, 5
	begin := header + int(le.Uint32(s.bytes[24:]))
	attributes := make(map[int]bool)
	if s.opt.Version == sframe.V3 {
		for i := range s.section.Len() {
			at := begin + int(le.Uint32(s.bytes[header+entry*i+12:]))
			for k := range attribute {
				attributes[at+k] = true
			}
		}
	}
	var rows []int
	for i := begin; i < begin+int(le.Uint32(s.bytes[16:])); i++ {
		if !attributes[i] {
			rows = append(rows, i)
		}
	}
	return rows
}

// rowsOf returns what a section says, or an error.
func rowsOf(section []byte, addr uint64) ([][]sframe.FRE, error) {
	s, err := sframe.Decode(section, addr)
	if err != nil {
		return nil, err
	}
	rows := make([][]sframe.FRE, s.Len())
	for i := range rows {
		if rows[i], err = s.FREs(i, nil); err != nil {
			return nil, err
		}
		for k := range rows[i] {
			rows[i][k].Row = s.ABI.Normal(rows[i][k].Row)
		}
	}
	return rows, nil
}

// TestWrongByte expects that no byte of a row can change without an answer that is wrong, if the rows say something else then:
// a few bits mean nothing, or nothing where the bytes behind the last row happen to fit.
func TestWrongByte(t *testing.T) {
	libs := librariesForTest(t)
	for _, tt := range []struct {
		lib, file string
		opt       convert.Options
	}{
		{"2.44", "amd64/prologue", convert.Options{Version: sframe.V2}},
		{"2.44", "aarch64/pac", convert.Options{Version: sframe.V2}},
		{"2.47", "amd64/prologue", convert.Options{Version: sframe.V2, PCRel: true}},
		{"2.47", "amd64/drap1", convert.Options{Version: sframe.V3}},
		{"2.47", "aarch64/pac", convert.Options{Version: sframe.V3}},
		{"2.47", "s390x/prologue", convert.Options{Version: sframe.V2, PCRel: true}},
		{"2.47", "s390x/prologue", convert.Options{Version: sframe.V3}},
	} {
		s, err := convertFile(fixtures+tt.file, t.TempDir(), tt.opt)
		if err != nil {
			t.Fatal(err)
		}
		lib := find(libs, tt.lib)
		pcs := s.pcs(rand.New(rand.NewPCG(1, 2)), true, 10)
		c, err := s.lookUp(lib, s.bytes, pcs)
		if err != nil || c.wrong > 0 || c.rows < 10 {
			t.Fatalf("%s %s: error %v, %+v", tt.lib, tt.file, err, c)
		}
		before, err := rowsOf(s.bytes, s.addr)
		if err != nil {
			t.Fatal(err)
		}
		all, noticed := 0, 0
		for _, at := range rowBytes(s) {
			for _, bits := range []byte{0x01, 0x10, 0xff} {
				b := bytes.Clone(s.bytes)
				b[at] ^= bits
				all++
				if c, err := s.lookUp(lib, b, pcs); err != nil || c.wrong > 0 {
					noticed++
					continue
				}
				after, err := rowsOf(b, s.addr)
				if err == nil && !reflect.DeepEqual(before, after) {
					t.Errorf("%s %s %v: bits %#02x of the byte at %#x have changed, and no answer is wrong", tt.lib, tt.file, tt.opt.Version, bits, at)
				}
			}
		}
		if all < 50 || noticed < all*8/10 {
			t.Errorf("%s %s %v: %d of %d changed bytes are noticed", tt.lib, tt.file, tt.opt.Version, noticed, all)
		}
	}
}

// TestWrongFunction expects that functions which are a byte too short or too long give wrong answers: none, or one in a hole.
func TestWrongFunction(t *testing.T) {
	libs := librariesForTest(t)
	for _, tt := range []struct {
		lib string
		opt convert.Options
	}{{"2.44", convert.Options{Version: sframe.V2}}, {"2.47", convert.Options{Version: sframe.V2, PCRel: true}}} {
		s, err := convertFile(fixtures+"amd64/static", t.TempDir(), tt.opt)
		if err != nil {
			t.Fatal(err)
		}
		pcs := s.pcs(rand.New(rand.NewPCG(1, 2)), true, 10)
		holes := 0
		for i, d := range s.section.FDEs() {
			const header, entry, size = 28, 20, 4
			for _, more := range []uint32{^uint32(0), 1} {
				if _, ok := s.table.Lookup(d.End()); more == 1 && ok {
					continue // the next one begins there, and is found
				}
				if more == 1 {
					holes++
				}
				b := bytes.Clone(s.bytes)
				binary.LittleEndian.PutUint32(b[header+entry*i+size:], d.Size+more)
				if c, err := s.lookUp(find(libs, tt.lib), b, pcs); err != nil || c.wrong == 0 {
					t.Errorf("%s: function at %#x with a size of %d and not %d: error %v, no answer is wrong", tt.lib, d.Start, d.Size+more, d.Size, err)
				}
			}
		}
		if holes == 0 {
			t.Error("there are no holes")
		}
	}
}

// TestKnownErrors expects the errors of whole sections, and that others than those in the table are found.
func TestKnownErrors(t *testing.T) {
	libs := librariesForTest(t)
	for _, w := range wholeErrors {
		if err := w.check(libs, t.TempDir(), fixtures); err != nil {
			t.Error(err)
		}
	}
	mended := whole{lib: "2.47", name: "none", opt: convert.Options{Version: sframe.V3}, file: "amd64/prologue"}
	if err := mended.check(libs, t.TempDir(), fixtures); err == nil || !strings.Contains(err.Error(), "are right; the table of known errors is to be changed") {
		t.Errorf("an error that does not show: %v", err)
	}
	mended.refuse = true
	if err := mended.check(libs, t.TempDir(), fixtures); err == nil || !strings.Contains(err.Error(), "it is not; the table of known errors is to be changed") {
		t.Errorf("a section that is not refused: %v", err)
	}
	// Nothing that could have shown has.
	s := sums{by: map[key]*counts{{}: {rows: 1, none: 1, stubs: 1}}}
	if err := s.judge(); err == nil || strings.Count(err.Error(), "did not show") != len(knownErrors) {
		t.Errorf("known errors that do not show: %v", err)
	}
}

// TestJudge has outcomes of programs that are not as they should be.
func TestJudge(t *testing.T) {
	p, ours := &program{name: "C", scenes: 3, libgcc: noLibgcc}, &variant{name: "V2"}
	const good = "libgcc_s: none\nmain 5 equal\njump to nowhere 6 nothing\n  backtrace:\n  DWARF: ?+0x1 ?+0x2\nqsort of 10 12 equal\n" +
		"samples in main: 10, not equal 0\nsamples in a thread: 10, not equal 1\n  backtrace: ?+0x1\n  DWARF: ?+0x1 ?+0x2\n"
	judge := func(text string, v *variant, p *program) error {
		o, err := parseOutcome([]byte(text))
		if err != nil {
			return err
		}
		return o.judge(kit.NewTable(io.Discard), v, p, &explainer{files: make(map[string]*explained)})
	}
	if err := judge(good, ours, p); err != nil {
		t.Errorf("a good outcome: %v", err)
	}
	for _, tt := range [][3]string{
		{"main 5 equal", "main 5 differs\n  backtrace: ?+0x2\n  DWARF: ?+0x3", "main: differs, because of: code in no file\n  backtrace: [?+0x2]\n  DWARF: [?+0x3]"},
		{"main 5 equal", "main 5 nothing", "main: nothing, because of: nothing that is known"},
		{"nowhere 6 nothing", "nowhere 6 equal", "jump to nowhere: equal; it was not to be because of: code in no file"},
		{"?+0x1 ?+0x2\nqsort", "lost+0x1 ?+0x2\nqsort", "lost is in none of"},
		{"main 5 equal\n", "", "2 scenes; 3 were expected"},
		{"libgcc_s: none", "libgcc_s: there", `libgcc_s.so.1 is "there"`},
		{"main: 10, not equal 0", "main: 10, not equal 1", "1 are not equal, and 0 are printed"},
		{"samples in main: 10, not equal 0\n", "", "1 lines about samples"},
		{"main 5 equal", "Killed", `the program says "Killed"`},
	} {
		if !strings.Contains(good, tt[0]) {
			t.Fatalf("%q is not in the outcome", tt[0])
		}
		err := judge(strings.Replace(good, tt[0], tt[1], 1), ours, p)
		if err == nil || !strings.Contains(err.Error(), tt[2]) {
			t.Errorf("%q instead of %q: %v; %q was expected", tt[1], tt[0], err, tt[2])
		}
	}
	if err := judge(good, &variant{name: "V3", nothing: true}, p); err == nil || !strings.Contains(err.Error(), "main: equal; nothing was expected") ||
		!strings.Contains(err.Error(), "of 10, 10 have a chain") {
		t.Errorf("a format that is not read: %v", err)
	}
	chain, err := parseChain(" run+0x10 libstdc++.so.6+0x20")
	if err != nil || !reflect.DeepEqual(chain, []place{{"run", 0x10}, {"libstdc++.so.6", 0x20}}) {
		t.Errorf("chain %v, error %v", chain, err)
	}
}
