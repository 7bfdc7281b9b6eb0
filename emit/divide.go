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
// Rows of most functions are the same as those of others for a part of the function only:
// after the prologue, or from the first instruction of an epilogue on. An FDE more costs
// some 20 bytes, rows that are there already cost none. So all sequences that could be FDEs
// are counted first, and then each unit is divided where that makes the sum of its
// FDEs and of its share of their rows least. Nothing depends on the order of the units, nor
// on which Builder they are in.
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

// of returns how often a sequence was added, or 1.
func (c *counts) of(hash uint64) uint8 {
	i, j := c.slots(hash)
	return max(min(c.n[i], c.n[j]), 1)
}

// merge adds the counts of others.
func (c *counts) merge(o *counts) {
	for i, n := range o.n {
		if n > 0 {
			c.n[i] = saturated(uint32(c.n[i]) + uint32(n))
		}
	}
}

// Sequences begin and end where a row holds for minGap bytes at least. The rows of a prologue
// or an epilogue are nearer, and stay together. They have maxPiece rows at most, as long as
// there are such places.
const (
	minGap   = 6
	maxPiece = 32
)

// maxCounts bounds the sequences that are told apart.
const maxCounts = 1 << 20

// newCounts makes room for the sequences of a program, of which the number of uses of units
// is known.
func newCounts(uses int) *counts {
	log := bits.Len(uint(min(max(256*uses, 1<<10), maxCounts) - 1))
	c := &counts{make([]uint8, 1<<log), 64 - log}
	clear(c.n) // pages that are read before they are written are mapped twice
	return c
}

// A divider looks at the rows of one unit.
type divider struct {
	raw    []byte
	starts []uint32 // of the rows, from the start of the unit
	hashes []uint64 // of the rows, without their starts
	offs   []uint32 // of the rows in raw, and of its end
	cuts   []int    // rows where an FDE can begin, and the number of rows
	best   []cost   // of the rows before each cut
	chosen []int    // cuts
}

// A cost is that of the rows before a cut, if they are divided best: the last FDE begins at
// the cut from.
type cost struct {
	size uint64 // in bytes, times 2^16
	from int
}

// scale makes bytes of a cost.
const scale = 16

// read reads the rows of a unit, and finds the cuts.
func (d *divider) read(b *Builder, u *unit) {
	d.raw = b.raw[u.raw:cap(b.raw)] // with the slack behind the last row
	d.starts, d.hashes, d.offs, d.cuts = d.starts[:0], d.hashes[:0], d.offs[:0], d.cuts[:0]
	at := 0
	for i := range int(u.num) {
		start := binary.LittleEndian.Uint32(d.raw[at:])
		if i == 0 || start-d.starts[i-1] >= minGap {
			d.cuts = append(d.cuts, i)
		}
		n := rawSize(d.raw[at:])
		d.starts = append(d.starts, start)
		h := binary.LittleEndian.Uint64(d.raw[at+4:])
		if n <= 4+8 {
			h = mix(h & (1<<(8*(n-4)) - 1))
		} else {
			h = hashLong(d.raw[at+4 : at+n])
		}
		d.hashes = append(d.hashes, h)
		d.offs = append(d.offs, uint32(at))
		at += n
	}
	d.offs = append(d.offs, uint32(at))
	// To divide a unit cannot save more than its rows, and costs an FDE at least. PC-mask
	// FDEs cannot be divided.
	if u.info&sframe.FDEInfoPCMask != 0 || at <= b.layout.FDESize {
		d.cuts = d.cuts[:1]
	}
	d.cuts = append(d.cuts, int(u.num))
}

// sequences calls visit for each sequence of rows that could be an FDE, from the i-th cut on:
// up to the j-th one, with its hash and the size of its list in bytes but for the
// attribute.
func (d *divider) sequences(i int, visit func(j int, hash uint64, size uint32)) {
	first := d.cuts[i]
	base := d.starts[first]
	h, row := uint64(0), first
	for j := i + 1; j < len(d.cuts); j++ {
		end := d.cuts[j]
		if end-first > maxPiece && j > i+1 {
			return
		}
		for ; row < end; row++ {
			h = mix(h ^ d.hashes[row] ^ uint64(d.starts[row]-base)<<32)
		}
		typ := freType(d.starts[end-1] - base)
		visit(j, mix(h+uint64(typ)), d.offs[end]-d.offs[first]-(4-uint32(typ.Size()))*uint32(end-first))
	}
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

// count counts the sequences of all units, as often as they are used.
func (b *Builder) count(c *counts) {
	var d divider
	for i := range b.units {
		u := &b.units[i]
		d.read(b, u)
		for j := range len(d.cuts) - 1 {
			d.sequences(j, func(_ int, hash uint64, _ uint32) {
				c.add(hash, u.uses)
			})
		}
	}
}

func (b *Builder) recount(c, next *counts) {
	var d divider
	for i := range b.units {
		u := &b.units[i]
		d.read(b, u)
		from := 0
		for _, cut := range d.choose(c, b.layout.FDESize, b.layout.AttrSize) {
			d.sequences(from, func(j int, hash uint64, _ uint32) {
				if j == cut {
					next.add(hash, u.uses)
				}
			})
			from = cut
		}
	}
}

// divide makes pieces of all units, and their lists.
func (b *Builder) divide(c *counts) {
	b.lists.pools = [][]byte{make([]byte, 0, len(b.raw)/4)}
	b.pieces = make([]piece, 0, len(b.units)*2)
	var d divider
	for i := range b.units {
		u := &b.units[i]
		d.read(b, u)
		u.first = uint32(len(b.pieces))
		first := 0
		for _, cut := range d.choose(c, b.layout.FDESize, b.layout.AttrSize) {
			end := d.cuts[cut]
			b.pieces = append(b.pieces, piece{d.starts[first], b.list(u, d.raw[d.offs[first]:], end-first)})
			first = end
		}
		u.n = uint32(len(b.pieces)) - u.first
	}
}

// choose returns the cuts at which the FDEs end that the unit is best divided into.
func (d *divider) choose(c *counts, fdeSize, attrSize int) []int {
	last := len(d.cuts) - 1
	d.best, d.chosen = d.best[:0], d.chosen[:0]
	for range d.cuts {
		d.best = append(d.best, cost{size: math.MaxUint64})
	}
	d.best[0].size = 0
	for i := range last {
		if i == 1 && d.best[last].size <= uint64(2*fdeSize)<<scale {
			break // two FDEs cannot be better
		}
		d.sequences(i, func(j int, hash uint64, size uint32) {
			n := uint64(c.of(hash))
			sum := d.best[i].size + uint64(fdeSize)<<scale + uint64(attrSize+int(size))<<scale/n
			if sum < d.best[j].size {
				d.best[j] = cost{sum, i}
			}
		})
	}
	for j := last; j > 0; j = d.best[j].from {
		d.chosen = append(d.chosen, j)
	}
	slices.Reverse(d.chosen)
	return d.chosen
}
