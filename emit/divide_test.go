package emit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/sframe"
)

// epilogues returns functions that pop registers in the same way, each a number of times,
// but at other distances from their start.
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
			at += 5
			add(64) // the body, of a length that occurs once
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

// TestDivide makes FDEs of epilogues, which all functions then share.
func TestDivide(t *testing.T) {
	const n, times = 60, 3
	fns := epilogues(n, times)
	for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
		l, _ := version.Layout()
		opt := Options{Version: version, ABI: sframe.AMD64Little, Share: true}
		section, data := encodeAll(t, opt, fns, 1)
		opt.Share = false
		_, plain := encodeAll(t, opt, fns, 1)
		if !slices.Equal(said(t, plain, 0x10000), said(t, data, 0x10000)) {
			t.Errorf("%v: rows of divided functions are others", version)
		}
		// Each function has its start, and each epilogue is with the body after it.
		if section.NumFDEs() != n*(times+1) {
			t.Errorf("%v: %d FDEs, want %d", version, section.NumFDEs(), n*(times+1))
		}
		// The rows of the start, of an epilogue with the body after it, and of the last one.
		if most := l.HeaderSize + section.NumFDEs()*l.FDESize + 3*(l.AttrSize+9*3); len(data) > most {
			t.Errorf("%v: %d bytes, want %d at most; not shared there are %d", version, len(data), most, len(plain))
		}
	}
}

// TestDivideNot leaves alone what others do not have, and PC-mask FDEs.
func TestDivideNot(t *testing.T) {
	one := epilogues(1, 1)
	masked := epilogues(20, 1)
	for i := range masked {
		masked[i].fde.PCMask, masked[i].fde.RepSize = true, 200
	}
	for name, fns := range map[string][]function{"one function": one, "PC mask": masked} {
		section, _ := encodeAll(t, Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true}, fns, 1)
		if section.NumFDEs() != len(fns) {
			t.Errorf("%s: %d FDEs, want %d", name, section.NumFDEs(), len(fns))
		}
	}
}

// TestChoose compares the division of units with the best one of all.
func TestChoose(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var fns []function
		for i := range 30 {
			fn := function{fde: sframe.FDE{Start: uint64(i) << 20}}
			at := uint32(0)
			for range 1 + r.IntN(12) {
				fn.fres = append(fn.fres, sp(at, int32(8+8*r.IntN(3))))
				at += []uint32{1, 2, 6, 6, 200, 300}[r.IntN(6)]
			}
			fn.fde.Size = at
			fns = append(fns, fn)
		}
		for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
			b, err := NewBuilder(Options{Version: version, ABI: sframe.AMD64Little, Share: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, fn := range fns {
				if err := addTo(b, fn.fde, fn.fres); err != nil {
					t.Fatal(err)
				}
			}
			c := newCounts(1000)
			b.count(c)
			var d divider
			for i := range b.runs {
				u := &b.runs[i]
				got := slices.Clone(d.choose(b, u, c))
				if cost, best := b.cost(u, c, got), b.least(u, c); cost != best {
					t.Errorf("%v, seed %d, unit %d: divided at %v it costs %d, and %d is possible", version, seed, i, got, cost, best)
				}
			}
		}
	}
}

// cost is that of a unit if FDEs end before the given clusters.
func (b *Builder) cost(u *run, c *counts, ends []int) (sum uint64) {
	from := 0
	var d divider
	for _, end := range ends {
		all := d.sequences(b.clustersOf(u), u.whole, from)
		i := slices.IndexFunc(all, func(s sequence) bool { return int(s.n) == end-from })
		if i < 0 {
			return math.MaxUint64
		}
		sum += uint64(b.layout.FDESize)<<scale + uint64(b.layout.AttrSize+int(all[i].size))*(1<<scale/uint64(max(c.of(all[i].hash), 1)))
		from = end
	}
	return sum
}

// least is the least cost of all divisions.
func (b *Builder) least(u *run, c *counts) uint64 {
	least := uint64(math.MaxUint64)
	inner := u.begins() - 1
	for set := range 1 << inner {
		var ends []int
		for i := range inner {
			if set>>i&1 != 0 {
				ends = append(ends, i+1)
			}
		}
		least = min(least, b.cost(u, c, append(ends, int(u.clusters))))
	}
	return least
}

