package emit

import "math/bits"

// A trie has a node for each list that occurs several times in the code. Each step from a node to the next is a
// cluster.
type trie struct {
	parent  []uint32 // of each node; 0 is the root
	uses    []uint32 // of each node: how often the list occurs
	depth   []uint8  // of each node, in clusters
	path    []uint32 // of each node: where the costs begin in prices
	prices  []uint32 // the cost of a byte of the lists on the way to a node
	deepest []uint32 // of each cluster, by index: the node of the longest such list that begins with it
}

// newTrie returns the trie of all lists in the blocks. Each round extends the lists that occur several times by one
// cluster. Lists are compared by hashes: a collision makes a section larger, not wrong.
func newTrie(blocks []block, limit uint32) *trie {
	last := &blocks[len(blocks)-1]
	clusters := blocks[0].clusters[:last.index+len(last.clusters)] // of all blocks
	n := len(clusters)/4 + 1                                       // about as many lists occur again in large files
	t := &trie{
		parent: make([]uint32, 1, n), uses: make([]uint32, 1, n), depth: make([]uint8, 1, n),
		deepest: make([]uint32, len(clusters)),
	}

	// A place is the first cluster of a list, and the list's node.
	type place struct{ cluster, node, rows uint32 }
	places := make([]place, 0, len(clusters))
	for _, b := range blocks {
		for i := range len(b.clusters) - 1 {
			places = append(places, place{cluster: uint32(b.index + i)})
		}
	}
	// A slot is a list by its hash.
	type slot struct {
		hash  uint32
		place uint32 // where it occurs first, plus 1; 0: the slot is free
	}
	slots := make([]slot, 1<<bits.Len(uint(len(places))))
	for depth := uint8(1); len(places) > 0 && uint32(depth) <= limit; depth++ {
		log := bits.Len(uint(len(places)))
		slots = slots[:1<<log]
		clear(slots)
		for i := range places {
			p := &places[i]
			at := p.cluster + uint32(depth) - 1
			c, parent := &clusters[at], p.node
			h := uint64(parent)
			if depth > 1 { // the distance to what is before the list does not matter
				h = mix(h<<32 ^ uint64(c.start-clusters[at-1].last))
			}
			h = mix(h ^ uint64(c.hash))
			for at := h >> (64 - log); ; at = (at + 1) & (1<<log - 1) {
				e := &slots[at]
				if e.place > 0 && e.hash != uint32(h) {
					continue
				}
				if p.node = 0; e.place == 0 {
					*e = slot{hash: uint32(h), place: uint32(i) + 1}
					break
				}
				first := &places[e.place-1]
				if first.node == 0 {
					first.node = uint32(len(t.parent))
					t.parent, t.uses, t.depth = append(t.parent, parent), append(t.uses, 1), append(t.depth, depth)
				}
				p.node = first.node
				t.uses[p.node]++
				break
			}
		}
		left := places[:0]
		for _, p := range places {
			if p.node == 0 {
				continue
			}
			t.deepest[p.cluster] = p.node
			next := &clusters[p.cluster+uint32(depth)]
			p.rows += uint32(clusters[p.cluster+uint32(depth)-1].rows)
			if next.start > 0 && p.rows+uint32(next.rows) <= limit {
				left = append(left, p)
			}
		}
		places = left
	}
	return t
}

// price sets prices: the cost of a list is divided among the FDEs that use it.
func (t *trie) price() {
	if t.path == nil {
		size := 0
		for _, depth := range t.depth {
			size += int(depth)
		}
		t.path, t.prices = make([]uint32, len(t.parent)), make([]uint32, 0, size)
	}
	t.prices = t.prices[:0]
	for n := 1; n < len(t.parent); n++ {
		parent := t.parent[n]
		t.path[n] = uint32(len(t.prices))
		t.prices = append(t.prices, t.prices[t.path[parent]:][:t.depth[parent]]...)
		t.prices = append(t.prices, byteCost/max(t.uses[n], 1))
	}
}

// costs returns the costs of a byte of the shared lists that begin with a cluster, by their number of clusters.
func (t *trie) costs(cluster int) []uint32 {
	if t.deepest == nil { // lists are not shared
		return nil
	}
	n := t.deepest[cluster]
	return t.prices[t.path[n]:][:t.depth[n]]
}

// at returns the node of the list of the given number of clusters, or 0 if it occurs only once.
func (t *trie) at(cluster, clusters int) uint32 {
	n := t.deepest[cluster]
	for int(t.depth[n]) > clusters {
		n = t.parent[n]
	}
	if int(t.depth[n]) < clusters {
		return 0
	}
	return n
}
