package coverage

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

// TestNamesLimit expects names beyond the limit to be counted, but not returned.
func TestNamesLimit(t *testing.T) {
	limit := 20
	n := NewNames(nil, nil, &limit)
	p, none := nameRef{table: &elffile.Section{}}, nameRef{table: &elffile.Section{}, name: 1}
	n.known[p], n.known[none] = demangledName("_Z1fi"), funcName{}
	for i, want := range []string{"f(int)", "f(int)", "", ""} { // 12 bytes each
		if got := n.name(p); got.name != want || (got.symbol == "") != (want == "") {
			t.Errorf("%d: %+v", i, got)
		}
	}
	if got := n.name(none); got.name != "" || n.Omitted != 2 {
		t.Errorf("%+v for no name, %d are not listed", got, n.Omitted)
	}
}
