package code

import "cfi2sframe/internal/insn"

// A search looks for a path from the entry of a function to a return. A function without such a path does not return,
// and calls to it end a block.
type search struct {
	returns bool
	final   bool
	passed  map[uint64]bool // visited jumps and calls
	waiting []path          // paths that continue if the function returns
}

// A path is a position in a function that the search has reached.
type path struct{ entry, pc uint64 }

// goesOn reports whether control can reach the instruction after a call.
func (f *finder) goesOn(in *insn.Inst) bool {
	if f.leadsTo(in, f.NoReturn) {
		return false
	}
	to := f.callee(in)
	return to == 0 || f.returnsFrom(to)
}

// callee returns the function in a gap that an instruction calls, directly or by the address in a word of memory; or 0.
func (f *finder) callee(in *insn.Inst) uint64 {
	to := in.Target
	switch {
	case in.Op == insn.CallMem && in.Mem.Relative:
		to = f.Words[uint64(in.Mem.Disp)]
	case in.Op != insn.Call:
		return 0
	case !f.isCode(to):
		to = f.Words[f.wordOf(to)]
	}
	if !f.isCode(to) {
		return 0
	}
	return to
}

// returnsFrom reports whether a path leads from pc to a return.
func (f *finder) returnsFrom(pc uint64) bool {
	s, known := f.searches[pc]
	if !known {
		s = f.search(pc)
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
	if len(functions) == 0 || functions[pc] || f.isCode(pc) {
		return functions[pc]
	}
	return functions[f.wordOf(pc)]
}

// wordOf returns the address of the word to whose value the PLT stub at pc jumps, or 0.
func (f *finder) wordOf(pc uint64) uint64 {
	const most = 3 // instructions of a stub, such as a landing pad and a jump
	code := f.Data(pc, 32)
	page, base := int64(0), insn.Reg(insn.None)
	for range most {
		in, ok := f.machine.decode(code, pc)
		switch {
		case ok && in.Op == insn.JumpMem && in.Mem.Relative:
			return uint64(in.Mem.Disp)
		case ok && in.Op == insn.Page:
			page, base = in.Imm, in.Reg
		case ok && in.Op == insn.Load && in.Mem.Base == base && base != insn.None:
			return uint64(page + in.Mem.Disp)
		case !ok || in.Op != insn.Other && in.Op != insn.Nop:
			return 0
		}
		code, pc = code[in.Size:], pc+uint64(in.Size)
	}
	return 0
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
			if known := f.searches[pc]; in.Op.Calls() && known != nil && known.final {
				s.returns = known.returns
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
			case f.leadsTo(&in, f.NoReturn):
				on = false
			case in.Op == insn.Jump:
				s.returns = !f.isCode(in.Target)
				next = in.Target
			case f.callee(&in) != 0:
				to := f.callee(&in)
				callee := f.searches[to]
				if callee == nil {
					callee = begin(to)
				}
				if on = callee.returns; !on {
					callee.waiting = append(callee.waiting, path{p.entry, next})
				}
			case in.Op == insn.Call || in.Op == insn.CallMem:
				on = f.goesOn(&in)
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
	first.final = true
	return first
}
