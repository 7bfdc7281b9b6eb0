package emit

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"cfi2sframe/sframe"
)

// How Join divides code into FDEs.
//
// Functions with the same attributes and no byte between them form a chain. The rows of a chain in address order are
// one sequence; a row equal to the one before it is dropped, also at the start of a function. An FDE describes a piece:
// some of these rows that follow each other. It costs an index entry (20 bytes or so) and its FRE list, which costs
// nothing more if another FDE has the same one. So long pieces save entries, and short ones save lists: most functions
// have rows in common with others up to the first epilogue, or from an epilogue on.
//
//  1. Rows that begin less than minGap bytes after the one before them form a cluster: a prologue, or an epilogue up to
//     the first instruction after it. A piece is one or more clusters, with a limited number of rows; see rowLimit.
//  2. A trie of clusters finds all lists that occur several times, and how often; see trie.go.
//  3. Dynamic programming divides each chain at the least cost. A list that occurs n times costs 1/n of its size.
//  4. The lists of the chosen pieces are counted instead of all possible ones, and step 3 is repeated.
//
// All but step 2 is done for blocks of blockUses functions at the same time. No chain crosses the end of a block, so
// the result does not depend on the number of goroutines.
//
// The effects below are those on the sections of gdb, libcrypto and libLLVM-14 in November 2026.
const (
	minGap    = 6    // bytes: 12 costs up to 1.7 % (sqlite), 1 saves 0.3 % in three times the time
	maxRows   = 24   // 16 costs 2 to 3 %, 32 saves up to 1 %
	minRows   = 10   // of the limit; see rowLimit
	rounds    = 2    // the second division saves 3 to 6 %, further ones 0.5 %
	blockUses = 1024 // 0.1 %
)

// A cluster is rows that stay together. Offsets count from the start of the chain.
type cluster struct {
	start, last uint32 // offsets of the first and the last row; only the first cluster of a chain starts at 0
	size        uint32 // of the rows in bytes, without their start addresses
	hash        uint32 // of the rows and of their distances
	row         uint32 // index of the first row in Builder.rows
	rows        uint16
	part        uint16 // index of the Builder
}

// A chain is code in which FDEs can begin and end at any cluster.
type chain struct {
	start   uint64 // address
	size    uint32 // of the code in bytes
	cluster int    // index of the first cluster in the block
	run     *run   // of the first function; what fde and class say is the same for all
}

// A block is some of the code. A chain and a cluster more end the last ones.
type block struct {
	uses     []use
	chains   []chain
	clusters []cluster
	index    int // of the first cluster, counted through all blocks
}

// A piece is what one FDE describes.
type piece struct {
	fde  sframe.FDE
	list uint32 // index of its rows
}

// divide divides the code of all parts into pieces, and stores their lists.
func divide(parts []*Builder) ([]piece, lists) {
	opt := &parts[0].opt
	blocks, limit := newBlocks(parts)
	dividers := make([]divider, len(parts))
	for i := range dividers {
		dividers[i] = divider{
			layout: parts[0].layout, limit: limit, lists: newLists(opt.Share),
			pieces: make([]piece, 0, blockUses*(len(blocks)/len(parts)+1)),
		}
	}
	// all calls f for each block, by all dividers at the same time.
	all := func(f func(d *divider, b *block)) {
		each(len(dividers), func(i int) {
			for k := len(blocks) * i / len(dividers); k < len(blocks)*(i+1)/len(dividers); k++ {
				f(&dividers[i], &blocks[k])
			}
		})
	}
	all(func(_ *divider, b *block) { b.load(parts) })
	t := &trie{}
	if opt.Share && len(blocks) > 0 {
		t = newTrie(blocks, limit)
		t.price()
		for range rounds - 1 {
			uses := make([]uint32, len(t.nodes))
			all(func(d *divider, b *block) {
				d.divide(b, t, func(_, begin, end int) {
					if n := t.at(b.index+begin, end-begin); n > 0 {
						atomic.AddUint32(&uses[n], 1)
					}
				})
			})
			for i := range uses {
				t.nodes[i].uses = uses[i]
			}
			t.price()
		}
	}
	all(func(d *divider, b *block) {
		d.divide(b, t, func(chain, begin, end int) { d.cut(parts, b, chain, begin, end) })
	})
	first := &dividers[0]
	for i := range dividers[1:] {
		d := &dividers[1+i]
		to := first.lists.join(&d.lists)
		for _, p := range d.pieces {
			p.list = to[p.list]
			first.pieces = append(first.pieces, p)
		}
	}
	return first.pieces, first.lists
}

