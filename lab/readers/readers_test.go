package readers

import (
	"bytes"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/peer"
	"cfi2sframe/lab/conformance"
	"cfi2sframe/sframe"
)

const top = "../.."

// libraries starts the libraries.
func libraries(t *testing.T) map[string]*conformance.Reader {
	t.Helper()
	out := make(map[string]*conformance.Reader)
	for _, name := range []string{"libsframe-2.44", "libsframe-2.47"} {
		r, err := conformance.StartReader(name, top, t.TempDir())
		if err != nil {
			peer.Missing(t, err.Error())
		}
		out[name] = r
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

// TestWrongByte changes bytes of sections. If the rows say something else then, an answer has to be wrong.
func TestWrongByte(t *testing.T) {
	libs := libraries(t)
	for _, tt := range []struct{ format, file string }{
		{"V2", "amd64/prologue"}, {"V2", "aarch64/pac"},
		{"V2 --pcrel", "amd64/prologue"}, {"V2 --pcrel", "s390x/prologue"},
		{"V3", "amd64/prologue"}, {"V3", "aarch64/pac"}, {"V3", "s390x/prologue"},
	} {
		var f *format
		for i := range formats {
			if formats[i].name == tt.format {
				f = &formats[i]
			}
		}
		r := libs[f.library]
		v, err := conformance.FromFile(top+"/testdata/bin/"+tt.file, f.vectors, f.opt)
		if err != nil {
			t.Fatal(err)
		}
		var sum counts
		if err := f.ask(r, v, &sum); err != nil || sum.rows < 10 {
			t.Fatalf("%v: error %v, %+v", tt, err, sum)
		}
		before, err := rowsOf(v.Section, uint64(v.Address))
		if err != nil {
			t.Fatal(err)
		}
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
					t.Errorf("%v: bits %#02x of the byte at %#x are changed, and no answer is wrong", tt, bits, at)
				}
			}
		}
		if all < 30 || noticed*100 < all*97 { // flexible-padding of V3 hides some
			t.Errorf("%v: %d of %d changes are noticed", tt, noticed, all)
		}
	}
}

// TestFixtures looks all rows of the fixtures up.
func TestFixtures(t *testing.T) {
	libraries(t)
	paths, err := filepath.Glob(top + "/testdata/bin/*/*")
	if err != nil {
		t.Fatal(err)
	}
	if err := run(top, paths); err != nil {
		t.Error(err)
	}
}

// TestFile expects files without CFI and of other ABIs to be skipped, and errors to be returned.
func TestFile(t *testing.T) {
	libs := libraries(t)
	for _, tt := range []struct {
		path string
		opt  convert.Options
		want string
	}{
		{"/testdata/bin/s390x/prologue", convert.Options{Version: sframe.V2}, ""},
		{"/README.md", convert.Options{Version: sframe.V2}, "ELF"},
		{"/testdata/bin/amd64/prologue", convert.Options{Version: sframe.V3}, "refused"},
	} {
		f := formats[0]
		f.opt = tt.opt
		err := f.file(libs["libsframe-2.44"], top+tt.path, &counts{})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.path, err, tt.want)
		}
	}
}

// TestJudge has outputs of programs that are wrong.
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
		{"nowhere 6 nothing", "nowhere 6 equal", "jump to nowhere 6 equal; limit \"the code is in no file\""},
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
		t.Errorf("a format that is not read: %v", err)
	}
	if err := check(strings.ReplaceAll(good, "qsort of 10", "abort"), bare); err == nil {
		t.Error("without padding: no error")
	}
}
