package emit

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/lab/long"
	"cfi2sframe/sframe"
)

// A holds is what a section says of a range of code.
type holds struct {
	begin, end uint64
	row        sframe.Row
	kind       string
}

// says returns what a section says of all code, whatever FDEs there are.
func says(t *testing.T, data []byte) (out []holds) {
	t.Helper()
	s, err := sframe.Decode(data, 0x100000)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range s.FDEs() {
		fres, err := s.FREs(i, nil)
		if err != nil {
			t.Fatal(err)
		}
		if fres[len(fres)-1].Start >= d.Size {
			t.Errorf("FDE at %#x of %d bytes has a row at %d", d.Start, d.Size, fres[len(fres)-1].Start)
		}
		for j, e := range fres {
			h := holds{d.Start + uint64(e.Start), d.End(), e.Row, fmt.Sprint(d.KeyB, d.Signal, d.PCMask, d.RepSize)}
			if j+1 < len(fres) {
				h.end = d.Start + uint64(fres[j+1].Start)
			}
			if n := len(out); n > 0 && out[n-1].end == h.begin && out[n-1].row == h.row && out[n-1].kind == h.kind {
				out[n-1].end = h.end
				continue
			}
			out = append(out, h)
		}
	}
	return out
}

// programs returns random functions, of which some follow each other without a gap, and with rows that others have too.
func programs(r *rand.Rand, n int) []function {
	var fns []function
	at := uint64(0x10000)
	for i := range n {
		fn := function{fde: sframe.FDE{Start: at}}
		var body []uint32
		for range 1 + r.IntN(10) {
			body = append(body, []uint32{1, 2, 2, 4, 30, 300, 70000}[min(r.IntN(7), r.IntN(7))])
		}
		pc := uint32(0)
		for j, size := range body {
			fn.fres = append(fn.fres, sp(pc, int32(8+8*r.IntN(3+j%4))))
			pc += size
		}
		if i > 0 && r.IntN(2) == 0 { // the rows of another one after some of this one
			for _, e := range fns[r.IntN(i)].fres {
				e.Start += pc
				fn.fres = append(fn.fres, e)
			}
			pc = fn.fres[len(fn.fres)-1].Start + 1 + r.Uint32N(20)
		}
		fn.fde.Size = pc
		at += uint64(pc) + uint64(r.IntN(2)*r.IntN(16))
		fns = append(fns, fn)
	}
	return fns
}

// TestBest expects the same rows as without sharing, the same bytes however the functions come, and no more of them than the
// default makes; in most cases less.
func TestBest(t *testing.T) {
	for _, version := range []sframe.Version{sframe.V1, sframe.V2, sframe.V3} {
		smaller, seeds := 0, long.Pick(t, 5, 60)
		for seed := range seeds {
			r := rand.New(rand.NewPCG(uint64(seed), 2))
			fns := programs(r, 10+r.IntN(100))
			if version == sframe.V3 {
				for i := range fns {
					if r.IntN(10) == 0 {
						fns[i].fres[0] = r10(0)
					}
					fns[i].fde.Signal = r.IntN(10) == 0
				}
			}
			opt := Options{Version: version, ABI: sframe.AMD64Little}
			_, plain := encodeAll(t, opt, fns, 1)
			opt.Share = true
			_, shared := encodeAll(t, opt, fns, 1)
			opt.Best = true
			_, want := encodeAll(t, opt, fns, 1)
			if !slices.Equal(says(t, plain), says(t, want)) {
				t.Errorf("%v, seed %d: rows are others", version, seed)
			}
			if len(want) > len(shared) {
				t.Errorf("%v, seed %d: %d bytes, %d by default", version, seed, len(want), len(shared))
			} else if len(want) < len(shared) {
				smaller++
			}
			for _, parts := range []int{2, 3, 8} {
				if _, got := encodeAll(t, opt, fns, parts); !bytes.Equal(got, want) {
					t.Errorf("%v, seed %d: other bytes in %d parts", version, seed, parts)
				}
			}
			r.Shuffle(len(fns), func(i, j int) { fns[i], fns[j] = fns[j], fns[i] })
			if _, got := encodeAll(t, opt, fns, 1); !bytes.Equal(got, want) && len(want) < len(shared) {
				t.Errorf("%v, seed %d: other bytes in another order", version, seed)
			}
		}
		if smaller < seeds/2 {
			t.Errorf("%v: %d of %d programs are smaller than by default", version, smaller, seeds)
		}
	}
}

