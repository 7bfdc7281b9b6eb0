package emit

import (
	"math"
	"slices"
	"sync/atomic"

	"cfi2sframe/sframe"
)

// best returns one Builder of all parts, with runs that are divided so that the section is about as small
// as it can be. It does what divide does, with exact numbers instead of counts, and more:
//
//   - Runs may be divided at each row, and functions that follow each other may become one FDE. See gather.
//   - A piece may begin early: within the row before, which is then its first one too, if
//     there is a list with this row.
//   - In V1 and V2 a list that another one begins with costs nothing, with start addresses of either's width.
//   - What lists cost is found out in several rounds, see balance, and then the division is improved by what they cost
//     indeed, see improve.
//
// Where there are more rows than maxRows, it returns nil.
func best(parts []*Builder) *Builder {
	b := gather(parts)
	if len(b.rows) > maxRows {
		return nil
	}
	s := newSolver(newStems(b))
	s.balance(len(parts))
	s.improve()
	s.pieces()
	return b
}

// maxRows bounds the rows of all runs. Libraries of 150 MB have half a million.
const maxRows = 1 << 20

// A cut is the end of a piece of a run, and which list the piece has.
type cut struct {
	end   uint32 // the row after the piece, from the first one of the run
	width uint8  // of start addresses, as a FREType
	early uint32 // plus 1: the stem that is the list of a piece that begins early
}

// An offer is what a list costs those who look for one.
type offer struct {
	price int32 // of the list that the stem is, in units
	early int32 // how many stems that are this one with another row before it cost nothing
	part  int32 // what a list that begins with it costs less, as no other one does
}

// priceUnit is how many units of prices are a byte.
const priceUnit = 64

// A tally counts the pieces that have a list, for each width of start addresses.
type tally struct {
	exact [3]int32 // lists that are the stem
	all   [3]int32 // these, and in V1 and V2 those that begin with it
}

// A solver divides runs.
type solver struct {
	*stems
	prefixes bool // the number of rows is not a part of lists, and one that another one begins with costs nothing
	fde      int64
	runOf    []uint32 // of each place
	offers   []offer  // of each stem
	tallies  []tally  // of each stem
	cuts     [][]cut  // of each run

	// For improve:
	longerFrom []uint32 // where the stems that have the stem as tail are in longer; and where the last one's end
	longer     []uint32
	buyersFrom []uint32 // where the runs that would have the stem's list are in buyers; and where the last one's end
	buyers     []uint32
	refused    []bool // of each stem: nobody wanted its list, see open
	total      int64  // bytes of FDEs and lists
	left       int64  // places and stems that may be looked at still
	routes     routes
	trial      trial
	old        []cut // of a run, before it was divided anew
}

func newSolver(st *stems) *solver {
	s := &solver{
		stems: st, prefixes: st.attr == 0, fde: int64(st.b.layout.FDESize), runOf: make([]uint32, len(st.form)),
		offers: make([]offer, len(st.all)), tallies: make([]tally, len(st.all)), cuts: make([][]cut, len(st.b.runs)),
	}
	for i := range st.b.runs {
		for p := st.first[i]; p < st.first[i+1]; p++ {
			s.runOf[p] = uint32(i)
		}
	}
	return s
}

// listSize returns the size of a list: rows from a place on.
func (s *solver) listSize(place, rows uint32, width uint8) int64 {
	return int64(s.attr) + int64(s.before[place+rows]-s.before[place]) + int64(rows)*int64(sframe.FREType(width).Size())
}

// rows returns what rows cost in a list, in units, but for a constant.
func (s *solver) rows(place, n uint32, width uint8) int64 {
	return (int64(s.before[place]) + int64(n)*int64(sframe.FREType(width).Size())) * priceUnit
}

// size returns the size of the list that a stem is.
func (s *solver) size(v uint32, width uint8) int64 {
	st := &s.all[v]
	return int64(s.attr) + int64(st.bytes) + int64(st.rows)*int64(sframe.FREType(width).Size())
}

// widthOf returns the width of start addresses with which the list that a stem is costs least.
func (s *solver) widthOf(v uint32) uint8 {
	least := s.all[v].width
	for w := least; s.prefixes && w < 3; w++ {
		if s.tallies[v].all[w] > 0 {
			return w
		}
	}
	return least
}

// balance finds prices of lists. At first, all places of a stem share what its list costs; then the pieces do that have
// it if runs are divided by these prices. Prices follow slowly, so that those who have a list together come to have it,
// or all do without. Each round is done by so many goroutines.
func (s *solver) balance(workers int) {
	const (
		rounds = 6
		one    = 256 // a piece
	)
	n := len(s.all)
	exact, longer := make([]int32, n), make([][3]int32, n) // pieces, about: with the list, and with one that begins with it
	for v := range exact {
		exact[v] = one * int32(min(len(s.placesOf(uint32(v))), math.MaxInt32/one/2))
	}
	for range rounds {
		for v := range exact {
			w := s.all[v].width
			price := s.size(uint32(v), w) * priceUnit * one / int64(max(exact[v], one))
			if s.prefixes {
				price = price * int64(one-min(slices.Max(longer[v][w:]), one)) / one
			}
			s.offers[v].price = int32(price)
		}
		clear(s.tallies)
		each(workers, func(i int) { s.tally(i, workers) })
		for v := range exact {
			t, sum := &s.tallies[v], int32(0)
			for w := range t.exact {
				sum += t.exact[w]
				longer[v][w] = (longer[v][w] + one*min(t.all[w]-t.exact[w], one)) / 2
			}
			exact[v] = exact[v]/2 + one/2*min(sum, math.MaxInt32/one/2)
		}
	}
	clear(s.tallies) // they are no longer those of the cuts
	var t routes
	for i := range s.cuts {
		s.find(&t, uint32(i), false)
		s.cuts[i] = slices.Clone(s.take(&t))
	}
}

// tally divides a share of the runs, and counts their lists.
func (s *solver) tally(share, shares int) {
	var t routes
	runs := len(s.b.runs)
	for n := runs * share / shares; n < runs*(share+1)/shares; n++ {
		s.find(&t, uint32(n), false)
		first := s.first[n]
		for end := uint32(len(t.all) - 1); end > 0; end = t.all[end].from {
			e := &t.all[end]
			stems, rows, w := s.at(first+e.from), end-e.from, e.width
			if e.stem > 0 {
				w = s.all[e.stem-1].width
				atomic.AddInt32(&s.tallies[e.stem-1].exact[w], 1)
			}
			if s.prefixes {
				for _, v := range stems[:min(int(rows), len(stems))] {
					atomic.AddInt32(&s.tallies[v].all[w], 1)
				}
			}
		}
	}
}

// pieces makes pieces and lists of the cuts.
func (s *solver) pieces() {
	b := s.b
	b.lists.pools = [][]byte{nil}
	for i := range b.runs {
		r := &b.runs[i]
		r.piece, r.pieces = uint32(len(b.pieces)), uint32(len(s.cuts[i]))
		rows := b.rows[r.row : r.row+r.num]
		from := uint32(0)
		for _, c := range s.cuts[i] {
			start, first := rows[from].Start, from
			if c.early > 0 {
				start, first = start-s.gap(s.all[c.early-1].place), from-1
				r.twice++
			}
			b.pieces = append(b.pieces, piece{start, b.list(r, start, rows[first:c.end], sframe.FREType(c.width))})
			from = c.end
		}
	}
}
