package code

import "cfi2sframe/internal/insn"

// A search looks for a path from the entry of a function to a return. A function without such a path does not return,
// and calls to it end a block.
type search struct {
	returns bool
	passed  map[uint64]bool // visited jumps and calls
	waiting []path          // paths that continue if the function returns
}

// A path is a position in a function that the search has reached.
type path struct{ entry, pc uint64 }

// goesOn reports whether control can reach the instruction after a call.
func (f *finder) goesOn(in *insn.Inst, pc uint64) bool {
	switch next := pc + uint64(in.Size); {
	case in.Target != next && f.leadsTo(in, f.NoReturn):
		return false
	case in.Op != insn.Call || in.Target == next || !f.isCode(in.Target):
		return true
	}
	s, known := f.searches[in.Target]
	if !known {
		s = f.search(in.Target)
	}
	return s.returns
}

// leadsTo reports whether a call or jump leads to one of the given functions, possibly through a PLT stub.
func (f *finder) leadsTo(in *insn.Inst, functions map[uint64]bool) bool {
	switch in.Op {
	case insn.CallMem, insn.JumpMem:
		return in.Mem.Relative && functions[uint64(in.Mem.Disp)]
	case insn.Call, insn.Jump:
		return f.isOneOf(in.Target, functions)
	}
	return false
}

// isOneOf reports whether pc is one of the given functions, or that of a PLT stub for one of them.
func (f *finder) isOneOf(pc uint64, functions map[uint64]bool) bool {
	const most = 3 // instructions of a stub, such as a landing pad and a jump
	if len(functions) == 0 || functions[pc] || f.isCode(pc) {
		return functions[pc]
	}
	code := f.Data(pc, 32)
	for range most {
		in, ok := f.machine.decode(code, pc)
		if !ok || in.Op != insn.Other {
			return ok && in.Op == insn.JumpMem && f.leadsTo(&in, functions)
		}
		code, pc = code[in.Size:], pc+uint64(in.Size)
	}
	return false
}

// endsAt reports whether a function starts at pc, and only padding is between it and the address after a call: the call
// does not return.
func (f *finder) endsAt(after, pc uint64) bool {
	if pc-after > 16 || !f.hasMarks(pc, enters) {
		return pc-after <= 16 && !f.isCode(pc)
	}
	return f.skipPadding(after, pc) == pc
}

// search determines whether a function can return and, as far as needed, whether the functions that it calls can.
func (f *finder) search(entry uint64) *search {
	var work []path
	begin := func(entry uint64) *search {
		s := &search{passed: map[uint64]bool{}}
		f.searches[entry] = s
		work = append(work, path{entry, entry})
		return s
	}
	first := begin(entry)
	for len(work) > 0 {
		p := work[len(work)-1]
		work = work[:len(work)-1]
		s := f.searches[p.entry]
		after := uint64(0) // address after a call
		for pc, on := p.pc, true; on && !s.returns; {
			in, ok := f.decode(pc)
			next := pc + uint64(in.Size)
			if after != 0 && f.endsAt(after, pc) {
				break
			}
			outside := in.Op == insn.JumpMem && !f.leadsTo(&in, f.NoReturn)
			if !ok || outside || in.Op == insn.Return || in.Op == insn.JumpReg {
				s.returns = true
				break
			}
			switch in.Op {
			case insn.Branch, insn.Jump, insn.Call, insn.CallMem:
				on = !s.passed[pc]
				s.passed[pc] = true
			}
			switch {
			case !on:
			case in.Op == insn.Branch:
				if !f.skipsLock(&in, next) {
					work = append(work, path{p.entry, in.Target})
				}
			case in.Target != next && f.leadsTo(&in, f.NoReturn):
				on = false
			case in.Op == insn.Jump:
				s.returns = !f.isCode(in.Target)
				next = in.Target
			case in.Op == insn.Call && in.Target != next && f.isCode(in.Target):
				callee := f.searches[in.Target]
				if callee == nil {
					callee = begin(in.Target)
				}
				if on = callee.returns; !on {
					callee.waiting = append(callee.waiting, path{p.entry, next})
				}
			case in.Op == insn.Call || in.Op == insn.CallMem:
				on = f.goesOn(&in, pc)
			default:
				on = !in.Op.Leaves()
			}
			if in.Op.Calls() {
				after = next
			}
			pc = next
		}
		if s.returns {
			work = append(work, s.waiting...)
			s.passed, s.waiting = nil, nil
		}
	}
	return first
}
