package walker

import (
	"math/rand/v2"

	"cfi2sframe/lab/kit"
	"cfi2sframe/sframe"
)

// pcs returns the pcs at and next to the boundaries of a section's rows and functions, some pcs in gaps, and random
// ones. For an invalid section, all pcs are random.
func pcs(s *section, rnd *rand.Rand) []uint64 {
	const maxBlocks, someAny = 16, 64 // blocks to test per PC-mask FDE; number of random pcs
	var out []uint64
	for range 8 {
		out = append(out, rnd.Uint64(), s.addr+uint64(int64(int32(rnd.Uint32()))))
	}
	out = append(out, 0, ^uint64(0))
	sec, err := sframe.Decode(s.data, s.addr)
	if err != nil || sec.Len() == 0 {
		return out
	}
	for _, pc := range kit.Boundaries(sec, maxBlocks) {
		out = append(out, pc-1, pc, pc+1)
	}
	low, high := ^uint64(0), uint64(0)
	for _, d := range sec.FDEs() {
		low, high = min(low, d.Start), max(high, d.End())
		if d.Size > 0 {
			out = append(out, d.Start+uint64(rnd.Uint32N(d.Size)))
		}
	}
	if low < high {
		for range someAny + sec.Len() {
			out = append(out, low+rnd.Uint64N(high-low))
		}
	}
	return out
}
