package convert_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/verify"
)

// TestContradictions compares the instructions of fixtures with their CFI, and with CFI in which one operand is wrong.
func TestContradictions(t *testing.T) {
	for _, tt := range []struct{ fixture, old, new, want string }{
		{"amd64/framepointer", "", "", ""},
		{"amd64/prologue", "", "", ""},
		{"amd64/rbxcfa.so", "", "", ""},
		{"aarch64/prologue", "", "", ""},
		{"s390x/prologue", "", "", ""}, // no rows are inferred
		{"amd64/framepointer", "\x0e\x10\x86\x02", "\x0e\x18\x86\x02",
			"0x446-0x449 CFA is rsp+24 according to CFI, but rsp+16 according to the instructions; " +
				"0x449-0x46f CFA is rbp+24 according to CFI, but rbp+16 according to the instructions"},
		{"amd64/framepointer", "\x0e\x10\x86\x02", "\x0e\x10\x86\x03",
			"0x446-0x46f FP is at CFA-24 according to CFI, but at CFA-16 according to the instructions; " +
				"0x46f-0x470 FP is at CFA-24 according to CFI, but in rbp according to the instructions"},
		{"aarch64/prologue", "\x9d\x06\x9e\x05", "\x9d\x06\x9e\x04",
			"0x4d8-0x500 RA is at CFA-32 according to CFI, but at CFA-40 according to the instructions"},
	} {
		b := testfile.Read(t, filepath.Join("../testdata/bin", tt.fixture))
		f := elftest.Parse(t, bytes.Replace(b, []byte(tt.old), []byte(tt.new), 1))
		table := must.Get(convert.LoadCFI(t.Context(), f, convert.Loading{Infer: true}))(t)
		list, a, err := convert.Contradictions(t.Context(), f, table)
		var got []string
		for _, c := range list {
			got = append(got, fmt.Sprintf("%#x-%#x %s", c.Begin, c.End, c.What))
		}
		if s := strings.Join(got, "; "); err != nil || s != tt.want || (a.ByRegister > 0) != convert.Infers(f) {
			t.Errorf("%s: %s, %d bytes compared, %v; want %s", tt.fixture, s, a.ByRegister, err, tt.want)
		}
	}
}

// TestContradictionString prints a contradiction and a violation.
func TestContradictionString(t *testing.T) {
	c, v := convert.Contradiction{Begin: 16, End: 32, What: "CFA differs"}, verify.Violation{PC: 16, What: "wrong CFA"}
	if got := fmt.Sprint(c, "; ", v); got != "0x10-0x20: CFA differs; 0x10: wrong CFA" {
		t.Error(got)
	}
}
