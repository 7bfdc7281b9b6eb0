package code

import (
	"sort"

	"cfi2sframe/internal/insn"
)

// Marks of a byte of code.
const (
	begins   = 1 << iota // start of a reached instruction
	inside               // a later byte of a reached instruction
	leads                // start of a block
	enters               // start of a function, or a referenced label
	function             // start of a function: has a global symbol or is called
	known                // called by reached or described code
	overlap              // start of an instruction that overlaps another or cannot be decoded
	plain                // start of an instruction that changes neither registers nor stack, and overlaps no other

	reached = begins | inside | leads | overlap | plain
)

// A region is a gap with marks.
type region struct {
	*Gap
	marks  []byte
	starts []uint64 // a bit per byte: start of an instruction if all code is decoded in order
}

// isInStep reports whether an instruction starts at pc if all code is decoded in order of addresses.
func (f *finder) isInStep(pc uint64) bool {
	return f.isCode(pc) && f.at.starts[(pc-f.at.Addr)/64]>>((pc-f.at.Addr)%64)&1 != 0
}

// mark returns a pointer to the marks of the byte at pc, or nil if pc is not in a gap.
func (f *finder) mark(pc uint64) *byte {
	if off := pc - f.at.Addr; off < uint64(len(f.at.marks)) {
		return &f.at.marks[off]
	}
	return f.seek(pc)
}

// seek does the work of mark if the most recently used region does not contain pc.
func (f *finder) seek(pc uint64) *byte {
	i := sort.Search(len(f.regions), func(i int) bool { return pc < f.regions[i].end() })
	if i == len(f.regions) || pc < f.regions[i].Addr {
		return nil
	}
	f.at = &f.regions[i]
	return &f.at.marks[pc-f.at.Addr]
}

// hasMarks reports whether the byte at pc is in a gap and has all of the marks.
func (f *finder) hasMarks(pc uint64, marks byte) bool {
	m := f.mark(pc)
	return m != nil && *m&marks == marks
}

// isCode reports whether pc is in a gap.
func (f *finder) isCode(pc uint64) bool { return f.mark(pc) != nil }

// decode decodes the instruction at pc. It returns consecutive plain instructions of a block as one instruction,
// because they make up most of hand-written functions.
func (f *finder) decode(pc uint64) (insn.Inst, bool) {
	m := f.mark(pc)
	if m == nil {
		return insn.Inst{}, false
	}
	f.decoded++
	off := pc - f.at.Addr
	if *m&plain == 0 {
		return f.machine.decode(f.at.Code[off:], pc)
	}
	n := 1
	for _, m := range f.at.marks[off+1:] {
		if m != inside && m != begins|plain {
			break
		}
		n++
	}
	return insn.Inst{Size: n, Reg: insn.None, Src: insn.None, Mem: insn.Mem{Base: insn.None, Index: insn.None}}, true
}

// clashes reports whether an instruction that was not reached before shares bytes with one that was.
func (f *finder) clashes(pc uint64, in *insn.Inst) bool {
	off := pc - f.at.Addr
	for _, m := range f.at.marks[off:min(off+uint64(max(in.Size, 1)), uint64(len(f.at.marks)))] {
		if m&(begins|inside) != 0 {
			return true
		}
	}
	return false
}

// skipsLock reports whether a branch skips only the lock prefix of the next instruction, as in processes with a single
// thread. The prefix changes neither registers nor the stack.
func (f *finder) skipsLock(in *insn.Inst, next uint64) bool {
	return f.machine.align == 1 && in.Target == next+1 && f.isCode(next) && f.at.Code[next-f.at.Addr] == 0xf0
}

// reach marks an instruction that is reached for the first time.
func (f *finder) reach(pc uint64, in *insn.Inst, ok bool) {
	m := f.mark(pc)
	*m |= begins
	if *m&inside != 0 {
		*m |= overlap
		for at := pc - 1; f.mark(at) != nil; at-- { // find the other instruction
			if b := f.mark(at); *b&begins != 0 {
				*b = *b&^plain | overlap
				break
			}
		}
	}
	m = f.mark(pc)
	if !ok {
		*m |= overlap
		return
	}
	rest := f.at.marks[pc-f.at.Addr+1:][:in.Size-1]
	for i, b := range rest {
		if b&begins != 0 {
			*m |= overlap
			b = b&^plain | overlap
		}
		rest[i] = b | inside
	}
	idle := in.Writes == 0 && in.Stores == 0 && in.Mem.Step == 0 && !in.Flags
	none := in.Op == insn.Nop || in.Op == insn.Other && idle
	if none && *m&overlap == 0 {
		*m |= plain
	}
}

// forget clears the marks of reached code in a range.
func (f *finder) forget(begin, end uint64) {
	for pc := begin; pc < end; pc++ {
		if m := f.mark(pc); m != nil {
			*m &^= reached
		}
	}
}
