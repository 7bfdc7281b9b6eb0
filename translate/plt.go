package translate

import (
	"slices"

	"cfi2sframe/plt"
	"cfi2sframe/sframe"
)

// MaxVarying bounds the code of a table, in bytes, for which a CFA that depends on pc is
// evaluated. The PLT of the largest programs is a few hundred KiB.
const MaxVarying = 1 << 20

// maxSteps bounds the rows that come of it; a PLT has one for each 8 bytes of code.
const maxSteps = 1 << 17

// varying translates the current row, whose CFA depends on the pc: linkers
// describe a whole PLT by one such row. The outcome is a step function of pc. It
// becomes a PC-mask FDE where it repeats, and plain rows elsewhere. What depends on where the
// code is loaded is a gap.
func (x *translator) varying() {
	r := &x.row
	begin, end := r.Begin, r.End
	x.res.Varying += end - begin
	if end-begin > MaxVarying-x.varied {
		x.gap(begin, end, Gap{Reason: CFAExpression, Column: ColumnCFA, Rule: r.CFA})
		return
	}
	x.varied += end - begin
	steps := x.steps[:0]
	var known [lines]line
	for pc := begin; pc < end; pc++ {
		row, g := x.rowAt(pc, &known)
		if g.Reason == 0 && (len(steps) == 0 || steps[len(steps)-1].Row != row) {
			if len(steps) == maxSteps {
				g = Gap{Reason: CFAExpression, Column: ColumnCFA, Rule: r.CFA}
			}
			steps = append(steps, sframe.Ref{Start: uint32(pc - begin), Row: row})
		}
		if g.Reason != 0 {
			x.gap(begin, end, g)
			return
		}
	}
	x.steps = steps
	x.spread(steps, begin, end)
}

// lines is how many places rows are remembered by, by the lowest bits of the pc: those of a PLT repeat with
// its entries, of 16 bytes as a rule.
const lines = 64

// A line is what a row is at all pcs with some lowest bits, if nothing else matters.
type line struct {
	row  uint32 // its number, plus 1; 0: it is not known
	cost uint64 // bytes of expressions that were evaluated for it, which count for each pc all the same
}

// rowAt returns the number of what the row at hand is at pc, or the gap.
func (x *translator) rowAt(pc uint64, known *[lines]line) (uint32, Gap) {
	same, spent := &known[pc%lines], x.eval.spent
	if same.row > 0 && spent+same.cost <= x.eval.limit {
		x.eval.spent += same.cost
		return same.row - 1, Gap{}
	}
	vague := x.vague()
	cfa := x.cfa(pc, vague|^uint64(lines-1)) // as if all others were not certain
	only := cfa.base != unknown && cfa.vague == 0
	if !only {
		x.eval.spent = spent
		cfa = x.cfa(pc, vague)
	}
	e, g := x.form(cfa)
	if cfa.vague != 0 {
		g = Gap{Reason: CFAAddress, Column: ColumnCFA, Rule: x.row.CFA}
	}
	if g.Reason != 0 {
		return 0, g
	}
	row := x.number(e)
	if only {
		*same = line{row + 1, x.eval.spent - spent}
	}
	return row, Gap{}
}

