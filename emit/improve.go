package emit

import (
	"cmp"
	"math"
	"slices"
)

// improve makes the section smaller, from the cuts that there are, until nothing does or it takes too long. What a
// list costs is known now: nothing if another piece has it, or all of its bytes. A run at a time is taken out and
// divided anew; lists that nobody has are offered to all who could have them; and those who have a list do without it.
func (s *solver) improve() {
	const (
		rounds = 2
		least  = 1 << 12 // a part of the section: what another round saves at least
		sweeps = 40      // work counts, not time, which would make the result depend on the machine
		most   = 1 << 26 // places and stems, a second or so
	)
	s.prepare()
	s.left = min(sweeps*int64(len(s.form)+len(s.byPlace)), most)
	for range rounds {
		before := s.total
		for i := range s.cuts {
			if s.left > 0 {
				s.again(uint32(i))
			}
		}
		for _, v := range s.wanted() {
			s.refused[v] = !s.attempt(v, s.open)
		}
		for v := range s.all {
			s.attempt(uint32(v), s.close)
		}
		if s.left < 0 || before-s.total <= before/least {
			break
		}
	}
}

// prepare makes tallies and offers exact.
func (s *solver) prepare() {
	tails := make([]placeStem, 0, len(s.all))
	for u := range s.all {
		if tail := s.all[u].tail; tail > 0 {
			tails = append(tails, placeStem{tail - 1, uint32(u)})
		}
	}
	s.longerFrom, s.longer = grouped(len(s.all), tails, func(t placeStem) (uint32, uint32) { return t.place, t.stem })
	s.refused = make([]bool, len(s.all))
	clear(s.tallies)
	for v := range s.all {
		s.offers[v] = offer{price: s.full(uint32(v))}
	}
	s.total = 0
	for i := range s.cuts {
		s.count(uint32(i), 1)
	}
}

// full returns the price of the list that a stem is, if nobody has it.
func (s *solver) full(v uint32) int32 { return int32(s.size(v, s.all[v].width) * priceUnit) }

// count counts the pieces of a run, or takes them out.
func (s *solver) count(n uint32, by int32) {
	place := s.first[n]
	for _, c := range s.cuts[n] {
		end := s.first[n] + c.end
		if c.early > 0 {
			st := &s.all[c.early-1]
			s.countList(st.place, uint32(st.rows), c.width, by)
		} else {
			s.countList(place, end-place, c.width, by)
		}
		place = end
	}
	s.total += int64(by) * int64(len(s.cuts[n])) * int64(s.b.runs[n].uses) * s.fde
}

// countList counts a piece with the list of so many rows from a place on, or takes it out.
func (s *solver) countList(place, rows uint32, width uint8, by int32) {
	stems := s.at(place)
	n := min(int(rows), len(stems)) // as many may begin the list
	is := n == int(rows)            // the last one is the list
	if !s.prefixes {
		if is {
			stems, n = stems[n-1:], 1
		} else {
			n = 0
		}
	}
	for _, v := range stems[:n] {
		s.tallies[v].all[width] += by
	}
	if is {
		s.tallies[stems[n-1]].exact[width] += by
	}
	// Without the piece: what is there of the list?
	there := n
	for there > 0 {
		t := &s.tallies[stems[there-1]]
		if t.all[width] > max(by, 0) {
			break
		}
		there--
	}
	if there < n || !is {
		cost := s.listSize(place, rows, width)
		if there > 0 {
			// A list that no other one begins with becomes a part of this one.
			v := stems[there-1]
			t := &s.tallies[v]
			if t.exact[width] == t.all[width]-max(by, 0) {
				cost -= s.size(v, width)
			}
		}
		s.total += int64(by) * cost
	}
	for _, v := range stems[max(there, 1)-1 : n] {
		s.reprice(v)
	}
}

