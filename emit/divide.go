package emit

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"cfi2sframe/internal/panics"
	"cfi2sframe/sframe"
)

// How Join divides code into FDEs
//
// Adjacent functions with the same attributes form a chain. The rows of a chain, in address order, form a single
// sequence. A row that equals the previous row is dropped, even at the start of a function. An FDE describes a piece:
// some consecutive rows of a chain. It costs an index entry (about 20 bytes) and its FRE list, which is free if another
// FDE has the same list. Long pieces therefore save entries, and short pieces save lists: most functions have the same
// rows as others up to the first epilogue, or after an epilogue. Short pieces also save time: readers such as Linux
// read rows one by one up to the row that covers a pc. A piece costs readCost for each row that a lookup of each pc
// reads.
//
//  1. A cluster is a sequence of rows that start less than minGap bytes apart: a prologue, or an epilogue up to the
//     instruction after it. A piece is one or more clusters with a limited number of rows; see rowLimit.
//  2. A trie of clusters finds all lists that occur several times, and counts them; see trie.go.
//  3. Dynamic programming divides each chain at minimum cost. Each of n uses of a list costs 1/n of its size.
//  4. Step 3 is repeated with counts of the lists of the chosen pieces instead of all possible lists.
//
// Several goroutines run steps 3 and 4, each on some of the chains. No chain crosses a multiple of blockUses functions,
// so chains are short, and the result does not depend on the number of goroutines.
//
// The effects below are on the size of the sections of gdb, libcrypto and libLLVM-14 in November 2026.
const (
	minGap    = 6    // in bytes: 12 costs up to 1.7 % (sqlite), 1 saves 0.3 % but takes three times as long
	maxRows   = 24   // 16 costs 2 to 3 %, 32 saves up to 1 %
	minRows   = 10   // lower bound of rowLimit
	rounds    = 2    // the second division saves 3 to 6 %, further divisions 0.5 %
	blockUses = 1024 // costs 0.1 %
	readCost  = 96   // in 1/byteCost bytes; 0 saves 1 to 3 %, but readers read 40 to 60 % more rows
)

// A chain is code in which FDEs can start and end at any cluster.
type chain struct {
	start uint64 // address
	size  uint32 // size of the code in bytes
	class uint16
	place int // index of the first place
}

// A piece is the code described by one FDE.
type piece struct {
	start uint64
	size  uint32
	list  uint32 // index in lists.all
	class uint16
}

// divide divides the code into pieces and stores their lists. It runs the given number of workers concurrently.
func divide(b *Builder, workers int) ([]piece, lists) {
	byStart := func(a, b use) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(b.uses, byStart) {
		slices.SortStableFunc(b.uses, byStart)
	}
	most, limit := b.measure()
	chains, places := b.chains(most)
	t := newTrie(b, places)
	dividers, end := make([]*divider, workers), 0
	for i := range dividers {
		begin := end
		for end < len(chains)-1 && chains[end].place < len(places)*(i+1)/workers {
			end++
		}
		dividers[i] = newDivider(b, t, chains[begin:end+1], limit)
	}
	if b.opt.Share {
		t.grow(limit)
		for range rounds - 1 {
			t.setCosts()
			inParallel(dividers, func(d *divider) { d.divide(d.count) })
		}
	}
	t.setCosts()
	first := dividers[0]
	pieces := len(b.uses) * 9 / 8
	first.pieces = make([]piece, 0, pieces) // capacity for the pieces of all dividers
	inParallel(dividers, func(d *divider) {
		d.pieces = slices.Grow(d.pieces, pieces/workers)
		d.made, d.lists = make([]uint32, len(t.nodes)), newLists(b.opt.Share, len(b.uses)/workers/8)
		d.divide(d.cut)
	})
	for _, d := range dividers[1:] {
		to := first.lists.join(&d.lists)
		for _, p := range d.pieces {
			p.list = to[p.list]
			first.pieces = append(first.pieces, p)
		}
	}
	return first.pieces, first.lists
}

