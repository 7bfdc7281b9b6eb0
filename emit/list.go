package emit

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// A list holds the encoded FREs of an FDE, in V3 with the preceding attribute.
type list struct {
	sframe.List        // setOffsets sets Off
	off, size   uint32 // in lists.data
	owner       uint32 // index plus 1 of another list that starts with this one; 0: none
	class       uint16 // class of the first FDE with this list
}

// lists holds the FRE lists of a section, which are distinct if lists are shared.
type lists struct {
	data  []byte
	all   []list
	index map[uint64]uint32 // index of each list by the hash of its bytes; nil if lists are not shared
	size  uint64            // size in the section, in bytes
}

// seed is the seed of the hashes in lists.index. Its value does not affect the section.
var seed = maphash.MakeSeed()

// newLists returns an empty collection with capacity for about n lists.
func newLists(share bool, n int) lists {
	const size = 64 // approximate size of a list in bytes
	l := lists{data: make([]byte, 0, size*n), all: make([]list, 0, n)}
	if share {
		l.index = make(map[uint64]uint32, n)
	}
	return l
}

// bytes returns the bytes of a list.
func (l *lists) bytes(e *list) []byte { return l.data[e.off:][:e.size] }

// add adds the FRE list of an FDE of the given class; the FDE starts at places[0]. It returns the index of the list.
func (l *lists) add(b *Builder, class uint16, places []place) uint32 {
	var list sframe.List
	begin := -places[0].gap // cancels the gap before the first place
	at := begin
	for _, p := range places {
		at += p.gap
		c := &b.clusters[p.cluster]
		list.Num, list.Type = list.Num+c.rows, sframe.TypeFor(at+c.span)
	}
	off := len(l.data)
	l.data = b.codec.AppendAttr(l.data, &b.classes[class], &list)
	at = begin
	for _, p := range places {
		at += p.gap
		for _, e := range b.rowsOf(p.cluster) {
			l.data = b.codec.AppendStart(l.data, at+e.Start, list.Type)
			l.data = append(l.data, b.forms[e.Row]...)
		}
	}
	return l.store(off, class, list)
}

// store adds the list that occupies data[off:], and returns its index. If lists are shared and an equal list
// exists, store removes the bytes and returns the index of the existing list.
func (l *lists) store(off int, class uint16, what sframe.List) uint32 {
	e := list{List: what, off: uint32(off), size: uint32(len(l.data) - off), class: class}
	if l.index != nil {
		b := l.data[off:]
		h := maphash.Bytes(seed, b)
		i, ok := l.index[h]
		for ; ok; i, ok = l.index[h] {
			if old := &l.all[i]; old.Type == e.Type && bytes.Equal(l.bytes(old), b) {
				l.data = l.data[:off]
				return i
			}
			h++
		}
		l.index[h] = uint32(len(l.all))
	}
	l.all = append(l.all, e)
	return uint32(len(l.all) - 1)
}

// join adds the lists of m to l, and returns their indexes in l.
func (l *lists) join(m *lists) []uint32 {
	to := make([]uint32, len(m.all))
	for i := range m.all {
		off := len(l.data)
		l.data = append(l.data, m.bytes(&m.all[i])...)
		to[i] = l.store(off, m.all[i].class, m.all[i].List)
	}
	return to
}

// sharePrefixes finds, for each list, another list that starts with it. In V1 and V2, a list does not contain its
// number of FREs, so both lists can use the same bytes.
func (l *lists) sharePrefixes() {
	type key struct {
		first uint64 // type and first bytes, which decide almost all comparisons
		index uint32
	}
	order := make([]key, len(l.all))
	for i := range l.all {
		first := [8]byte{byte(l.all[i].Type)}
		copy(first[1:], l.bytes(&l.all[i]))
		order[i] = key{binary.BigEndian.Uint64(first[:]), uint32(i)}
	}
	slices.SortFunc(order, func(a, b key) int {
		if a.first != b.first {
			return cmp.Compare(a.first, b.first)
		}
		return bytes.Compare(l.bytes(&l.all[a.index]), l.bytes(&l.all[b.index]))
	})
	// If any list starts with the list at i, the next list in this order does.
	for i := range len(order) - 1 {
		e, next := &l.all[order[i].index], &l.all[order[i+1].index]
		if next.Type == e.Type && bytes.HasPrefix(l.bytes(next), l.bytes(e)) {
			e.owner = order[i+1].index + 1
		}
	}
}

// setOffsets sets the offset of each list in the section.
func (l *lists) setOffsets() {
	for i := range l.all {
		if e := &l.all[i]; e.owner == 0 {
			e.Off = uint32(min(l.size, math.MaxUint32))
			l.size += uint64(e.size)
		}
	}
	for i := range l.all {
		root := &l.all[i]
		for root.owner > 0 {
			root = &l.all[root.owner-1]
		}
		l.all[i].Off = root.Off
	}
}

// appendTo appends the lists to out, at the offsets that setOffsets has set.
func (l *lists) appendTo(out []byte) []byte {
	for i := range l.all {
		if e := &l.all[i]; e.owner == 0 {
			out = append(out, l.bytes(e)...)
		}
	}
	return out
}