// newBlocks returns blocks of all functions, in address order, with memory for their clusters. It also returns how many
// rows a piece may have.
func newBlocks(parts []*Builder) (blocks []block, limit uint32) {
	index, bytes, rows := 0, 0.0, 0.0
	for uses := range slices.Chunk(sortedUses(parts), blockUses) {
		blocks = append(blocks, block{uses: uses, index: index})
		for i := range uses {
			r := &parts[uses[i].part].runs[uses[i].run]
			index += int(r.clusters)
			bytes += float64(uses[i].size)
			rows += float64(uses[i].size) * float64(r.num)
		}
		index++
	}
	clusters := make([]cluster, index)
	for i := range blocks {
		blocks[i].clusters = clusters[blocks[i].index:]
	}
	return blocks, rowLimit(rows / max(bytes, 1))
}

// rowLimit returns how many rows a piece may have, if the function of an average byte of code has the given number.
// Readers go through the rows of an FDE one by one. With twice as many rows, which costs as much time as fewer FDEs
// save, lookups take as long as with an FDE for each function. These functions have 5 to 7 rows on aarch64, and 12 to
// 18 on amd64.
func rowLimit(rows float64) uint32 { return uint32(min(max(2*rows, minRows), maxRows)) }

// each calls f for all numbers below n at the same time.
func each(n int, f func(int)) {
	var wg sync.WaitGroup
	for i := 1; i < n; i++ {
		wg.Go(func() { f(i) })
	}
	f(0)
	wg.Wait()
}

// sortedUses returns all uses in the order of their addresses.
func sortedUses(parts []*Builder) []use {
	n := 0
	for _, p := range parts {
		n += len(p.uses)
	}
	uses := make([]use, 0, n)
	for i, p := range parts {
		for _, u := range p.uses {
			u.part = uint32(i)
			uses = append(uses, u)
		}
	}
	byStart := func(a, b use) int { return cmp.Compare(a.start, b.start) }
	if !slices.IsSortedFunc(uses, byStart) {
		slices.SortStableFunc(uses, byStart)
	}
	return uses
}

// key returns the bytes of a row of up to 7 bytes, with their number, and 0 for a longer one.
func (f *form) key() uint64 {
	if f.size > 7 {
		return 0
	}
	return f.bytes | uint64(f.size)<<56
}

// nextCluster returns how many of the rows the first cluster has: all of them, or those that are near enough.
func nextCluster(rows []sframe.Ref, all bool) int {
	if all {
		return len(rows)
	}
	n := 1
	for n < len(rows) && n < maxRows && rows[n].Start-rows[n-1].Start < minGap {
		n++
	}
	return n
}

// numClusters returns how many clusters the rows have.
func numClusters(rows []sframe.Ref, all bool) (n uint32) {
	for ; len(rows) > 0; n++ {
		rows = rows[nextCluster(rows, all):]
	}
	return n
}

// newCluster returns the cluster of all the rows, whose offsets count from the start of their function.
func newCluster(rows []sframe.Ref, forms []form) cluster {
	c := cluster{start: rows[0].Start, last: rows[0].Start, rows: uint16(len(rows))}
	hash := uint64(0)
	for _, e := range rows {
		f := &forms[e.Row]
		hash = mix(hash + uint64(e.Start-c.last)<<56 ^ f.bytes)
		c.last, c.size = e.Start, c.size+f.size
	}
	c.hash = uint32(hash)
	return c
}

