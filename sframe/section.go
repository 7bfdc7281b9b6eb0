package sframe

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"sort"
)

// An Encoded is a section whose FDEs and rows are decoded and checked on demand: it finds rows, as a stack tracer does.
// It is immutable and safe for concurrent use.
type Encoded struct {
	Header

	codec      *Codec
	data       []byte // ends after the FREs
	addr       uint64 // address of the section
	pcrel      bool   // each start address is relative to its own field
	fdes, fres int    // offsets of the FDEs and the FREs in data
	// Indexes of FDEs in the section: in the order of the method FDE, and in the order of their start addresses.
	// Nil means that the FDEs are stored in that order.
	order, sorted []uint32
}

// Open decodes the header of the section in data at address addr, and locates the FDEs and the FREs. If the flag
// FDESorted is set, as in all linked files, it takes constant time and allocates no tables. The Encoded keeps a
// reference to data. Errors are of type *Error.
func Open(data []byte, addr uint64) (*Encoded, error) {
	s, err := open(data, addr)
	if err == nil && s.Flags&FDESorted == 0 {
		s.sort()
	}
	return s, err
}

func open(data []byte, addr uint64) (*Encoded, error) {
	h, c, err := decodeHeader(data)
	if err != nil {
		return nil, err
	}
	// Sub-section offsets are relative to the end of the header.
	base := uint64(c.layout.HeaderSize) + uint64(h.AuxLen)
	fdeOff, freOff := base+uint64(h.FDEOff), base+uint64(h.FREOff)
	fdeEnd := fdeOff + uint64(h.NumFDEs)*uint64(c.layout.FDESize)
	size := uint64(len(data))
	if size > math.MaxUint32 {
		return nil, errorf(0, "section of %d bytes exceeds 4 GiB", size)
	}
	if base > size || fdeEnd > size {
		return nil, errorf(20, "%d FDEs at %#x extend past the end of the section (%d bytes)", h.NumFDEs, fdeOff, size)
	}
	if freOff < fdeEnd && h.NumFDEs > 0 || freOff+uint64(h.FRELen) > size {
		return nil, errorf(24,
			"FREs at %#x (%d bytes) overlap the FDEs or extend past the end of the section (%d bytes)",
			freOff, h.FRELen, size)
	}
	return &Encoded{
		Header: h, codec: c, data: data[:freOff+uint64(h.FRELen)], addr: addr, pcrel: h.Flags&FDEFuncStartPCRel != 0,
		fdes: int(fdeOff), fres: int(freOff),
	}, nil
}

// A Section is an Encoded whose FDEs have been checked, so that all of them can be read. FREs are checked when they are
// read.
type Section struct{ Encoded }

// Decode is Open, and checks everything except the FREs.
//
// If data is from a relocatable object, its relocations must have been applied.
func Decode(data []byte, addr uint64) (*Section, error) {
	e, err := open(data, addr)
	if err != nil {
		return nil, err
	}
	s := &Section{*e}
	var sum uint64
	for i := range s.Len() {
		_, l, err := s.checkFDE(s.entry(i))
		if err != nil {
			return s, err
		}
		sum += uint64(l.Num)
	}
	if sum != uint64(s.NumFREs) {
		return s, errorf(12, "header declares %d FREs, but the FDEs have %d", s.NumFREs, sum)
	}
	if ascending := s.sort(); !ascending && s.Flags&FDESorted != 0 {
		return s, errorf(s.fdes, "FDEs are not sorted by start address, but the flag is set")
	}
	return s, nil
}

// sort sets s.sorted, and reports whether the FDEs are stored in ascending order of their start addresses. If there are
// FDEs with the same start, a search finds the last one; empty ones are sorted first, because they hide others.
func (s *Encoded) sort() (ascending bool) {
	starts := make([]uint64, s.Len())
	hidden := false
	ascending = true
	for i := range starts {
		starts[i] = s.start(s.entry(i))
		if i > 0 {
			ascending = ascending && starts[i-1] <= starts[i]
			hidden = hidden || starts[i-1] == starts[i] && s.empty(s.entry(i)) && !s.empty(s.entry(i-1))
		}
	}
	if ascending && !hidden {
		return true
	}
	s.sorted = make([]uint32, s.Len())
	for i := range s.sorted {
		s.sorted[i] = uint32(i)
	}
	slices.SortStableFunc(s.sorted, func(a, b uint32) int {
		x, y := s.empty(s.entry(int(a))), s.empty(s.entry(int(b)))
		if c := cmp.Compare(starts[a], starts[b]); c != 0 || x == y {
			return c
		}
		if x {
			return -1
		}
		return 1
	})
	return ascending
}

