package verify

import (
	"math"

	"cfi2sframe/cfi"
	"cfi2sframe/sframe"
)

// A coded is an FDE whose FREs all have codes, which are compared without decoding them.
type coded struct {
	sframe.FDE
	index int // plus 1
	fres  []sframe.CodedFRE
	ok    bool // it has FREs from its start on, in order, and no PC mask
}

// load reads the FDE with the given index, if it is another one.
func (d *coded) load(s *segments, index int) bool {
	if d.index == index+1 {
		return d.ok
	}
	d.index = index + 1
	d.FDE, d.fres, d.ok = s.sec.Codes(index, d.fres[:0])
	d.ok = d.ok && len(d.fres) > 0 && d.fres[0].Start == 0 && !d.PCMask && d.End() >= d.Start && d.End() <= s.limit
	for j := 1; d.ok && j < len(d.fres); j++ {
		d.ok = d.fres[j-1].Start < d.fres[j].Start && d.fres[j].Start < d.Size
	}
	if s.rows += uint64(len(d.fres)); s.rows > s.maxRows {
		d.ok = false // and the error is that of somebody else
	}
	return d.ok
}

// at returns the index of the FRE that holds for pc.
func (d *coded) at(pc uint64) int {
	j := len(d.fres) - 1
	for j > 0 && d.Start+uint64(d.fres[j].Start) > pc {
		j--
	}
	return j
}

// end returns where the j-th FRE ends.
func (d *coded) end(j int) uint64 {
	if j+1 < len(d.fres) {
		return d.Start + uint64(d.fres[j+1].Start)
	}
	return d.End()
}

// direct compares a function of which all is simple: FDEs without PC masks describe it from its start to its end,
// wherever they begin and end, and each of their rows was found to say what the CFI says for other rows of the same
// numbers and the same bytes. The row that holds at its end may go on in the padding after it. It reports false for a
// function that has to be looked at row by row, also because of what is wrong with it.
func (c *checker) direct(fn *cfi.Function, s *settled) (bool, error) {
	steps, d := fn.Steps(), &c.coded
	if len(steps) == 0 || fn.End-fn.Begin > math.MaxUint32 || !c.segs.more || c.segs.begin != fn.Begin {
		return false, nil
	}
	first, whole := c.segs.index, !c.segs.loaded
	i, at := first, fn.Begin
	var j int // of the FRE at that address
	for left := steps; ; i++ {
		if i == c.segs.after || !d.load(&c.segs, i) || d.Signal != fn.Signal() || d.KeyB != fn.KeyB() {
			return false, nil
		}
		switch {
		case at == d.Start:
			j = 0
		case at == fn.Begin && d.Start < at && at < d.End():
			j, whole = d.at(at), false
		default:
			return false, nil
		}
		for ; at < fn.End && j < len(d.fres); j++ {
			for next := min(d.end(j), fn.End); at < next; {
				if c.codes[left[0].Number] != d.fres[j].Code {
					return false, nil
				}
				at = next
				if len(left) > 1 && fn.Begin+uint64(left[1].Off) <= next {
					at, left = fn.Begin+uint64(left[1].Off), left[1:]
				}
			}
		}
		if at == fn.End {
			break
		}
	}
	j--
	if end := d.end(j); end > at {
		if g := c.gapAfter(fn, c.follows); g.padding {
			at = min(end, g.end)
			c.res.Padding += at - fn.End
		}
	}
	c.segs.last = d.End()
	if at < d.End() {
		c.segs.move(i, at)
		return true, nil
	}
	fdes := i - first + 1
	if whole && fn.End-fn.Begin >= fn.MinSize() {
		*s = settled{minLast: d.fres[len(d.fres)-1].Start + 1, first: uint32(first), fdes: uint32(fdes)}
	}
	return true, c.segs.function(i + 1)
}
