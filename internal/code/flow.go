package code

import (
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/insn"
)

// A body is a function: the code that jumps connect to its entries, except for other functions.
type body struct {
	arrivals []arrival // entries, and places to which other functions jump
	from     uint64    // a jump of described code to the first arrival, or 0
	trust    trust
	queued   bool
	analysed bool
	waited   bool  // for its callees, before it went on in other functions
	evident  bool  // it returns as functions do
	rounds   uint8 // analyses because of changed callees
	runs     uint8 // all analyses
	odd      Reason
	effect   effect
	callees  []callee
	labels   []uint64            // code addresses that it loads
	spans    []elffile.Span      // its code, sorted by address
	pieces   []piece             // the same with rows, if odd is 0
	tables   map[uint64][]uint64 // targets of indirect jumps
	stops    []uint64            // calls that do not return

	confirmed []uint64 // keys of functions that return from a call
	doubts    []doubt
}

// An arrival is a state with which control reaches an address from outside of a function.
type arrival struct {
	pc    uint64
	state state
}

// A callee is a function that a body calls or jumps to.
type callee struct {
	to      uint64
	assumed effect
	way     way // within: a call
}

// An effect is what a call of a function changes.
type effect struct {
	lost     uint32 // registers that may have other values
	movesSP  bool   // SP may have another value
	noReturn bool
}

// covers reports whether y changes no more than x.
func (x effect) covers(y effect) bool {
	return y.lost&^x.lost == 0 && (x.movesSP || !y.movesSP) && (x.noReturn || !y.noReturn)
}

// A piece is contiguous code with rows.
type piece struct {
	elffile.Span
	rows []cfi.InferredRow
}

func (b *body) refuse(why Reason) {
	b.odd, b.pieces, b.tables, b.stops, b.confirmed, b.doubts = why, nil, nil, nil, nil, nil
}

// A block is code that is entered only at its start. It ends with a jump or a return, or before the next block.
type block struct {
	pc, end uint64
	in      state  // before the first instruction
	after   uint64 // the block is reached only by returning from the call at this address, or 0
	queued  bool
}

// A flow tracks the control flow of one function at a time.
type flow struct {
	*finder
	body   *body
	blocks []block // of the current function
	num    int
	index  map[uint64]int // blocks by address
	queue  []int
	steps  int  // remaining steps
	falls  bool // control falls through to the next block
	unsure bool // an instruction changes SP by an unknown number
	clash  bool // the code overlaps that of another function
	byFP   bool

	tables    map[uint64]*jumpTable // by address of the jump
	never     map[uint64]bool       // addresses that are not accepted as targets of jump tables
	stops     map[uint64]bool       // calls that do not return
	questions []uint64              // calls that may not return, because the code after them contradicts them

	sites     []place // indexed by value.site
	siteIndex map[place]uint16
	sets      [][]uint64 // of all functions: sorted sets of code addresses, indexed by value.site
	setIndex  map[string]uint16

	finished *judgment // of the current function
	state    state     // current state
	inst     insn.Inst // current instruction
	pc       uint64    // its address
	last     uint64    // address of the last call, if only padding follows it
	after    uint64    // address after that call
	compared insn.Inst // the comparison that the flags are from, or another instruction
}

func newFlow(f *finder) *flow {
	return &flow{finder: f, index: map[uint64]int{}, siteIndex: map[place]uint16{}, setIndex: map[string]uint16{}}
}

const (
	maxBlocks     = 1 << 17 // of a function
	maxTries      = 16      // analyses of a function with other assumptions about calls and tables
	stepsPerBlock = 24      // executions of blocks; real code needs fewer than 6
	minSteps      = 4096
	maxRuns       = 32 // analyses of a function with other ways into it, or other callees
)

// analyze analyses a function.
func (w *flow) analyze(b *body) {
	w.discard(b)
	if b.runs++; b.runs > maxRuns {
		b.runs = maxRuns
		b.refuse(TooComplex)
		return
	}
	w.body = b
	b.analysed, b.odd, b.evident = true, 0, false
	b.callees, b.labels, b.effect = b.callees[:0], nil, effect{}
	w.never, w.stops = nil, nil
	for try := 0; ; try++ {
		w.begin()
		ok := w.follow() && try < maxTries
		if ok && w.revise() {
			w.undo()
			continue
		}
		w.record(ok)
		if ok && (w.revise() || w.excludesOthers()) {
			w.undo()
			b.callees, b.labels, b.pieces, b.evident = b.callees[:0], nil, nil, false
			continue
		}
		break
	}
	w.finish()
}

