package report

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/sframe"
	"cfi2sframe/translate"
)

// fixture returns a test program.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../../../testdata/bin/amd64/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withLines returns a file to which a line table is added: the code from begin to end is line 7 of /src/f.c.
func withLines(t *testing.T, b []byte, begin, end uint64) *elffile.File {
	t.Helper()
	le := binary.LittleEndian
	p := elftest.Patch(t.Fatalf, b)
	p.AddSection(".debug_line", 0, lineTable(le, 4, []byte("/src\x00\x00f.c\x00\x01\x00\x00\x00"),
		slices.Concat(setAddress(le, begin), []byte{3, 6, 1}, setAddress(le, end), endSequence))) // advance_line, copy
	return elftest.Parse(t, p.B)
}

// TestSourceLines looks into the file, and if it has no lines into what was split off.
func TestSourceLines(t *testing.T) {
	b := fixture(t, "drap2.so")
	plain := elftest.Parse(t, b)
	broken := elftest.Patch(t.Fatalf, b)
	broken.AddSection(".debug_line", 0, []byte{0xff, 0, 0, 0}) // a table of 255 bytes, and there are none
	damaged := elftest.Parse(t, broken.B)
	const last = 0x312 // the code ends at 0x319; the lines end earlier
	lines := withLines(t, b, 0x285, last)
	var many []Gap
	for range maxLineGaps + 1 {
		many = append(many, Gap{Begin: 0x290})
	}
	for _, tt := range []struct {
		name        string
		file, debug *elffile.File
		gaps        []Gap
		want        string // lines
		note        string
	}{
		{"no debug information", plain, nil, []Gap{{Begin: 0x290}}, "0", ""},
		{"not even in the debug file", plain, plain, []Gap{{Begin: 0x290}}, "0", ""},
		{"no gaps", damaged, damaged, nil, "", ""},
		{"in the file", lines, nil, []Gap{{Begin: 0x284}, {Begin: 0x285}, {Begin: 0x300}, {Begin: last}},
			"0 7 7 0", ""},
		{"in the file, before the debug file", lines, damaged, []Gap{{Begin: 0x290}}, "7", ""},
		{"in the debug file", plain, lines, []Gap{{Begin: 0x290}, {Begin: last - 1}}, "7 7", ""},
		{"damaged", damaged, lines, []Gap{{Begin: 0x290}}, "0",
			"source lines: table at .debug_line+0x0: 255 bytes where 0 are left"},
		{"a damaged debug file", plain, damaged, []Gap{{Begin: 0x290}}, "0",
			"source lines: table at .debug_line+0x0: 255 bytes where 0 are left"},
		{
			"many gaps", lines, nil, many, strings.Repeat("7 ", maxLineGaps) + "0",
			"source lines of 1 gap: those of the first 4,096 are looked up",
		},
		{"many gaps without lines", plain, nil, many, strings.TrimSpace(strings.Repeat("0 ", len(many))), ""},
	} {
		c := &Coverage{Gaps: append([]Gap{}, tt.gaps...)}
		c.sourceLines(&convert.Details{File: tt.file, Debug: &convert.Companion{ELF: tt.debug}})
		var got []string
		for _, g := range c.Gaps {
			got = append(got, fmt.Sprint(g.Line))
			if want := map[bool]string{true: "/src/f.c"}[g.Line > 0]; g.Source != want {
				t.Errorf("%s: line %d of %q", tt.name, g.Line, g.Source)
			}
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: lines %s; want %s", tt.name, s, tt.want)
		}
		if s := strings.Join(c.Notes, "\n"); s != tt.note {
			t.Errorf("%s: %q is noted; want %q", tt.name, s, tt.note)
		}
	}
}

// TestCause says of assembly that it is that, but for gaps that any language would have.
func TestCause(t *testing.T) {
	probing := arch.OfABI(sframe.AMD64Little) // r11
	const assembly, probes = "hand-written assembly (", "the function probes a large stack frame"
	for _, tt := range []struct {
		reason translate.Reason
		gap    Gap
		want   string // it begins with that
	}{
		{translate.SPRule, Gap{}, "the caller's stack pointer is set apart"},
		{translate.SPRule, Gap{Source: "/src/x.S"}, assembly + "x.S)"},
		{translate.SPRule, Gap{Source: "x.s"}, assembly + "x.s)"},
		{translate.SPRule, Gap{Source: "/src/x.asm"}, assembly + "x.asm)"},
		{translate.SPRule, Gap{Source: "x.c"}, "the caller's stack pointer is set apart"},
		{translate.SignalFrame, Gap{Source: "x.S"}, "a signal handler returns here"},
		{translate.GoStackSwitch, Gap{Source: "x.s"}, "Go's runtime goes to another stack"},
		{translate.Outermost, Gap{Source: "x.S"}, "the program or a thread starts here"},
		{translate.CFARegister, Gap{Rule: "r11+8", Offset: 4}, probes},
		{translate.CFARegister, Gap{Rule: "r11+8", Offset: 0}, "code that changes the stack pointer"},
		{translate.CFARegister, Gap{Rule: "r1+8", Offset: 4}, "code that changes the stack pointer"},
		{translate.CFARegister, Gap{Rule: "r11+8", Offset: 4, Source: "x.S"}, assembly},
		{translate.RARegister, Gap{Rule: "r11+8", Offset: 4}, "the return address is taken off the stack"},
	} {
		if got := tt.gap.cause(tt.reason, probing); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%v, %+v: %q; want %q", tt.reason, tt.gap, got, tt.want)
		}
	}
	for _, r := range translate.Reasons() {
		if (&Gap{}).cause(r, nil) == "" {
			t.Errorf("nothing is said of what makes code %s", r.Name())
		}
	}
}
