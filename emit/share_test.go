package emit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/long"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// A function holds the arguments for a call to Add.
type function struct {
	fde  sframe.FDE
	fres []sframe.FRE
}

// encodeAll encodes the functions with the given number of Builders.
func encodeAll(t *testing.T, opt Options, fns []function, parts int) (*Section, []byte) {
	t.Helper()
	var builders []*Builder
	for i := range parts {
		b := must.Get(NewBuilder(opt))(t)
		for _, fn := range fns[len(fns)*i/parts : len(fns)*(i+1)/parts] {
			must.Do(t, addTo(b, fn.fde, fn.fres))
		}
		builders = append(builders, b)
	}
	section := Join(builders)
	data := must.Get(section.Encode(0x100000))(t)
	if uint64(len(data)) != section.Size() {
		t.Errorf("Size is %d, the section has %d bytes", section.Size(), len(data))
	}
	return section, data
}

// rowRanges returns the row at each address, regardless of how code is divided into FDEs.
func rowRanges(t *testing.T, data []byte) []string {
	t.Helper()
	s := must.Get(sframe.Decode(data, 0x100000))(t)
	type stretch struct {
		begin, end uint64
		row        string
	}
	var all []stretch
	for i, d := range s.FDEs() {
		fres := must.Get(s.FREs(i, nil))(t)
		for j, e := range fres {
			x := stretch{d.Start + uint64(e.Start), d.End(), fmt.Sprintf("%+v %t %t %t %d", e.Row, d.KeyB, d.Signal,
				d.PCMask, d.RepSize)}
			if j+1 < len(fres) {
				x.end = d.Start + uint64(fres[j+1].Start)
			}
			if n := len(all); n > 0 && all[n-1].end == x.begin && all[n-1].row == x.row {
				all[n-1].end = x.end
				continue
			}
			all = append(all, x)
		}
	}
	var out []string
	for _, x := range all {
		out = append(out, fmt.Sprintf("%#x-%#x: %s", x.begin, x.end, x.row))
	}
	return out
}

// totalCost returns the cost of a section: of its size, and of the rows from the start of an FDE up to each pc.
func totalCost(t *testing.T, data []byte) uint64 {
	t.Helper()
	cost := uint64(len(data)) * byteCost
	s := must.Get(sframe.Decode(data, 0x100000))(t)
	for i, d := range s.FDEs() {
		for _, e := range must.Get(s.FREs(i, nil))(t) {
			cost += uint64(d.Size-e.Start) * readCost
		}
	}
	return cost
}

// TestShare checks that equal lists are stored once and that, in V2, prefixes of lists are not stored.
func TestShare(t *testing.T) {
	var fns []function
	add := func(size uint32, fres ...sframe.FRE) {
		fns = append(fns, function{sframe.FDE{Start: 0x1000 * uint64(len(fns)+1), Size: size}, fres})
	}
	add(64, sp(0, 8), sp(1, 16)) // prefix of the third and the fifth list
	add(64, sp(0, 24), sp(2, 16))
	add(64, sp(0, 8), sp(1, 16), sp(9, 24), sp(20, 8))
	add(32, sp(0, 8), sp(1, 16))            // equal to the first list, in another function
	add(64, sp(0, 8), sp(1, 16), sp(9, 24)) // prefix of the third list
	add(64, sp(0, 8))                       // prefix of the first list
	const row = 3                           // size in bytes: start address, info, one word
	for _, tt := range []struct {
		version sframe.Version
		rows    int // number of rows stored
		lists   int // number of attributes stored
	}{
		{sframe.V1, 4 + 2, 0},
		{sframe.V2, 4 + 2, 0},             // the third, the second
		{sframe.V3, 2 + 3 + 4 + 2 + 1, 5}, // all but the fourth
	} {
		l, _ := tt.version.Layout()
		opt := Options{Version: tt.version, ABI: sframe.AMD64Little}
		_, plain := encodeAll(t, opt, fns, 1)
		opt.Join, opt.Share = true, true
		_, shared := encodeAll(t, opt, fns, 1)
		if !slices.Equal(rowRanges(t, plain), rowRanges(t, shared)) {
			t.Errorf("%v: shared rows differ", tt.version)
		}
		if want := l.HeaderSize + len(fns)*l.FDESize + tt.rows*row + tt.lists*l.AttrSize; len(shared) != want {
			t.Errorf("%v: %d bytes, want %d", tt.version, len(shared), want)
		}
		s, err := sframe.Decode(shared, 0)
		if err != nil || s.NumFREs != 14 {
			t.Errorf("%v: the header counts %d FREs, want those of all functions, 14 (error %v)", tt.version,
				s.NumFREs, err)
		}
	}
}

