package code

import (
	"slices"

	"cfi2sframe/internal/insn"
)

// Compilers leave out the code after a call that does not return: another function follows, or a part of one. If a path
// leads from there to a return, its stack depth shows the error. Otherwise, nothing does, and the call is doubtful: it
// counts as one that does not return, unless another call of the same function is seen to return.

// A site is a call, in a block.
type site struct {
	pc    uint64
	block int
	key   uint64 // identifies the called function; 0 if it is unknown
}

// An edge is a way out of a block.
type edge struct {
	pc       uint64 // of the jump
	from, to int    // blocks; to is outside if control leaves the function
}

const outside = -1

// A doubt is a call after which no path leads out of the function.
type doubt struct{ pc, key uint64 }

// keyOf returns an address that identifies the function which an instruction calls, or 0.
func (f *finder) keyOf(in *insn.Inst) uint64 {
	switch to := f.callee(in); {
	case to != 0:
		return to
	case in.Op == insn.CallMem && in.Mem.Relative:
		return uint64(in.Mem.Disp)
	case in.Op == insn.Call:
		return in.Target
	}
	return 0
}

// addEdge records that control reaches pc from the current block.
func (x *judgment) addEdge(pc uint64, within bool) {
	e := edge{x.pc, x.block, outside}
	if x.falls {
		e.pc = pc
	}
	if to, ok := x.index[pc]; ok && within {
		e.to = to
	}
	x.edges = append(x.edges, e)
}

// doubt sorts the calls of a function by whether a path leads from them out of the function.
func (x *judgment) doubt() {
	last := make([]uint64, x.num) // last address in a block from which a path leads out of the function
	for pass, more := 0, true; more && pass < maxPasses; pass++ {
		more = false
		for _, e := range slices.Backward(x.edges) {
			if (e.to == outside || last[e.to] != 0) && e.pc > last[e.from] {
				last[e.from], more = e.pc, true
			}
		}
	}
	b := x.body
	for _, s := range x.sites {
		switch {
		case s.key == 0 || x.stops[s.pc]:
		case s.pc < last[s.block]:
			b.confirmed = append(b.confirmed, s.key)
		default:
			b.doubts = append(b.doubts, doubt{s.pc, s.key})
		}
	}
	b.confirmed = slices.Clip(b.confirmed)
}

// isDoubtful returns a function that reports whether too few calls show that a function returns.
func (f *finder) isDoubtful() func(key uint64) bool {
	votes := map[uint64]int{}
	for _, b := range f.bodies {
		if b.odd != 0 {
			continue
		}
		for _, key := range b.confirmed {
			votes[key]++
		}
		for _, d := range b.doubts {
			votes[d.key]--
		}
	}
	return func(key uint64) bool {
		to := f.entries[key]
		return votes[key] <= 0 && (to == nil || to.odd != 0) && !f.isOneOf(key, f.Returns)
	}
}

// maxPasses bounds the number of passes through the edges of a function, or through all functions. Few are needed in
// real code. Calls that need more stay doubtful.
const maxPasses = 16

// resolve ends functions at doubtful calls, and reports whether there are any.
func (w *flow) resolve() (found bool) {
	for range maxPasses {
		more := false
		doubtful := w.isDoubtful()
		for _, b := range w.bodies {
			for _, d := range b.doubts {
				if b.odd == 0 && !w.endsHere[d.pc] && doubtful(d.key) {
					w.endsHere[d.pc], more = true, true
					w.again(b)
				}
			}
		}
		if !more {
			break
		}
		found = true
		w.run()
	}
	return found
}

// refuseDoubtful refuses the functions that still have doubtful calls.
func (w *flow) refuseDoubtful() {
	doubtful := w.isDoubtful()
	for _, b := range w.bodies {
		if b.odd == 0 && slices.ContainsFunc(b.doubts, func(d doubt) bool { return doubtful(d.key) }) {
			b.refuse(TooComplex)
		}
	}
}
