package emit

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"

	"cfi2sframe/sframe"
)

// A list is the FREs of an FDE, in V3 with the attribute before them, as they are
// encoded. FDEs may have the same one.
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
	pools [][]byte // one for each Builder that was joined
	all   []list
	slots []slot // a hash table of the lists, if they are shared; its size is a power of two
	size  uint64 // of all in the section, in bytes
}

// A slot is a list by its hash.
type slot struct {
	hash  uint32
	index uint32 // of the list, plus 1; 0 for none
}

// seed is that of the hashes of lists, by which equal ones are found. The bytes of the section
// do not depend on it.
var seed = rand.Uint64()

// A hash is that of a list. It is made row by row: in between it is that of the rows so far, by
// which sharePrefixes finds lists.
type hash uint64

func newHash() hash { return hash(seed) }

// row returns the hash with one more row, behind which 8 bytes can be read.
func (h hash) row(b []byte) hash {
	for ; len(b) > 8; b = b[8:] {
		h = h.mix(binary.LittleEndian.Uint64(b))
	}
	return h.short(b[:8], len(b))
}

// short is row for the first n of 8 bytes or more.
func (h hash) short(b []byte, n int) hash {
	return h.mix(binary.LittleEndian.Uint64(b)&(1<<(8*n)-1) ^ uint64(n)<<56)
}

func (h hash) mix(v uint64) hash { return hash(mix(uint64(h) ^ v)) }

// rehash makes the hash table so large that it has n slots at least.
func (l *lists) rehash(n int) {
	l.slots = make([]slot, 1<<bits.Len(uint(max(n, 1<<9)-1)))
	clear(l.slots) // pages that are read before they are written are mapped twice
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

// add adds a list, unless lists are shared and it is there already. It returns the list's
// index.
func (l *lists) add(e list, share bool) (index uint32, added bool) {
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

// bytes returns a list.
func (l *lists) bytes(e *list) []byte { return l.pools[e.part][e.off:][:e.size] }

// Join returns a Builder with the functions of all parts, which are no longer to be used.
// All of them have the same options, and none was asked for its size before. The work is done by
// a goroutine for each part.
//
// If rows are shared, functions are divided into several FDEs where that pays; see counts. A
// list that is in another one stands in the section only once: the same list, or, where the
// number of rows is not a part of it (V1 and V2), one that another one begins with.
func Join(parts []*Builder) *Builder {
	b := parts[0]
	if b.joined {
		return b
	}
	if b.opt.Share {
		divide(parts)
	} else {
		each(parts, func(_ int, p *Builder) { p.single() })
	}
	b.parts = parts
	for i, p := range parts {
		b.join(i, p)
	}
	if b.opt.Share && b.layout.AttrSize == 0 {
		b.lists.sharePrefixes()
	}
	b.lists.place()
	b.joined = true
	return b
}

// finish is Join of a Builder that was not joined.
func (b *Builder) finish() { Join([]*Builder{b}) }

// each calls f for all parts at the same time.
func each(parts []*Builder, f func(int, *Builder)) {
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { f(i, p) })
	}
	wg.Wait()
}

// single makes one FDE of each use of a unit, with rows of its own.
func (b *Builder) single() {
	b.lists.pools = [][]byte{nil}
	units := make([]unit, len(b.uses))
	for i := range b.uses {
		u := &b.uses[i]
		units[i] = b.units[u.unit]
		units[i].uses, units[i].first, units[i].n = 1, uint32(i), 1
		b.pieces = append(b.pieces, piece{0, b.list(&units[i], b.raw[units[i].raw:], int(units[i].num))})
		u.unit = uint32(i)
	}
	b.units = units
}

// list encodes n rows of a unit, from raw on, and returns the index of the list.
func (b *Builder) list(u *unit, raw []byte, n int) uint32 {
	base := binary.LittleEndian.Uint32(raw)
	last, end := 0, 0
	for range n {
		last, end = end, end+rawSize(raw[end:])
	}
	e := list{num: uint32(n), off: uint32(len(b.lists.pools[0])), typ: freType(binary.LittleEndian.Uint32(raw[last:]) - base)}
	h := newHash()
	pool := slices.Grow(b.lists.pools[0], b.layout.AttrSize+end+maxRow)
	if b.layout.AttrSize > 0 {
		fdeType := byte(sframe.FDETypeDefault)
		if u.flexible {
			fdeType = sframe.FDETypeFlexible
		}
		pool = b.order.AppendUint16(pool, uint16(n))
		pool = append(pool, u.info|byte(e.typ), fdeType, u.rep)
		h = h.row(pool[e.off:])
	}
	width, at := e.typ.Size(), len(pool)
	pool, raw = pool[:cap(pool)], raw[:end+slack]
	for i := 0; i < end; {
		size := rawSize(raw[i:])
		p := pool[at : at+maxRow]
		putUint(b.order, p[:0], uint64(binary.LittleEndian.Uint32(raw[i:])-base), width)
		if size <= 4+len(body{}) { // all of a body is copied, and what is too much is overwritten
			*(*body)(p[width:]) = *(*body)(raw[i+4:])
		} else {
			copy(p[width:], raw[i+4:i+size])
		}
		i += size
		size += width - 4
		if size <= 8 {
			h = h.short(p, size)
		} else {
			h = h.row(p[:size])
		}
		at += size
	}
	pool = pool[:at]
	e.size, e.hash = uint32(len(pool))-e.off, uint32(h)
	b.lists.pools[0] = pool
	index, added := b.lists.add(e, b.opt.Share)
	if !added {
		b.lists.pools[0] = pool[:e.off]
	}
	return index
}

// join adds the i-th part's lists, and counts its FDEs.
func (b *Builder) join(i int, p *Builder) {
	l := &b.lists
	if i > 0 {
		l.pools = append(l.pools, p.lists.pools[0])
		l.all = slices.Grow(l.all, len(p.lists.all))
		p.to = make([]uint32, len(p.lists.all))
		for j, e := range p.lists.all {
			e.part = uint32(i)
			p.to[j], _ = l.add(e, b.opt.Share)
		}
	}
	b.fdes += p.ownFDEs()
	for j := range p.units {
		u := &p.units[j]
		b.num += uint64(u.num) * uint64(u.uses)
	}
}

// sharePrefixes finds for each list a longer one that begins with it.
func (l *lists) sharePrefixes() {
	for i := range l.all {
		e := &l.all[i]
		b := l.bytes(e)
		h := newHash()
		for end := 0; ; {
			n := e.typ.Size() + sframe.RowSize(b[end+e.typ.Size()])
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

// place finds where in the section each list is.
func (l *lists) place() {
	for i := range l.all {
		if e := &l.all[i]; e.owner == 0 {
			e.at = uint32(min(l.size, math.MaxUint32))
			l.size += uint64(e.size)
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
