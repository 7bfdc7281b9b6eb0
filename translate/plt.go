package translate

import "cfi2sframe/sframe"

// maxVarying bounds the code for which a CFA that depends on pc is evaluated.
// The PLT of the largest programs is a few hundred KiB.
const maxVarying = 4 << 20

// varying translates the current row, whose CFA depends on the pc: linkers
// describe a whole PLT by one such row. The outcome is a step function of pc. It
// becomes a PC-mask FDE where it repeats, and plain rows elsewhere.
func (x *translator) varying() {
	r := &x.rows
	begin, end := r.Begin, r.End
	if end-begin > maxVarying {
		x.gap(begin, end, Gap{Reason: CFAExpression, Column: ColumnCFA, Rule: r.CFA})
		return
	}
	steps := x.steps[:0]
	for pc := begin; pc < end; pc++ {
		e, g := x.forms(x.cfa(pc))
		if g.Reason != 0 {
			x.gap(begin, end, g)
			return
		}
		if n := len(steps); n == 0 || !sframe.SameRow(&steps[n-1], &e) {
			e.Start = uint32(pc - begin)
			steps = append(steps, e)
		}
	}
	x.steps = steps
	x.spread(steps, begin, end)
}

// spread adds the step function over [begin, end), as blocks where it repeats.
func (x *translator) spread(steps []sframe.FRE, begin, end uint64) {
	rep := uint64(0)
	if x.layout.RepSize {
		// Without it, readers do not agree on which rows hold.
		rep = period(steps, begin, end)
	}
	first := begin
	if rep > 0 {
		// SFrame takes pc itself modulo the size of the block.
		first += -begin % rep
	}
	if rep == 0 || end-first < 2*rep {
		first = end
	}
	x.plain(steps, begin, first)
	if first < end {
		x.masked(steps, begin, first, end, rep)
		x.open = false
	}
}

// plain adds the steps up to limit as rows.
func (x *translator) plain(steps []sframe.FRE, begin, limit uint64) {
	for i, e := range steps {
		lo, hi := begin+uint64(e.Start), limit
		if i+1 < len(steps) {
			hi = min(hi, begin+uint64(steps[i+1].Start))
		}
		if lo < hi {
			x.add(lo, hi, e)
		}
	}
}

// masked adds [first, end) as a PC-mask FDE with blocks of rep bytes.
func (x *translator) masked(steps []sframe.FRE, begin, first, end, rep uint64) {
	d := run{begin: first, end: end, first: len(x.fres), rep: uint8(rep)}
	for i, e := range steps {
		next := end
		if i+1 < len(steps) {
			next = begin + uint64(steps[i+1].Start)
		}
		if lo := begin + uint64(e.Start); next > first && lo < first+rep {
			e.Start = uint32(max(lo, first) - first)
			x.fres = append(x.fres, e)
		}
	}
	d.last = len(x.fres)
	x.runs = append(x.runs, d)
}

// period returns the smallest number of bytes after which the step function
// repeats over [begin, end), or 0. It is at most what a repetition size can say.
func period(steps []sframe.FRE, begin, end uint64) uint64 {
	if len(steps) < 2 {
		return 0
	}
	size := uint32(end - begin)
	for rep := uint32(2); rep <= 255 && rep < size; rep++ {
		if repeats(steps, size, rep) {
			return uint64(rep)
		}
	}
	return 0
}

// repeats reports whether the step function is equal to itself moved by rep.
func repeats(steps []sframe.FRE, size, rep uint32) bool {
	i, j := 0, 0 // the steps at pc and at pc + rep
	for pc := uint32(0); pc < size-rep; {
		for j+1 < len(steps) && steps[j+1].Start <= pc+rep {
			j++
		}
		for i+1 < len(steps) && steps[i+1].Start <= pc {
			i++
		}
		if !sframe.SameRow(&steps[i], &steps[j]) {
			return false
		}
		next := size - rep
		if i+1 < len(steps) {
			next = min(next, steps[i+1].Start)
		}
		if j+1 < len(steps) {
			next = min(next, steps[j+1].Start-rep)
		}
		pc = next
	}
	return true
}
