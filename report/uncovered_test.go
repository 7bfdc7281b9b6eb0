package report

import (
	"math"
	"slices"
	"testing"
)

func TestRanges(t *testing.T) {
	few := []span{{0x1000, 0x1008}, {0x1100, 0x1101}}
	if got := ranges(few, 0x1000, 0x200); !slices.Equal(got, []UncoveredRange{{0x1000, 0x1008, 8}, {0x1100, 0x1101, 1}}) {
		t.Errorf("few spans: %v", got)
	}
	// One byte in every 16, and one span over several parts, at the end of the address space.
	const size = 1<<20 + 3
	begin := uint64(math.MaxUint64 - size)
	var many []span
	var want uint64
	for off := uint64(0); off < size/2; off += 16 {
		many = append(many, span{begin + off, begin + off + 1})
	}
	many = append(many, span{begin + size/2, begin + size})
	for _, s := range many {
		want += s.end - s.begin
	}
	got := ranges(many, begin, size)
	if len(got) != maxRanges/2+1 { // the last one is in half of the parts
		t.Errorf("%d ranges of %d spans", len(got), len(many))
	}
	var sum uint64
	for i, r := range got {
		sum += r.Bytes
		if r.End <= r.Begin || r.Bytes > r.End-r.Begin || i > 0 && r.Begin < got[i-1].End {
			t.Errorf("range %d: %+v", i, r)
		}
	}
	if last := got[len(got)-1]; sum != want || got[0].Begin != begin || last.End != begin+size {
		t.Errorf("%d bytes from %#x to %#x", sum, got[0].Begin, last.End)
	}
}
