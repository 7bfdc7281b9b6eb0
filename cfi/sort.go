package cfi

import (
	"cmp"
	"slices"
)

// maxRuns is how many ascending runs sortFunctions looks for. A compiler writes the FDEs of
// hot and cold code in turn, which a linker separates: two or three runs, as a rule.
const maxRuns = 8

func byBegin(a, b Function) int { return cmp.Compare(a.Begin, b.Begin) }

// sortFunctions sorts functions by the address at which they begin; those with the same one
// stay in the order that they are in.
func sortFunctions(fns []Function) {
	before := func(i, j uint32) bool {
		return fns[i].Begin < fns[j].Begin || fns[i].Begin == fns[j].Begin && i < j
	}
	if slices.IsSortedFunc(fns, byBegin) {
		return
	}
	// Each function continues the run that ends nearest before it.
	var runs [maxRuns][]uint32
	runs[0] = make([]uint32, 0, len(fns))
	for i := range fns {
		best := -1
		for r := range runs {
			n := len(runs[r])
			if n == 0 {
				if best < 0 {
					best = r
				}
				break
			}
			if last := runs[r][n-1]; before(last, uint32(i)) && (best < 0 || before(runs[best][len(runs[best])-1], last)) {
				best = r
			}
		}
		if best < 0 {
			slices.SortStableFunc(fns, byBegin)
			return
		}
		runs[best] = append(runs[best], uint32(i))
	}
	order := make([]uint32, 0, len(fns))
	for len(order) < len(fns) {
		first := -1
		for r := range runs {
			if len(runs[r]) > 0 && (first < 0 || before(runs[r][0], runs[first][0])) {
				first = r
			}
		}
		order, runs[first] = append(order, runs[first][0]), runs[first][1:]
	}
	// Cycle by cycle; what is done points at itself.
	for i := range order {
		fn, at := fns[i], i
		for from := int(order[at]); from != i; at, from = from, int(order[from]) {
			fns[at], order[at] = fns[from], uint32(at)
		}
		fns[at], order[at] = fn, uint32(at)
	}
}