// discard removes the results of an earlier analysis of a function.
func (w *flow) discard(b *body) {
	for _, s := range b.spans {
		w.analysed -= s.Size()
		for pc := s.Begin; pc < s.End; pc++ {
			if m := w.mark(pc); m != nil {
				if *m&leads != 0 && w.owner[pc] == b {
					delete(w.owner, pc)
				}
				*m &^= reached
			}
		}
	}
	b.spans = b.spans[:0]
	b.refuse(0)
}

// begin starts a new try.
func (w *flow) begin() {
	w.num, w.queue, w.questions, w.byFP, w.clash, w.unsure = 0, w.queue[:0], nil, false, false, false
	clear(w.index)
	w.tables = nil
	w.sites = w.sites[:0]
	clear(w.siteIndex)
	w.steps = minSteps
	for i := range w.body.arrivals {
		a := &w.body.arrivals[i]
		w.arrive(a.pc, &a.state, 0)
	}
}

// undo clears the marks of a try.
func (w *flow) undo() {
	for i := range w.num {
		w.forget(w.blocks[i].pc, w.blocks[i].end)
	}
	w.body.spans = nil
}

// block returns the block of this function at pc, and makes one if necessary.
func (w *flow) block(pc uint64) *block {
	if i, ok := w.index[pc]; ok {
		return &w.blocks[i]
	}
	if m := w.mark(pc); *m&(begins|leads) == begins { // in a block of this function, which now ends here
		if i, ok := w.index[w.blockAt(pc)]; ok {
			w.enqueue(i)
		}
	}
	*w.mark(pc) |= leads
	if w.num == len(w.blocks) {
		w.blocks = append(w.blocks, block{})
	}
	b := &w.blocks[w.num]
	*b = block{pc: pc, end: pc, in: state{slots: b.in.slots[:0]}}
	w.index[pc] = w.num
	w.num++
	w.steps += stepsPerBlock
	return b
}

func (w *flow) enqueue(i int) {
	if b := &w.blocks[i]; !b.queued {
		b.queued = true
		w.queue = append(w.queue, i)
	}
}

// follow executes blocks until their states no longer change. It returns false if that takes too long.
func (w *flow) follow() bool {
	for len(w.queue) > 0 {
		i := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.blocks[i].queued = false
		if w.steps--; w.steps < 0 || w.num > maxBlocks || w.steps%1024 == 0 && w.stopped() {
			return false
		}
		w.walk(i, (*execution)(w))
	}
	return true
}

// arrive merges a state into the state at the start of a block. It is reached from the call at after, if that is not 0.
func (w *flow) arrive(pc uint64, s *state, after uint64) {
	b := w.block(pc)
	i := w.index[pc]
	if b.in.machine == nil {
		b.in.copyFrom(s)
		b.after = after
		w.enqueue(i)
		return
	}
	sp := w.machine.sp
	if x, y := b.in.reg[sp], s.reg[sp]; x != y && (after != 0 || b.after != 0) { // one of the ways is wrong
		for _, call := range []uint64{after, b.after} {
			if call != 0 {
				w.questions = append(w.questions, call)
			}
		}
	}
	if after == 0 {
		b.after = 0
	}
	if w.meet(&b.in, s) {
		w.enqueue(i)
	}
}

// revise reports whether the function must be analysed with other assumptions, and makes these.
func (w *flow) revise() bool {
	changed := false
	for _, pc := range w.questions {
		if !w.stops[pc] {
			w.stop(pc)
			changed = true
		}
	}
	w.questions = nil
	return changed || w.excludes(inside) || w.excludes(overlap)
}

// excludes excludes targets of tables that have a mark, inside or overlap, and reports whether there are any.
func (w *flow) excludes(bad byte) (found bool) {
	for _, t := range w.tables {
		if w.set(t.value) != nil { // not a table
			continue
		}
		for _, to := range t.targets {
			if w.hasMarks(to, bad) && !w.never[to] {
				w.exclude(to)
				found = true
			}
		}
	}
	return found
}

// exclude excludes an address from the targets of tables.
func (w *flow) exclude(to uint64) {
	if w.never == nil {
		w.never = map[uint64]bool{}
	}
	w.never[to] = true
}

// stop records a call that does not return.
func (w *flow) stop(pc uint64) {
	if w.stops == nil {
		w.stops = map[uint64]bool{}
	}
	w.stops[pc] = true
}

// An execution passes the state after a block to the blocks that follow it.
type execution flow