// TestLongPieces expects that a piece of a function has maxPiece rows at most, here where the rows
// that are shared are after many others.
func TestLongPieces(t *testing.T) {
	const own, common = 100, 30
	// Five rows are a cluster, and far enough from the next that none of the pieces that could be
	// has shorter start addresses.
	start := func(i uint32) uint32 { return i/5*1000 + i%5 }
	var fns []function
	for n := range 5 {
		fn := function{fde: sframe.FDE{Start: 0x10000 * uint64(n+1), Size: start(own + common)}}
		for i := range uint32(own) {
			fn.fres = append(fn.fres, sp(start(i), 8+8*int32(own*uint32(n)+i)))
		}
		for i := range uint32(common) {
			fn.fres = append(fn.fres, sp(start(own+i), 80000+8*int32(i)))
		}
		fns = append(fns, fn)
	}
	_, data := encodeAll(t, Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true}, fns, 1)
	s, err := sframe.Decode(data, 0x100000)
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() <= len(fns) {
		t.Errorf("%d functions are %d FDEs", len(fns), s.Len())
	}
	for i := range s.Len() {
		if fres, err := s.FREs(i, nil); err != nil || len(fres) > maxPiece && len(fres) != own+common {
			t.Errorf("FDE %d has %d rows, error %v", i, len(fres), err)
		}
	}
}

// TestNeverLarger has functions that nothing can be saved of, with more rows than maxPiece.
func TestNeverLarger(t *testing.T) {
	for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
		for _, size := range []struct{ rows, distance uint32 }{{42, 6}, {200, 300}, {1000, 65}} {
			fn := function{fde: sframe.FDE{Start: 0x10000, Size: size.rows * size.distance}}
			for i := range size.rows {
				fn.fres = append(fn.fres, sp(i*size.distance, 8+8*int32(i)))
			}
			opt := Options{Version: version, ABI: sframe.AMD64Little}
			_, plain := encodeAll(t, opt, []function{fn}, 1)
			opt.Share = true
			if _, shared := encodeAll(t, opt, []function{fn}, 1); len(shared) > len(plain) {
				t.Errorf("%v, %+v: %d bytes if shared, %d if not", version, size, len(shared), len(plain))
			}
		}
	}
}

// TestCounts adds up to 255, in one part or in several.
func TestCounts(t *testing.T) {
	const rows = 1000
	whole := newCounts(rows)
	parts := []*counts{newCounts(rows), newCounts(rows), newCounts(rows)}
	want := make(map[uint64]uint32)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		hash := mix(uint64(r.IntN(400)))
		n := r.Uint32N(20)
		whole.add(hash, n)
		parts[i%3].add(hash, n)
		want[hash] = min(want[hash]+n, math.MaxUint8)
	}
	for _, p := range parts[1:] {
		parts[0].merge(p)
	}
	exact := 0
	for hash, n := range want {
		if got := whole.of(hash); got != parts[0].of(hash) || uint32(got) < n {
			t.Errorf("%#x: %d in one part, %d in three, %d at least were expected", hash, got, parts[0].of(hash), n)
		} else if uint32(got) == max(n, 1) {
			exact++
		}
	}
	if exact < len(want)*9/10 {
		t.Errorf("%d of %d counts are exact", exact, len(want))
	}
	if got := whole.of(mix(12345)); got != 0 {
		t.Errorf("what does not occur counts %d, want 1", got)
	}
}

// TestManyClusters has a run of more rows than are divided, each of them a cluster, and the same again, with a row
// less, which is as large a run as can be divided.
func TestManyClusters(t *testing.T) {
	for n, whole := range map[int]bool{maxDivided: false, maxDivided + 1: true} {
		b, err := NewBuilder(Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true})
		if err != nil {
			t.Fatal(err)
		}
		fres := make([]sframe.FRE, n)
		for i := range fres {
			fres[i] = sp(uint32(minGap*i), int32(8+8*(i%2)))
		}
		if err := addTo(b, sframe.FDE{Start: 0x1000, Size: uint32(minGap * n)}, fres); err != nil {
			t.Fatal(err)
		}
		if r := &b.runs[0]; r.whole != whole || int(r.clusters) != n {
			t.Errorf("%d rows: whole is %t, with %d clusters", n, r.whole, r.clusters)
		}
		fdes, _ := decoded(t, join(b))
		at := uint64(0x1000)
		for _, d := range fdes {
			if d.Start != at {
				t.Fatalf("%d rows: an FDE starts at %#x; %#x was expected", n, d.Start, at)
			}
			at = d.End()
		}
		if at != 0x1000+uint64(minGap*n) || whole && len(fdes) != 1 {
			t.Errorf("%d rows: %d FDEs up to %#x", n, len(fdes), at)
		}
	}
}
