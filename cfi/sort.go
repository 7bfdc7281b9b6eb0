package cfi

import (
	"cmp"
	"slices"
)

// maxRuns is how many ascending runs sortFunctions looks for. A compiler writes the FDEs of
// hot and cold code in turn, which a linker separates: two or three runs, as a rule.
const maxRuns = 8

// sortFunctions sorts functions by the address at which they begin; those with the same one
// stay in the order that they are in.
func sortFunctions(fns []Function) {
	// Each function continues the run that ends nearest before it.
	type run struct {
		first, last uint32 // indexes of functions
		end         uint64 // where the last one begins
	}
	var runs [maxRuns]run
	var next []uint32 // of each function: the one after it in its run, if there is more than one
	used := 0
	for i := range fns {
		begin, best := fns[i].Begin, -1
		for r := range used {
			if runs[r].end <= begin && (best < 0 || runs[r].end > runs[best].end) {
				best = r
			}
		}
		switch {
		case best >= 0:
			if next != nil {
				next[runs[best].last] = uint32(i)
			}
			runs[best].last, runs[best].end = uint32(i), begin
			continue
		case used == maxRuns:
			permute(fns, ordered(fns))
			return
		case used == 1: // so far each one is followed by the next one
			next = make([]uint32, len(fns))
			for j := range i - 1 {
				next[j] = uint32(j + 1)
			}
		}
		runs[used] = run{uint32(i), uint32(i), begin}
		used++
	}
	if used < 2 {
		return
	}
	order := make([]uint32, 0, len(fns))
	for left := runs[:used]; len(left) > 0; {
		least := 0
		for r := 1; r < len(left); r++ {
			i, j := left[r].first, left[least].first
			if a, b := fns[i].Begin, fns[j].Begin; a < b || a == b && i < j {
				least = r
			}
		}
		r := &left[least]
		order = append(order, r.first)
		if r.first == r.last {
			left = slices.Delete(left, least, least+1)
		} else {
			r.first = next[r.first]
		}
	}
	permute(fns, order)
}

// ordered returns the indexes of functions in any order, sorted by the address at which they begin.
func ordered(fns []Function) []uint32 {
	type place struct {
		begin uint64
		index uint32
	}
	places := make([]place, len(fns))
	for i := range fns {
		places[i] = place{fns[i].Begin, uint32(i)}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.index, b.index))
	})
	order := make([]uint32, len(fns))
	for i := range places {
		order[i] = places[i].index
	}
	return order
}

// permute puts the functions in the given order of their indexes, which is lost.
func permute(fns []Function, order []uint32) {
	// Cycle by cycle; what is done points at itself.
	for i := range order {
		if int(order[i]) == i {
			continue
		}
		fn, at := fns[i], i
		for from := int(order[at]); from != i; at, from = from, int(order[from]) {
			fns[at], order[at] = fns[from], uint32(at)
		}
		fns[at], order[at] = fn, uint32(at)
	}
}
