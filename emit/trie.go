package emit

import (
	"math/bits"
	"sync/atomic"

	"cfi2sframe/sframe"
)

// A trie has a node for each list that occurs several times in the code. Each step from a node to the next is a
// cluster.
type trie struct {
	clusters []cluster
	limit    uint32 // of the rows of a list
	places   []place
	nodes    []node   // the first one is the root, the empty list
	deepest  []uint32 // of each place: the node of the longest such list that begins with it
}

// A node is a list.
type node struct {
	cost   uint64 // of the list in an FDE: it is divided among all that use it
	parent uint32 // the list without its last cluster
	uses   uint32 // how often the list occurs
	depth  uint32 // number of clusters
	rows   uint32 // their number
	size   uint32 // of the rows in bytes, without their start addresses, and of the attribute
	list   uint32 // the same with start addresses
}

// newTrie returns a trie of the lists of one cluster. Their nodes have the indexes of the clusters.
func newTrie(b *Builder, places []place) *trie {
	t := &trie{
		clusters: b.clusters, places: places, deepest: make([]uint32, len(places)),
		nodes: make([]node, 1, len(b.clusters)+len(places)/3), // enough for most large files
	}
	t.nodes[0].size = uint32(b.layout.AttrSize)
	for i := range t.clusters[1:] {
		c := &t.clusters[1+i]
		t.add(0, c, c.span)
	}
	for i := range places {
		t.deepest[i] = places[i].cluster
	}
	return t
}

// grow adds all longer lists that occur several times. Each round extends those of the round before by a cluster.
func (t *trie) grow(limit uint32) {
	for _, n := range t.deepest {
		t.nodes[n].uses++
	}
	t.limit = limit
	starts := make([]uint32, 0, len(t.places))
	for i, n := range t.deepest {
		if t.nodes[n].uses > 1 {
			starts = t.extendable(starts, uint32(i), n)
		}
	}
	slots := make([]slot, 1<<bits.Len(uint(len(starts))))
	for depth := uint32(1); len(starts) > 0; depth++ {
		slots = slots[:1<<bits.Len(uint(len(starts)))]
		clear(slots)
		starts = t.extend(starts, depth, slots)
	}
}

// A slot of a hash table has a list that is a cluster longer than a node.
type slot struct {
	hash  uint32
	start uint32 // where the list is first, plus 1; 0: the slot is free
}

// extend adds the lists with a cluster more than depth to the trie. It gets the places with which such lists begin, and
// returns those whose lists can be extended again.
func (t *trie) extend(starts []uint32, depth uint32, slots []slot) []uint32 {
	left, shift, mask := starts[:0], 65-bits.Len(uint(len(slots))), uint64(len(slots)-1)
	places, deepest := t.places, t.deepest
	for _, start := range starts {
		parent, step := deepest[start], stepTo(places, start+depth)
		h := mix(uint64(parent)*0x9e3779b97f4a7c15 ^ uint64(step.start)<<32 ^ uint64(step.cluster))
		for i := h >> shift; ; i++ {
			s := &slots[i&mask]
			if s.start == 0 {
				*s = slot{uint32(h), start + 1}
				break
			}
			first := s.start - 1
			if s.hash != uint32(h) || stepTo(places, first+depth) != step {
				continue
			}
			n := deepest[first]
			if n == parent { // until now, the list occurred once
				p := &places[first+depth]
				c := &t.clusters[p.cluster]
				n = t.add(parent, c, p.start+c.span-places[first].start)
				t.nodes[n].uses = 1
				deepest[first] = n
				left = t.extendable(left, first, n)
			} else if t.nodes[n].parent != parent {
				continue
			}
			t.nodes[n].uses++
			deepest[start] = n
			left = t.extendable(left, start, n)
			break
		}
	}
	return left
}

// stepTo returns the cluster at a place, and its distance from the cluster before.
func stepTo(places []place, i uint32) place {
	p := places[i]
	p.start -= places[i-1].start
	return p
}

// add adds the node of a list and returns its index. The list is its parent and a cluster, whose last row is at an
// offset from the first row of the list.
func (t *trie) add(parent uint32, c *cluster, last uint32) uint32 {
	p := &t.nodes[parent]
	n := node{parent: parent, depth: p.depth + 1, rows: p.rows + c.rows, size: p.size + c.size}
	n.list = n.size + n.rows<<sframe.TypeFor(last)
	t.nodes = append(t.nodes, n)
	return uint32(len(t.nodes) - 1)
}

// extendable adds a place to those whose lists can be extended, if the list is followed by a cluster of the same chain
// that does not have too many rows.
func (t *trie) extendable(starts []uint32, start, n uint32) []uint32 {
	next := &t.places[start+t.nodes[n].depth]
	if next.start > 0 && t.nodes[n].rows+t.clusters[next.cluster].rows <= t.limit {
		starts = append(starts, start)
	}
	return starts
}

// price sets the costs of lists by their uses, and resets these.
func (t *trie) price() {
	for i := range t.nodes {
		n := &t.nodes[i]
		n.cost = uint64(n.list) * (byteCost / uint64(max(n.uses, 1)))
		n.uses = 0
	}
}

// count counts a use.
func (t *trie) count(_ *chain, s stretch) {
	if s.node > 0 {
		atomic.AddUint32(&t.nodes[s.node].uses, 1)
	}
}
