package emit

import (
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// A stem is rows, and how far they are from each other, which pieces of runs could have, or begin with: the first
// ones from some place of a run on, as a rule from several. A place is a row of a run. The stems of
// a place are one row, two rows, and so on.
type stem struct {
	bytes uint32 // of the rows without their start addresses
	rows  uint16
	width uint8  // the least of their start addresses, as a FREType
	place uint32 // one of those with this stem
	tail  uint32 // plus 1: the stem without the first row
}

// Bounds on stems. Where more than maxStems are at all places together, longer ones are left out; libLLVM has
// 2.7 million.
const (
	maxStem  = 24      // rows; with 48 sections are as small
	maxStems = 1 << 22 // of all places
)

// stems are those of all places of a program.
type stems struct {
	b    *Builder
	attr uint32 // bytes of a list that are not rows'

	// Of the places, one run after the other. Starts count from the run's.
	first      []uint32 // of each run the first place, and where the last run ends
	form       []uint32 // of the row
	start      []uint32
	before     []uint32 // bytes of the rows of all places before, without their start addresses; and of all rows
	of         []uint32 // where the stems of the place are in byPlace; and where the last one's end
	byPlace    []uint32 // stems, for each place from the shortest one on
	all        []stem
	placesFrom []uint32 // where the places of the stem are in places; and where the last one's end
	places     []uint32 // of each stem
}

// newStems finds the stems of the runs of b.
func newStems(b *Builder) *stems {
	s := &stems{b: b, attr: uint32(b.layout.AttrSize)}
	n := len(b.rows)
	s.first, s.form, s.start, s.before = make([]uint32, 0, len(b.runs)+1), make([]uint32, 0, n), make([]uint32, 0, n), make([]uint32, 1, n+1)
	for i := range b.runs {
		r := &b.runs[i]
		s.first = append(s.first, uint32(len(s.form)))
		for _, e := range b.rows[r.row : r.row+r.num] {
			s.form = append(s.form, e.Row)
			s.start = append(s.start, e.Start)
			s.before = append(s.before, s.before[len(s.before)-1]+b.form(e.Row, r.flexible).size)
		}
	}
	s.first = append(s.first, uint32(len(s.form)))
	found := s.repeated()
	s.index(found)
	s.index(s.early(found))
	return s
}

// gap returns how long the row of a place holds, if it is not the last one of a run.
func (s *stems) gap(place uint32) uint32 { return s.start[place+1] - s.start[place] }

// at returns the stems of a place.
func (s *stems) at(place uint32) []uint32 { return s.byPlace[s.of[place]:s.of[place+1]] }

// placesOf returns the places of a stem.
func (s *stems) placesOf(stem uint32) []uint32 {
	return s.places[s.placesFrom[stem]:s.placesFrom[stem+1]]
}

// A placeStem is a stem of a place.
type placeStem struct{ place, stem uint32 }

// repeated finds the stems that occur at two places or more: first those of one row, then among
// these places those of two rows, and so on.
func (s *stems) repeated() []placeStem {
	type growing struct{ place, end, stem uint32 }
	var live []growing
	for i := range s.b.runs {
		r := &s.b.runs[i]
		root := uint32(math.MaxUint32) // as if it were a stem without rows
		if s.attr > 0 {
			root -= uint32(r.class()) | uint32(r.repSize)<<8
		}
		for p := s.first[i]; p < s.first[i+1]; p++ {
			live = append(live, growing{p, s.first[i+1], root})
			if r.whole {
				break
			}
		}
	}
	var found []placeStem
	var table stemTable
	ids, counts := make([]uint32, len(live)), []uint32(nil)
	for rows := uint32(1); rows <= maxStem && len(live) > 0 && len(found)+len(live) <= maxStems; rows++ {
		table.reset(len(live))
		counts = counts[:0]
		for i, g := range live {
			last := g.place + rows - 1
			k := stemKey{shorter: g.stem, form: s.form[last]}
			if rows > 1 {
				k.gap = s.gap(last - 1)
			}
			id := table.number(k)
			if int(id) == len(counts) {
				counts = append(counts, 0)
			}
			counts[id]++
			ids[i] = id
		}
		// Those with one place only are dropped, and the others get their numbers instead of the counts.
		numbers := counts
		for i := range numbers {
			if numbers[i] == 1 {
				numbers[i] = math.MaxUint32
			} else {
				numbers[i] = math.MaxUint32 - 1
			}
		}
		next := live[:0]
		for i, g := range live {
			n := &numbers[ids[i]]
			switch *n {
			case math.MaxUint32:
				continue
			case math.MaxUint32 - 1:
				*n = s.add(g.place, rows)
			}
			found = append(found, placeStem{g.place, *n})
			if g.place+rows < g.end {
				g.stem = *n
				next = append(next, g)
			}
		}
		live = next
	}
	return found
}

// add adds the stem of so many rows at a place, and returns its number.
func (s *stems) add(place, rows uint32) uint32 {
	end := place + rows
	s.all = append(s.all, stem{
		bytes: s.before[end] - s.before[place], rows: uint16(rows), width: uint8(sframe.TypeFor(s.start[end-1] - s.start[place])), place: place,
	})
	return uint32(len(s.all) - 1)
}

// early adds stems that occur at one place only, but that pieces elsewhere could have if they begin within a row: those
// of which the rows but for the first one occur at another place, after a row that is the same as
// the first one and longer.
func (s *stems) early(found []placeStem) []placeStem {
	for i := range s.b.runs {
		for p := s.first[i+1] - 1; p > s.first[i] && len(found) < maxStems; p-- {
			tails := s.at(p)
			if len(tails) == 0 {
				continue
			}
			for rows := len(s.at(p-1)) + 1; rows <= min(len(tails)+1, maxStem) && s.longer(tails[max(rows, 2)-2], p); rows++ {
				found = append(found, placeStem{p - 1, s.add(p-1, uint32(rows))})
			}
		}
	}
	return found
}

// longer reports whether one of the first places of a stem is after the same row as the given one, and
// the row is longer there.
func (s *stems) longer(tail, place uint32) bool {
	const most = 64
	all := s.placesOf(tail)
	for _, q := range all[:min(len(all), most)] {
		if q > 0 && s.form[q-1] == s.form[place-1] && s.start[q] > s.start[q-1] && s.gap(q-1) > s.gap(place-1) {
			return true
		}
	}
	return false
}

// index makes the tables of what was found.
func (s *stems) index(found []placeStem) {
	s.of, s.byPlace = grouped(len(s.form), found, func(f placeStem) (uint32, uint32) { return f.place, f.stem })
	s.placesFrom, s.places = grouped(len(s.all), found, func(f placeStem) (uint32, uint32) { return f.stem, f.place })
	for p := range len(s.form) - 1 {
		longer, shorter := s.at(uint32(p)), s.at(uint32(p)+1)
		for i := 1; i < min(len(longer), len(shorter)+1); i++ {
			s.all[longer[i]].tail = shorter[i-1] + 1
		}
	}
}

// grouped returns values by their keys, which are below n, each key's in the order of all: those of a key are from
// its entry of from on, up to that of the next one.
func grouped(n int, all []placeStem, of func(placeStem) (key, value uint32)) (from, values []uint32) {
	from, values = make([]uint32, n+2), make([]uint32, len(all))
	for i := range all {
		key, _ := of(all[i])
		from[key+2]++
	}
	for i := range n {
		from[i+2] += from[i+1]
	}
	for i := range all {
		key, value := of(all[i])
		values[from[key+1]] = value
		from[key+1]++
	}
	return slices.Clip(from[:n+1]), values
}

// A stemKey is a stem by the one that is a row shorter.
type stemKey struct{ shorter, gap, form uint32 }

// A stemTable numbers stems.
type stemTable struct {
	slots []struct {
		stemKey
		number uint32 // plus 1; 0 for none
	}
	n uint32
}

// reset makes the table empty, with room for n stems.
func (t *stemTable) reset(n int) {
	size := 1 << 4
	for size < 2*n {
		size *= 2
	}
	if size > cap(t.slots) {
		t.slots = slices.Grow(t.slots[:0], size)
	}
	t.slots, t.n = t.slots[:size], 0
	clear(t.slots)
}

// number returns the number of a stem: 0 for the first one that it is asked for, 1 for the second one, and so on.
func (t *stemTable) number(k stemKey) uint32 {
	mask := uint64(len(t.slots) - 1)
	for i := mix(uint64(k.shorter)<<32^uint64(k.gap)^mix(uint64(k.form))) & mask; ; i = (i + 1) & mask {
		e := &t.slots[i]
		if e.number == 0 {
			t.n++
			e.stemKey, e.number = k, t.n
		}
		if e.stemKey == k {
			return e.number - 1
		}
	}
}
