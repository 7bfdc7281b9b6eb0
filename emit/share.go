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
	off, size uint32 // in its pool, in bytes
	part      uint32 // which pool
	num       uint32 // of FREs
	hash      uint32
	at        uint32 // where it is in the section, from the first FRE on
	owner     uint32 // plus 1: another list that begins with it; 0: none
	typ       sframe.FREType
}

// lists are the lists of a section, without repetitions if they are shared.
type lists struct {
	pools  [][]byte // one for each Builder that was joined
	all    []list
	slots  []slot // a hash table of the lists, if they are shared; its size is a power of two
	placed uint64 // size of all in the section; 0: not known
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
	if cap(b) >= 8 {
		return h.short(b[:8], len(b))
	}
	var last [8]byte
	copy(last[:], b)
	return h.short(last[:], len(b))
}

// short is row for the first n of 8 bytes or more.
func (h hash) short(b []byte, n int) hash {
	return h.mix(binary.LittleEndian.Uint64(b)&(1<<(8*n)-1) ^ uint64(n)<<56)
}

func (h hash) mix(v uint64) hash {
	hi, lo := bits.Mul64(uint64(h)^v, 0x9e3779b97f4a7c15)
	return hash(hi ^ lo)
}

// grow makes room for n more lists of usual size.
func (l *lists) grow(n int) {
	l.all = slices.Grow(l.all, n)
	l.pools[0] = slices.Grow(l.pools[0], 40*n)
	l.rehash(2 * (len(l.all) + n))
}

// rehash makes the hash table so large that it has n slots at least.
func (l *lists) rehash(n int) {
	l.slots = make([]slot, 1<<bits.Len(uint(max(n, 1<<9)-1)))
	for i := range l.all {
		h := l.all[i].hash
		*l.slot(h, 0, nil) = slot{h, uint32(i + 1)}
	}
}

// slot returns where the list with the given hash, type and bytes is in the hash table, or
// belongs. Without bytes that is a free slot.
func (l *lists) slot(hash uint32, typ sframe.FREType, b []byte) *slot {
	mask := uint32(len(l.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := &l.slots[i]
		if s.index == 0 {
			return s
		}
		if s.hash == hash && b != nil {
			if e := &l.all[s.index-1]; e.typ == typ && bytes.Equal(l.bytes(e), b) {
				return s
			}
		}
	}
}

// end adds a list that is at the end of the pool, and returns its index. If lists are shared
// it may be there already, and then it is taken out of the pool.
func (l *lists) end(e list, share bool) uint32 {
	i, added := l.add(e, share)
	if !added {
		l.pools[0] = l.pools[0][:e.off]
	}
	return i
}

// add adds a list, unless lists are shared and it is there already. It returns the list's
// index.
func (l *lists) add(e list, share bool) (index uint32, added bool) {
	l.placed = 0
	if share {
		if 2*(len(l.all)+1) > len(l.slots) {
			l.rehash(4 * len(l.all))
		}
		s := l.slot(e.hash, e.typ, l.bytes(&e))
		if s.index > 0 {
			return s.index - 1, false
		}
		*s = slot{e.hash, uint32(len(l.all) + 1)}
	}
	l.all = append(l.all, e)
	return uint32(len(l.all) - 1), true
}

// repeat adds a list a second time.
func (l *lists) repeat(index uint32) uint32 {
	e := l.all[index]
	begin := len(l.pools[0])
	l.pools[0] = append(l.pools[0], l.bytes(&e)...)
	e.off = uint32(begin)
	index, _ = l.add(e, false)
	return index
}

// bytes returns a list.
func (l *lists) bytes(e *list) []byte { return l.pools[e.part][e.off:][:e.size] }

// Join returns a Builder with the functions of all parts, which are no longer to be used.
// All of them have the same options.
//
// If rows are shared, a list that is in another one stands in the section only once: the
// same list, or, where the number of rows is not a part of it (V1 and V2), one that
// another one begins with.
func Join(parts []*Builder) *Builder {
	b := parts[0]
	for _, p := range parts[1:] {
		b.join(p)
	}
	if b.opt.Share && b.layout.AttrSize == 0 {
		b.lists.sharePrefixes()
	}
	return b
}

// join adds the functions of p, and those of its lists that are new.
func (b *Builder) join(p *Builder) {
	l := &b.lists
	l.pools = append(l.pools, p.lists.pools[0])
	l.all = slices.Grow(l.all, len(p.lists.all))
	to := make([]uint32, len(p.lists.all))
	for i, e := range p.lists.all {
		e.part = uint32(len(l.pools) - 1)
		to[i], _ = l.add(e, b.opt.Share)
	}
	b.fdes = slices.Grow(b.fdes, len(p.fdes))
	for _, d := range p.fdes {
		d.list = to[d.list]
		b.fdes = append(b.fdes, d)
	}
	b.num += p.num
}

// sharePrefixes finds for each list a longer one that begins with it.
func (l *lists) sharePrefixes() {
	l.placed = 0
	for i := range l.all {
		e := &l.all[i]
		b := l.bytes(e)
		h := newHash()
		for end := 0; ; {
			n := rowSize(b[end:], e.typ)
			h = h.row(b[end : end+n])
			if end += n; end == len(b) {
				break
			}
			if s := l.slot(uint32(h), e.typ, b[:end]); s.index > 0 && l.all[s.index-1].owner == 0 {
				l.all[s.index-1].owner = uint32(i + 1)
			}
		}
	}
}

// rowSize returns the size in bytes of the first row in b.
func rowSize(b []byte, typ sframe.FREType) int {
	info := b[typ.Size()]
	return typ.Size() + 1 + int(info>>sframe.FREInfoCount&0xf)<<(info>>sframe.FREInfoSize&3)
}

// place finds where in the section each list is, and returns the size of all in bytes.
func (l *lists) place() uint64 {
	if l.placed > 0 {
		return l.placed
	}
	var at uint64
	for i := range l.all {
		if e := &l.all[i]; e.owner == 0 {
			e.at = uint32(min(at, math.MaxUint32))
			at += uint64(e.size)
		}
	}
	for i := range l.all {
		e := &l.all[i]
		root := e
		for root.owner > 0 {
			root = &l.all[root.owner-1]
		}
		e.at = root.at
	}
	l.placed = at
	return at
}

// append appends the lists to out, where place says.
func (l *lists) append(out []byte) []byte {
	for i := range l.all {
		if e := &l.all[i]; e.owner == 0 {
			out = append(out, l.bytes(e)...)
		}
	}
	return out
}
