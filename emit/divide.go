package emit

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"cfi2sframe/sframe"
)

// counts says how often a sequence of rows occurs in the program, about: in how many places
// it, or another one with the same hash, could be an FDE of its own.
//
// Rows of most functions are the same as those of others for a part of the function only: up
// to the first epilogue, or from the first instruction of one on. An FDE more costs some
// 20 bytes, rows that are there already cost none. So all sequences that could be FDEs are
// counted first, and each run is divided where that makes the sum of its FDEs and of its
// share of their rows least. By a count of those FDEs, it is divided once more, unless the program is
// large. Nothing depends on the order of the runs, nor on which Builder they are in.
type counts struct {
	// Each sequence has two counters, by its hash, in the same 64 bytes, and the lesser one
	// counts: that is too much only if others have both. They end at 255, from where on
	// rows cost next to nothing. The length is a power of two.
	n     []uint8
	shift int // that makes an index of a hash
}

// slots returns the indexes of the counters for a hash.
func (c *counts) slots(hash uint64) (i, j uint64) {
	i = hash >> c.shift
	return i, i ^ (1 + hash&0xffff%63)
}

func (c *counts) add(hash uint64, n uint32) {
	i, j := c.slots(hash)
	c.n[i] = saturated(uint32(c.n[i]) + n)
	c.n[j] = saturated(uint32(c.n[j]) + n)
}

func saturated(n uint32) uint8 { return uint8(min(n, math.MaxUint8)) }

// of returns how often a sequence was added.
func (c *counts) of(hash uint64) uint8 {
	i, j := c.slots(hash)
	return min(c.n[i], c.n[j])
}

// merge adds the counts of others, eight at a time.
func (c *counts) merge(o *counts) {
	const high = 0x8080808080808080 // the highest bit of each
	for i := 0; i < len(c.n); i += 8 {
		a, b := binary.LittleEndian.Uint64(c.n[i:]), binary.LittleEndian.Uint64(o.n[i:])
		sum := (a&^high + b&^high) ^ (a^b)&high
		over := (a&b | (a|b)&^sum) & high // what has more than 255
		binary.LittleEndian.PutUint64(c.n[i:], sum|over>>7*math.MaxUint8)
	}
}

// A cluster is as many rows of a run as begin less than minGap bytes after the one
// before: those of a prologue or an epilogue, as a rule, up to the first instruction of what is
// after it. Runs are divided between clusters only. A piece of several clusters has at most
// maxPiece rows, or is the whole run.
type cluster struct {
	hash        uint64 // of the rows, and of how far they are from each other
	start, last uint32 // where the first and the last row begin, from the start of the run
	rows        uint32
	size        uint32 // of the rows in bytes, without their start addresses
}

// Of 4 to 12 bytes, minGap makes the sections of gdb and libLLVM as small as any other, to 0.01 %, and that
// of bash to 0.2 %. With 8 for maxPiece they are up to 1 % larger, with 16 to 64 the same, to 0.1 %.
const (
	minGap   = 6  // bytes
	maxPiece = 32 // rows
)

// maxSequences bounds the sequences of all functions, about, among which the best ones are looked for.
// Libraries of 150 MB have a million. Where there are more than that, functions stay whole, so
// that it does not take longer than all the rest.
const maxSequences = 1 << 24

// maxDivided is how many rows a run has at most that is divided. Those of compilers have a few thousand.
const maxDivided = 1 << 19

// manySequences reports whether a program has more than maxSequences. That does not depend on its parts.
func manySequences(parts []*Builder) bool {
	n := uint64(0)
	for _, p := range parts {
		for i := range p.runs {
			if r := &p.runs[i]; !r.whole {
				n += uint64(r.uses) * uint64(r.clusters) * uint64(min(r.clusters, maxPiece))
			}
		}
	}
	return n > maxSequences
}

// newCluster returns a cluster of one row.
func newCluster(start uint32, f form) cluster {
	return cluster{mix(f.hash), start, start, 1, f.size}
}

// add adds a row to a cluster.
func (c *cluster) add(start uint32, f form) {
	c.hash = mix(c.hash + uint64(start-c.last)<<56 ^ f.hash)
	c.last, c.rows, c.size = start, c.rows+1, c.size+f.size
}