// inParallel calls f for all dividers concurrently.
func inParallel(dividers []*divider, f func(*divider)) {
	var wg panics.Group
	for _, d := range dividers[1:] {
		wg.Go(func() { f(d) })
	}
	f(dividers[0])
	wg.Wait()
}

// measure returns an upper bound on the total number of places, and the maximum number of rows of a piece.
func (b *Builder) measure() (places int, limit uint32) {
	bytes, rows := 0.0, 0.0
	for i := range b.uses {
		r, size := &b.runs[b.uses[i].run], float64(b.uses[i].size)
		places += int(r.places)
		bytes += size
		rows += size * float64(r.rows)
	}
	return places, rowLimit(rows / max(bytes, 1))
}

// rowLimit returns the maximum number of rows of a piece, given the average number of rows per function, weighted by
// code size: 5 to 7 on aarch64, and 12 to 18 on amd64. It bounds the time of a lookup at any pc; readCost reduces the
// average.
func rowLimit(rows float64) uint32 { return uint32(min(max(2*rows, minRows), maxRows)) }

// chains builds the chains from the sorted uses; maxPlaces is an upper bound on the number of places. An additional
// chain and an additional place terminate the lists.
func (b *Builder) chains(maxPlaces int) (chains []chain, places []place) {
	places = make([]place, 0, maxPlaces+1)
	var ch *chain
	last, at := uint32(0), uint32(0) // form of the previous row; offset of the last place
	breaks := b.opt.Breaks
	for i := range b.uses {
		u := &b.uses[i]
		r := &b.runs[u.run]
		apart := i%blockUses == 0 || !b.canAppend(ch, u, r)
		for ; len(breaks) > 0 && breaks[0] <= u.start; breaks = breaks[1:] {
			apart = true
		}
		if apart {
			chains = append(chains, chain{start: u.start, place: len(places), class: r.class})
			ch = &chains[len(chains)-1]
			last, at = 0, 0
		}
		of, start := b.places[r.first:][:r.places], ch.size
		for j, p := range of {
			start += p.gap
			offset := start
			// Drop the first row if it equals the previous row. Rows encoded in more than 7 bytes are not dropped.
			if c := &b.clusters[p.cluster]; j == 0 && c.first == last && len(b.forms[last]) <= 7 {
				if c.rest == 0 {
					continue
				}
				p.cluster = c.rest
				offset += b.refs[c.row+1].Start
			}
			places = append(places, place{offset - at, p.cluster})
			at = offset
		}
		last = b.clusters[of[len(of)-1].cluster].last
		ch.size += u.size
	}
	return append(chains, chain{place: len(places)}), append(places, place{})
}

// canAppend reports whether a use of a run can be appended to a chain. PC-mask FDEs are never joined.
func (b *Builder) canAppend(ch *chain, u *use, r *run) bool {
	return r.class == ch.class && !b.classes[r.class].PCMask && u.start == ch.start+uint64(ch.size) &&
		uint64(ch.size)+uint64(u.size) <= math.MaxUint32
}

// Costs are sizes in units of 1/byteCost bytes.
const byteCost = 1 << 16

// A divider divides chains one at a time.
type divider struct {
	*Builder
	trie   *trie
	chains []chain
	limit  uint32 // maximum number of rows of a piece
	fde    uint64 // cost of an FDE without attribute
	entry  uint64 // cost of an FDE with its attribute
	pieces []piece
	lists  lists
	made   []uint32 // by node index: index of its list plus 1, or 0

	best []division // by place in the current chain; the last describes the end of the chain
}

// newDivider returns a divider for all chains but the last, which is only a terminator.
func newDivider(b *Builder, t *trie, chains []chain, limit uint32) *divider {
	fde, attr := uint64(b.layout.FDESize)*byteCost, uint64(b.layout.AttrSize)*byteCost
	return &divider{Builder: b, trie: t, chains: chains, limit: limit, fde: fde, entry: fde + attr}
}

