package cfi

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSortFunctions sorts mixtures of ascending runs, few and too many, with equal addresses
// among them.
func TestSortFunctions(t *testing.T) {
	for runs := range 2 * maxRuns {
		for n := range 60 {
			fns := make([]Function, n)
			last := make([]uint64, runs+1)
			for i := range fns {
				r := rand.IntN(runs + 1)
				last[r] += rand.Uint64N(4)
				fns[i] = Function{Begin: 100*uint64(r%3) + last[r], off: uint32(i)}
			}
			want := slices.Clone(fns)
			slices.SortStableFunc(want, func(a, b Function) int { return cmp.Compare(a.Begin, b.Begin) })
			before := slices.Clone(fns)
			if sortFunctions(fns); !slices.Equal(fns, want) {
				t.Fatalf("%d runs: %v became %v", runs, before, fns)
			}
		}
	}
}