// A stretch of code is the rows that hold at its addresses, as numbers of rows.
type codeStretch []int

// tiny returns stretches of few addresses whose rows occur again.
func tiny(r *rand.Rand) []codeStretch {
	var out []codeStretch
	for range 3 {
		var s codeStretch
		for len(s) < 7 {
			row := r.IntN(4)
			for range 1 + r.IntN(2) {
				s = append(s, row)
			}
		}
		if len(out) > 0 && r.IntN(2) == 0 { // the end of another one
			n := 2 + r.IntN(4)
			copy(s[7-n:], out[0][7-n:])
		}
		out = append(out, s[:7])
	}
	return out
}

// least returns the least size of a section by trying all: an FDE may begin at each address of a stretch.
func (l tinyLayout) least(all []codeStretch) int {
	type list struct {
		rows []int // pairs of a start and a row
		size int
	}
	var lists []list
	number := func(code codeStretch) int {
		var e list
		for i, row := range code {
			if i == 0 || row != code[i-1] {
				e.rows = append(e.rows, i, row)
				e.size += l.rowSize
			}
		}
		e.size += l.attr
		i := slices.IndexFunc(lists, func(x list) bool { return slices.Equal(x.rows, e.rows) })
		if i < 0 {
			i = len(lists)
			lists = append(lists, e)
		}
		return i
	}
	type division struct {
		fdes  int
		lists [2]uint64
	}
	ways := make([][]division, len(all))
	for i, code := range all {
		for set := range 1 << (len(code) - 1) {
			d := division{}
			from := 0
			for to := 1; to <= len(code); to++ {
				if to == len(code) || set>>(to-1)&1 != 0 {
					n := number(code[from:to])
					d.lists[n/64] |= 1 << (n % 64)
					d.fdes++
					from = to
				}
			}
			ways[i] = append(ways[i], d)
		}
	}
	longer := make([][2]uint64, len(lists)) // lists that begin with the list
	for i := range lists {
		for j := range lists {
			if l.attr == 0 && i != j && len(lists[i].rows) < len(lists[j].rows) && slices.Equal(lists[i].rows, lists[j].rows[:len(lists[i].rows)]) {
				longer[i][j/64] |= 1 << (j % 64)
			}
		}
	}
	// More pieces never cost less.
	cost := func(d division) int {
		size := d.fdes * l.fde
		for w, set := range d.lists {
			for ; set != 0; set &= set - 1 {
				n := 64*w + bits.TrailingZeros64(set)
				if d.lists[0]&longer[n][0]|d.lists[1]&longer[n][1] == 0 {
					size += lists[n].size
				}
			}
		}
		return size
	}
	and := func(d, e division) division {
		return division{d.fdes + e.fdes, [2]uint64{d.lists[0] | e.lists[0], d.lists[1] | e.lists[1]}}
	}
	for i := range ways {
		slices.SortFunc(ways[i], func(d, e division) int { return cost(d) - cost(e) })
	}
	best := 1 << 30
	for _, a := range ways[0] {
		for _, b := range ways[1] {
			if cost(and(a, b)) >= best {
				continue
			}
			for _, c := range ways[2] {
				best = min(best, cost(and(and(a, b), c)))
			}
		}
	}
	return best + l.header
}

