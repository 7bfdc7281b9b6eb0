package report

import (
	"debug/elf"
	"math/rand/v2"
	"strings"
	"testing"

	"cfi2sframe/elffile"
)

// TestRangeSet compares bytesIn with a byte-by-byte count.
func TestRangeSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		var ranges []elffile.Span
		var in [250]bool
		at := uint64(0)
		for range r.IntN(20) {
			begin := at + r.Uint64N(5)
			at = begin + 1 + r.Uint64N(5)
			ranges = append(ranges, elffile.Span{Begin: begin, End: at})
			for i := begin; i < at; i++ {
				in[i] = true
			}
		}
		set := newRangeSet(ranges)
		for range 50 {
			begin := r.Uint64N(200)
			end := begin + r.Uint64N(50)
			want := uint64(0)
			for _, is := range in[begin:end] {
				if is {
					want++
				}
			}
			if got := set.bytesIn(begin, end); got != want {
				t.Fatalf("%v: %d of %d-%d; want %d", ranges, got, begin, end, want)
			}
		}
	}
}

// TestCodeOf expects a section that overlaps its predecessor to be dropped.
func TestCodeOf(t *testing.T) {
	f := &elffile.File{}
	add := func(name string, addr, size uint64) {
		f.Sections = append(f.Sections, elffile.Section{Name: name, Base: addr, Section64: elf.Section64{
			Type: uint32(elf.SHT_PROGBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: addr, Size: size,
		}})
	}
	add("inside", 0x1010, 0x10)
	add("first", 0x1000, 0x100)
	add("across", 0x1080, 0x100)
	add("next", 0x1100, 8)
	var names []string
	for _, s := range codeOf(f) {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "first next" {
		t.Errorf("sections are %s", got)
	}
}

// TestLimits expects names and gaps beyond the limits to be counted, but not listed.
func TestLimits(t *testing.T) {
	limits := &Limits{gaps: 3, names: 20}
	if a, b, c := take(&limits.gaps, 2), take(&limits.gaps, 2), take(&limits.gaps, 2); a != 2 || b != 1 || c != 0 {
		t.Errorf("gaps: %d, %d, %d", a, b, c)
	}
	limits.Grow(128)
	if n := take(&limits.gaps, 2); n != 1 {
		t.Errorf("%d more gaps for 128 bytes", n)
	}
	limits.names = 20
	n := newNamer(limits)
	p, none := nameRef{table: &elffile.Section{}}, nameRef{table: &elffile.Section{}, name: 1}
	n.known[p], n.known[none] = demangledName("_Z1fi"), funcName{}
	for i, want := range []string{"f(int)", "f(int)", "", ""} { // 12 bytes each
		if got := n.name(p); got.name != want || (got.symbol == "") != (want == "") {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if got := n.name(none); got.name != "" || n.omitted != 2 {
		t.Errorf("%+v for no name, %d are not listed", got, n.omitted)
	}
	if got := n.notes(); len(got) != 1 ||
		got[0] != "names of 2 functions, because their total length exceeds the limit" {
		t.Errorf("%q", got)
	}
}
