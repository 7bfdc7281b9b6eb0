package bench

import (
	"fmt"
	"hash/maphash"
	"math"

	"cfi2sframe/sframe"
)

// bound returns a size in bytes that no section with the rows of s can be below, however its
// functions are divided into FDEs, and whatever FDEs share. S is sorted.
//
// It allows for all that emit does and more: FDEs of functions that follow each other
// without a gap, and any number of them with any rows. An FDE begins with a row, and describes
// no code that s does not. Where the number of rows is a part of what is shared (V3), FDEs
// share all their rows; otherwise some share the first ones with all that begin with them. If
// a row, with those before it in the FDE, occurs n times in the program, n FDEs have it
// at most, and one that has it pays 1/n of it at least. By these prices each stretch of
// code is divided at the least cost. FDEs of other kinds (PLT stubs, signal frames, flexible
// ones) are taken to stay as they are, and count without their rows.
func bound(s *sframe.Section) (uint64, error) {
	l := s.Codec().Layout()
	b := bounder{s: s, layout: l, known: map[sframe.Row]boundRow{}}
	size := float64(l.HeaderSize)
	var fres []sframe.FRE
	for i, d := range s.FDEs() {
		if d.PCMask || d.Signal || d.Flexible {
			size += float64(l.FDESize)
			continue
		}
		var err error
		if fres, err = s.FREs(i, fres[:0]); err != nil {
			return 0, err
		}
		if err := b.add(&d, fres); err != nil {
			return 0, err
		}
	}
	b.count()
	for _, rows := range b.stretches {
		size += b.least(rows)
	}
	return uint64(size), nil
}

// A bounder does the work of bound.
type bounder struct {
	s         *sframe.Section
	layout    *sframe.Layout
	known     map[sframe.Row]boundRow
	end       uint64 // of the last stretch
	begin     uint64
	stretches [][]boundRow // rows of code without a gap
}

// A boundRow is a row of a stretch.
type boundRow struct {
	start  uint64 // from the begin of the stretch
	id     uint64 // the same for rows that say the same
	size   int    // in bytes, without the start address
	shared []int  // how often as many rows from this one on occur, while that is more than once
}

// add adds the rows of an FDE to the last stretch or to a new one.
func (b *bounder) add(d *sframe.FDE, fres []sframe.FRE) error {
	if d.Start != b.end || len(b.stretches) == 0 {
		b.stretches, b.begin = append(b.stretches, nil), d.Start
	}
	b.end = d.End()
	rows := &b.stretches[len(b.stretches)-1]
	for _, e := range fres {
		start := d.Start - b.begin + uint64(e.Start)
		r, ok := b.known[e.Row]
		if !ok {
			row, ok := b.s.Codec().AppendRow(nil, &e.Row, false)
			if !ok {
				return fmt.Errorf("row %+v has no form in an FDE of the default type", e.Row)
			}
			r = boundRow{id: uint64(len(b.known)), size: len(row)}
			b.known[e.Row] = r
		}
		if n := len(*rows); n > 0 && (*rows)[n-1].id == r.id {
			continue
		}
		r.start = start
		*rows = append(*rows, r)
	}
	return nil
}

// count finds how often rows occur: all single ones first, then all pairs of which
// the first one is not the only one of its kind, and so on.
func (b *bounder) count() {
	type place struct {
		rows []boundRow // from the first one on
		hash uint64
	}
	seed := maphash.MakeSeed()
	var places []place
	for _, rows := range b.stretches {
		for i := range rows {
			places = append(places, place{rows[i:], maphash.Comparable(seed, rows[i].id)})
		}
	}
	for n := 1; len(places) > 0; n++ {
		counts := map[uint64]int{}
		for _, p := range places {
			counts[p.hash]++
		}
		next := places[:0]
		for _, p := range places {
			c := counts[p.hash]
			if c == 1 {
				continue
			}
			p.rows[0].shared = append(p.rows[0].shared, c)
			if n == len(p.rows) {
				continue
			}
			// An FDE can begin in the middle of a row, so that the second one is as near as in another.
			distance := p.rows[n].start - p.rows[n-1].start
			if n == 1 {
				distance = 0
			}
			p.hash = maphash.Comparable(seed, [3]uint64{p.hash, p.rows[n].id, distance})
			next = append(next, p)
		}
		places = next
	}
}

// least returns the least cost of a stretch.
func (b *bounder) least(rows []boundRow) float64 {
	best := make([]float64, len(rows)+1) // of the first ones
	for i := range best[1:] {
		best[i+1] = math.Inf(1)
	}
	for i := range rows {
		for _, typ := range []sframe.FREType{sframe.Addr1, sframe.Addr2, sframe.Addr4} {
			paid, all := 0.0, b.layout.AttrSize
			for j := i; j < len(rows) && (rows[j].start-rows[i].start)>>(8*typ.Size()) == 0; j++ {
				size, n := typ.Size()+rows[j].size, 1
				if j-i < len(rows[i].shared) {
					n = rows[i].shared[j-i]
				}
				all += size
				if b.layout.AttrSize > 0 {
					paid = float64(all) / float64(n)
				} else {
					paid += float64(size) / float64(n)
				}
				best[j+1] = min(best[j+1], best[i]+float64(b.layout.FDESize)+paid)
			}
		}
	}
	return best[len(rows)]
}
