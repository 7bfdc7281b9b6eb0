package sframe

import "encoding/binary"

// A Reader decodes the FREs of many FDEs and numbers the distinct rows. A section contains few distinct rows.
type Reader struct {
	Rows []Row // by number

	s       *Section
	numbers [2]map[string]uint32 // row numbers by encoded row, for default and flexible FDEs
	recent  [1 << recentBits]recentRow
	// FDEs may share lists of FREs. lists holds the lists decoded so far.
	lists []knownList
	at    []uint32 // 1 + index in lists, by the list's offset divided by listStep
	refs  []Ref    // FREs of all lists
}

// A Ref is an FRE that refers to its row by number.
type Ref struct {
	Start uint32 // as in FRE
	Row   uint32 // index of Reader.Rows
}

// A knownList is a decoded list. Its FREs start at Reader.refs[first].
type knownList struct {
	List
	first int
}

// listStep is a lower bound on the size in bytes of a list in V3, so lists have distinct entries in Reader.at unless
// they overlap.
const listStep = 4

// A recentRow caches the number of a row of up to maxRecent bytes. The low bytes of key are the row; the high byte is
// 1 + the FDE type.
type recentRow struct {
	key    uint64
	number uint32
}

const (
	recentBits = 10
	maxRecent  = 7
)

// NewReader returns a Reader of the section's FREs.
func (s *Section) NewReader() *Reader {
	n := (len(s.data)-s.fres)/listStep + 1
	return &Reader{s: s, numbers: [2]map[string]uint32{{}, {}}, at: make([]uint32, n), refs: make([]Ref, 0, n)}
}

// Refs returns the i-th FDE and its FREs. Callers must not modify them.
func (r *Reader) Refs(i int) (FDE, []Ref, error) {
	d, l := r.s.fde(r.s.entry(i))
	if r.s.outermost(&d, &l) {
		n, _ := r.number([]byte{0}, false)
		return d, []Ref{{0, n}}, nil
	}
	w := r.s.walk(&d, &l)
	at := &r.at[l.Off/listStep]
	if *at > 0 && r.lists[*at-1].List == l {
		refs := r.refs[r.lists[*at-1].first:][:l.Num]
		if l.Num > 0 && refs[l.Num-1].Start < w.limit {
			return d, refs, nil
		}
	}
	if len(r.refs) > len(r.s.data) { // overlapping lists: bound the memory
		r.refs, r.lists = nil, nil
		clear(r.at)
	}
	first := len(r.refs)
	for w.left > 0 {
		start, b, err := w.fre()
		if err != nil {
			return d, r.refs[first:], err
		}
		number, what := r.number(b, d.Flexible)
		if what != "" {
			return d, r.refs[first:], w.wrong(b, what)
		}
		r.refs = append(r.refs, Ref{start, number})
	}
	r.lists = append(r.lists, knownList{l, first})
	*at = uint32(len(r.lists))
	return d, r.refs[first:], nil
}

// number returns the number of the row at the start of b, or a message if the row is invalid.
func (r *Reader) number(b []byte, flexible bool) (uint32, string) {
	fdeType := fdeTypeDefault
	if flexible {
		fdeType = fdeTypeFlexible
	}
	numbers := r.numbers[fdeType]
	size := RowSize(b[0])
	recent := &recentRow{}
	var key uint64
	if size <= maxRecent && len(b) > maxRecent {
		key = binary.LittleEndian.Uint64(b)&(1<<(8*size&63)-1) | uint64(fdeType+1)<<(8*maxRecent)
		if recent = &r.recent[key*0x9e3779b97f4a7c15>>(64-recentBits)]; recent.key == key {
			return recent.number, ""
		}
	}
	data := b[:min(size, len(b))]
	n, ok := numbers[string(data)]
	if !ok {
		row, _, what := r.s.codec.row(b, flexible)
		if what != "" {
			return n, what
		}
		n = uint32(len(r.Rows))
		r.Rows, numbers[string(data)] = append(r.Rows, row), n
	}
	*recent = recentRow{key, n}
	return n, ""
}