// after returns the hash of a sequence with the cluster at its end. Without it, the hash is the given one, and
// the last row begins where it is said.
func (c *cluster) after(hash uint64, last uint32) uint64 {
	return mix(hash ^ c.hash + uint64(c.start-last)<<32)
}

// A sequence is the rows of n clusters of a run that follow each other.
type sequence struct {
	hash uint64 // as a list
	size uint32 // of the list in bytes, but for the attribute
	n    uint32
}

// sequences returns the sequences that begin with the i-th of the clusters of a run and could be FDEs,
// by their length, until it is called again. Of a run that is whole, that is the whole only.
func (d *divider) sequences(clusters []cluster, whole bool, i int) []sequence {
	clusters = clusters[i:]
	if len(d.found) < len(clusters) {
		d.found = make([]sequence, 2*len(clusters))
	}
	out, n := d.found[:len(clusters)], 0
	first := clusters[0].start
	last := first
	var rows, size uint32
	var hash uint64
	for j := range clusters {
		c := &clusters[j]
		if !whole && j > 0 && rows+c.rows > maxPiece {
			if i > 0 {
				break
			}
			whole = true
		}
		hash = c.after(hash, last)
		rows, size, last = rows+c.rows, size+c.size, c.last
		if whole && j+1 < len(clusters) {
			continue
		}
		out[n] = newSequence(hash, last-first, rows, size, j+1)
		n++
	}
	return out[:n]
}

// newSequence returns the sequence of n clusters with so many rows, of so many bytes without their starts. Their
// hashes make up the given one, and the last row begins where it is said.
func newSequence(hash uint64, last, rows, size uint32, n int) sequence {
	typ := sframe.TypeFor(last)
	return sequence{mix(hash + uint64(typ)), size + rows<<typ, uint32(n)}
}

// hashOf returns the hash of the sequence of all clusters.
func hashOf(clusters []cluster) uint64 {
	last := clusters[0].start
	var hash uint64
	for j := range clusters {
		c := &clusters[j]
		hash = c.after(hash, last)
		last = c.last
	}
	return newSequence(hash, last-clusters[0].start, 0, 0, 0).hash
}

// clustersOf returns the clusters of a run.
func (b *Builder) clustersOf(r *run) []cluster { return b.clusters[r.cluster : r.cluster+r.clusters] }

// newCounts makes room for the sequences of a program with so many rows. Small programs have
// more counters for each, which cost next to nothing there.
func newCounts(rows uint64) *counts {
	n := min(max(min(8*rows, 1<<18), 2*rows, 1<<10), 1<<20)
	log := bits.Len64(n - 1)
	c := &counts{make([]uint8, 1<<log), 64 - log}
	clear(c.n) // pages that are read before they are written are mapped twice
	return c
}

// A cost is that of the first clusters of a run, if they are divided best: a size in units of 2^-scale
// bytes, and in the lowest bits the cluster with which the last FDE begins. Of two that are as
// large, the one is less of which that is before the other's.
type cost uint64

const (
	scale    = 16
	fromBits = 20 // of a run with maxDivided rows, each of them and an FDE have 49 bytes at most

	unknown cost = 1 << 63 // more than any
)

// perByte is the cost of one byte of rows that n FDEs share, by n: 1/n byte.
var perByte = func() (p [math.MaxUint8 + 1]cost) {
	for n := range p {
		p[n] = 1 << scale / cost(max(n, 1)) << fromBits
	}
	return p
}()

// begins returns how many of the first clusters of a run an FDE can begin with.
func (r *run) begins() int {
	if r.whole {
		return 1
	}
	return int(r.clusters)
}

// hashLong returns the hash of a row without its start, of more than 8 bytes.
func hashLong(b []byte) (h uint64) {
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
	}
	for _, c := range b {
		h = mix(h ^ uint64(c))
	}
	return h
}

