package cfi

import "testing"

// TestAllocations loads tables of few and of many functions, for which room is made once.
func TestAllocations(t *testing.T) {
	allocations := func(n int) float64 {
		w := &writer{target: amd64}
		cie := w.cie(plainCIE)
		for i := range n {
			w.fde(cie, w.abs(textAddr+uint64(i), 1), []byte{0x0e, 16})
		}
		f := tinyELF(t, amd64, ".eh_frame", w.b)
		return testing.AllocsPerRun(5, func() {
			if table, err := Load(f, Auto, nil); err != nil || table.Len() != n {
				t.Fatalf("%d functions, error %v", table.Len(), err)
			}
		})
	}
	// The runtime has some of its own. A table that grows with its functions has a dozen more.
	if few, many := allocations(50), allocations(5000); many > few+3 {
		t.Errorf("%v allocations for 50 functions, %v for 5000", few, many)
	}
}
