package report

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// fixture returns a test program.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	return testfile.Read(t, "../../../../testdata/bin/amd64/"+name)
}

// reportOn returns the report on a fixture in format 2.
func reportOn(t *testing.T, name string) *Coverage {
	t.Helper()
	c := coverageOf(t, elftest.Parse(t, fixture(t, name)), sframe.V2)
	c.File = name
	return c
}

// coverageOf returns the report on the conversion of a file to a version of the format.
func coverageOf(t *testing.T, f *elffile.File, v sframe.Version) (c *Coverage) {
	t.Helper()
	run := &convert.Run{In: f.Contents(), Size: int64(f.Size), Report: func(d *convert.Details) (err error) {
		c = Converted(d, NewLimits())
		return nil
	}}
	must.Get(convert.Add(t.Context(), run, convert.Options{Version: v, NoVerify: true, Workers: 1}))(t)
	return c
}

// TestLimits expects elements beyond a limit to be omitted, and missing names to be noted.
func TestLimits(t *testing.T) {
	limits := &Limits{gaps: 3}
	if a, b, c := take(&limits.gaps, 2), take(&limits.gaps, 2), take(&limits.gaps, 2); a != 2 || b != 1 || c != 0 {
		t.Errorf("gaps: %d, %d, %d", a, b, c)
	}
	limits.Grow(128)
	if n := take(&limits.gaps, 2); n != 1 {
		t.Errorf("%d more gaps for 128 bytes", n)
	}
	got := strings.Join(notes(&coverage.Names{Omitted: 2, Tangled: true}), "; ")
	if want := "names of 2 functions, because their total length exceeds the limit; names of some functions, because " +
		"symbols overlap too much"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestGaps checks the known gaps of fixtures. Functions that realign the stack come first.
func TestGaps(t *testing.T) {
	for _, tt := range []struct {
		name string
		want []string // function, reason, rule
	}{
		{"drap3", []string{
			"realign_r13 drap CFA r13+0", "realign_r13 drap CFA *(rbp-16)", "realign_late drap CFA *(rbp-8)",
			"realign_r13 fp-rule FP *(rbp+0)",
		}},
		{"rbxcfa.so", []string{"cfa-register CFA rbx+56"}},
		{"rareg.so", []string{"resume cfa-register CFA rcx+8", "resume ra-register RA rcx", "ra-register RA r11"}},
		{"signal", []string{"restore_rt signal-frame"}},
		{"undefra", []string{"_start outermost RA u", "fp-undefined FP u"}},
		{"fprules", []string{"fp_register fp-register FP rbx", "sp_popped sp-rule SP v+8"}},
		{"bigframe", []string{"offset-range CFA rsp+2147483648"}},
	} {
		c := reportOn(t, tt.name)
		var lines []string
		other := false
		for _, g := range c.Gaps {
			lines = append(lines, strings.Join(strings.Fields(g.Function+" "+g.Reason+" "+g.Column+" "+g.Rule), " "))
			if g.Function == "" || g.End <= g.Begin {
				t.Errorf("%s: gap %+v", tt.name, g)
			}
			if g.Reason == "drap" && other {
				t.Errorf("%s: a DRAP function comes after others", tt.name)
			}
			other = other || g.Reason != "drap"
		}
		for _, want := range tt.want {
			if !strings.Contains(strings.Join(lines, "\n"), want) {
				t.Errorf("%s: no gap %q in\n%s", tt.name, want, strings.Join(lines, "\n"))
			}
		}
		var sum uint64
		for _, r := range c.Reasons {
			if r.Loss {
				sum += r.Bytes
			}
		}
		if c.Covered+sum != c.Described {
			t.Errorf("%s: %d covered and %d in gaps of %d bytes", tt.name, c.Covered, sum, c.Described)
		}
	}
}

// TestMalformedCFI expects unreadable records to be listed, and the gap after an unknown instruction to name that
// instruction.
func TestMalformedCFI(t *testing.T) {
	var frames elftest.Frames
	const unknown = 0x3f // an undefined opcode
	p := elftest.Patch(t.Fatalf, fixture(t, "drap2.so"))
	text := p.U64(p.Section(".text") + elftest.ShAddr)
	cie := frames.CIE(elftest.Sound...)
	frames.FDE(cie, text, 8, 0x41, unknown)
	broken := len(frames.B)
	frames.FDE(cie, text+8, 8)
	binary.LittleEndian.PutUint32(frames.B[broken+4:], 0x1000) // its CIE is before the section
	p.Contents(".eh_frame", append(frames.B, 0, 0, 0, 0))
	f := elftest.Parse(t, p.B)
	c := coverageOf(t, f, sframe.V2)
	if c.Malformed.Count != 1 || len(c.Malformed.Errors) != 1 ||
		!strings.Contains(c.Malformed.Errors[0], fmt.Sprintf(".eh_frame+%#x: CIE pointer 0x1000", broken+4)) {
		t.Errorf("malformed: %+v; want one record, by its CIE pointer at %#x", c.Malformed, broken+4)
	}
	if len(c.Gaps) != 1 || c.Gaps[0].Reason != "malformed" || c.Gaps[0].Column != "" ||
		!strings.Contains(c.Gaps[0].Rule, "0x3f") {
		t.Errorf("gaps %+v; want one with the instruction", c.Gaps)
	}
}
