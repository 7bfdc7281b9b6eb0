package walker

import (
	"math/rand/v2"

	"cfi2sframe/sframe"
)

// Bounds on the blocks of a PC-mask FDE, and on random pcs.
const (
	maxBlocks = 16
	someAny   = 64
)

// pcs returns the borders of rows and functions of a section, the pcs beside these, some in holes, and random ones. A
// section that cannot be read has random ones.
func pcs(s *section, rnd *rand.Rand) []uint64 {
	var out []uint64
	for range 8 {
		out = append(out, rnd.Uint64(), s.addr+uint64(int64(int32(rnd.Uint32()))))
	}
	out = append(out, 0, ^uint64(0))
	sec, err := sframe.Decode(s.data, s.addr)
	if err != nil || sec.Len() == 0 {
		return out
	}
	border := func(pc uint64) { out = append(out, pc-1, pc, pc+1) }
	var fres []sframe.FRE
	low, high := ^uint64(0), uint64(0)
	for i, d := range sec.FDEs() {
		low, high = min(low, d.Start), max(high, d.End())
		border(d.Start)
		border(d.End())
		if d.Size > 0 {
			out = append(out, d.Start+uint64(rnd.Uint32N(d.Size)))
		}
		fres, _ = sec.FREs(i, fres[:0]) // those before what is wrong
		for _, r := range fres {
			if d.RepSize == 0 {
				border(d.Start + uint64(r.Start))
				continue
			}
			rep := uint64(d.RepSize)
			for block := range uint64(maxBlocks) {
				if at := d.Start - d.Start%rep + block*rep; at < d.End() {
					border(at + uint64(r.Start))
				}
			}
			border(d.End() - d.End()%rep + uint64(r.Start))
		}
	}
	if low < high {
		for range someAny + sec.Len() {
			out = append(out, low+rnd.Uint64N(high-low))
		}
	}
	return out
}