// empty reports whether the FDE at offset entry has size 0.
func (s *Encoded) empty(entry int) bool {
	return s.codec.u32(s.data[entry+s.codec.layout.StartSize:]) == 0
}

// Codec returns the Codec of the section's version and ABI.
func (s *Encoded) Codec() *Codec { return s.codec }

// Size returns the size of the section in bytes.
func (s *Encoded) Size() uint64 { return uint64(len(s.data)) }

// Len returns the number of FDEs.
func (s *Encoded) Len() int { return int(s.NumFDEs) }

// entry returns the offset of the i-th FDE in data.
func (s *Encoded) entry(i int) int {
	if s.order != nil {
		i = int(s.order[i])
	}
	return s.fdes + i*s.codec.layout.FDESize
}

// FDE returns the i-th FDE.
func (s *Section) FDE(i int) FDE {
	d, _ := s.fde(s.entry(i))
	return d
}

// FDEs returns an iterator over the FDEs and their indexes.
func (s *Section) FDEs() iter.Seq2[int, FDE] {
	return func(yield func(int, FDE) bool) {
		for i := range s.Len() {
			if !yield(i, s.FDE(i)) {
				return
			}
		}
	}
}

// Sorted returns the section with its FDEs sorted by start address, as after linking. In relocatable objects, FDEs may
// be in any order.
func (s *Section) Sorted() *Section {
	t := *s
	t.Flags |= FDESorted
	if s.sorted != nil {
		t.order, t.sorted = s.sorted, nil
	}
	return &t
}

// A walk iterates over the FREs of an FDE.
type walk struct {
	s     *Encoded
	off   int    // offset of the next FRE in the section
	left  uint32 // number of remaining FREs
	width int    // size of a start address in bytes
	next  uint32 // lowest valid start
	limit uint32 // upper bound on starts, exclusive
}

// walk starts an iteration over the FREs of an FDE.
func (s *Encoded) walk(d *FDE, l *List) walk {
	limit := d.Size
	if d.RepSize != 0 {
		limit = uint32(d.RepSize)
	}
	return walk{
		s: s, off: s.fres + int(l.Off) + s.codec.layout.AttrSize, left: l.Num, width: l.Type.Size(), limit: limit,
	}
}

// outermost reports whether the FDE marks a function without a caller: in V3, an FDE of the default type without FREs.
func (s *Encoded) outermost(d *FDE, l *List) bool {
	return l.Num == 0 && s.codec.layout.Outermost && !d.Flexible
}

// fre returns the start address of the next FRE, and the data that starts at its row.
func (w *walk) fre() (start uint32, row []byte, err error) {
	data := w.s.data
	if len(data)-w.off < w.width+1 {
		return start, nil, errorf(w.off, "section ends inside an FRE")
	}
	if start = uint32(data[w.off]); w.width > 1 {
		start = w.s.codec.unsigned(data[w.off:], w.width)
	}
	if start >= w.limit {
		return start, nil, errorf(w.off, "FRE starts at %#x, outside the function or block of %#x bytes", start,
			w.limit)
	}
	if start < w.next {
		return start, nil, errorf(w.off, "FREs out of order at %#x", start)
	}
	row = data[w.off+w.width:]
	w.off += w.width + RowSize(row[0])
	w.next = start + 1
	w.left--
	return start, row, nil
}

// wrong turns a message of Codec.row into an error with the row's offset.
func (w *walk) wrong(row []byte, what string) error {
	return errorf(len(w.s.data)-len(row), "%s", what)
}

