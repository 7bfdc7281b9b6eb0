package verify

import (
	"math"

	"cfi2sframe/cfi"
)

// direct compares a function of which all is simple: FDEs without PC masks describe it from its start to its
// end, and each of their rows was found to say what the CFI says for other rows of the same numbers and the
// same bytes. It returns how many FDEs these are, and 0 for a function that has to be looked at
// row by row, also because of what is wrong with it.
func (c *checker) direct(fn *cfi.Function, s *settled) int {
	steps, sec := fn.Steps(), c.segs.sec
	size := fn.End - fn.Begin
	if len(steps) == 0 || size > math.MaxUint32 || !c.atFDE(fn.Begin) {
		return 0
	}
	left := steps       // from that on which holds at the point that was reached
	at := uint32(0)     // that point, from the start of the function
	first := uint32(0)  // where the last FRE begins in the last FDE
	end := uint32(size) // of the function
	i := c.segs.index
	for ; at < end; i++ {
		if i == c.segs.after {
			return 0
		}
		d, fres, ok := sec.Codes(i, c.fres[:0])
		c.fres = fres
		if !ok || len(fres) == 0 || fres[0].Start != 0 || d.Start != fn.Begin+uint64(at) || d.Size > end-at ||
			d.PCMask || d.Signal != fn.Signal() || d.KeyB != fn.KeyB() {
			return 0
		}
		if c.segs.rows += uint64(len(fres)); c.segs.rows > c.segs.maxRows {
			return 0 // and the error is that of somebody else
		}
		base := at
		for j := range fres {
			next := base + d.Size
			if j+1 < len(fres) {
				if start := fres[j+1].Start; start <= fres[j].Start || start >= d.Size {
					return 0
				}
				next = base + fres[j+1].Start
			}
			for at < next {
				if c.codes[left[0].Number] != fres[j].Code {
					return 0
				}
				at = next
				if len(left) > 1 && left[1].Off <= next {
					at, left = left[1].Off, left[1:]
				}
			}
		}
		first = fres[len(fres)-1].Start
	}
	fdes := i - c.segs.index
	if size >= fn.MinSize() {
		*s = settled{minLast: first + 1, first: uint32(c.segs.index), fdes: uint32(fdes)}
	}
	c.segs.last = fn.End
	return fdes
}