// TestJoin checks that the bytes do not depend on the number of Builders, and that sharing does not change the rows.
func TestJoin(t *testing.T) {
	for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
		for seed := range long.Pick[uint64](t, 3, 20) {
			r := rand.New(rand.NewPCG(seed, 0))
			var fns []function
			for i := range 300 {
				size := uint32(1) << (4 + r.IntN(16))
				fn := function{fde: sframe.FDE{Start: uint64(i) << 20, Size: size}}
				offsets := []int32{8, 16, 24, 200, 70000}
				for at := uint32(0); at < size &&
					len(fn.fres) < 12; at += 1 + r.Uint32N(3) + r.Uint32N(size/4)*r.Uint32N(2) {
					e := sp(at, offsets[r.IntN(2+r.IntN(4))])
					if r.IntN(4) == 0 {
						e = fp(at, 16, -16)
					}
					fn.fres = append(fn.fres, e)
				}
				if i > 0 && r.IntN(3) == 0 { // all rows of an earlier function, or only the first few
					other := fns[r.IntN(i)]
					fn.fde.Size, fn.fres = other.fde.Size, other.fres[:1+r.IntN(len(other.fres))]
				}
				fns = append(fns, fn)
			}
			if seed%3 == 0 { // mostly adjacent
				for i := range fns[1:] {
					if r.IntN(8) > 0 {
						fns[i+1].fde.Start = fns[i].fde.End()
					}
				}
			}
			if seed%2 != 0 { // in any order
				r.Shuffle(len(fns), func(i, j int) { fns[i], fns[j] = fns[j], fns[i] })
			}
			opt := Options{Version: version, ABI: sframe.AMD64Little, Join: true, Share: true}
			_, want := encodeAll(t, opt, fns, 1)
			for _, parts := range []int{2, 3, 8, 40} {
				if _, got := encodeAll(t, opt, fns, parts); !bytes.Equal(got, want) {
					t.Errorf("%v, seed %d: bytes differ in %d parts", version, seed, parts)
				}
			}
			opt.Join, opt.Share = false, false
			_, plain := encodeAll(t, opt, fns, 4)
			if !slices.Equal(rowRanges(t, plain), rowRanges(t, want)) {
				t.Errorf("%v, seed %d: shared rows differ", version, seed)
			}
			if before, after := totalCost(t, plain), totalCost(t, want); before <= after {
				t.Errorf("%v, seed %d: costs %d shared, %d not", version, seed, after, before)
			}
		}
	}
}

// TestListTypes adds lists with the same bytes but start addresses of different widths, so their rows differ.
func TestListTypes(t *testing.T) {
	l := newLists(true, 3)
	add := func(typ sframe.FREType, b ...byte) uint32 {
		off := len(l.data)
		l.data = append(l.data, b...)
		return l.store(off, 0, sframe.List{Num: 1, Type: typ})
	}
	first, second := add(sframe.Addr1, 0, 0, 3, 8), add(sframe.Addr2, 0, 0, 3, 8)
	if first == second {
		t.Error("lists of two types are one")
	}
	if again := add(sframe.Addr1, 0, 0, 3, 8); again != first || len(l.data) != 8 {
		t.Errorf("equal list has index %d, want %d; %d bytes", again, first, len(l.data))
	}
	longer, other := add(sframe.Addr2, 0, 0, 3, 8, 9), add(sframe.Addr1, 0, 0, 3, 8, 10)
	l.sharePrefixes()
	for list, want := range map[uint32]uint32{first: other + 1, second: longer + 1, longer: 0, other: 0} {
		if got := l.all[list].owner; got != want {
			t.Errorf("list %d has owner %d, want %d", list, got, want)
		}
	}
}

// TestHashes checks that the section does not depend on hashFactor, even if all hashes are equal.
func TestHashes(t *testing.T) {
	fns := epilogues(20, 3)
	for i := range uint64(8) { // equal rows after different rows
		fns = append(fns, function{sframe.FDE{Start: 0x800000 + i<<12, Size: 64},
			[]sframe.FRE{sp(0, int32(8+8*(i%2))), sp(20, 24)}})
	}
	_, want := encodeAll(t, joinOptions(sframe.V3), fns, 2)
	defer func(before uint64) { hashFactor = before }(hashFactor)
	hashFactor = 0
	if _, got := encodeAll(t, joinOptions(sframe.V3), fns, 2); !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
}