// FREs appends the FREs of the i-th FDE to buf and returns the extended slice.
func (s *Section) FREs(i int, buf []FRE) ([]FRE, error) {
	d, l := s.fde(s.entry(i))
	if s.outermost(&d, &l) {
		return append(buf, FRE{Row: Row{Outermost: true}}), nil // covers the whole FDE
	}
	for w := s.walk(&d, &l); w.left > 0; {
		start, b, err := w.fre()
		if err != nil {
			return buf, err
		}
		row, _, what := s.codec.row(b, d.Flexible)
		if what != "" {
			return buf, w.wrong(b, what)
		}
		buf = append(buf, FRE{start, row})
	}
	return buf, nil
}

// Find returns the index of the FDE that covers pc, or -1. Only the last FDE that starts at or before pc is considered.
func (s *Section) Find(pc uint64) int {
	i := s.search(pc)
	if i < 0 {
		return -1
	}
	if d := s.FDE(i); pc-d.Start >= uint64(d.Size) {
		return -1
	}
	return i
}

// search returns the index of the last FDE by address that starts at or before pc, or -1. Among FDEs with the same
// start, it prefers the last one with a nonzero size.
func (s *Encoded) search(pc uint64) int {
	entry := func(i int) int {
		if s.sorted != nil {
			i = int(s.sorted[i])
		}
		return s.entry(i)
	}
	i := sort.Search(s.Len(), func(i int) bool { return s.start(entry(i)) > pc }) - 1
	for i > 0 && s.empty(entry(i)) && s.start(entry(i-1)) == s.start(entry(i)) {
		i--
	}
	if i >= 0 && s.sorted != nil {
		return int(s.sorted[i])
	}
	return i
}

// A Match is the result of Lookup: an FDE and one of its rows.
type Match struct {
	FDE   FDE
	Start uint32 // offset of the row in bytes from the start of the FDE, or of the repeated block
	Row
}

// Lookup returns the row for pc, and whether there is one. Like a stack tracer, it searches the FDEs, and then checks
// the FDE found and scans its rows. If the flag FDESorted is set although the FDEs are not sorted, the result is
// unspecified. Readers disagree about PC-mask FDEs of V1, so Lookup returns a row of such an FDE only if it is the only
// row and starts at 0. The row includes rules that the header fixes for all functions (RA on amd64). Errors are of type
// *Error.
func (s *Encoded) Lookup(pc uint64) (m Match, ok bool, err error) {
	i := s.search(pc)
	if i < 0 {
		return m, false, nil
	}
	d, l, err := s.checkFDE(s.entry(i))
	if err != nil || pc-d.Start >= uint64(d.Size) {
		return m, false, err
	}
	at := uint32(pc - d.Start)
	switch {
	case d.PCMask && d.RepSize != 0:
		at = uint32(pc % uint64(d.RepSize))
	case d.PCMask && l.Num == 1:
		at = 0 // the only row start on which readers agree
	case d.PCMask:
		return m, false, nil
	}
	m.FDE = d
	if s.outermost(&d, &l) {
		m.Row.Outermost = true
		return m, true, nil
	}
	var found []byte // data starting at the row
	w := s.walk(&d, &l)
	for w.left > 0 {
		start, row, err := w.fre()
		if err != nil {
			return Match{}, false, err
		}
		if start > at {
			break
		}
		found, m.Start = row, start
	}
	if found == nil {
		return Match{}, false, nil
	}
	row, _, what := s.codec.row(found, d.Flexible)
	if what != "" {
		return Match{}, false, w.wrong(found, what)
	}
	m.Row = s.Complete(row)
	return m, true, nil
}

// Complete returns r, a row from FREs or a Reader, with the rules that the header fixes for all functions.
func (s *Encoded) Complete(r Row) Row {
	if r.Outermost {
		return r
	}
	if r.RA.Base == None && s.FixedRA != 0 {
		r.RA = Rule{Base: CFA, Offset: int32(s.FixedRA), Deref: true}
	}
	if r.FP.Base == None && s.FixedFP != 0 {
		r.FP = Rule{Base: CFA, Offset: int32(s.FixedFP), Deref: true}
	}
	return r
}
