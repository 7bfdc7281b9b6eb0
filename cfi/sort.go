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
	var runs [maxRuns][]uint32
	var ends [maxRuns]uint64 // where the last function of each run begins
	used := 0
	for i := range fns {
		begin, best := fns[i].Begin, -1
		for r := range used {
			if ends[r] <= begin && (best < 0 || ends[r] > ends[best]) {
				best = r
			}
		}
		if best < 0 {
			if used == maxRuns {
				permute(fns, ordered(fns))
				return
			}
			best = used
			runs[best] = make([]uint32, 0, len(fns)-i)
			used++
		}
		runs[best], ends[best] = append(runs[best], uint32(i)), begin
	}
	if used < 2 {
		return
	}
	order := make([]uint32, 0, len(fns))
	for left := runs[:used]; len(left) > 0; {
		first := 0
		for r := 1; r < len(left); r++ {
			i, j := left[r][0], left[first][0]
			if a, b := fns[i].Begin, fns[j].Begin; a < b || a == b && i < j {
				first = r
			}
		}
		order = append(order, left[first][0])
		if left[first] = left[first][1:]; len(left[first]) == 0 {
			left = slices.Delete(left, first, first+1)
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