// A division is the cheapest way to divide the places before a given place into pieces. After choose, it describes the
// piece that starts at that place.
type division struct {
	cost    uint64
	start   uint32 // offset of the place in its chain
	cluster uint32
	places  uint32 // number of places in the last piece
	node    uint32 // node of its list, or 0 if the list occurs once
}

// divide divides the chains into pieces, and calls take for each piece, where i is the index of its first place in ch.
func (d *divider) divide(take func(ch *chain, i int)) {
	for i := range d.chains[:len(d.chains)-1] {
		ch := &d.chains[i]
		d.choose(ch, d.chains[i+1].place)
		for k := 0; k < len(d.best)-1; k += int(d.best[k].places) {
			take(ch, k)
		}
	}
}

// choose divides a chain at minimum cost. The chain's places are d.trie.places[ch.place:end].
func (d *divider) choose(ch *chain, end int) {
	n, start := end-ch.place, uint32(0)
	best := slices.Grow(d.best[:0], n+1)[:n+1]
	for i, p := range d.trie.places[ch.place:end] {
		start += p.gap
		best[i] = division{cost: math.MaxUint64, start: start, cluster: p.cluster}
	}
	best[0].cost, best[n] = 0, division{cost: math.MaxUint64, start: ch.size}
	d.best = best
	for i, deepest := range d.trie.deepest[ch.place:end] {
		d.try(best, i, d.trie.nodes, deepest)
	}
	for places, node := best[n].places, best[n].node; n > 0; {
		n -= int(places)
		e := &best[n]
		places, e.places = e.places, places
		node, e.node = e.node, node
	}
}

// try tries the pieces that start at place i: first those whose lists are in the trie, then longer ones.
func (d *divider) try(best []division, i int, nodes []node, deepest uint32) {
	before, start := best[i].cost+d.fde, best[i].start
	for j := deepest; j > 0; {
		n := &nodes[j]
		e := &best[i+int(n.depth)]
		if cost := before + n.cost + uint64(n.rows)*uint64(e.start-start)*readCost; cost < e.cost {
			e.cost, e.places, e.node = cost, n.depth, j
		}
		j = n.parent
	}
	n := &nodes[deepest]
	left := best[i+int(n.depth):]
	e := &left[0]
	rows, size := n.rows, n.size
	before += (uint64(rows)*uint64(e.start-start) - n.starts) * readCost
	cost := before + uint64(n.list)*byteCost
	// Once a new piece at this place costs no more than continuing the piece from place i, the latter need not grow.
	for len(left) > 1 && e.cost+d.entry > cost {
		c := &d.clusters[e.cluster]
		if rows += c.rows; rows > d.limit {
			break
		}
		size += c.size
		at := e.start
		left = left[1:]
		e = &left[0]
		before += (uint64(rows)*uint64(e.start-at) - uint64(c.starts)) * readCost
		cost = before + uint64(size+rows<<sframe.TypeFor(at+c.span-start))*byteCost
		if cost < e.cost {
			e.cost, e.places, e.node = cost, uint32(len(best)-i-len(left)), 0
		}
	}
}

// count counts one use of a piece's list.
func (d *divider) count(_ *chain, i int) {
	if n := d.best[i].node; n > 0 {
		atomic.AddUint32(&d.trie.nodes[n].uses, 1)
	}
}

// cut adds a piece.
func (d *divider) cut(ch *chain, i int) {
	e := &d.best[i]
	p := piece{start: ch.start + uint64(e.start), size: d.best[i+int(e.places)].start - e.start, class: ch.class}
	if made := d.made[e.node]; made > 0 && d.lists.all[made-1].class == p.class {
		p.list = made - 1
	} else {
		p.list = d.lists.add(d.Builder, p.class, d.trie.places[ch.place+i:][:e.places])
		if e.node > 0 && d.opt.Share {
			d.made[e.node] = p.list + 1
		}
	}
	d.pieces = append(d.pieces, p)
}