// A tinyLayout is sizes in bytes.
type tinyLayout struct{ header, fde, attr, rowSize int }

// TestBestOfAll compares the sizes of small sections with the least that trying all divisions finds.
func TestBestOfAll(t *testing.T) {
	for version, l := range map[sframe.Version]tinyLayout{
		// A row has a start address, an info word, and two words of four bytes.
		sframe.V1: {28, 17, 0, 10},
		sframe.V2: {28, 20, 0, 10},
		sframe.V3: {28, 16, 5, 10},
	} {
		same, better, seeds := 0, 0, 150
		for seed := range seeds {
			r := rand.New(rand.NewPCG(uint64(seed), 3))
			all := tiny(r)
			var fns []function
			for i, code := range all {
				// Some stretches are two functions.
				border := r.IntN(2 * len(code))
				for pc, row := range code {
					if pc == 0 || pc == border {
						fns = append(fns, function{fde: sframe.FDE{Start: 0x10000*uint64(i+1) + uint64(pc)}})
					}
					fn := &fns[len(fns)-1]
					fn.fres = append(fn.fres, fp(fn.fde.Size, int32(100000+8*row), -100000))
					fn.fde.Size++
				}
			}
			opt := Options{Version: version, ABI: sframe.AMD64Little, Share: true}
			_, shared := encodeAll(t, opt, fns, 1)
			opt.Best = true
			section, data := encodeAll(t, opt, fns, 1)
			least := l.least(all)
			if len(data) < least || len(data) > len(shared) {
				t.Errorf("%v, seed %d: %d bytes in %d FDEs; %d are the least, %d the default", version, seed, len(data), section.NumFDEs(), least, len(shared))
			}
			if len(data) == least {
				same++
			}
			if len(shared) > least {
				better++
			}
		}
		t.Logf("%v: %d of %d are the smallest; the default is not in %d", version, same, seeds, better)
		if same < seeds*9/10 || better < seeds/4 {
			t.Errorf("%v: %d of %d are the smallest; the default is not in %d", version, same, seeds, better)
		}
	}
}

// TestGather has functions that become one FDE, as nothing lies between them, and others that must not.
func TestGather(t *testing.T) {
	code := func(start uint64, size uint32, rows ...sframe.FRE) function {
		return function{sframe.FDE{Start: start, Size: size}, rows}
	}
	// Two functions with rows of their own: one FDE costs less.
	pair := func() []function {
		return []function{code(0x1000, 16, sp(0, 8), sp(4, 16), sp(12, 8)), code(0x1010, 16, sp(0, 8), sp(3, 24))}
	}
	apart, key, signal, mask, far := pair(), pair(), pair(), pair(), pair()
	apart[1].fde.Start++
	key[1].fde.KeyB = true
	signal[0].fde.Signal = true
	mask[1].fde.PCMask, mask[1].fde.RepSize = true, 16
	// The same rows in blocks of another size.
	blocks := []function{code(0x1000, 64, sp(0, 8), sp(4, 16)), code(0x1040, 64, sp(0, 8), sp(4, 16))}
	for i := range blocks {
		blocks[i].fde.PCMask, blocks[i].fde.RepSize = true, uint8(16+16*i)
	}
	far[0].fde.Size, far[1].fde.Start = 1<<32-8, 0x1000+1<<32-8 // together they have more than 32 bits
	for name, tt := range map[string]struct {
		fns  []function
		abi  sframe.ABI
		fdes int
	}{
		"together": {pair(), sframe.AMD64Little, 1}, "apart": {apart, sframe.AMD64Little, 2}, "key B": {key, sframe.AArch64Little, 2},
		"signal frame": {signal, sframe.AMD64Little, 2}, "PC mask": {mask, sframe.AMD64Little, 2}, "blocks": {blocks, sframe.AMD64Little, 2},
		"too large": {far, sframe.AMD64Little, 2},
	} {
		opt := Options{Version: sframe.V3, ABI: tt.abi}
		_, plain := encodeAll(t, opt, tt.fns, 1)
		opt.Share, opt.Best = true, true
		for parts := range 2 {
			section, data := encodeAll(t, opt, tt.fns, 1+parts)
			if section.NumFDEs() != tt.fdes {
				t.Errorf("%s, %d parts: %d FDEs, want %d", name, 1+parts, section.NumFDEs(), tt.fdes)
			}
			if !slices.Equal(says(t, plain), says(t, data)) {
				t.Errorf("%s: rows are others", name)
			}
		}
	}
	// An FDE has maxGathered functions at most, and maxTogether rows.
	for _, rows := range []int{1, 30} {
		var fns []function
		for i := range 3 * maxGathered {
			fn := code(0x1000+uint64(i)*64, 64)
			for j := range rows {
				fn.fres = append(fn.fres, sp(uint32(j), int32(1000+8*(rows*i+j))))
			}
			fns = append(fns, fn)
		}
		opt := Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true, Best: true}
		section, data := encodeAll(t, opt, fns, 1)
		want := (len(fns) + min(maxGathered, maxTogether/rows) - 1) / min(maxGathered, maxTogether/rows)
		if section.NumFDEs() != want {
			t.Errorf("%d functions of %d rows are %d FDEs, want %d", len(fns), rows, section.NumFDEs(), want)
		}
		if n := len(says(t, data)); n != len(fns)*rows {
			t.Errorf("%d functions of %d rows have %d", len(fns), rows, n)
		}
	}
}