func (x *execution) each(pc uint64, in *insn.Inst) {
	x.byFP = x.byFP || x.machine.loadsFP(in)
}

func (x *execution) to(pc uint64) {
	w := (*flow)(x)
	if w.goes(pc) == within {
		w.state.forgetPopped()
		w.arrive(pc, &w.state, w.fallsFrom(pc))
	}
}

func (x *execution) out(*insn.Inst) {}
func (x *execution) ends(uint64)    {}
func (x *execution) stop(uint64)    {}

// A way says where control goes.
type way uint8

const (
	within way = iota // to a block of the same function
	tail              // to the entry of a function
	across            // into another function
	beyond            // to other code
)

// goes returns where control goes if it reaches pc.
func (w *flow) goes(pc uint64) way {
	m := w.mark(pc)
	if m == nil {
		return beyond
	}
	if *m&function != 0 || *m&enters != 0 && w.state.isEntry() && w.entries[pc] != nil {
		return tail
	}
	if _, ok := w.index[pc]; ok || *m&begins == 0 {
		return within
	}
	if _, ok := w.index[w.blockAt(pc)]; ok {
		return within
	}
	return across
}

// fallsFrom returns the call after which control falls through to pc, or 0.
func (w *flow) fallsFrom(pc uint64) uint64 {
	if pc < w.after || pc-w.after > 16 || w.skipPadding(w.after, pc) < pc {
		return 0
	}
	return w.last
}

// decodeAt decodes the single instruction at pc.
func (f *finder) decodeAt(pc uint64) (insn.Inst, bool) {
	if f.mark(pc) == nil {
		return insn.Inst{}, false
	}
	return f.machine.decode(f.at.Code[pc-f.at.Addr:], pc)
}

// isPadding reports whether an instruction is padding: a no-op or, on amd64, a breakpoint.
func isPadding(in *insn.Inst) bool { return in.Op == insn.Nop || in.Op == insn.Trap && in.Imm == 3 }

// skipPadding returns the address of the first instruction from pc to end that is not padding.
func (f *finder) skipPadding(pc, end uint64) uint64 {
	for pc < end {
		in, ok := f.decodeAt(pc)
		if !ok || !isPadding(&in) {
			break
		}
		pc += uint64(in.Size)
	}
	return pc
}

// A visitor receives the events of a walk through a block; w.state is the state at that point.
type visitor interface {
	each(pc uint64, in *insn.Inst) // each instruction
	to(pc uint64)                  // control reaches pc, in a gap or elsewhere
	out(in *insn.Inst)             // a return, or a jump with unknown targets
	ends(pc uint64)                // control reaches bytes that are not code
	stop(pc uint64)                // a call that does not return
}

// walk executes block i and reports its events to v.
func (w *flow) walk(i int, v visitor) {
	b := &w.blocks[i]
	first := b.pc
	s, in, ok := &w.state, &w.inst, false
	s.copyFrom(&b.in)
	w.last, w.compared = 0, insn.Inst{}
	for pc := first; ; {
		m := w.mark(pc)
		if pc != first && (m == nil || *m&(leads|function) != 0 || pc-first > maxBlock-256) {
			w.falls = true
			v.to(pc)
			w.falls = false
			return
		}
		w.pc = pc
		*in, ok = w.decode(pc)
		if *m&begins == 0 {
			if w.body.trust >= loose && w.clashes(pc, in) {
				w.clash = true
				v.ends(pc)
				return
			}
			w.reach(pc, in, ok)
		}
		if !ok {
			w.blocks[i].end = max(w.blocks[i].end, pc+1)
			v.ends(pc)
			return
		}
		next := pc + uint64(in.Size)
		w.blocks[i].end = max(w.blocks[i].end, next)
		if in.Op == insn.Trap && in.Imm == 3 && w.goesOnAfterBreakpoint(next) {
			in.Op = insn.Other
		}
		v.each(pc, in)
		if m := w.machine; in.Op == insn.JumpReg && s.reg[in.Reg] == m.back {
			if in.Op = insn.Return; m.ra == insn.None {
				s.reg[m.sp] = s.reg[m.sp].plus(-wordSize) // as before a return
				s.save(s.reg[m.sp], m.back)
			} else {
				s.reg[m.ra] = s.reg[in.Reg]
			}
		}
		switch in.Op {
		case insn.Branch:
			if s.clobber(in.Writes); !w.skipsLock(in, next) {
				w.branch(in, v)
			}
		case insn.Jump:
			v.to(in.Target)
		case insn.JumpReg, insn.JumpMem:
			w.followIndirect(pc, in, v)
		case insn.Call, insn.CallReg, insn.CallMem:
			e := w.effectOf(in)
			if e.noReturn || w.stops[pc] || w.endsHere[pc] || !w.goesOn(in) {
				v.stop(pc)
				return
			}
			s.call(e.lost)
			if e.movesSP {
				s.reg[s.machine.sp] = value{}
			}
			w.last, w.after = pc, next
		case insn.System:
			n := s.reg[w.machine.number]
			if n.kind == constant && slices.Contains(w.machine.leaving, n.off) {
				v.stop(pc)
				return
			}
			s.clobber(in.Writes)
			if n.kind == constant && slices.Contains(w.machine.spawns, n.off) {
				s.reg[w.machine.sp] = value{} // of the child
			}
		case insn.Return:
			if in.Imm != 0 {
				s.sign(false)
			}
			v.out(in)
		case insn.Trap:
		default:
			sp := s.reg[s.machine.sp]
			w.step(s, in, pc)
			if now := s.reg[s.machine.sp]; now.kind != sp.kind || now.site != sp.site {
				s.forgetBelow(sp)
				w.unsure = w.unsure || now.kind == unknown && sp.onStack()
			}
		}
		if in.Op.Leaves() {
			return
		}
		w.compare(in)
		pc = next
	}
}

