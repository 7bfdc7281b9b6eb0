package report

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/translate"
)

// fixture returns a test program.
func fixture(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../testdata/bin/amd64/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// withLines returns a file to which debug information is added (DWARF 4, sections 6.2.4, 7.5 and 7.21): one unit of the
// code from begin to end: line 7 of /src/f.c.
func withLines(t *testing.T, b []byte, begin, end uint64) *elffile.File {
	t.Helper()
	le := binary.LittleEndian
	sized := func(parts ...[]byte) []byte {
		b := bytes.Join(parts, nil)
		return append(le.AppendUint32(nil, uint32(len(b))), b...)
	}
	address := func(v uint64) []byte { return le.AppendUint64(nil, v) }
	header := []byte("\x01\x01\x01\xfb\x0e\x0d\x00\x01\x01\x01\x01\x00\x00\x00\x01\x00\x00\x01/src\x00\x00f.c\x00\x01\x00\x00\x00")
	p := elftest.Patch(t.Fatalf, b)
	// DW_AT_stmt_list, low_pc, high_pc
	p.AddSection(".debug_abbrev", 0, []byte{1, 0x11, 0, 0x10, 0x17, 0x11, 0x01, 0x12, 0x01, 0, 0, 0})
	p.AddSection(".debug_info", 0, sized([]byte{4, 0, 0, 0, 0, 0, 8, 1, 0, 0, 0, 0}, address(begin), address(end)))
	p.AddSection(".debug_line", 0, sized([]byte{4, 0}, sized(header),
		[]byte{0, 9, 2}, address(begin), []byte{3, 6, 1}, // DW_LNE_set_address, DW_LNS_advance_line, DW_LNS_copy
		[]byte{0, 9, 2}, address(end), []byte{0, 1, 1})) // DW_LNE_set_address, DW_LNE_end_sequence
	return elftest.Parse(t, p.B)
}

// TestSourceLines looks into the file, and if it has no lines into what was split off.
func TestSourceLines(t *testing.T) {
	b := fixture(t, "drap2.so")
	plain := elftest.Parse(t, b)
	broken := elftest.Patch(t.Fatalf, b)
	broken.AddSection(".debug_info", 0, []byte{0xff, 0, 0, 0}) // a unit of 255 bytes, and there are none
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
			"source lines: .debug_info+0x4: unit of 255 bytes, and 0 are left"},
		{"a damaged debug file", plain, damaged, []Gap{{Begin: 0x290}}, "0",
			"source lines: .debug_info+0x4: unit of 255 bytes, and 0 are left"},
		{
			"many gaps", lines, nil, many, strings.Repeat("7 ", maxLineGaps) + "0",
			"source lines of 1 gap: those of the first 4,096 are looked up",
		},
		{"many gaps without lines", plain, nil, many, strings.TrimSpace(strings.Repeat("0 ", len(many))), ""},
	} {
		c := &Coverage{Gaps: append([]Gap{}, tt.gaps...)}
		c.sourceLines(&Input{File: tt.file, Debug: tt.debug})
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
	probing := []string{"r11"}
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
