package sframe

import "sort"

// LookupSorted is Lookup for many pcs in ascending order. It makes a single pass over FDEs and rows. It stores the
// results in matches, which must be as long as pcs; for a pc without a row, the Match is zero. It returns the
// number of rows found and the first error. A failed lookup counts as no row, and does not affect other pcs.
func (s *Section) LookupSorted(pcs []uint64, matches []Match) (rows int, err error) {
	clear(matches[:len(pcs)])
	var c cursor
	for next, n := 0, 0; n < len(pcs); n++ { // s.starts[:next] are at or before pc
		pc := pcs[n]
		if next < len(s.starts) && s.starts[next] <= pc {
			next += s.countUpTo(s.starts[next:], pc)
		}
		if next == 0 {
			continue
		}
		i := next - 1
		if s.sorted != nil {
			i = int(s.sorted[i])
		}
		m, ok, e := c.lookup(s, s.entry(i), pc)
		if ok {
			matches[n] = m
			rows++
		} else if err == nil {
			err = e
		}
	}
	return rows, err
}

// countUpTo returns the number of starts at or before pc. The starts are in ascending order. It uses exponential search
// because the result is usually small.
func (s *Section) countUpTo(starts []uint64, pc uint64) int {
	end := 1
	for end < len(starts) && starts[end] <= pc {
		end *= 2
	}
	begin := end / 2
	end = min(end, len(starts))
	return begin + sort.Search(end-begin, func(i int) bool { return starts[begin+i] > pc })
}

// A cursor is the current position in the rows of an FDE during lookups of ascending pcs.
type cursor struct {
	entry  int // offset of the FDE; 0: none
	fde    FDE
	w      walk
	found  []byte // data starting at the current row
	start  uint32 // start of the current row
	next   []byte // data starting at the next row
	begins uint32 // start of the next row
	err    error
}

// lookup is like Section.match, but resumes where the previous lookup ended.
func (c *cursor) lookup(s *Section, entry int, pc uint64) (m Match, ok bool, err error) {
	if entry != c.entry {
		d, l := s.fde(entry)
		*c = cursor{fde: d}
		if d.PCMask || s.outermost(&d, &l) {
			return s.match(entry, pc)
		}
		c.entry, c.w = entry, s.walk(&d, &l)
	}
	if pc-c.fde.Start >= uint64(c.fde.Size) {
		return m, false, nil
	}
	at := uint32(pc - c.fde.Start)
	for c.err == nil {
		if c.next == nil {
			if c.w.left == 0 {
				break
			}
			c.begins, c.next, c.err = c.w.fre()
		}
		if c.begins > at {
			break
		}
		c.found, c.start, c.next = c.next, c.begins, nil
	}
	if c.err != nil || c.found == nil {
		return m, false, c.err
	}
	row, _, what := s.codec.row(c.found, c.fde.Flexible)
	if what != "" {
		return m, false, c.w.wrong(c.found, what)
	}
	return Match{FDE: c.fde, Start: c.start, Row: s.Complete(row)}, true, nil
}

// An Encoded is a section whose FDEs are decoded and checked on demand. It is meant for a few lookups in a large
// section, and safe for concurrent use.
type Encoded struct{ s *Section }

// Open decodes the header of the section in data at address addr. Unlike Decode, it takes constant time and
// allocates no tables. The Encoded keeps a reference to data. Errors are of type *Error.
func Open(data []byte, addr uint64) (Encoded, error) {
	s, err := open(data, addr)
	return Encoded{s}, err
}

// Header returns the header of the section.
func (e Encoded) Header() Header { return e.s.Header }

// Lookup is like Section.Lookup, but checks the FDE and the rows that it reads. If the flag FDESorted is set although
// the FDEs are not sorted, the result is unspecified. If the flag is clear, Lookup reads the start of every FDE.
func (e Encoded) Lookup(pc uint64) (m Match, ok bool, err error) {
	i := e.search(pc)
	if i < 0 {
		return m, false, nil
	}
	if _, _, err := e.s.checkFDE(e.s.entry(i)); err != nil {
		return m, false, err
	}
	return e.s.match(e.s.entry(i), pc)
}

// search returns the index of the last FDE that starts at or before pc, or -1. Among FDEs with the same start, it
// prefers the last one with a nonzero size.
func (e Encoded) search(pc uint64) int {
	s := e.s
	if s.Flags&FDESorted == 0 {
		best, start := -1, uint64(0)
		for i := range s.Len() {
			if at := s.start(s.entry(i)); at <= pc && (at > start || at == start && !s.empty(i)) {
				best, start = i, at
			}
		}
		return best
	}
	i := sort.Search(s.Len(), func(i int) bool { return s.start(s.entry(i)) > pc }) - 1
	for i > 0 && s.empty(i) && s.start(s.entry(i-1)) == s.start(s.entry(i)) {
		i--
	}
	return i
}