// solverOf returns the solver for a section of functions.
func solverOf(t *testing.T, opt Options, fns []function) *solver {
	t.Helper()
	b, err := NewBuilder(opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, fn := range fns {
		if err := addTo(b, fn.fde, fn.fres); err != nil {
			t.Fatal(err)
		}
	}
	return newSolver(newStems(gather([]*Builder{b})))
}

// solved returns it after all it does.
func solved(t *testing.T, opt Options, fns []function) *solver {
	t.Helper()
	s := solverOf(t, opt, fns)
	s.balance(1)
	s.improve()
	s.pieces()
	return s
}

// TestTotal expects that what the solver takes for the size of the section is its size, and that it knows it still after
// all runs were taken out.
func TestTotal(t *testing.T) {
	for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
		for seed := range uint64(10) {
			opt := Options{Version: version, ABI: sframe.AMD64Little, Share: true, Best: true}
			r := rand.New(rand.NewPCG(seed, 4))
			fns := programs(r, 100)
			for i := range fns {
				fns[i].fde.Signal = version == sframe.V3 && r.IntN(3) == 0
			}
			s := solved(t, opt, fns)
			l, _ := version.Layout()
			if got := newSection([]*Builder{s.b}).Size(); got != uint64(l.HeaderSize)+uint64(s.total) {
				t.Errorf("%v, seed %d: %d bytes, want %d", version, seed, got, uint64(l.HeaderSize)+uint64(s.total))
			}
			for i := range s.cuts {
				s.count(uint32(i), -1)
			}
			if s.total != 0 {
				t.Errorf("%v, seed %d: %d bytes without runs", version, seed, s.total)
			}
			for v := range s.all {
				if want := (offer{price: s.full(uint32(v))}); s.offers[v] != want || s.tallies[v] != (tally{}) {
					t.Errorf("%v, seed %d: without runs, stem %d has %+v, %+v", version, seed, v, s.offers[v], s.tallies[v])
				}
			}
		}
	}
}

