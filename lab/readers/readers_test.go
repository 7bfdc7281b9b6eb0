package readers

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/lab/conformance"
	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

const top = "../.."

// product is the path of cfi2sframe.
var product string

func TestMain(m *testing.M) { os.Exit(kit.Tests(m, &product)) }

// libraries starts the libraries.
func libraries(t *testing.T) *Libraries {
	t.Helper()
	l, err := Start(top, t.TempDir())
	if err != nil {
		peer.Missing(t, err.Error())
	}
	return l
}

// convert converts a file with the given flags, and returns the path of the result.
func convert(t *testing.T, path, form string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	if r, err := kit.Convert(product, path, out, strings.Fields(form)...); err != nil || r.Kept != "" {
		t.Fatalf("%s: %v %s", path, err, r.Kept)
	}
	return out
}

// rowsOf returns the rows of a section.
func rowsOf(section []byte, addr uint64) (rows [][]sframe.FRE, err error) {
	s, err := sframe.Decode(section, addr)
	if err != nil {
		return nil, err
	}
	rows = make([][]sframe.FRE, s.Len())
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

// TestWrongByte changes one byte of a section at a time. If the change affects a row, the reader must give a wrong
// answer.
func TestWrongByte(t *testing.T) {
	l := libraries(t)
	for _, tt := range []struct {
		format int
		file   string
	}{
		{0, "amd64/prologue"}, {0, "aarch64/pac"}, {1, "amd64/prologue"}, {1, "s390x/prologue"},
		{3, "amd64/prologue"}, {3, "aarch64/pac"}, {3, "s390x/prologue"},
	} {
		f := &formats[tt.format]
		r := l.readers[f.library]
		v := must.Get(conformance.FromFile(convert(t, top+"/testdata/bin/"+tt.file, f.form), f.vectors))(t)
		var sum counts
		if err := f.ask(r, v, &sum); err != nil || sum.rows < 10 {
			t.Fatalf("%v: error %v, %+v", tt, err, sum)
		}
		before := must.Get(rowsOf(v.Section, uint64(v.Address)))(t)
		noticed, all := 0, 0
		section := v.Section
		for at := 28; at < len(section); at++ { // after the header
			for _, bits := range []byte{0x01, 0x10, 0xff} {
				v.Section = bytes.Clone(section)
				v.Section[at] ^= bits
				after, err := rowsOf(v.Section, uint64(v.Address))
				if err != nil || reflect.DeepEqual(before, after) {
					continue
				}
				all++
				if f.ask(r, v, &sum) != nil {
					noticed++
				} else if f.vectors != "3" {
					t.Errorf("%v: changing bits %#02x of the byte at %#x makes no answer wrong", tt, bits, at)
				}
			}
		}
		if all < 30 || noticed*100 < all*97 { // changes to the padding in flexible rows of V3 have no effect
			t.Errorf("%v: %d of %d changes are noticed", tt, noticed, all)
		}
	}
}

// TestFixtures looks up all rows of the fixtures.
func TestFixtures(t *testing.T) {
	l := libraries(t)
	paths := must.Get(filepath.Glob(top + "/testdata/bin/*/*"))(t)
	for _, form := range Forms() {
		for _, path := range paths {
			if err := l.Check(convert(t, path, form), form); err != nil {
				t.Errorf("%s, %s: %v", path, form, err)
			}
		}
		if sum := l.sums[form]; sum.files < 20 || sum.rows < 1000 {
			t.Errorf("%s: %+v", form, sum)
		}
	}
}

// TestJudge expects judge to accept the output of a program, and to reject wrong outputs.
func TestJudge(t *testing.T) {
	const good = `libgcc_s: none
main 5 equal
jump to nowhere 6 nothing
  backtrace:
  DWARF: ?+0x1
qsort of 10 12 equal
samples in main: 100, not equal 0
samples in a thread: 100, not equal 1
  backtrace: ?+0x1
  DWARF: ?+0x1 ?+0x2
`
	check := func(text, flags string) error {
		return (&program{flags: flags, name: "C", libgcc: "none", scenes: 3}).judge(text)
	}
	if err := check(good, "--for glibc"); err != nil {
		t.Errorf("a good output: %v", err)
	}
	for _, tt := range [][3]string{
		{"main 5 equal", "main 5 differs\n  backtrace: ?+0x2", "main 5 differs; limit \"\"\n  backtrace: ?+0x2"},
		{"main 5 equal", "main 5 nothing", "main 5 nothing"},
		{"nowhere 6 nothing", "nowhere 6 equal", "jump to nowhere 6 equal; limit \"no file contains the code\""},
		{"main 5 equal\n", "", "2 scenes, want 3"},
		{"libgcc_s: none", "libgcc_s: there", `"libgcc_s: there"`},
		{"main: 100, not equal 0", "main: 100, not equal 9", "10 of 200 samples"},
		{"samples in main: 100, not equal 0\n", "", "1 lines about samples"},
		{"main 5 equal", "Killed", `"Killed"`},
	} {
		if !strings.Contains(good, tt[0]) {
			t.Fatalf("%q is not in the output", tt[0])
		}
		err := check(strings.Replace(good, tt[0], tt[1], 1), "--for glibc")
		if err == nil || !strings.Contains(err.Error(), tt[2]) {
			t.Errorf("%q instead of %q: error %v, want %q", tt[1], tt[0], err, tt[2])
		}
	}
	if err := check(good, unread); err == nil || !strings.Contains(err.Error(), "main 5 equal") ||
		!strings.Contains(err.Error(), "1 of 200 samples") {
		t.Errorf("an unread format: %v", err)
	}
	if err := check(strings.ReplaceAll(good, "qsort of 10", "abort"), bare); err == nil {
		t.Error("without padding: no error")
	}
}
