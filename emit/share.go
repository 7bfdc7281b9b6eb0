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
	sframe.List        // Off is set by place
	off, size   uint32 // in its pool, in bytes
	part        uint32 // which pool
	hash        uint32
	owner       uint32 // plus 1: another list that begins with it; 0: none
}

// lists are the lists of a section, without repetitions if they are shared.
type lists struct {
	pools [][]byte // with the bytes, one for each Builder
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

// newHash returns the hash of a list with the given attribute, and no rows yet.
func newHash(attr []byte) hash { return hash(mix(seed ^ rowHash(attr))) }

// row returns the hash with one more row, of which the rowHash is given.
func (h hash) row(start uint32, row uint64) hash {
	return hash(mix(mix(uint64(h)^row) + uint64(start)))
}

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
			if e := &l.all[s.index-1]; e.Type == typ && bytes.Equal(l.bytes(e), b) {
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
		s := l.slot(e.hash, e.Type, l.bytes(&e))
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

// Join returns the section of the functions of all parts, which are no longer to be used.
// All of them have the same options. The work on the parts is done at the same time.
//
// If rows are shared, functions are divided into several FDEs where that pays; see counts. A
// list that is in another one stands in the section only once: the same list, or, where the
// number of rows is not a part of it (V1 and V2), one that another one begins with. With Options.Best
// what best makes of it is taken if it is smaller.
func Join(parts []*Builder) *Section {
	opt := &parts[0].opt
	if opt.Share {
		divide(parts)
	} else {
		each(len(parts), func(i int) { parts[i].single() })
	}
	s := newSection(parts)
	if opt.Share && opt.Best {
		if b := best(parts); b != nil {
			if t := newSection([]*Builder{b}); t.Size() < s.Size() {
				return t
			}
		}
	}
	return s
}

// newSection returns the section of the functions of all parts, which are divided.
func newSection(parts []*Builder) *Section {
	b := parts[0]
	s := &Section{opt: b.opt, codec: b.codec, layout: b.layout, parts: parts, to: make([][]uint32, len(parts))}
	s.lists = b.lists
	for i := range parts {
		s.join(i)
	}
	if s.opt.Share && s.layout.AttrSize == 0 {
		s.lists.sharePrefixes(s.codec, len(parts))
	}
	s.lists.place()
	return s
}

// each calls f for all numbers below n at the same time.
func each(n int, f func(int)) {
	var wg sync.WaitGroup
	for i := range n {
		if i < n-1 {
			wg.Go(func() { f(i) })
		} else {
			f(i) // here: most files have one part
		}
	}
	wg.Wait()
}

// single makes one FDE of each use of a run, with rows of its own.
func (b *Builder) single() {
	b.lists.pools = [][]byte{nil}
	runs := make([]run, len(b.uses))
	for i := range b.uses {
		u, r := &b.uses[i], &runs[i]
		*r = b.runs[u.run]
		r.uses, r.piece, r.pieces = 1, uint32(i), 1
		b.pieces = append(b.pieces, piece{0, b.narrow(r, b.rows[r.row:r.row+r.num])})
		u.run = uint32(i)
	}
	b.runs = runs
}

// narrow is list for a piece that starts where the first row does, with the narrowest start addresses.
func (b *Builder) narrow(r *run, rows []sframe.Ref) uint32 {
	begin := rows[0].Start
	return b.list(r, begin, rows, sframe.TypeFor(rows[len(rows)-1].Start-begin))
}

// list encodes rows of a run for a piece that starts with the first of them, or within it, and returns the
// index of the list. Its start addresses have the given width, which may be more than they need.
func (b *Builder) list(r *run, begin uint32, rows []sframe.Ref, typ sframe.FREType) uint32 {
	pool := b.lists.pools[0]
	e := list{off: uint32(len(pool)), List: sframe.List{Num: uint32(len(rows)), Type: typ}}
	d := r.fde(0, 0)
	pool = b.codec.AppendAttr(pool, &d, &e.List)
	h := newHash(pool[e.off:])
	width, t := e.Type.Size(), typeIndex(r.flexible)
	forms, long := b.forms[t], b.long[t]
	pool = slices.Grow(pool, len(rows)*(width+sframe.MaxRowSize)+8)
	out, n := pool[:cap(pool)], len(pool)
	for i := range rows {
		start, f := max(rows[i].Start, begin)-begin, forms[rows[i].Row]
		if width == 1 {
			out[n] = byte(start)
		} else {
			b.codec.AppendStart(out[n:n], start, e.Type)
		}
		n += width
		if f.size <= 8 { // all of them are stored, and what is too much is overwritten
			binary.LittleEndian.PutUint64(out[n:], f.hash)
		} else {
			copy(out[n:], long[rows[i].Row])
		}
		n += int(f.size)
		h = h.row(start, f.hash)
	}
	pool = out[:n]
	e.size, e.hash = uint32(len(pool))-e.off, uint32(h)
	b.lists.pools[0] = pool
	index, added := b.lists.add(e, b.opt.Share)
	if !added {
		b.lists.pools[0] = pool[:e.off]
	}
	return index
}

// join adds the i-th part's lists, and counts its FDEs.
func (s *Section) join(i int) {
	p, l := s.parts[i], &s.lists
	if i > 0 {
		l.pools = append(l.pools, p.lists.pools[0])
		l.all = slices.Grow(l.all, len(p.lists.all))
		s.to[i] = make([]uint32, len(p.lists.all))
		for j, e := range p.lists.all {
			e.part = uint32(i)
			s.to[i][j], _ = l.add(e, s.opt.Share)
		}
	}
	for j := range p.runs {
		r := &p.runs[j]
		s.fdes += int(r.pieces) * int(r.uses)
		s.num += uint64(r.num+r.twice) * uint64(r.uses)
	}
}

// sharePrefixes finds for each list the first one that begins with it and is longer. The work is done by so many
// goroutines.
func (l *lists) sharePrefixes(c *sframe.Codec, workers int) {
	owners := make([][]uint32, workers) // of each list, among those that the worker looks at
	each(workers, func(w int) {
		owners[w] = make([]uint32, len(l.all))
		for i := len(l.all) * w / workers; i < len(l.all)*(w+1)/workers; i++ {
			e := &l.all[i]
			b := l.bytes(e)
			h, width := newHash(nil), e.Type.Size()
			for at := 0; ; {
				row := b[at+width:]
				row = row[:sframe.RowSize(row[0])]
				h = h.row(c.Start(b[at:], e.Type), rowHash(row))
				if at += width + len(row); at == len(b) {
					break
				}
				if s := l.slot(uint32(h), e.Type, b[:at]); s.index > 0 && owners[w][s.index-1] == 0 {
					owners[w][s.index-1] = uint32(i + 1)
				}
			}
		}
	})
	for i := range l.all {
		for w := 0; w < workers && l.all[i].owner == 0; w++ {
			l.all[i].owner = owners[w][i]
		}
	}
}

// place finds where in the section each list is.
func (l *lists) place() {
	for i := range l.all {
		if e := &l.all[i]; e.owner == 0 {
			e.Off = uint32(min(l.size, math.MaxUint32))
			l.size += uint64(e.size)
		}
	}
	for i := range l.all {
		e := &l.all[i]
		root := e
		for root.owner > 0 {
			root = &l.all[root.owner-1]
		}
		e.Off = root.Off
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
