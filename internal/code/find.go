package code

import (
	"sort"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/insn"
)

// Marks of a byte of code.
const (
	begins   = 1 << iota // start of a reached instruction
	inside               // a later byte of a reached instruction
	leads                // start of a block
	enters               // start of a function, or a referenced label
	function             // start of a function: has a symbol or is called
	known                // known from a symbol or described code; other callers may be data mistaken for code
	overlap              // start of an instruction that overlaps another or cannot be decoded
	plain                // start of an instruction that changes neither registers nor stack, and overlaps no other
)

// A region is a gap with marks.
type region struct {
	*Gap
	marks []byte
	heads []int32 // per chunk of chunkSize bytes: index of the newest block in it plus 1, or 0
}

const chunkSize = 16

// A finder follows code from its entries, and marks what it reaches.
type finder struct {
	*Text
	machine *machine
	regions []region
	at      *region        // most recently used
	seeds   []uint64       // targets of calls and jumps in described code
	taken   []uint64       // addresses loaded by described code
	refs    []uint64       // addresses to which code refers
	pages   [maxRegs]int64 // page addresses in registers, set by Page instructions

	// Recomputed in each round.
	work   []uint64              // leaders not followed yet
	found  []uint64              // new entries
	cuts   []uint64              // leaders in code already reached
	tables map[uint64]*jumpTable // by address of the jump
	labels map[uint64]uint64     // loaded addresses of code, by address of the instruction

	searches map[uint64]*search // keyed by function entry
	never    map[uint64]bool    // addresses that are not accepted as targets of jump tables
	steps    uint64             // number of remaining steps
}

// Limits on the work for a file, in steps: decoded instructions, followed jumps and calls, and table entries. Real code
// needs fewer than 3 steps per byte.
const (
	stepsPerByte = 32
	minSteps     = 1 << 20
)

// spend uses up a step, and reports whether one was left.
func (f *finder) spend() bool {
	if f.steps == 0 {
		return false
	}
	f.steps--
	return true
}

func newFinder(t *Text) *finder {
	f := &finder{Text: t, machine: machineOf(t.Machine), searches: map[uint64]*search{}, never: map[uint64]bool{},
		steps: minSteps}
	f.at = &region{Gap: &Gap{}}
	f.regions = make([]region, len(t.Gaps))
	for i := range t.Gaps {
		n := len(t.Gaps[i].Code)
		f.regions[i] = region{&t.Gaps[i], make([]byte, n), make([]int32, n/chunkSize+1)}
		f.steps += stepsPerByte * uint64(n)
	}
	return f
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
	f.spend()
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
	return insn.Inst{Size: n, Reg: insn.None, Src: insn.None}, true
}

// forget clears all marks and the results of the previous round.
func (f *finder) forget() {
	for i := range f.regions {
		clear(f.regions[i].marks)
		clear(f.regions[i].heads)
	}
	f.work, f.found, f.cuts = nil, nil, nil
	f.tables, f.labels = map[uint64]*jumpTable{}, map[uint64]uint64{}
}

// begin adds the known entries.
func (f *finder) begin() {
	f.forget()
	for _, list := range [][]uint64{f.Functions, f.seeds} {
		for _, e := range list {
			f.entry(e, enters|function|known)
		}
	}
	for _, list := range [][]uint64{f.Entries, f.taken} {
		for _, e := range list {
			f.entry(e, enters)
		}
	}
}

// entry adds the entry of a function or a label at pc, with the given marks.
func (f *finder) entry(pc uint64, marks byte) {
	if m := f.mark(pc); m != nil && *m&marks != marks {
		if *m&enters == 0 {
			f.found = append(f.found, pc)
		}
		*m |= marks
		f.leader(pc)
	}
}

// leader adds the start of a block at pc.
func (f *finder) leader(pc uint64) {
	m := f.mark(pc)
	if m == nil {
		return
	}
	if *m&(begins|leads) == begins {
		f.cuts = append(f.cuts, pc)
	}
	*m |= leads
	if *m&begins == 0 {
		f.work = append(f.work, pc)
	}
}

