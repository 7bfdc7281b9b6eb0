package coverage

import (
	"debug/elf"
	"fmt"
	"math"
	"slices"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/plt"
	"cfi2sframe/internal/testkit/elftest"
	"cfi2sframe/internal/testkit/generate"
)

// TestUncoveredPlaces checks where code without CFI is reported: by section in an object, and by segment without
// section headers.
func TestUncoveredPlaces(t *testing.T) {
	o := elftest.NewObject() // CFI describes all of .text
	cold := o.Code(".text.cold", 32)
	f := elftest.Parse(t, o.Bytes())
	if b := f.Sections[cold].Base; b == 0 {
		t.Fatal("the section has base 0, so the test is void")
	}
	report := func(f *elffile.File) Uncovered {
		in := convert.Details{
			File: f, Table: generate.Described(t, generate.Range{Begin: 0x288, End: 0x2e1}),
			Stubs: []plt.Stub{{Begin: 0x2e1, End: 0x2e5}},
		}
		return namesOf(f).Uncovered(&in)
	}
	u := namesOf(f).Uncovered(&convert.Details{
		File:  f,
		Table: generate.Described(t, generate.Range{Begin: f.Sections[cold].Base + 8, End: f.Sections[cold].Base + 20}),
	})
	// All of the code is zeros, which count as padding.
	want := "[{.text 0 64 0 64 0} {.text.cold 0 32 0 20 0}]"
	if got := fmt.Sprint(u.Sections); got != want || u.Bytes != 0 || u.Padding != 84 {
		t.Errorf("in an object %s, %d bytes, padding %d; want %s", got, u.Bytes, u.Padding, want)
	}
	// According to readelf, the segment is 0x3d8 bytes long, at address 0.
	p := elftest.Patch(t.Fatalf, fixture(t, "drap2.so"))
	p.Put64(elftest.EhShoff, 0)
	p.Put16(elftest.EhShnum, 0)
	p.Put16(elftest.EhShstrndx, 0)
	u = report(elftest.Parse(t, p.B))
	want = "[{PT_LOAD 0 984 891 0 0}]"
	if got := fmt.Sprint(u.Sections); got != want || u.Bytes != 0x3d8-(0x2e5-0x288) {
		t.Errorf("without sections %s, %d bytes; want %s", got, u.Bytes, want)
	}
	// Of several symbols at an address, the largest gives the name. Labels are ignored, and so are symbols that extend
	// past the end of the address space.
	const text = 5
	u = report(withSymbols(t, fixture(t, "drap2.so"), []symbol{
		{"small", elf.STT_FUNC, text, 0x300, 2}, {"large", elf.STT_FUNC, text, 0x300, 8},
		{"medium", elf.STT_FUNC, text, 0x300, 4},
		{"label", elf.STT_NOTYPE, text, 0x310, 4}, {"empty", elf.STT_FUNC, text, 0x311, 0},
		{"endless", elf.STT_FUNC, text, 0x286, math.MaxUint64 - 0x285},
		{"described", elf.STT_FUNC, text, 0x2e0, 2}, {"partly", elf.STT_GNU_IFUNC, text, 0x2e4, 2},
	}))
	want = "[{large   768 8 8 } {partly   740 2 1 }]"
	if got := fmt.Sprint(u.Functions); got != want {
		t.Errorf("functions %s; want %s", got, want)
	}
}

// TestUncoveredBounded expects only the largest functions to be listed if there are too many.
func TestUncoveredBounded(t *testing.T) {
	const n = maxUncovered + 3
	p := elftest.Patch(t.Fatalf, fixture(t, "drap2.so"))
	text := p.Code(2 * n)
	symbols := make([]symbol, n)
	for i := range symbols {
		symbols[i] = symbol{"f", elf.STT_FUNC, elf.SectionIndex(p.Index(".text")), text + uint64(2*i), 1}
	}
	symbols[n-1].size = 2
	f := withSymbols(t, p.B, symbols)
	u := namesOf(f).Uncovered(&convert.Details{File: f, Table: generate.Described(t)})
	if len(u.Functions) != maxUncovered || u.Omitted != 3 {
		t.Fatalf("%d functions, and %d more; want %d and 3", len(u.Functions), u.Omitted, maxUncovered)
	}
	if first, second := u.Functions[0], u.Functions[1]; first.Begin != symbols[n-1].value || second.Begin != text {
		t.Errorf("the first ones are %+v and %+v", first, second)
	}
}

// TestRefusedCode expects sums by reason, without code that does not count.
func TestRefusedCode(t *testing.T) {
	counted := newRangeSet([]elffile.Span{{Begin: 0, End: 20}, {Begin: 30, End: 34}, {Begin: 60, End: 70}})
	got := refusedCode([]cfi.Refusal{
		{Begin: 5, End: 8, Reason: "a"}, {Begin: 30, End: 40, Reason: "a"}, {Begin: 15, End: 25, Reason: "b"},
		{Begin: 40, End: 50, Reason: "c"}, {Begin: 60, End: 70, Reason: "b"},
	}, counted)
	want := []RefusedCode{{Reason: "b", Ranges: 2, Bytes: 5 + 10}, {Reason: "a", Ranges: 2, Bytes: 3 + 4}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