// reprice makes the offer of a stem what the tallies say.
func (s *solver) reprice(v uint32) {
	t, o, st := &s.tallies[v], &s.offers[v], &s.all[v]
	was := o.price
	o.price, o.part = s.full(v), 0
	if s.prefixes && t.all[st.width] > 0 && t.exact[st.width] == t.all[st.width] {
		o.part = o.price
	}
	for _, n := range t.all[st.width:] {
		if n > 0 {
			o.price = 0
		}
	}
	if st.tail > 0 && (was == 0) != (o.price == 0) {
		if o.price == 0 {
			s.offers[st.tail-1].early++
		} else {
			s.offers[st.tail-1].early--
		}
	}
}

// again divides a run anew, if that is better. It may not be: what a run has twice is not known to cost once when it is
// divided.
func (s *solver) again(n uint32) {
	before := s.total
	s.count(n, -1)
	s.look(n)
	s.old = append(s.old[:0], s.cuts[n]...)
	s.cuts[n] = append(s.cuts[n][:0], s.take(&s.routes)...)
	s.count(n, 1)
	if s.total > before {
		s.count(n, -1)
		s.cuts[n] = append(s.cuts[n][:0], s.old...)
		s.count(n, 1)
	}
}

// look finds the routes of a run.
func (s *solver) look(n uint32) {
	s.find(&s.routes, n, true)
	s.left -= int64(s.of[s.first[n+1]]-s.of[s.first[n]]) + int64(s.first[n+1]-s.first[n])
}

// wanted returns the stems that nobody has the list of, and that all runs together would pay for, or for half of it, the
// best ones first, unless that did not help before. These runs are put into s.buyers.
func (s *solver) wanted() []uint32 {
	gains := make([]int64, len(s.all))
	var offers []placeStem // runs instead of places
	add := func(n, v uint32, gain int64) {
		if len(offers) < maxStems {
			gains[v] += gain
			offers = append(offers, placeStem{n, v})
		}
	}
	var rest []int64
	for i := range s.cuts {
		n := uint32(i)
		r, first, end := &s.b.runs[n], s.first[n], s.first[n+1]
		if r.whole || s.left < 0 {
			continue
		}
		s.count(n, -1)
		s.look(n)
		rest = s.rest(rest, n)
		fde := s.fde * int64(r.uses) * priceUnit
		for p := first; p < end; p++ {
			before := rest[0] - s.routes.all[p-first].cost - fde
			for j, v := range s.at(p) {
				gain := before - rest[int(p-first)+j+1]
				if gain <= 0 || s.offers[v].price == 0 {
					continue
				}
				add(n, v, gain)
				if p == first {
					continue
				}
				for _, u := range s.longerBy(v) {
					if s.left--; s.fits(u, p) {
						add(n, u, gain)
					}
				}
			}
		}
		s.count(n, 1)
	}
	var out []uint32
	for v, gain := range gains {
		if s.offers[v].price > 0 && gain > 0 && gain >= int64(s.offers[v].price)/2 && !s.refused[v] {
			out = append(out, uint32(v))
		} else {
			gains[v] = 0
		}
	}
	offers = slices.DeleteFunc(offers, func(o placeStem) bool { return gains[o.stem] == 0 })
	s.buyersFrom, s.buyers = grouped(len(s.all), offers, func(o placeStem) (uint32, uint32) { return o.stem, o.place })
	slices.SortStableFunc(out, func(v, w uint32) int {
		return cmp.Compare(gains[w]-int64(s.offers[w].price), gains[v]-int64(s.offers[v].price))
	})
	return out
}