// mix is a step of a hash. It is always the same, as the division of code depends on it.
func mix(v uint64) uint64 {
	hi, lo := bits.Mul64(v^0x243f6a8885a308d3, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// load makes chains of the functions of the block.
func (b *block) load(parts []*Builder) {
	var ch *chain
	last, n := uint64(0), 0 // the row before, and the number of clusters
	for i := range b.uses {
		u := &b.uses[i]
		p := parts[u.part]
		r := &p.runs[u.run]
		if i == 0 || !ch.takes(u, r) {
			b.chains = append(b.chains, chain{start: u.start, cluster: n, run: r})
			ch = &b.chains[len(b.chains)-1]
			last = 0
		}
		row, rows, forms := r.row, p.rows[r.row:][:r.num], p.forms[typeIndex(r.fde.Flexible)]
		if last > 0 && forms[rows[0].Row].key() == last {
			row, rows = row+1, rows[1:]
		}
		last = forms[p.rows[r.row+r.num-1].Row].key()
		for len(rows) > 0 {
			k := nextCluster(rows, r.fde.PCMask)
			c := newCluster(rows[:k], forms)
			c.start, c.last, c.row, c.part = c.start+ch.size-r.base, c.last+ch.size-r.base, row, uint16(u.part)
			b.clusters[n] = c
			row, rows, n = row+uint32(k), rows[k:], n+1
		}
		ch.size += u.size
	}
	b.clusters[n] = cluster{} // the start of the next chain
	b.clusters = b.clusters[:n+1]
	b.chains = append(b.chains, chain{cluster: n})
}

// takes reports whether a use of a run continues the chain. A PC-mask FDE stays alone.
func (ch *chain) takes(u *use, r *run) bool {
	return r.class == ch.run.class && !r.fde.PCMask && u.start == ch.start+uint64(ch.size) &&
		uint64(ch.size)+uint64(u.size) <= math.MaxUint32
}

// Costs are sizes in units of 1/byteCost byte.
const byteCost = 1 << 16

// A divider divides one chain after the other.
type divider struct {
	layout *sframe.Layout
	limit  uint32 // of the rows of a piece
	pieces []piece
	lists  lists

	best []division // of the first clusters of a chain, by their number
	ends []int
}

// A division is the cheapest one of the first clusters of a chain.
type division struct {
	cost uint64
	from int // the cluster with which the last piece begins
}

// divide divides all chains of the block, and calls take for each piece: clusters of a chain from begin to before end.
func (d *divider) divide(b *block, t *trie, take func(chain, begin, end int)) {
	for i := range b.chains[:len(b.chains)-1] {
		begin := b.chains[i].cluster
		for _, end := range d.choose(b, t, begin, b.chains[i+1].cluster) {
			take(i, begin, end)
			begin = end
		}
	}
}

// choose divides the clusters from first to before last, a chain, at the least cost. It returns the cluster after each
// piece; the slice is valid until the next call.
func (d *divider) choose(b *block, t *trie, first, last int) []int {
	fde, attr := uint64(d.layout.FDESize)*byteCost, uint32(d.layout.AttrSize)
	all := b.clusters[first:last]
	d.best = slices.Grow(d.best[:0], len(all)+1)
	best := d.best[:len(all)+1]
	for i := range best {
		best[i].cost = math.MaxUint64
	}
	best[0].cost = 0
	for i := range all {
		// Pieces that begin with cluster i: ends[k] is the division after k+1 clusters.
		clusters, ends := all[i:], best[i+1:]
		before, begin := best[i].cost+fde, clusters[0].start
		rows, size, list := uint32(0), uint32(0), uint32(0) // of the rows without and with their start addresses
		prices := t.costs(b.index + first + i)
		for k, price := range prices {
			c, end := &clusters[k], &ends[k]
			rows, size = rows+uint32(c.rows), size+c.size
			list = size + rows<<sframe.TypeFor(c.last-begin)
			if cost := before + uint64(attr+list)*uint64(price); cost < end.cost {
				*end = division{cost, i}
			}
		}
		for k := len(prices); k < len(clusters); k++ {
			if k > 0 && ends[k-1].cost+fde <= before+uint64(list)*byteCost {
				break // pieces that begin with cluster i+k are not worse than those with all rows from i on
			}
			c, end := &clusters[k], &ends[k]
			if rows += uint32(c.rows); rows > d.limit && k > 0 {
				break
			}
			size += c.size
			list = size + rows<<sframe.TypeFor(c.last-begin)
			if cost := before + uint64(attr+list)*byteCost; cost < end.cost {
				*end = division{cost, i}
			}
		}
	}
	d.ends = d.ends[:0]
	for i := len(all); i > 0; i = best[i].from {
		d.ends = append(d.ends, first+i)
	}
	slices.Reverse(d.ends)
	return d.ends
}

// cut makes a piece of clusters of a chain.
func (d *divider) cut(parts []*Builder, b *block, chain, begin, end int) {
	ch := &b.chains[chain]
	start, stop := b.clusters[begin].start, ch.size
	if end < b.chains[chain+1].cluster {
		stop = b.clusters[end].start
	}
	p := piece{fde: ch.run.fde}
	p.fde.Start, p.fde.Size = ch.start+uint64(start), stop-start
	clusters, rows := b.clusters[begin:end], uint32(0)
	for i := range clusters {
		rows += uint32(clusters[i].rows)
	}
	e := d.lists.begin(parts[0].codec, &p.fde, rows, clusters[len(clusters)-1].last-start)
	for i := range clusters {
		c := &clusters[i]
		rows := parts[c.part].rows[c.row:][:c.rows]
		d.lists.rows(&e, parts[c.part], rows, start-(c.start-rows[0].Start))
	}
	p.list = d.lists.add(e.off, e.list)
	d.pieces = append(d.pieces, p)
}
