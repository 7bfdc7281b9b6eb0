package translate

import (
	"math"
	"slices"

	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/plt"
	"cfi2sframe/sframe"
)

// maxPLT bounds the size in bytes of a PLT described by one row. PLTs of the largest programs are a few hundred KiB in
// size.
const maxPLT = 1 << 20

// costVarying is the budget cost per byte of code whose CFA depends on the pc.
const costVarying = 250

// plt translates the current row, which GNU ld emitted for a whole PLT: starting at byte pushAt of each entry, the CFA
// offset is larger by 8. If the load address may change by an amount that is not a multiple of the entry size, the row
// is a gap.
func (x *translator) plt(pushAt uint64) error {
	r := &x.row
	size := r.End - r.Begin
	if g := x.whyNoPLT(); g.Reason != 0 {
		x.gap(r.Begin, r.End, g)
		return nil
	}
	if err := x.opt.Budget.Spend(costVarying, size); err != nil {
		return err
	}
	x.steps = x.steps[:0]
	for off := uint64(0); off < size; {
		cfa, next := int64(x.arch.EntryCFA), pushAt
		at := (r.Begin + off) % arch.PLTEntry
		if at >= pushAt {
			cfa, next = cfa+8, arch.PLTEntry
		}
		e, g := x.form(value{base: ofReg, reg: x.arch.SP, off: cfa})
		if g.Reason != 0 {
			x.gap(r.Begin, r.End, g)
			return nil
		}
		x.steps = append(x.steps, sframe.Ref{Start: uint32(off), Row: x.number(e)})
		off += next - at
	}
	x.spread(x.steps, r.Begin, r.End, arch.PLTEntry)
	return nil
}

// spread adds rows for [begin, end): a PC-mask FDE with blocks of rep bytes if the version supports it, otherwise one
// row per step. If rep is 0, the steps do not repeat.
func (x *translator) spread(steps []sframe.Ref, begin, end, rep uint64) {
	first := end // start of the first block
	// V1 does not encode the block size, and its readers disagree about PC-mask FDEs.
	if x.layout.RepSize && !x.opt.NoPCMask && 0 < rep && rep <= math.MaxUint8 && x.opt.alignment(begin)%rep == 0 {
		// Blocks start at multiples of rep because readers use pc modulo the block size.
		first = begin + (rep-begin%rep)%rep
		if first > end || end-first < 2*rep {
			first = end
		}
	}
	x.addSteps(steps, begin, first)
	if first < end {
		x.addPCMask(steps, begin, first, end, rep)
		x.open = false
	}
}

// addSteps adds a row for each step up to limit.
func (x *translator) addSteps(steps []sframe.Ref, begin, limit uint64) {
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

// addPCMask adds [first, end) as a PC-mask FDE with blocks of rep bytes.
func (x *translator) addPCMask(steps []sframe.Ref, begin, first, end, rep uint64) {
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

// translateStubs translates PLT stubs without CFI. Adjacent stubs with the same frames become one FDE.
func (x *translator) translateStubs(stubs []plt.Stub) error {
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

// alike reports whether stub b directly follows stub a and has the same frames. If the frame changes within a stub, the
// stubs must also have the same size.
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
				return nil // the stubs cannot be expressed in SFrame
			}
			if row := x.number(e); len(steps) == 0 || steps[len(steps)-1].Row != row {
				steps = append(steps, sframe.Ref{Start: uint32(stubs[i].Begin-begin) + st.Offset, Row: row})
			}
		}
	}
	x.begin(nil, 0)
	rep := uint64(0)
	if len(steps) > 1 {
		rep = stubs[0].End - begin
	}
	x.spread(steps, begin, end, rep)
	for _, r := range x.runs {
		d := sframe.FDE{Start: r.begin, Size: uint32(r.end - r.begin), PCMask: r.rep > 0, RepSize: r.rep}
		if _, err := x.sink.Add(d, x.refs[r.first:r.last]); err != nil {
			return err
		}
		x.res.PLT += r.end - r.begin
	}
	return nil
}