// rest returns what the last rows of a run cost at least, by which is the first of them.
func (s *solver) rest(out []int64, n uint32) []int64 {
	first, rows := s.first[n], s.first[n+1]-s.first[n]
	fde := s.fde * int64(s.b.runs[n].uses) * priceUnit
	out = slices.Grow(out[:0], int(rows)+1)[:rows+1]
	out[rows] = 0
	t := &s.routes
	t.reset(s.start[first+rows-1])
	for i := int(rows) - 1; i >= 0; i-- {
		place, least := first+uint32(i), int64(math.MaxInt64)
		for w := range t.widths {
			q := &t.queues[w]
			q.add(begin{uint32(i) + 1, out[i+1] + s.rows(place+1, uint32(i)+1, uint8(w))})
			for s.start[first+q.all[q.head].row-1]-s.start[place] > extents[w] {
				q.head++
			}
			least = min(least, q.all[q.head].value-s.rows(place, uint32(i), uint8(w))+int64(s.attr)*priceUnit)
		}
		for j, v := range s.at(place) {
			o := &s.offers[v]
			price := int64(o.price)
			if price > 0 && o.early > 0 && i > 0 && s.earlier(v, place) > 0 {
				price = 0
			}
			least = min(least, price+out[i+j+1])
		}
		out[i] = least + fde
	}
	return out
}

// A trial is a change that is undone unless the section becomes smaller.
type trial struct {
	runs []uint32
	cuts []cut // of the runs, one after the other
	n    []int // how many of each
}

// attempt makes a change for a stem, and undoes it unless the section is smaller then. It reports whether it is.
func (s *solver) attempt(v uint32, change func(v uint32) bool) bool {
	before, t := s.total, &s.trial
	t.runs, t.cuts, t.n = t.runs[:0], t.cuts[:0], t.n[:0]
	if s.left < 0 || !change(v) {
		return false
	}
	if s.total < before {
		return true
	}
	for _, n := range t.runs {
		s.count(n, -1)
	}
	at := 0
	for i, n := range t.runs {
		s.cuts[n] = append(s.cuts[n][:0], t.cuts[at:at+t.n[i]]...)
		at += t.n[i]
		s.count(n, 1)
	}
	return false
}

// keep keeps the cuts of a run before a change.
func (s *solver) keep(n uint32) {
	t := &s.trial
	t.runs, t.cuts, t.n = append(t.runs, n), append(t.cuts, s.cuts[n]...), append(t.n, len(s.cuts[n]))
}

// open offers a list that nobody has for nothing.
func (s *solver) open(v uint32) bool {
	if s.offers[v].price == 0 {
		return false
	}
	st := s.all[v]
	s.countList(st.place, uint32(st.rows), st.width, 1)
	for i, n := range s.buyers[s.buyersFrom[v]:s.buyersFrom[v+1]] {
		if i > 0 && n == s.trial.runs[len(s.trial.runs)-1] {
			continue
		}
		s.keep(n)
		s.again(n)
	}
	s.countList(st.place, uint32(st.rows), st.width, -1)
	return true
}

// close has those who have a list do without it, if they are few, and it does not begin another one.
func (s *solver) close(v uint32) bool {
	const most = 12
	t := &s.tallies[v]
	users := t.exact[0] + t.exact[1] + t.exact[2]
	if users == 0 || users > most || t.exact != t.all {
		return false
	}
	s.leave(v, s.placesOf(v))
	if tail := s.all[v].tail; tail > 0 {
		s.leave(v, s.placesOf(tail-1))
	}
	for _, n := range s.trial.runs {
		s.look(n)
		s.cuts[n] = append(s.cuts[n][:0], s.take(&s.routes)...)
		s.count(n, 1)
	}
	return true
}

// leave takes runs out that have one of the places and the list that a stem is, unless they were taken out before.
func (s *solver) leave(v uint32, places []uint32) {
	last := uint32(math.MaxUint32)
	for _, p := range places {
		s.left--
		n := s.runOf[p]
		if n == last {
			continue
		}
		last = n
		if !slices.Contains(s.trial.runs, n) && s.has(n, v) {
			s.keep(n)
			s.count(n, -1)
		}
	}
}

// has reports whether a run has the list that a stem is.
func (s *solver) has(n, v uint32) bool {
	s.left -= int64(len(s.cuts[n]))
	place := s.first[n]
	for _, c := range s.cuts[n] {
		rows := s.first[n] + c.end - place
		if stems := s.at(place); c.early == v+1 || c.early == 0 && int(rows) <= len(stems) && stems[rows-1] == v {
			return true
		}
		place += rows
	}
	return false
}