// TestMany has so many rows that not all stems are found, and more than are looked at.
func TestMany(t *testing.T) {
	many := func(n int) *Builder {
		b, err := NewBuilder(Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true, Best: true})
		if err != nil {
			t.Fatal(err)
		}
		var numbers [3]uint32
		for i := range numbers {
			numbers[i] = b.Row(sp(0, int32(8+8*i)).Row)
		}
		refs := make([]sframe.Ref, n)
		for i := range refs {
			refs[i] = sframe.Ref{Start: uint32(i), Row: numbers[i%3]}
		}
		if _, err := b.Add(sframe.FDE{Start: 0x1000, Size: uint32(n)}, refs); err != nil {
			t.Fatal(err)
		}
		return b
	}
	st := newStems(gather([]*Builder{many(maxRows / 2)}))
	if len(st.byPlace) > maxStems || len(st.byPlace) < maxStems-maxRows/2 {
		t.Errorf("%d rows have %d stems, want %d at most", maxRows/2, len(st.byPlace), maxStems)
	}
	if best([]*Builder{many(maxRows + 1)}) != nil {
		t.Errorf("more than %d rows are looked at", maxRows)
	}
}

// TestEffort looks at little if it may not look at more, in each of what it does, and counts all the same.
func TestEffort(t *testing.T) {
	opt := Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true, Best: true}
	fns := programs(rand.New(rand.NewPCG(1, 5)), 200)
	s := solverOf(t, opt, fns)
	s.balance(1)
	s.prepare()
	s.left = math.MaxInt64
	all := s.left
	before := s.total
	s.again(0)
	for v := range s.all {
		s.attempt(uint32(v), s.close)
	}
	for _, v := range s.wanted() {
		s.attempt(v, s.open)
	}
	if s.total >= before || s.left >= all-1000 {
		t.Errorf("%d bytes after %d, and %d were looked at", s.total, before, all-s.left)
	}
	s = solverOf(t, opt, fns)
	s.balance(1)
	s.prepare()
	s.left = -1
	for v := range s.all {
		s.attempt(uint32(v), s.close)
	}
	if n := len(s.wanted()); s.total != before || n > 0 || s.left != -1 {
		t.Errorf("%d bytes after %d, %d lists are wanted, and %d are left, though none were", s.total, before, n, s.left)
	}
}

// rowSize is the size of the rows of longRows in bytes, with a start address of one byte.
const rowSize = 10

// longRows returns functions that are apart, with rows of two words of four bytes. Each row is a letter, as often as it holds
// at an address.
func longRows(codes ...string) (fns []function) {
	for i, code := range codes {
		fn := function{fde: sframe.FDE{Start: 0x10000 * uint64(i+1), Size: uint32(len(code))}}
		for pc := range code {
			if pc == 0 || code[pc] != code[pc-1] {
				fn.fres = append(fn.fres, fp(uint32(pc), 100000+8*int32(code[pc]), -100000))
			}
		}
		fns = append(fns, fn)
	}
	return fns
}

// TestEarly has pieces that can have the rows of others if they begin within a row, and one that would begin
// where a row does, which is not a part of the piece before then.
func TestEarly(t *testing.T) {
	l, _ := sframe.V3.Layout()
	for name, tt := range map[string]struct {
		codes             []string
		fdes, lists, rows int
	}{
		"within": {[]string{"ccccdee", "ccccdee", "ccccdee", "abccc", "abccc", "abccc", "abcccccccccdee"}, 8, 2, 6},
		// Rows d and e, or a and b, are a third list then.
		"where it begins": {[]string{"ccccdee", "ccccdee", "ccccdee", "abccc", "abccc", "abccc", "abccccdee"}, 8, 3, 8},
		"too short":       {[]string{"ccccdee", "ccccdee", "ccccdee", "abccc", "abccc", "abccc", "abccdee"}, 8, 3, 8},
	} {
		opt := Options{Version: sframe.V3, ABI: sframe.AMD64Little}
		fns := longRows(tt.codes...)
		_, plain := encodeAll(t, opt, fns, 1)
		opt.Share, opt.Best = true, true
		_, data := encodeAll(t, opt, fns, 1)
		if want := l.HeaderSize + tt.fdes*l.FDESize + tt.lists*l.AttrSize + tt.rows*rowSize; len(data) != want {
			t.Errorf("%s: %d bytes, want %d", name, len(data), want)
		}
		if !slices.Equal(says(t, plain), says(t, data)) {
			t.Errorf("%s: rows are others", name)
		}
	}
}

