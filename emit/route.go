package emit

import (
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// A route is the cheapest way to divide the first rows of a run.
type route struct {
	cost  int64 // in units
	from  uint32
	stem  uint32 // plus 1: of the last piece; 0 if it begins early or has a list of its own
	early uint32 // as in cut
	width uint8  // of a list of its own
}

// routes are those of the first rows of a run, by how many they are.
type routes struct {
	all    []route
	queues [3]queue
	widths int // how many of the queues the run needs
	cuts   []cut
}

// reset makes the queues ready for a run of which the last row has the given start.
func (t *routes) reset(last uint32) {
	t.widths = int(sframe.TypeFor(last)) + 1
	for w := range t.widths {
		t.queues[w] = queue{all: t.queues[w].all[:0]}
	}
}

// A queue holds where a piece with a list of its own may begin, for a width of start addresses: the least value first,
// and after it only what is later and better than all that is later still. What a piece costs is the value and
// something that depends on its end only.
type queue struct {
	all  []begin
	head int
}

type begin struct {
	row   uint32
	value int64
}

// extents are how far the last row of a list can be from the first one, by FREType.
var extents = [...]uint32{math.MaxUint8, math.MaxUint16, math.MaxUint32}

// find finds the cheapest way to divide a run by the offers. If they are exact, pieces may begin early, and lists
// may make others a part of themselves.
func (s *solver) find(t *routes, n uint32, exact bool) {
	r, first, end := &s.b.runs[n], s.first[n], s.first[n+1]
	rows := end - first
	t.all = slices.Grow(t.all[:0], int(rows)+1)[:rows+1]
	t.all[0] = route{}
	for i := range t.all[1:] {
		t.all[i+1] = route{cost: math.MaxInt64}
	}
	t.reset(s.start[end-1])
	fde := s.fde * int64(r.uses) * priceUnit
	for i := uint32(0); ; i++ {
		place, here := first+i, &t.all[i]
		if i > 0 {
			s.own(t, first, i, fde)
		}
		if i == rows {
			break
		}
		if i > 0 && r.whole {
			continue
		}
		for w := range t.widths {
			t.queues[w].add(begin{i, here.cost - s.rows(place, i, uint8(w))})
		}
		cost := here.cost + fde
		var part int64  // what a list is worth that a longer one would make a part of itself
		var width uint8 // of its start addresses
		stems := s.at(place)
		for j, v := range stems {
			to := i + uint32(j) + 1
			next, o := &t.all[to], &s.offers[v]
			c := cost + int64(o.price)
			if exact && s.prefixes {
				if o.price == 0 {
					part, width = int64(o.part), s.all[v].width
				} else if part > 0 && s.all[v].width == width {
					c -= part
				}
			}
			if c < next.cost {
				*next = route{cost: c, from: i, stem: v + 1}
			}
			if exact && o.early > 0 && i > 0 && cost < next.cost {
				if u := s.earlier(v, place); u > 0 {
					*next = route{cost: cost, from: i, early: u}
				}
			}
		}
		if part > 0 {
			s.extend(t, n, i, width, cost-part)
		}
	}
}

// own finds the best list of its own for a piece that ends after the first n rows.
func (s *solver) own(t *routes, first, n uint32, fde int64) {
	last := s.start[first+n-1]
	for w := range t.widths {
		q := &t.queues[w]
		for q.head < len(q.all) && last-s.start[first+q.all[q.head].row] > extents[w] {
			q.head++
		}
		if q.head == len(q.all) {
			continue
		}
		c := q.all[q.head].value + fde + int64(s.attr)*priceUnit + s.rows(first+n, n, uint8(w))
		if e := &t.all[n]; c < e.cost {
			*e = route{cost: c, from: q.all[q.head].row, width: uint8(w)}
		}
	}
}

// extend finds pieces from the i-th row of a run on with lists of their own that begin with another list, of the given
// width: the cost is that of such a piece but for its rows. They are longer than the stems of the place.
func (s *solver) extend(t *routes, n, i uint32, width uint8, cost int64) {
	const most = 64 // rows
	place, rows := s.first[n]+i, s.first[n+1]-s.first[n]
	from := i + uint32(len(s.at(place))) + 1
	cost -= s.rows(place, i, width)
	for to := from; to <= min(rows, from+most) && s.start[s.first[n]+to-1]-s.start[place] <= extents[width]; to++ {
		if c := cost + s.rows(s.first[n]+to, to, width); c < t.all[to].cost {
			t.all[to] = route{cost: c, from: i, width: width}
		}
		s.left--
	}
}

// add adds what is later than all that is there.
func (q *queue) add(b begin) {
	for len(q.all) > q.head && q.all[len(q.all)-1].value > b.value {
		q.all = q.all[:len(q.all)-1]
	}
	q.all = append(q.all, b)
}

// earlier returns a stem that costs nothing, plus 1, and is the given one of a place with the end of the row
// before it; or 0.
func (s *solver) earlier(v, place uint32) uint32 {
	for _, u := range s.longerBy(v) {
		s.left--
		if s.offers[u].price == 0 && s.fits(u, place) {
			return u + 1
		}
	}
	return 0
}

// longerBy returns stems that are the given one with a row before it, the first ones if they are many.
func (s *solver) longerBy(v uint32) []uint32 {
	const most = 256
	all := s.longer[s.longerFrom[v]:s.longerFrom[v+1]]
	return all[:min(len(all), most)]
}

// fits reports whether a piece that begins with the first row of a stem can begin within the row before a place, which
// has the other rows.
func (s *solver) fits(u, place uint32) bool {
	p := s.all[u].place
	return s.form[p] == s.form[place-1] && s.gap(p) < s.gap(place-1)
}

// take returns the cuts that find has found, until it is called again.
func (s *solver) take(t *routes) []cut {
	t.cuts = t.cuts[:0]
	for i := uint32(len(t.all) - 1); i > 0; i = t.all[i].from {
		e := &t.all[i]
		c := cut{i, e.width, e.early}
		if e.early > 0 {
			c.width = s.widthOf(e.early - 1)
		} else if e.stem > 0 {
			c.width = s.widthOf(e.stem - 1)
		}
		t.cuts = append(t.cuts, c)
	}
	slices.Reverse(t.cuts)
	return t.cuts
}
