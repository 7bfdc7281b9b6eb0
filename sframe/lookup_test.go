package sframe_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/testfile"
	"cfi2sframe/sframe"
)

// lookupAll compares lookups in encoded and checked sections, and with a search of all FDEs, and returns the number of
// rows found.
func lookupAll(t *testing.T, data []byte, addr uint64, pcs []uint64) (rows int) {
	t.Helper()
	s, err := sframe.Decode(data, addr)
	if err != nil {
		return 0
	}
	e, err := sframe.Open(data, addr)
	if err != nil {
		t.Fatalf("Open: %v; Decode has no error", err)
	}
	if e.Header != s.Header {
		t.Fatalf("Open's header is %+v; want %+v", e.Header, s.Header)
	}
	for _, pc := range pcs {
		want, ok, err := s.Lookup(pc)
		if ok {
			rows++
		}
		m, found, err2 := e.Lookup(pc)
		if m != want || found != ok || fmt.Sprint(err2) != fmt.Sprint(err) {
			t.Fatalf("Encoded.Lookup: %#x: %+v, %v, %v; want %+v, %v, %v", pc, m, found, err2, want, ok, err)
		}
		best := sframe.FDE{} // the last FDE that starts at or before pc
		for _, d := range s.FDEs() {
			if d.Start <= pc && (d.Start > best.Start || d.Start == best.Start && d.Size > 0) {
				best = d
			}
		}
		if ok && m.FDE != best || s.Find(pc) >= 0 != (pc-best.Start < uint64(best.Size)) {
			t.Fatalf("%#x: FDE %+v, index %d; want %+v", pc, m.FDE, s.Find(pc), best)
		}
	}
	return rows
}

// pcsNear returns, in ascending order, pcs near the starts and ends of all FDEs and rows, and random pcs in FDEs.
func pcsNear(s *sframe.Section, rnd *rand.Rand) []uint64 {
	pcs := []uint64{0, 1, ^uint64(0)}
	for i, d := range s.FDEs() {
		pcs = append(pcs, d.Start-1, d.Start, d.Start+uint64(d.Size)-1, d.Start+uint64(d.Size))
		fres, err := s.FREs(i, nil)
		if err != nil {
			continue
		}
		for _, r := range fres {
			pcs = append(pcs, d.Start+uint64(r.Start), d.Start+uint64(r.Start)+rnd.Uint64N(4))
		}
		if d.Size > 0 {
			pcs = append(pcs, d.Start+rnd.Uint64N(uint64(d.Size)))
		}
	}
	slices.Sort(pcs)
	return pcs
}

// TestLookupForms compares lookups in the sections of conformance/vectors, with sorted and unsorted FDEs,
// and in damaged sections.
func TestLookupForms(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	sections, rows := 0, 0
	for _, v := range testfile.Vectors(t) {
		data, addr := v.Decode(t)
		s, err := sframe.Decode(data, addr)
		if err != nil {
			continue
		}
		sections++
		pcs := pcsNear(s, rnd)
		rows += lookupAll(t, data, addr, pcs)
		unsorted := slices.Clone(data)
		unsorted[3] &^= byte(sframe.FDESorted)
		rows += lookupAll(t, unsorted, addr, pcs)
		for range 20 {
			bad := slices.Clone(data)
			bad[rnd.IntN(len(bad))] ^= byte(1 << rnd.IntN(8))
			rows += lookupAll(t, bad, addr, pcs)
		}
	}
	if sections < 500 || rows < 10000 {
		t.Errorf("%d sections, %d rows", sections, rows)
	}
}

// FuzzLookups looks up pcs in arbitrary bytes, including sections that Decode rejects.
func FuzzLookups(f *testing.F) {
	for i, v := range testfile.Vectors(f) {
		if i%10 == 0 {
			data, _ := v.Decode(f)
			f.Add(data, uint64(len(data)))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		if s, err := sframe.Decode(data, 0x10000); err == nil && s.Len() < 1000 {
			lookupAll(t, data, 0x10000, pcsNear(s, rnd))
		}
		e, err := sframe.Open(data, 0x10000)
		if err != nil {
			return
		}
		for range 64 {
			pc := 0x10000 + rnd.Uint64N(1<<17) - 1<<16
			if m, ok, err := e.Lookup(pc); ok && (err != nil || pc-m.FDE.Start >= uint64(m.FDE.Size)) {
				t.Fatalf("%#x: %+v, %v", pc, m, err)
			}
		}
	})
}