// compare notes a comparison of a register, and forgets it if the flags or the register change.
func (w *flow) compare(in *insn.Inst) {
	c := &w.compared
	switch {
	case in.Op == insn.Compare:
		*c = *in
	case c.Op != insn.Compare:
	case in.Flags, in.Op.Calls(), in.Reg == c.Src, in.Pair == c.Src, in.Writes>>c.Src&1 != 0,
		in.Mem.Step != 0 && in.Mem.Base == c.Src:
		c.Op = insn.Other
	}
}

// branch follows a branch. The flags may bound a register.
func (w *flow) branch(in *insn.Inst, v visitor) {
	c := &w.compared
	if c.Op != insn.Compare || in.Imm == 0 {
		v.to(in.Target)
		return
	}
	r := &w.state.reg[c.Src]
	old, bounded := *r, *r
	limit := c.Imm
	if in.Imm == insn.Lower || in.Imm == insn.HigherOrSame {
		limit--
	}
	free := old.kind == unknown || old.kind == entryValue && w.machine.scratch>>old.reg&1 != 0
	if limit >= 0 && (free || old.kind == atMost && int64(old.off) > limit) {
		bounded = value{kind: atMost, off: int32(limit)}
	}
	if in.Imm == insn.Lower || in.Imm == insn.LowerOrSame {
		*r = bounded
		v.to(in.Target)
		*r = old
		return
	}
	v.to(in.Target)
	*r = bounded
}

// goesOnAfterBreakpoint reports whether code follows a breakpoint, rather than padding or a function.
func (w *flow) goesOnAfterBreakpoint(next uint64) bool {
	m := w.mark(next)
	return m != nil && *m&enters == 0 && w.skipPadding(next, next+1) == next
}

// effectOf returns the effect of a call.
func (w *flow) effectOf(in *insn.Inst) effect {
	if in.Op == insn.Call {
		if b := w.entries[in.Target]; b != nil && b.analysed && b != w.body {
			return b.effect
		}
	}
	return w.machine.convention
}

// followIndirect follows a jump through a register or memory.
func (w *flow) followIndirect(pc uint64, in *insn.Inst, v visitor) {
	to := value{}
	switch {
	case in.Op == insn.JumpReg:
		to = w.state.reg[in.Reg]
	case in.Mem.Index != insn.None:
		to = w.state.entry(&in.Mem, 8)
	}
	if w.tables == nil {
		w.tables = map[uint64]*jumpTable{}
	}
	t := w.tables[pc]
	switch {
	case t == nil || w.set(to) != nil:
		t = &jumpTable{value: to, computed: to.kind == computed}
		w.tables[pc] = t
		switch set := w.set(to); {
		case set != nil:
			t.targets = set
		case to.kind == target, to.kind == entry && to.reg == 8:
			t.targets, t.first = w.targets(pc, to)
			t.computed = len(t.targets) == 0 && to.reg&multiplied != 0
		}
	case to != t.value && w.extends(to, t.value):
		t.value = to
		t.targets, t.first = w.targets(pc, to)
	case to != t.value:
		t.targets = nil
	}
	if len(t.targets) == 0 {
		v.out(in)
	}
	for _, to := range t.targets {
		v.to(to)
	}
}
