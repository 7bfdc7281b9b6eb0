package emit

import (
	"math/bits"
	"slices"

	"cfi2sframe/sframe"
)

// A trie has a node for each cluster, and for each longer list that occurs several times in the code. Each edge is a
// cluster.
type trie struct {
	clusters []cluster
	limit    uint32 // maximum number of rows of a list
	places   []place
	nodes    []node   // the first is the root, the empty list
	deepest  []uint32 // by place: node of the longest list that starts there
}

// A node represents the list of the clusters on the path from the root.
type node struct {
	cost   uint64 // cost of the list to each FDE that uses it, less starts*readCost, modulo 2^64
	parent uint32 // the list without its last cluster
	uses   uint32 // number of occurrences of the list
	depth  uint32 // number of clusters
	rows   uint32 // number of rows
	size   uint32 // size in bytes of the attribute and of the rows without their start addresses
	list   uint32 // size in bytes including start addresses
	starts uint64 // sum of the rows' offsets in the list, which a lookup of each pc does not read
}

// newTrie returns a trie of the single-cluster lists. Their nodes have the same indexes as the clusters.
func newTrie(b *Builder, places []place) *trie {
	t := &trie{
		clusters: b.clusters, places: places, deepest: make([]uint32, len(places)),
		nodes: make([]node, 1, len(b.clusters)+len(places)/3), // enough for most large files
	}
	t.nodes[0].size = uint32(b.layout.AttrSize)
	for i := range t.clusters[1:] {
		t.add(0, uint32(1+i), 0)
	}
	for i := range places {
		t.deepest[i] = places[i].cluster
	}
	return t
}

// grow adds all longer lists that occur several times. Each round extends the lists of the previous round by a cluster.
func (t *trie) grow(limit uint32) {
	for _, n := range t.deepest {
		t.nodes[n].uses++
	}
	t.limit = limit
	starts := make([]uint32, 0, len(t.places))
	for i, n := range t.deepest {
		if t.nodes[n].uses > 1 {
			starts = append(starts, uint32(i))
		}
	}
	var slots []slot
	for depth := uint32(1); len(starts) > 0; depth++ {
		n := 1 << bits.Len(uint(len(starts)*4/3)) // at most three quarters are used
		slots = slices.Grow(slots[:0], n)[:n]
		clear(slots)
		starts = t.extend(starts, depth, slots)
	}
}

// A slot is an entry of a hash table of lists. Each of these is one cluster longer than the list of a node.
type slot struct {
	hash  uint32
	start uint32 // place of the first occurrence plus 1; 0: the slot is empty
}

// extend extends the lists of the given depth. It adds to the trie those extended lists that occur several times, and
// returns their places.
func (t *trie) extend(starts []uint32, depth uint32, slots []slot) []uint32 {
	left, mask := starts[:0], uint32(len(slots)-1)
	places, deepest := t.places, t.deepest
	for _, start := range starts {
		parent, next := deepest[start], places[start+depth]
		if next.gap == 0 { // start of another chain
			continue
		}
		hash := uint32((uint64(parent)*hashFactor ^ uint64(next.gap)<<32 ^ uint64(next.cluster)) * hashFactor >> 32)
		for i := hash; ; i++ {
			s := &slots[i&mask]
			if s.start == 0 {
				*s = slot{hash, start + 1}
				break
			}
			first := s.start - 1
			if s.hash != hash || places[first+depth] != next {
				continue
			}
			n := deepest[first]
			if n == parent { // second occurrence of the list
				if t.nodes[n].rows+t.clusters[next.cluster].rows > t.limit {
					break
				}
				n = t.add(parent, next.cluster, t.distance(first, depth))
				t.nodes[n].uses = 1
				deepest[first] = n
				left = append(left, first)
			} else if t.nodes[n].parent != parent {
				continue
			}
			t.nodes[n].uses++
			deepest[start] = n
			left = append(left, start)
			break
		}
	}
	return left
}

// distance returns the distance in bytes from t.places[start] to t.places[start+places].
func (t *trie) distance(start, places uint32) (sum uint32) {
	for _, p := range t.places[start+1 : start+places+1] {
		sum += p.gap
	}
	return sum
}

// add adds the node of a list and returns its index. The list is its parent's list, followed by a cluster at an offset.
func (t *trie) add(parent, cluster, offset uint32) uint32 {
	p, c := &t.nodes[parent], &t.clusters[cluster]
	n := node{parent: parent, depth: p.depth + 1, rows: p.rows + c.rows, size: p.size + c.size}
	n.starts = p.starts + uint64(c.rows)*uint64(offset) + uint64(c.starts)
	n.list = n.size + n.rows<<sframe.TypeFor(offset+c.span)
	t.nodes = append(t.nodes, n)
	return uint32(len(t.nodes) - 1)
}

// setCosts computes the costs of lists from their uses, and resets the uses.
func (t *trie) setCosts() {
	for i := range t.nodes {
		n := &t.nodes[i]
		n.cost = uint64(n.list)*(byteCost/uint64(max(n.uses, 1))) - n.starts*readCost
		n.uses = 0
	}
}