// scan records addresses in gaps to which code outside the gaps refers: those that it calls, jumps to, or loads.
func (f *finder) scan(addr uint64, code []byte) {
	for off := 0; off < len(code); {
		pc := addr + uint64(off)
		in, ok := f.machine.decode(code[off:], pc)
		if !ok {
			return
		}
		f.refer(&in)
		jumps := in.Op == insn.Call || in.Op == insn.Jump || in.Op == insn.Branch
		if jumps && f.isCode(in.Target) {
			f.seeds = append(f.seeds, in.Target)
		}
		if to, ok := f.address(&in); ok && f.isCode(to) {
			f.taken = append(f.taken, to)
		}
		off += in.Size
	}
}

// address returns the address that an instruction loads, if it is known. Between a Page and its Address, only an
// instruction that does not fall through clears the page: other writes to its register are rare.
func (f *finder) address(in *insn.Inst) (uint64, bool) {
	switch m := &in.Mem; {
	case in.Op == insn.Page && in.Reg != insn.None:
		f.pages[in.Reg] = in.Imm
	case in.Op == insn.Address && m.Relative:
		return uint64(m.Disp), true
	case in.Op == insn.Address && m.Base != insn.None && m.Index == insn.None && f.pages[m.Base] != 0:
		return uint64(f.pages[m.Base] + m.Disp), true
	case in.Op.Leaves():
		f.pages = [maxRegs]int64{}
	}
	return 0, false
}

// refer records an address to which an instruction refers.
func (f *finder) refer(in *insn.Inst) {
	if m := &in.Mem; m.Relative || m.Base == insn.None && m.Index != insn.None {
		f.refs = append(f.refs, uint64(in.Mem.Disp))
	}
}

// follow marks the code reachable from the pending leaders.
func (f *finder) follow() {
	for len(f.work) > 0 {
		pc := f.work[len(f.work)-1]
		f.work = f.work[:len(f.work)-1]
		for on := true; on; {
			if m := f.mark(pc); m == nil || *m&begins != 0 {
				break
			}
			pc, on = f.reach(pc)
		}
	}
}

// reach marks the instruction at pc and records its targets. It returns the address of the next instruction, and
// whether execution continues there.
func (f *finder) reach(pc uint64) (next uint64, on bool) {
	m := f.mark(pc)
	in, ok := f.decode(pc)
	*m |= begins
	if *m&inside != 0 {
		*m |= overlap
		for at := pc - 1; f.hasMarks(at, 0); at-- { // find the other instruction
			if b := f.mark(at); *b&begins != 0 {
				*b = *b&^plain | overlap
				break
			}
		}
	}
	if !ok {
		*m |= overlap
		return 0, false
	}
	next = pc + uint64(in.Size)
	rest := f.at.marks[pc-f.at.Addr+1:][:in.Size-1]
	for i, b := range rest {
		if b&begins != 0 {
			*m |= overlap
			b = b&^plain | overlap
		}
		rest[i] = b | inside
	}
	if *m&overlap == 0 && in.Op == insn.Other && in.Writes == 0 && in.Stores == 0 && in.Mem.Step == 0 {
		*m |= plain
	}
	f.refer(&in)
	if to, ok := f.address(&in); ok && f.isCode(to) {
		f.labels[pc] = to
	}
	switch in.Op {
	case insn.Branch:
		f.leader(in.Target)
		f.leader(next)
	case insn.Jump:
		f.leader(in.Target)
	case insn.Call:
		if in.Target != next {
			f.entry(in.Target, enters|function)
		}
	}
	return next, !in.Op.Leaves() && f.goesOn(&in, pc)
}

// unmarked returns the code that was not reached.
func (f *finder) unmarked(why Reason) []Refusal {
	var out []Refusal
	for i := range f.regions {
		for off, m := range f.regions[i].marks {
			if m == 0 {
				at := f.regions[i].Addr + uint64(off)
				out = addRefusal(out, Refusal{elffile.Span{Begin: at, End: at + 1}, why})
			}
		}
	}
	return out
}
