package coverage_test

import (
	"debug/elf"
	"slices"
	"testing"

	"cfi2sframe/cmd/cfi2sframe/internal/coverage"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/testfile"
)

// drap2 returns a library. According to readelf -sSW, .text is 0x94 bytes long and at 0x285, with the functions
// realign_alloca at 0x288 and realign_rbx at 0x2e1.
func drap2(t *testing.T) []byte {
	t.Helper()
	return testfile.Read(t, "../../../../testdata/bin/amd64/drap2.so")
}

// TestLocate names functions, or sections if there are no symbols.
func TestLocate(t *testing.T) {
	f := elftest.Parse(t, drap2(t))
	got := coverage.Locate(f, nil, []elffile.Span{{Begin: 0x100, End: 0x101}, {Begin: 0x288, End: 0x289},
		{Begin: 0x2e5, End: 0x2e6}, {Begin: 1 << 40, End: 1<<40 + 1}})
	want := []coverage.Location{{Function: "", Offset: 0x100}, {Function: "realign_alloca"},
		{Function: "realign_rbx", Offset: 4}, {Function: "", Offset: 1 << 40}}
	if !slices.Equal(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
	p := elftest.Patch(t.Fatalf, drap2(t))
	for _, s := range []string{".symtab", ".dynsym"} {
		p.Put32(p.Section(s)+elftest.ShType, uint32(elf.SHT_PROGBITS))
	}
	got = coverage.Locate(elftest.Parse(t, p.B), nil, []elffile.Span{{Begin: 0x2e5, End: 0x2e6}})
	if want := []coverage.Location{{Function: ".text", Offset: 0x2e5 - 0x285}}; !slices.Equal(got, want) {
		t.Errorf("without symbols: %v; want %v", got, want)
	}
	// The symbols are in a separate debug file.
	got = coverage.Locate(elftest.Parse(t, p.B), f, []elffile.Span{{Begin: 0x2e5, End: 0x2e6}})
	if want := []coverage.Location{{Function: "realign_rbx", Offset: 4}}; !slices.Equal(got, want) {
		t.Errorf("with a debug file: %v; want %v", got, want)
	}
}

// TestMeasureCode counts the code that no function of a table describes.
func TestMeasureCode(t *testing.T) {
	f := elftest.Parse(t, drap2(t))
	for _, tt := range []struct {
		functions []generate.Range
		want      uint64
	}{
		{nil, 0x94},
		{[]generate.Range{{Begin: 0x288, End: 0x2e1}}, 3 + 56},
		{[]generate.Range{{Begin: 0x288, End: 0x2e1}, {Begin: 0x2e1, End: 0x2e1 + 50}}, 3 + 6},
		{[]generate.Range{{Begin: 0x285, End: 0x285 + 0x94}}, 0},
	} {
		if _, got := coverage.MeasureCode(f, generate.Described(t, tt.functions...), nil); got != tt.want {
			t.Errorf("%d functions: %d bytes; want %d", len(tt.functions), got, tt.want)
		}
	}
}