// spread adds the step function over [begin, end), as blocks where it repeats.
func (x *translator) spread(steps []sframe.Ref, begin, end uint64) {
	rep := uint64(0)
	if x.layout.RepSize {
		// Without it, readers do not agree on which rows hold.
		rep = period(steps, begin, end, x.opt.moves(begin))
	}
	first := begin
	if rep > 0 {
		// SFrame takes pc itself modulo the size of the block.
		first += (rep - begin%rep) % rep
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
func (x *translator) plain(steps []sframe.Ref, begin, limit uint64) {
	for i, e := range steps {
		lo, hi := begin+uint64(e.Start), limit
		if i+1 < len(steps) {
			hi = min(hi, begin+uint64(steps[i+1].Start))
		}
		if lo < hi {
			x.add(lo, hi, e.Row)
		}
	}
}

// masked adds [first, end) as a PC-mask FDE with blocks of rep bytes.
func (x *translator) masked(steps []sframe.Ref, begin, first, end, rep uint64) {
	d := run{begin: first, end: end, first: len(x.refs), rep: uint8(rep)}
	for i, e := range steps {
		next := end
		if i+1 < len(steps) {
			next = begin + uint64(steps[i+1].Start)
		}
		if lo := begin + uint64(e.Start); next > first && lo < first+rep {
			e.Start = uint32(max(lo, first) - first)
			x.refs = append(x.refs, e)
		}
	}
	d.last = len(x.refs)
	x.runs = append(x.runs, d)
}

// period returns the smallest number of bytes after which the step function
// repeats over [begin, end), or 0. It is at most what a repetition size can say, and blocks of
// that size stay blocks if the code is moved by multiples of moves.
func period(steps []sframe.Ref, begin, end, moves uint64) uint64 {
	if len(steps) < 2 {
		return 0
	}
	size := uint32(end - begin)
	for rep := uint32(2); rep <= 255 && rep < size; rep++ {
		if moves%uint64(rep) == 0 && repeats(steps, size, rep) {
			return uint64(rep)
		}
	}
	return 0
}

// repeats reports whether the step function is equal to itself moved by rep.
func repeats(steps []sframe.Ref, size, rep uint32) bool {
	i, j := 0, 0 // the steps at pc and at pc + rep
	for pc := uint32(0); pc < size-rep; {
		for j+1 < len(steps) && steps[j+1].Start <= pc+rep {
			j++
		}
		for i+1 < len(steps) && steps[i+1].Start <= pc {
			i++
		}
		if steps[i].Row != steps[j].Row {
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

// stubs translates PLT stubs that no CFI describes. Neighbours that are alike become
// one FDE.
func (x *translator) stubs(stubs []plt.Stub) error {
	for len(stubs) > 0 {
		n := 1
		for n < len(stubs) && alike(&stubs[n-1], &stubs[n]) {
			n++
		}
		if err := x.likeStubs(stubs[:n]); err != nil {
			return err
		}
		stubs = stubs[n:]
	}
	return nil
}

// alike reports whether b follows a and its frames are where a's are. The size
// matters only where they change.
func alike(a, b *plt.Stub) bool {
	return a.End == b.Begin && slices.Equal(a.Steps, b.Steps) && (len(a.Steps) == 1 || a.End-a.Begin == b.End-b.Begin)
}

func (x *translator) likeStubs(stubs []plt.Stub) error {
	begin, end := stubs[0].Begin, stubs[len(stubs)-1].End
	if !x.opt.Reach.Has(begin, end-1) {
		return nil
	}
	var steps []sframe.Ref
	for i := range stubs {
		for _, st := range stubs[i].Steps {
			e := sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: st.CFA}}
			if st.RA != 0 {
				e.RA = sframe.Rule{Base: sframe.CFA, Offset: st.RA, Deref: true}
			}
			if !x.codec.Default(&e) {
				return nil // a stub that has no form is not described
			}
			if row := x.number(e); len(steps) == 0 || steps[len(steps)-1].Row != row {
				steps = append(steps, sframe.Ref{Start: uint32(stubs[i].Begin-begin) + st.Offset, Row: row})
			}
		}
	}
	x.open, x.runs, x.refs = false, x.runs[:0], x.refs[:0]
	x.spread(steps, begin, end)
	for _, r := range x.runs {
		d := sframe.FDE{Start: r.begin, Size: uint32(r.end - r.begin), PCMask: r.rep > 0, RepSize: r.rep}
		if _, err := x.sink.Add(d, x.refs[r.first:r.last]); err != nil {
			return err
		}
		x.res.Synthesised += r.end - r.begin
	}
	return nil
}
