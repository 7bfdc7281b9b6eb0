package emit

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// joinOptions returns options with Join and Share set.
func joinOptions(version sframe.Version) Options {
	return Options{Version: version, ABI: sframe.AMD64Little, Join: true, Share: true}
}

// TestJoinFunctions checks which functions can share an FDE.
func TestJoinFunctions(t *testing.T) {
	fde := func(start uint64, size uint32) sframe.FDE { return sframe.FDE{Start: start, Size: size} }
	with := func(d sframe.FDE, set func(*sframe.FDE)) sframe.FDE { set(&d); return d }
	long := sp(0, 8)
	var many []sframe.FRE
	var starts []uint32
	for i := range uint32(maxRows + 2) {
		many, starts = append(many, sp(minGap*i, int32(8+8*(i%2)))), append(starts, minGap*i)
	}
	long.CFA.Offset, long.FP = 1<<20, sframe.Rule{Base: sframe.CFA, Offset: -1 << 20, Deref: true}
	seven := r10(0) // an info byte and 6 words
	seven.FP, seven.RA = sframe.Rule{Base: sframe.FP, Deref: true}, sframe.Rule{Base: sframe.FP, Offset: 8, Deref: true}
	frame := []sframe.FRE{sp(0, 8), sp(1, 16), sp(9, 8)}
	for _, tt := range []struct {
		name string
		fns  []function
		want []string // start, size and row starts of each FDE
	}{
		{"two functions", []function{{fde(0x1000, 10), frame}, {fde(0x100a, 10), frame}},
			[]string{"0x1000 20 [0 1 9 11 19]"}},
		{"a leaf function needs no separate row", []function{{fde(0x1000, 10), frame}, {fde(0x100a, 5), frame[:1]},
			{fde(0x100f, 10), frame}}, []string{"0x1000 25 [0 1 9 16 24]"}},
		{"a byte in between", []function{{fde(0x1000, 10), frame[:2]}, {fde(0x100b, 10), frame}},
			[]string{"0x1000 10 [0 1]", "0x100b 10 [0 1 9]"}},
		{"key B", []function{{fde(0x1000, 10), frame}, {with(fde(0x100a, 10), func(d *sframe.FDE) { d.KeyB = true }),
			frame[:2]}}, []string{"0x1000 10 [0 1 9]", "0x100a 10 [0 1]"}},
		{"signal frame", []function{{with(fde(0x1000, 10), func(d *sframe.FDE) { d.Signal = true }), frame},
			{fde(0x100a, 10), frame[:2]}}, []string{"0x1000 10 [0 1 9]", "0x100a 10 [0 1]"}},
		{"PC mask", []function{
			{with(fde(0x1000, 32), func(d *sframe.FDE) { d.PCMask, d.RepSize = true, 16 }), frame},
			{with(fde(0x1020, 32), func(d *sframe.FDE) { d.PCMask, d.RepSize = true, 16 }), frame[:2]},
		}, []string{"0x1000 32 [0 1 9]", "0x1020 32 [0 1]"}},
		{"flexible", []function{{fde(0x1000, 10), frame}, {fde(0x100a, 10), []sframe.FRE{r10(0)}}},
			[]string{"0x1000 10 [0 1 9]", "0x100a 10 [0]"}},
		{"adjacent equal rows", []function{{fde(0x1000, 10), []sframe.FRE{sp(0, 8), sp(4, 8), sp(9, 16)}},
			{fde(0x100a, 10), []sframe.FRE{r10(0), r10(4)}}}, []string{"0x1000 10 [0 9]", "0x100a 10 [0]"}},
		{"PC mask and many rows", []function{{sframe.FDE{Start: 0x1000, Size: 512, PCMask: true, RepSize: 255}, many}},
			[]string{fmt.Sprint("0x1000 512 ", starts)}},
		{"a row of 7 bytes", []function{{fde(0x1000, 10), []sframe.FRE{seven}},
			{fde(0x100a, 10), []sframe.FRE{seven}}}, []string{"0x1000 20 [0]"}},
		{"rows too long to be compared", []function{{fde(0x1000, 10), []sframe.FRE{long}},
			{fde(0x100a, 10), []sframe.FRE{long}}}, []string{"0x1000 20 [0 10]"}},
		{"a break", []function{{fde(0x2ff0, 16), frame}, {fde(0x3000, 16), frame}, {fde(0x3010, 16), frame[:1]}},
			[]string{"0x2ff0 16 [0 1 9]", "0x3000 32 [0 1 9]"}},
		{"4 GiB less a byte", []function{{fde(0x1000, math.MaxUint32-16), frame[:1]},
			{fde(0x100000fef, 16), frame[:1]}}, []string{"0x1000 4294967295 [0]"}},
		{"more than 4 GiB", []function{{fde(0x1000, math.MaxUint32), frame[:1]}, {fde(0x100000fff, 16), frame[:1]}},
			[]string{"0x1000 4294967295 [0]", "0x100000fff 16 [0]"}},
	} {
		for _, parts := range []int{1, 2} {
			fns := slices.Clone(tt.fns)
			if parts == 2 {
				slices.Reverse(fns)
			}
			opt := joinOptions(sframe.V3)
			if opt.Breaks = []uint64{0x1000}; tt.name == "a break" {
				opt.Breaks = append(opt.Breaks, 0x3000)
			}
			_, data := encodeAll(t, opt, fns, parts)
			s := must.Get(sframe.Decode(data, 0x100000))(t)
			var got []string
			for i, d := range s.FDEs() {
				fres := must.Get(s.FREs(i, nil))(t)
				var starts []uint32
				for _, e := range fres {
					starts = append(starts, e.Start)
				}
				got = append(got, fmt.Sprintf("%#x %d %v", d.Start, d.Size, starts))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
	}
}

// TestShareOnly checks that Share has no effect without Join, as in objects: linkers copy the rows of each function
// separately. Without Share, Join does not divide functions of up to maxRows rows.
func TestShareOnly(t *testing.T) {
	fns := epilogues(7, 2)
	fns = append(fns, function{sframe.FDE{Start: 0x800000, Size: 10}, fns[0].fres[:2]},
		function{sframe.FDE{Start: 0x900000, Size: 10}, fns[0].fres[:2]})
	for _, version := range sframe.Versions() {
		_, want := encodeAll(t, Options{Version: version, ABI: sframe.AMD64Little}, fns, 1)
		for _, share := range []bool{true, false} {
			opt := Options{Version: version, ABI: sframe.AMD64Little, Join: !share, Share: share}
			if _, got := encodeAll(t, opt, fns, 1); !bytes.Equal(got, want) {
				t.Errorf("%v, Share %t: %d bytes, want %d", version, share, len(got), len(want))
			}
		}
	}
}

// epilogues returns n functions that contain the same sequence of pops several times, at different offsets.
func epilogues(n, times int) []function {
	var fns []function
	for i := range n {
		fn := function{fde: sframe.FDE{Start: 0x10000 * uint64(i+1)}}
		at := uint32(0)
		add := func(off int32) { fn.fres = append(fn.fres, sp(at, off)) }
		add(8)
		at++
		add(16)
		for j := range times {
			at += minGap
			add(64) // a body of unique length
			at += uint32(20 + 7*i + 31*j)
			for off := int32(56); off > 0; off -= 8 {
				add(off)
				at += 2
			}
		}
		fn.fde.Size = at
		fns = append(fns, fn)
	}
	return fns
}

// TestDivide checks that epilogues get separate FDEs, whose lists all functions share.
func TestDivide(t *testing.T) {
	const n, times = 60, 3
	fns := epilogues(n, times)
	for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
		l, _ := version.Layout()
		section, data := encodeAll(t, joinOptions(version), fns, 1)
		_, plain := encodeAll(t, Options{Version: version, ABI: sframe.AMD64Little}, fns, 1)
		if !slices.Equal(rowRanges(t, plain), rowRanges(t, data)) {
			t.Errorf("%v: rows of divided functions differ", version)
		}
		// Each function has an FDE for its start, and an FDE for each epilogue and the body after it.
		if section.NumFDEs() != n*(times+1) {
			t.Errorf("%v: %d FDEs, want %d", version, section.NumFDEs(), n*(times+1))
		}
		// The rows of the start, of an epilogue with the body after it, and of the last epilogue.
		if most := l.HeaderSize + section.NumFDEs()*l.FDESize + 3*(l.AttrSize+9*3); len(data) > most {
			t.Errorf("%v: %d bytes, want %d at most; %d without Join", version, len(data), most, len(plain))
		}
	}
}

// TestReads bounds how many rows readers read from the first row of an FDE up to the row that covers a pc, on average
// over the code: a large function gets its own FDE, although its neighbors are joined.
func TestReads(t *testing.T) {
	var fns []function
	start := uint64(0x10000)
	for i := range 800 {
		d := sframe.FDE{Start: start, Size: 30}
		if i%8 == 7 {
			d.Size = 3000
		}
		fns = append(fns, function{d, []sframe.FRE{sp(0, 8), sp(2, int32(16+8*(i%5))), sp(d.Size-1, 8)}})
		start = d.End()
	}
	_, joined := encodeAll(t, joinOptions(sframe.V3), fns, 1)
	_, separate := encodeAll(t, Options{Version: sframe.V3, ABI: sframe.AMD64Little}, fns, 1)
	reads := func(data []byte) uint64 { return (totalCost(t, data) - uint64(len(data))*byteCost) / readCost }
	if 20*reads(joined) > 27*reads(separate) || 3*len(joined) > len(separate) {
		t.Errorf("%d rows read, want at most 1.35 times %d; %d bytes, want a third of %d", reads(joined),
			reads(separate), len(joined), len(separate))
	}
}

// TestMaxRows checks that each FDE has at most maxRows rows, whether or not the rows are close together.
func TestMaxRows(t *testing.T) {
	for _, distance := range []uint32{1, minGap - 1, minGap, 1000} {
		fn := function{fde: sframe.FDE{Start: 0x10000, Size: 500 * distance}}
		for i := range uint32(500) {
			fn.fres = append(fn.fres, sp(i*distance, int32(8+8*(i%7))))
		}
		_, data := encodeAll(t, joinOptions(sframe.V2), []function{fn}, 1)
		s := must.Get(sframe.Decode(data, 0x100000))(t)
		at := fn.fde.Start
		for i, d := range s.FDEs() {
			if fres, err := s.FREs(i, nil); err != nil || len(fres) > maxRows {
				t.Errorf("FDE %d has %d rows, error %v", i, len(fres), err)
			}
			if d.Start != at {
				t.Errorf("FDE %d starts at %#x, want %#x", i, d.Start, at)
			}
			at = d.End()
		}
		if at != fn.fde.End() {
			t.Errorf("FDEs end at %#x, want %#x", at, fn.fde.End())
		}
	}
	rows := []sframe.Ref{{Start: 4}, {Start: 3 + minGap}, {Start: 2 + 2*minGap}, {Start: 2 + 3*minGap}}
	if n := align(rows, false); n != 3 || rows[2].Start != 2*minGap-2 {
		t.Errorf("a cluster of %d rows, want 3: %+v", n, rows)
	}
}

// TestManyFunctions adds more than blockUses adjacent functions, so they do not fit in one chain.
func TestManyFunctions(t *testing.T) {
	var fns []function
	for i := range uint64(3*blockUses + 5) {
		fns = append(fns, function{sframe.FDE{Start: 16 * i, Size: 16},
			[]sframe.FRE{sp(0, 8), sp(4, int32(16+8*(i%3)))}})
	}
	for _, parts := range []int{1, 7} {
		section, data := encodeAll(t, joinOptions(sframe.V2), fns, parts)
		s := must.Get(sframe.Decode(data, 0x100000))(t)
		if section.NumFDEs() > len(fns)/3 {
			t.Errorf("%d FDEs for %d functions", section.NumFDEs(), len(fns))
		}
		starts := make(map[uint64]bool)
		for _, d := range s.FDEs() {
			starts[d.Start] = true
		}
		for i := range fns {
			at := fns[i].fde.Start
			if i%blockUses == 0 && !starts[at] {
				t.Errorf("no FDE starts at %#x", at)
			}
			for _, e := range fns[i].fres {
				if got, ok, err := s.Lookup(at + uint64(e.Start)); err != nil || !ok || got.Row != s.Complete(e.Row) {
					t.Fatalf("at %#x+%d: %+v, %t, error %v", at, e.Start, got.Row, ok, err)
				}
			}
		}
	}
}

// A wholeSearch finds the minimum cost of a chain by trying all divisions.
type wholeSearch struct {
	*Builder
	places []place
	starts []uint32          // by place: its offset in the chain
	ends   []uint32          // by place: the offset of the next place, or the size of the chain
	uses   map[string]uint64 // number of uses of each list
	fde    uint64
	limit  int
}

// list describes the FRE list of the clusters from begin to end: a key that contains its rows and their offsets, its
// size in bytes, and its number of rows. Equal rows form different lists if their clusters differ. It also returns how
// many rows readers read if they look up each pc of the piece once.
func (w *wholeSearch) list(begin, end int) (key string, size uint32, rows int, reads uint64) {
	at, last := uint32(0), uint32(0)
	for i, p := range w.places[begin:end] {
		if i > 0 {
			at += p.gap
		}
		for _, e := range w.rowsOf(p.cluster) {
			last = at + e.Start
			key += fmt.Sprintf("%d:%d ", last, e.Row)
			size += uint32(len(w.forms[e.Row]))
			rows++
			reads += uint64(w.ends[end-1] - w.starts[begin] - last)
		}
		key += "|"
	}
	return key, uint32(w.layout.AttrSize) + size + uint32(rows*sframe.TypeFor(last).Size()), rows, reads
}

// cost returns the cost of a piece, and false if it has too many rows.
func (w *wholeSearch) cost(begin, end int) (uint64, bool) {
	key, size, rows, reads := w.list(begin, end)
	return w.fde + uint64(size)*(byteCost/w.uses[key]) + reads*readCost, rows <= w.limit || end == begin+1
}

// minCost returns the minimum cost of the clusters from begin to end.
func (w *wholeSearch) minCost(begin, end int) uint64 {
	if begin == end {
		return 0
	}
	least := uint64(math.MaxUint64)
	for next := begin + 1; next <= end; next++ {
		if cost, ok := w.cost(begin, next); ok {
			least = min(least, cost+w.minCost(next, end))
		}
	}
	return least
}

// TestChoose expects chains to be divided at the minimum cost, which an exhaustive search finds by counting all lists.
// The second division must depend on the lists of the first.
func TestChoose(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		version := []sframe.Version{sframe.V2, sframe.V3}[seed%2]
		b := must.Get(NewBuilder(joinOptions(version)))(t)
		start := uint64(0x1000)
		var fns []function
		for range 60 {
			d := sframe.FDE{Start: start}
			var fres []sframe.FRE
			for range 1 + r.IntN(4) {
				fres = append(fres, sp(d.Size, int32(8+8*r.IntN([]int{3, 40}[seed/4%2]))))
				d.Size += []uint32{1, 2, minGap, minGap, 250, 300}[r.IntN(6)]
			}
			if len(fns) > 0 && r.IntN(3) == 0 {
				other := fns[r.IntN(len(fns))]
				d.Size, fres = other.fde.Size, other.fres
			}
			fns = append(fns, function{d, fres})
			must.Do(t, addTo(b, d, fres))
			if start = d.End(); r.IntN(4) == 0 { // a chain has about 10 clusters
				start += 16
			}
		}
		limit := []int{minRows, 4}[seed/2%2]
		most, _ := b.measure()
		chains, places := b.chains(most)
		tr := newTrie(b, places)
		tr.grow(uint32(limit))
		tr.setCosts()
		w := &wholeSearch{Builder: b, places: places, uses: make(map[string]uint64),
			fde: uint64(b.layout.FDESize) * byteCost, limit: limit}
		for i := range chains[:len(chains)-1] {
			at := uint32(0)
			for j, p := range places[chains[i].place:chains[i+1].place] {
				if at += p.gap; j > 0 {
					w.ends = append(w.ends, at)
				}
				w.starts = append(w.starts, at)
			}
			w.ends = append(w.ends, chains[i].size)
		}
		for i := range chains[:len(chains)-1] {
			for begin := chains[i].place; begin < chains[i+1].place; begin++ {
				for end := begin + 1; end <= chains[i+1].place; end++ {
					key, _, _, _ := w.list(begin, end)
					w.uses[key]++
				}
			}
		}
		d := newDivider(b, tr, chains, uint32(limit))
		for i := range chains[:len(chains)-1] {
			begin, end := chains[i].place, chains[i+1].place
			if end-begin > long.Pick(t, 14, 18) {
				continue // 2^17 divisions
			}
			got, from := uint64(0), begin
			for d.choose(&chains[i], end); from < end; {
				next := from + int(d.best[from-begin].places)
				cost, ok := w.cost(from, next)
				if !ok {
					t.Errorf("seed %d, chain %d: too many rows from %d to %d", seed, i, from, next)
				}
				got, from = got+cost, next
			}
			if least := w.minCost(begin, end); got != least || from != end {
				t.Errorf("seed %d, chain %d of %d clusters: cost %d, but %d is possible", seed, i, end-begin,
					got, least)
			}
		}
		used := make([]uint32, len(tr.nodes))
		d.divide(func(_ *chain, i int) { used[d.best[i].node]++ })
		used[0] = 0 // for lists that occur once
		d.divide(d.count)
		for i := range used {
			if tr.nodes[i].uses != used[i] {
				t.Errorf("seed %d: list %d is used %d times, want %d", seed, i, tr.nodes[i].uses, used[i])
			}
		}
		tr.setCosts()
		var want, got []uint64 // starts of FDEs
		d.divide(func(ch *chain, i int) { want = append(want, ch.start+uint64(d.best[i].start)) })
		pieces, _ := divide(b, 1)
		for _, p := range pieces {
			got = append(got, p.start)
		}
		if limit == minRows && !slices.Equal(got, want) {
			t.Errorf("seed %d: FDEs start at %#x, want %#x", seed, got, want)
		}
	}
}

// TestRowLimit checks the limits for library code on aarch64 and amd64, and for functions of different sizes.
func TestRowLimit(t *testing.T) {
	for rows, want := range map[float64]uint32{0: 10, 3.4: 10, 6.5: 13, 12.1: 24, 42: 24} {
		if got := rowLimit(rows); got != want {
			t.Errorf("%v rows: %d, want %d", rows, got, want)
		}
	}
	b := must.Get(NewBuilder(joinOptions(sframe.V2)))(t)
	if places, limit := b.measure(); places != 0 || limit != minRows {
		t.Errorf("no functions: %d places, limit %d", places, limit)
	}
	for _, rows := range []uint32{4, 10} {
		var fres []sframe.FRE
		for i := range rows {
			fres = append(fres, sp(100*i, int32(8*i)))
		}
		must.Do(t, addTo(b, sframe.FDE{Size: 1000 * (rows / 4)}, fres))
	}
	if places, limit := b.measure(); places != 14 || limit != 16 { // 2 * (4*1000 + 10*2000) / 3000
		t.Errorf("%d places, limit %d, want 14, 16", places, limit)
	}
}