// TestWider stores rows as the first ones of another list, with wider start addresses than they need.
func TestWider(t *testing.T) {
	l, _ := sframe.V2.Layout()
	fns := longRows("aaaaab", "aaaaab"+strings.Repeat("c", 300)+"d")
	_, data := encodeAll(t, Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true, Best: true}, fns, 1)
	if want := l.HeaderSize + 2*l.FDESize + 4*(rowSize+1); len(data) != want {
		t.Errorf("%d bytes, want %d", len(data), want)
	}
}

// TestParts expects that lists cost less if they make another one a part of themselves.
func TestParts(t *testing.T) {
	l, _ := sframe.V2.Layout()
	s := solverOf(t, Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true, Best: true}, longRows("ab", "abc", "abcd"))
	s.prepare() // nothing is there yet
	s.cuts[0] = []cut{{end: 2}}
	s.count(0, 1)
	for n := range 3 { // as many rows are not there
		s.look(uint32(n))
		if got, want := s.routes.all[2+n].cost, int64(l.FDESize+n*rowSize)*priceUnit; got != want {
			t.Errorf("run %d costs %d, want %d", n, got, want)
		}
	}
}

// TestClose has two functions that are divided for a list that they have together. One alone cannot do better, but both
// can.
func TestClose(t *testing.T) {
	l, _ := sframe.V2.Layout()
	divided := func() *solver {
		s := solverOf(t, Options{Version: sframe.V2, ABI: sframe.AMD64Little, Share: true, Best: true}, longRows("xabc", "yabc"))
		for i := range s.cuts {
			s.cuts[i] = []cut{{end: 1}, {end: 4}}
		}
		return s
	}
	s := divided()
	s.prepare()
	s.left = 1000
	together := int64(4*l.FDESize + 5*rowSize)
	for i := range s.cuts {
		if s.again(uint32(i)); s.total != together {
			t.Errorf("%d bytes after run %d, want %d", s.total, i, together)
		}
	}
	stems := s.at(1)
	if len(stems) != 3 || !s.attempt(stems[2], s.close) || s.total != int64(2*l.FDESize+8*rowSize) {
		t.Errorf("%d bytes, want %d", s.total, 2*l.FDESize+8*rowSize)
	}
	// And no more.
	if s.attempt(stems[2], s.close) || s.attempt(stems[1], s.close) || s.total != int64(2*l.FDESize+8*rowSize) {
		t.Errorf("%d bytes then", s.total)
	}
	s = divided()
	if s.improve(); s.total != int64(2*l.FDESize+8*rowSize) {
		t.Errorf("improved it has %d bytes", s.total)
	}
}

// TestNotWorse has programs for which counting alone finds something better, which is taken then.
func TestNotWorse(t *testing.T) {
	worse := 0
	for _, seed := range []uint64{3704, 5428, 5980} {
		for _, version := range []sframe.Version{sframe.V2, sframe.V3} {
			r := rand.New(rand.NewPCG(seed, 9))
			fns := programs(r, 2+r.IntN(12))
			opt := Options{Version: version, ABI: sframe.AMD64Little, Share: true}
			_, shared := encodeAll(t, opt, fns, 1)
			opt.Best = true
			_, data := encodeAll(t, opt, fns, 1)
			if len(data) > len(shared) {
				t.Errorf("%v, seed %d: %d bytes, %d by default", version, seed, len(data), len(shared))
			}
			if alone := newSection([]*Builder{solved(t, opt, fns).b}); alone.Size() > uint64(len(shared)) {
				worse++
			}
		}
	}
	if worse == 0 {
		t.Error("there are no such programs among these")
	}
}
