package verify

import (
	"slices"

	"cfi2sframe/cfi"
)

// A place says how a row locates the frame in a function that switches stacks.
type place uint8

const (
	nowhere   place = iota // no row
	belowSP                // the CFA is SP plus the frame size from the table
	belowFP                // the CFA is based on FP, which points to the saved FP, directly below the return address
	outermost              // no caller
)

// A stackEffect is the effect of an instruction on the stack pointer and the frame pointer.
type stackEffect struct {
	size  int   // in bytes; 0 if the instruction is unknown
	ends  bool  // control does not reach the next instruction
	jumps bool  // a jump; skip is the distance from its end to the target
	skip  int64 // in bytes

	pushesFP, popsFP, clearsFP, writesFP bool
	copiesSP                             bool // to FP
	loadsSP, fromMemory                  bool // SP is loaded; fromMemory: from memory that is not on the stack
	alignsSP                             bool
}

// onStacks checks a function that switches stacks, and returns what is wrong, or "": the difference between the rows
// before and after an instruction must be the effect of the instruction.
func (g *goTable) onStacks(fn *cfi.Function) string {
	places := make([]place, fn.End-fn.Begin)
	for row := range fn.Rows() {
		var is place
		switch {
		case row.CFA.Rule == cfi.RuleUndefined:
			continue
		case g.stack == nil || fn.Begin != g.first:
			return "unexpected rows for a function that switches stacks"
		case row.RA.Rule == cfi.RuleUndefined:
			is = outermost
		case row.CFA.Reg == g.fp:
			is = belowFP
			if row.CFA.Offset != 16 || row.RA.Offset != -8 || row.FP.Rule != cfi.RuleOffset || row.FP.Offset != -16 {
				return "frame does not match the prologue"
			}
		default:
			is = belowSP
			g.slot, g.pushed = goSlot{true, 1, 8, 8}, 0
			pc := row.Begin - g.first
			if what := g.row(&row, g.frames.sizeAt(pc), pc); what != "" {
				return what
			}
		}
		for pc := row.Begin; pc < row.End; pc++ {
			places[pc-fn.Begin] = is
		}
	}
	switch {
	case !slices.ContainsFunc(places, func(p place) bool { return p != nowhere }):
		return ""
	case places[0] != nowhere && places[0] != belowSP:
		return "the CFA is not based on the stack pointer at the start of the function"
	}
	s := stackSwitch{code: g.code.read(fn.Begin, fn.End-fn.Begin), decode: g.stack, targets: make(map[int]bool)}
	return s.check(places, g.shrinks)
}

// A stackSwitch is the code of a function that switches stacks.
type stackSwitch struct {
	code    []byte
	decode  func([]byte) stackEffect
	targets map[int]bool // offsets to which it jumps
	// The function switches to another stack and does not return from it. Its caller may meanwhile continue in another
	// thread, or on a larger stack.
	final bool
	// Go code runs on the new stack, and may move the old one, to which the frame pointer points.
	moves bool
}

// check checks that the effect of each instruction explains the difference between the places before and after it, and
// returns what is wrong, or "".
func (s *stackSwitch) check(places []place, shrinks bool) string {
	if len(s.code) != len(places) {
		return "its code is not in the file"
	}
	s.survey()
	s.moves = s.moves && shrinks
	live := true // control reaches the instruction
	for at := 0; at < len(s.code); {
		e := s.decode(s.code[at:])
		next := at + max(e.size, 1)
		if live = live || s.targets[at]; live {
			after := s.placeAfter(at, places[at], e)
			keeps := func(to int) bool {
				return to < 0 || to >= len(places) || places[to] == nowhere || places[to] == after
			}
			switch {
			case e.size == 0:
				return "unknown instruction"
			case slices.ContainsFunc(places[at:next], func(p place) bool { return p != places[at] }):
				return "row starts inside an instruction"
			case !e.ends && !keeps(next), e.jumps && !keeps(next+int(e.skip)):
				return "row contradicts the code"
			}
			live = !e.ends
		}
		at = next
	}
	return ""
}

// survey finds jumps, and how the function switches stacks. A function that switches back loads the stack pointer a
// second time. Functions that call C align the stack pointer; C code does not move stacks.
func (s *stackSwitch) survey() {
	loads, fromMemory, aligns := 0, false, false
	for at := 0; at < len(s.code); {
		e := s.decode(s.code[at:])
		at += max(e.size, 1)
		if e.jumps {
			s.targets[at+int(e.skip)] = true
		}
		if e.loadsSP {
			loads++
		}
		fromMemory = fromMemory || e.loadsSP && e.fromMemory
		aligns = aligns || e.alignsSP
	}
	s.final = loads == 1 && fromMemory
	s.moves = fromMemory && !aligns
}

// placeAfter returns the place after the instruction at the given offset, whose effect is e.
func (s *stackSwitch) placeAfter(at int, is place, e stackEffect) place {
	switch {
	case at == 0 && e.pushesFP:
		return belowSP
	case at == 1 && is == belowSP && e.copiesSP:
		return belowFP
	case is == belowFP && e.popsFP:
		return belowSP
	case e.clearsFP, s.final && (e.loadsSP || is == outermost):
		return outermost
	case is == belowSP, e.writesFP, s.moves && e.loadsSP && is == belowFP:
		return nowhere
	}
	return is
}