// mix is a step of a hash. It is always the same one: that the same section comes out depends
// on it.
func mix(v uint64) uint64 {
	hi, lo := bits.Mul64(v^0x243f6a8885a308d3, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// divide divides all runs of all parts.
func divide(parts []*Builder) {
	rows := uint64(0)
	for _, p := range parts {
		for i := range p.runs {
			rows += uint64(p.runs[i].num) * uint64(p.runs[i].uses)
		}
	}
	if manySequences(parts) {
		for _, p := range parts {
			for i := range p.runs {
				p.runs[i].whole = true
			}
		}
	}
	sum := counted(parts, rows, func(p *Builder, c *counts) { p.count(c) })
	if rows <= maxTwice {
		first := sum
		sum = counted(parts, rows, func(p *Builder, c *counts) { p.recount(first, c) })
	}
	each(len(parts), func(i int) { parts[i].divide(sum) })
}

// maxTwice is for how many rows FDEs are counted a second time. That makes small programs up to 7 % smaller, and
// large ones 1 %, for a twentieth of the time.
const maxTwice = 1 << 19

// counted returns what is counted for all parts, by each of them at the same time.
func counted(parts []*Builder, rows uint64, count func(*Builder, *counts)) *counts {
	all := make([]*counts, len(parts))
	each(len(parts), func(i int) {
		all[i] = newCounts(rows)
		count(parts[i], all[i])
	})
	for _, c := range all[1:] {
		all[0].merge(c)
	}
	return all[0]
}

// count counts the sequences of all runs, as often as they are used.
func (b *Builder) count(c *counts) {
	var d divider
	for i := range b.runs {
		r := &b.runs[i]
		for j := range r.begins() {
			for _, s := range d.sequences(b.clustersOf(r), r.whole, j) {
				c.add(s.hash, r.uses)
			}
		}
	}
}

// recount counts only what runs are divided into by the counts so far.
func (b *Builder) recount(c, next *counts) {
	var d divider
	for i := range b.runs {
		r := &b.runs[i]
		from, clusters := 0, b.clustersOf(r)
		for _, end := range d.choose(b, r, c) {
			next.add(hashOf(clusters[from:end]), r.uses)
			from = end
		}
	}
}

// divide makes pieces of all runs, and their lists.
func (b *Builder) divide(c *counts) {
	b.lists.pools = [][]byte{make([]byte, 0, 2*len(b.rows))}
	b.pieces = make([]piece, 0, len(b.runs)*2)
	var d divider
	for i := range b.runs {
		r := &b.runs[i]
		r.piece = uint32(len(b.pieces))
		from, rows := uint32(0), b.rows[r.row:]
		for _, end := range d.choose(b, r, c) {
			n := uint32(0)
			clusters := b.clusters[r.cluster+from : r.cluster+uint32(end)]
			for j := range clusters {
				n += clusters[j].rows
			}
			b.pieces = append(b.pieces, piece{clusters[0].start, b.narrow(r, rows[:n])})
			from, rows = uint32(end), rows[n:]
		}
		r.pieces = uint32(len(b.pieces)) - r.piece
	}
}

// A divider divides one run after the other.
type divider struct {
	best   []cost // of the first clusters, by how many they are
	chosen []int
	found  []sequence
}

// choose returns the clusters after the FDEs that the run is best divided into.
func (d *divider) choose(b *Builder, r *run, c *counts) []int {
	last := int(r.clusters)
	if d.chosen = d.chosen[:0]; r.whole || last == 1 {
		d.chosen = append(d.chosen, last)
		return d.chosen
	}
	const from = 1<<fromBits - 1
	fde, attr := cost(b.layout.FDESize)<<(scale+fromBits), uint32(b.layout.AttrSize)
	clusters := b.clustersOf(r)
	d.best = append(d.best[:0], 0)
	for range last {
		d.best = append(d.best, unknown)
	}
	for i := range last {
		before := d.best[i]&^from + fde + cost(i)
		if before >= d.best[last] {
			continue // no FDE that begins here can be a part of anything better
		}
		for _, s := range d.sequences(clusters, false, i) {
			best := &d.best[i+int(s.n)]
			*best = min(*best, before+cost(attr+s.size)*perByte[c.of(s.hash)])
		}
	}
	for j := last; j > 0; j = int(d.best[j] & from) {
		d.chosen = append(d.chosen, j)
	}
	slices.Reverse(d.chosen)
	return d.chosen
}
