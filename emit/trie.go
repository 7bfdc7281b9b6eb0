package emit

import "math/bits"

// A trie has a node for each list that occurs several times in the code. Each step from a node to the next is a
// cluster.
type trie struct {
	nodes   []node   // the first one is the root, the empty list
	deepest []uint32 // of each cluster, by index: the node of the longest such list that begins with it
	prices  []uint32 // the cost of a byte of each list on the way to a node
}

// A node is a list.
type node struct {
	parent uint32 // the list without its last cluster
	uses   uint32 // how often the list occurs
	path   uint32 // where the costs begin in prices
	depth  uint32 // number of clusters
}

// An occurrence is where a list occurs.
type occurrence struct {
	cluster uint32 // index of its first cluster
	node    uint32 // of the list without its last cluster; then of the list, or 0 if it occurs once
	rows    uint32 // without the last cluster
}

// newTrie returns the trie of all lists in the blocks. It begins with the lists of one cluster. Each round extends the
// lists that occur several times by one cluster.
func newTrie(blocks []block, limit uint32) *trie {
	last := &blocks[len(blocks)-1]
	clusters := blocks[0].clusters[:last.index+len(last.clusters)] // of all blocks
	places := make([]occurrence, 0, len(clusters))
	for _, b := range blocks {
		for i := range len(b.clusters) - 1 {
			places = append(places, occurrence{cluster: uint32(b.index + i)})
		}
	}
	t := &trie{
		nodes:   make([]node, 1, len(clusters)/4+1), // about as many lists occur again in large files
		deepest: make([]uint32, len(clusters)),
	}
	table := newHashTable(len(places))
	for depth := uint32(1); len(places) > 0 && depth <= limit; depth++ {
		table.clear(len(places))
		t.count(places, clusters, depth, &table)
		places = t.extend(places, clusters, depth, limit)
	}
	return t
}

// count sets the nodes of the places to those of their lists, and makes nodes for lists that occur several times. Lists
// are compared by hashes: a collision makes a section larger, not wrong.
func (t *trie) count(places []occurrence, clusters []cluster, depth uint32, table *hashTable) {
	for i := range places {
		p := &places[i]
		parent, at := p.node, p.cluster+depth-1
		h := uint64(parent)
		if depth > 1 { // the distance to what is before the list does not matter
			h = mix(h<<32 ^ uint64(clusters[at].start-clusters[at-1].last))
		}
		h = mix(h ^ uint64(clusters[at].hash))
		first := &places[table.add(h, uint32(i))]
		if first == p {
			p.node = 0
			continue
		}
		if first.node == 0 {
			first.node = uint32(len(t.nodes))
			t.nodes = append(t.nodes, node{parent: parent, uses: 1, depth: depth})
		}
		p.node = first.node
		t.nodes[p.node].uses++
	}
}

// extend returns the places of lists that can be extended by a cluster: those that occur several times, and are
// followed by a cluster of the same chain that does not have too many rows.
func (t *trie) extend(places []occurrence, clusters []cluster, depth, limit uint32) []occurrence {
	left := places[:0]
	for _, p := range places {
		if p.node == 0 {
			continue
		}
		t.deepest[p.cluster] = p.node
		last, next := &clusters[p.cluster+depth-1], &clusters[p.cluster+depth]
		p.rows += uint32(last.rows)
		if next.start > 0 && p.rows+uint32(next.rows) <= limit {
			left = append(left, p)
		}
	}
	return left
}

// A hashTable has the hashes of lists, and the index of the first place of each.
type hashTable struct {
	slots []slot
	shift int // of hashes
}

type slot struct {
	hash  uint32
	place uint32 // plus 1; 0: the slot is free
}

func newHashTable(n int) hashTable { return hashTable{slots: make([]slot, 1<<bits.Len(uint(n)))} }

// clear makes the table an empty one for up to n hashes, not more than before.
func (t *hashTable) clear(n int) {
	log := bits.Len(uint(n))
	t.slots, t.shift = t.slots[:1<<log], 64-log
	clear(t.slots)
}

// add returns the first place with the hash, which is the given one if the table has no other.
func (t *hashTable) add(h uint64, place uint32) uint32 {
	for i := h >> t.shift; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.place == 0 {
			*s = slot{uint32(h), place + 1}
			return place
		}
		if s.hash == uint32(h) {
			return s.place - 1
		}
	}
}

// price sets prices: the cost of a list is divided among the FDEs that use it.
func (t *trie) price() {
	if t.prices == nil {
		size := uint32(0)
		for i := range t.nodes {
			size += t.nodes[i].depth
		}
		t.prices = make([]uint32, 0, size)
	}
	t.prices = t.prices[:0]
	for i := 1; i < len(t.nodes); i++ {
		n := &t.nodes[i]
		parent := &t.nodes[n.parent]
		n.path = uint32(len(t.prices))
		t.prices = append(t.prices, t.prices[parent.path:][:parent.depth]...)
		t.prices = append(t.prices, byteCost/max(n.uses, 1))
	}
}

// costs returns the costs of a byte of the shared lists that begin with a cluster, by their number of clusters.
func (t *trie) costs(cluster int) []uint32 {
	if t.deepest == nil { // lists are not shared
		return nil
	}
	n := &t.nodes[t.deepest[cluster]]
	return t.prices[n.path:][:n.depth]
}

// at returns the index of the node of the list of the given number of clusters, or 0 if it occurs only once.
func (t *trie) at(cluster, clusters int) uint32 {
	i := t.deepest[cluster]
	for t.nodes[i].depth > uint32(clusters) {
		i = t.nodes[i].parent
	}
	if t.nodes[i].depth < uint32(clusters) {
		return 0
	}
	return i
}
