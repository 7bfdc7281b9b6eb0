package corpus

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/lab/kit"
)

// TestInfer compares fixtures for both machines with their CFI, and with CFI in which one operand is wrong.
func TestInfer(t *testing.T) {
	const binaries = "../../testdata/bin/"
	for _, tt := range []struct {
		fixture, old, new string
		wrong             int
	}{
		{"amd64/framepointer", "", "", 0},
		{"aarch64/prologue", "", "", 0},
		{"s390x/prologue", "", "", 0}, // not supported
		{"amd64/framepointer", "\x0e\x10\x86\x02", "\x0e\x18\x86\x02", 1},
		{"aarch64/prologue", "\x9d\x06\x9e\x05", "\x9d\x06\x9e\x04", 1},
	} {
		name := filepath.Join(t.TempDir(), "file")
		b := testfile.Read(t, binaries+tt.fixture)
		must.Do(t, os.WriteFile(name, bytes.Replace(b, []byte(tt.old), []byte(tt.new), 1), 0o644))
		var c corpus
		err := c.infer(must.Get(c.find("/", []string{name}))(t))
		if c.wrong != tt.wrong || (err == kit.ErrFound) != (tt.wrong > 0) || err != nil && err != kit.ErrFound {
			t.Errorf("%s: %d wrong, error %v; want %d", tt.fixture, c.wrong, err, tt.wrong)
		}
	}
}

// TestFlaws excuses an error by its code and its description.
func TestFlaws(t *testing.T) {
	code, what, _ := strings.Cut(strings.Split(flaws, "\n")[1], " ")
	const late = "CFA is rsp+48 according to CFI, but rsp+40 according to the instructions"
	const later = "CFA is rsp+48 according to CFI, but rsp+56 according to the instructions"
	const early = "CFA is sp+0 according to CFI, but sp+48 according to the instructions"
	const wrapper = "RA is undefined according to CFI, but in x30 according to the instructions"
	for _, tt := range []struct {
		code, what string
		want       bool
	}{
		{code, what, true}, {code[:30] + "66", what, false}, {"90" + code[2:], what, false}, {code, what + "0", false},
		{"83c4084c39ff74", late, true}, {"83c4104c39ff74", late, false}, {"83ec084c39ff74", later, true},
		{"83ec084c39ff74", late, false}, {"0041545b5c5d5e", later, true}, {"0041545b5c5d5e", late, false},
		{"74244041545b5c5d5e", later, true}, {"006a0841545b5c5d5e", later, true}, {"7424404154", late, false},
		{"c300d1fd7b02a9fd830091a90700d163", early, true}, {"c300d1fd7b02a9e00307aaa90700d163", early, false},
		{"a2f6975f2403d5da0d00141f2003d55f", wrapper, true}, {"a2f6975f2403d5da0d00941f2003d55f", wrapper, false},
		{"a2f697bf2303d5da0d00141f2003d55f", wrapper, false},
		{"83c408", "FP is in rbp according to CFI, but at CFA-16 according to the instructions", false},
		{"909090", "RA is at CFA-8 according to CFI, but undefined according to the instructions", true},
	} {
		x := finding{convert.Contradiction{Begin: 8, End: 16, What: tt.what}, tt.code}
		if x.isFlaw() != tt.want {
			t.Errorf("%s %s: excused %t", tt.code, tt.what, !tt.want)
		}
		if x.End += 17; x.isLate() {
			t.Errorf("%s %s: excused in %d bytes", tt.code, tt.what, x.End-x.Begin)
		}
	}
}
