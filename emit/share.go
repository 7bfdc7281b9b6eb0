package emit

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"cfi2sframe/sframe"
)

// A list is the FREs of a function, in V3 with the attribute before them, as they are
// encoded. Functions may have the same one.
type list struct {
	off, size uint32 // in the pool, in bytes
	typ       sframe.FREType
}

// lists are the lists of a section, without repetitions if they are shared.
type lists struct {
	pool  []byte
	all   []list
	slots []slot // a hash table of the lists, if they are shared; its size is a power of two
}

// A slot is a list by its hash.
type slot struct {
	hash  uint32
	index uint32 // of the list, plus 1; 0 for none
}

// seed is that of all hashes. The result does not depend on it.
var seed = rand.Uint64()

// A hash is that of a row sequence. It is one of all beginnings, too: each row changes it
// once.
type hash uint64

func newHash() hash { return hash(seed) }

// row returns the hash with one more row.
func (h hash) row(b []byte) hash {
	for ; len(b) > 8; b = b[8:] {
		h = h.mix(binary.LittleEndian.Uint64(b))
	}
	n := len(b)
	var v uint64
	if cap(b) >= 8 { // what lies behind does not count
		v = binary.LittleEndian.Uint64(b[:8]) & (1<<(8*n) - 1)
	} else {
		for i, c := range b {
			v |= uint64(c) << (8 * i)
		}
	}
	return h.mix(v ^ uint64(n)<<56)
}

func (h hash) mix(v uint64) hash {
	hi, lo := bits.Mul64(uint64(h)^v, 0x9e3779b97f4a7c15)
	return hash(hi ^ lo)
}

// end makes a list of what was added to the pool since begin, and returns its index.
func (l *lists) end(begin int, typ sframe.FREType) uint32 {
	l.all = append(l.all, list{uint32(begin), uint32(len(l.pool) - begin), typ})
	return uint32(len(l.all) - 1)
}

// share is end for a list that may be there already: then the pool is as before.
func (l *lists) share(begin int, typ sframe.FREType, h hash) uint32 {
	if i, ok := l.find(h, l.pool[begin:]); ok {
		l.pool = l.pool[:begin]
		return i
	}
	l.insert(h, uint32(len(l.all)))
	return l.end(begin, typ)
}

// bytes returns a list.
func (l *lists) bytes(i uint32) []byte {
	e := &l.all[i]
	return l.pool[e.off:][:e.size]
}

// find returns the list that is equal to b, whose hash is given.
func (l *lists) find(h hash, b []byte) (uint32, bool) {
	if len(l.slots) == 0 {
		return 0, false
	}
	mask := uint32(len(l.slots) - 1)
	for i := uint32(h) & mask; l.slots[i].index != 0; i = (i + 1) & mask {
		if s := l.slots[i]; s.hash == uint32(h) && bytes.Equal(l.bytes(s.index-1), b) {
			return s.index - 1, true
		}
	}
	return 0, false
}

// insert adds a list to the hash table.
func (l *lists) insert(h hash, index uint32) {
	if 2*(len(l.all)+1) > len(l.slots) {
		old := l.slots
		l.slots = make([]slot, max(1024, 2*len(old)))
		for _, s := range old {
			if s.index != 0 {
				l.put(s)
			}
		}
	}
	l.put(slot{uint32(h), index + 1})
}

func (l *lists) put(s slot) {
	mask := uint32(len(l.slots) - 1)
	i := s.hash & mask
	for l.slots[i].index != 0 {
		i = (i + 1) & mask
	}
	l.slots[i] = s
}

// Join returns a Builder with the functions of all parts, which are no longer to be used.
// All of them have the same options.
//
// If rows are shared, a list that is in another one stands in the section only once: the
// same list, or, where the number of rows is not a part of it (V1 and V2), one that
// another one begins with.
func Join(parts []*Builder) *Builder {
	b := parts[0]
	if !b.opt.Share {
		for _, p := range parts[1:] {
			b.append(p)
		}
		return b
	}
	for _, p := range parts[1:] {
		b.merge(p)
	}
	if b.layout.AttrSize == 0 {
		b.sharePrefixes()
	}
	return b
}

// append adds the functions of p with their lists.
func (b *Builder) append(p *Builder) {
	base := uint32(len(b.lists.pool))
	first := uint32(len(b.lists.all))
	for _, l := range p.lists.all {
		l.off += base
		b.lists.all = append(b.lists.all, l)
	}
	b.lists.pool = append(b.lists.pool, p.lists.pool...)
	b.adopt(p, func(i uint32) uint32 { return first + i })
}

// merge adds the functions of p, and those of its lists that are new.
func (b *Builder) merge(p *Builder) {
	b.lists.pool = slices.Grow(b.lists.pool, len(p.lists.pool))
	b.lists.all = slices.Grow(b.lists.all, len(p.lists.all))
	to := make([]uint32, len(p.lists.all))
	for i, l := range p.lists.all {
		begin := len(b.lists.pool)
		b.lists.pool = append(b.lists.pool, p.lists.bytes(uint32(i))...)
		to[i] = b.lists.share(begin, l.typ, b.hash(b.lists.pool[begin:], l.typ))
	}
	b.adopt(p, func(i uint32) uint32 { return to[i] })
}

// hash returns the hash of a list.
func (b *Builder) hash(list []byte, typ sframe.FREType) hash {
	h := newHash()
	if n := b.layout.AttrSize; n > 0 {
		h, list = h.row(list[:n]), list[n:]
	}
	for len(list) > 0 {
		n := rowSize(list, typ)
		h, list = h.row(list[:n]), list[n:]
	}
	return h
}

// adopt adds the functions of p; list translates the index of a list.
func (b *Builder) adopt(p *Builder, list func(uint32) uint32) {
	b.fdes = slices.Grow(b.fdes, len(p.fdes))
	for _, d := range p.fdes {
		d.list = list(d.list)
		b.fdes = append(b.fdes, d)
	}
	b.num += p.num
}

// sharePrefixes takes those lists out of the pool that another one begins with.
func (b *Builder) sharePrefixes() {
	l := &b.lists
	owner := l.prefixes()
	pool := make([]byte, 0, len(l.pool))
	off := make([]uint32, len(l.all))
	for i := range l.all {
		if owner[i] == none {
			off[i] = uint32(len(pool))
			pool = append(pool, l.bytes(uint32(i))...)
		}
	}
	for i := range l.all {
		root := uint32(i)
		for owner[root] != none {
			root = owner[root]
		}
		l.all[i].off = off[root]
	}
	l.pool, l.slots = pool, nil
}

// none stands for no list.
const none = math.MaxUint32

// prefixes returns for each list a longer one that begins with it, or none.
func (l *lists) prefixes() []uint32 {
	owner := make([]uint32, len(l.all))
	for i := range owner {
		owner[i] = none
	}
	for i, e := range l.all {
		b := l.bytes(uint32(i))
		h := newHash()
		for end := 0; ; {
			n := rowSize(b[end:], e.typ)
			h = h.row(b[end:][:n])
			if end += n; end == len(b) {
				break
			}
			if j, ok := l.find(h, b[:end]); ok && owner[j] == none {
				owner[j] = uint32(i)
			}
		}
	}
	return owner
}

// rowSize returns the size in bytes of the first row in b.
func rowSize(b []byte, typ sframe.FREType) int {
	info := b[typ.Size()]
	return typ.Size() + 1 + int(info>>sframe.FREInfoCount&0xf)<<(info>>sframe.FREInfoSize&3)
}
