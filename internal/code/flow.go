package code

import (
	"maps"
	"slices"

	"cfi2sframe/internal/insn"
)

// A block is code that is entered only at its start. It ends with a jump or a return, or before the next block.
type block struct {
	pc       uint64
	in       state // before the first instruction, if seen
	next     []int32
	calls    []int32 // functions that it calls
	tails    []int32 // functions that it jumps to
	writes   uint32  // registers changed in the block
	mask     uint32  // registers changed in the block, its successors and callees; FP: not restored at an exit
	chain    int32   // index of the next older block of the same chunk plus 1, or 0
	seen     bool    // control reaches the block
	queued   bool
	exits    bool // control leaves the function: it returns, or continues in other code
	stops    bool // traps, or calls a function that does not return
	byFP     bool // SP is loaded from FP
	label    bool // entered, but possibly not a function
	indirect bool // ends with a jump to an unknown address
	returns  bool // ends with a return
	astray   bool // leaves with a different stack depth
	lost     bool // a block of its component, or of a component that it calls, has astray set
	odd      Reason
}

// A flow holds the blocks, and tracks control flow through them.
type flow struct {
	*finder
	pages     [][]block
	num       int32   // number of blocks
	parent    []int32 // by block: a block of the same component, or itself
	executed  []int32 // blocks executed since the last call to summarize
	queue     []int32
	sites     []int64 // numbers, indexed by value.site
	siteIndex map[int64]uint16
	sets      [][]uint64 // sorted sets of code addresses, indexed by value.site
	setIndex  map[string]uint16
	state     state     // current state
	inst      insn.Inst // current instruction
}

const (
	blocksPerPage = 1 << 10

	// maxRounds bounds how often tables are read again, and how often all blocks are checked for new facts. Real code
	// needs fewer than 20 rounds.
	maxRounds = 64
)

func (w *flow) b(i int32) *block { return &w.pages[i/blocksPerPage][i%blocksPerPage] }

// block returns the index of the block at pc, or -1 if no block starts there.
func (w *flow) block(pc uint64) int32 {
	if !w.hasMarks(pc, begins|leads) {
		return -1
	}
	head := &w.at.heads[(pc-w.at.Addr)/chunkSize]
	for k := *head; k > 0; k = w.b(k - 1).chain {
		if w.b(k-1).pc == pc {
			return k - 1
		}
	}
	i := w.num
	if w.num++; i%blocksPerPage == 0 {
		w.pages = append(w.pages, make([]block, blocksPerPage))
	}
	*w.b(i) = block{pc: pc, chain: *head}
	*head = w.num
	w.parent = append(w.parent, i)
	return i
}

// blockContaining returns the block that contains the instruction at pc, or -1.
func (w *flow) blockContaining(pc uint64) int32 {
	for ; w.isCode(pc) && w.spend(); pc-- {
		if w.hasMarks(pc, begins|leads) {
			return w.block(pc)
		}
	}
	return -1
}

// component returns the block that represents the component of block i.
func (w *flow) component(i int32) int32 {
	for w.parent[i] != i {
		w.parent[i] = w.parent[w.parent[i]]
		i = w.parent[i]
	}
	return i
}

func (w *flow) join(i, j int32) { w.parent[w.component(i)] = w.component(j) }

func (w *flow) enqueue(i int32) {
	if b := w.b(i); b.seen && !b.queued {
		b.queued = true
		w.queue = append(w.queue, i)
	}
}

// run computes the states of all blocks. It returns false if the code is too complex.
func (w *flow) run() bool {
	for range maxRounds {
		w.follow()
		for _, pc := range w.found {
			if i := w.block(pc); i >= 0 {
				w.arrive(i, &w.machine.entry)
			}
		}
		for _, pc := range w.cuts {
			if i := w.blockContaining(pc - 1); i >= 0 {
				w.enqueue(i)
			}
		}
		w.found, w.cuts = w.found[:0], w.cuts[:0]
		for len(w.queue) > 0 && w.steps > 0 {
			i := w.queue[0]
			w.queue = w.queue[1:]
			w.b(i).queued = false
			w.execute(i)
		}
		if w.steps == 0 {
			return false
		}
		if !w.summarize() && !w.resolve() && !w.newFunctions() {
			return w.steps > 0
		}
	}
	return false
}

// An execution executes a block and passes the resulting state to its successors.
type execution struct {
	*flow
	*block
	i int32
}

func (w *flow) execute(i int32) {
	b := w.b(i)
	b.next, b.calls, b.tails, b.writes = b.next[:0], b.calls[:0], b.tails[:0], 0
	b.exits, b.stops, b.returns = false, false, false
	w.executed = append(w.executed, i)
	w.walk(i, &execution{w, b, i})
}

func (x *execution) each(pc uint64, in *insn.Inst) {
	x.stops = x.stops || in.Op == insn.Trap
	x.note(x.block, in, pc)
}

func (x *execution) to(pc uint64) {
	x.spend()
	i := x.flow.block(pc)
	switch {
	case i < 0: // other code
		x.exits = true
		x.writes |= x.lostFP() | x.machine.scratch
	case x.hasMarks(pc, function):
		x.exits = true
		x.writes |= x.lostFP()
		x.tails = append(x.tails, i)
		if x.lostFP() != 0 { // FP does not contain the caller's value, as it would after a call
			entry := x.machine.entry
			entry.reg[x.machine.fp] = value{}
			x.arrive(i, &entry)
		}
	default:
		x.next = append(x.next, i)
		x.join(x.i, i)
		x.arrive(i, &x.state)
	}
}

func (x *execution) out(in *insn.Inst) {
	x.exits = true
	x.returns = in.Op == insn.Return
	if in.Op != insn.Return { // other code
		x.writes |= x.machine.scratch
	}
	x.writes |= x.lostFP()
}

func (x *execution) ends(uint64) {}
func (x *execution) stop(uint64) { x.stops = true }

// arrive merges a state into the state at the start of block i.
func (w *flow) arrive(i int32, s *state) {
	b := w.b(i)
	if !b.seen {
		b.in.copyFrom(s)
		b.seen = true
		w.enqueue(i)
	} else if w.meet(&b.in, s) {
		w.enqueue(i)
	}
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
func (w *flow) walk(i int32, v visitor) {
	first := w.b(i).pc
	s, in, ok := &w.state, &w.inst, false
	s.copyFrom(&w.b(i).in)
	for pc := first; ; {
		m := w.mark(pc)
		if m != nil && *m&leads != 0 && pc != first {
			v.to(pc)
			return
		}
		if *in, ok = w.decode(pc); !ok {
			v.ends(pc)
			return
		}
		v.each(pc, in)
		next := pc + uint64(in.Size)
		if m := w.machine; in.Op == insn.JumpReg && m.ra != insn.None && s.reg[in.Reg] == m.entry.reg[m.ra] {
			s.reg[m.ra], in.Op = s.reg[in.Reg], insn.Return
		}
		switch in.Op {
		case insn.Branch:
			s.clobber(in.Writes)
			v.to(in.Target)
		case insn.Jump:
			v.to(in.Target)
		case insn.JumpReg, insn.JumpMem:
			w.followIndirect(i, pc, in, v)
		case insn.Call, insn.CallReg, insn.CallMem:
			if !w.goesOn(in, pc) {
				v.stop(pc)
				return
			}
			if in.Op == insn.Call && in.Target == next && s.machine.ra == insn.None {
				s.push(value{})
			} else {
				s.call(w.clobbered(in))
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
			}
		}
		if in.Op.Leaves() {
			return
		}
		pc = next
	}
}

// clobbered returns the registers that a call may change.
func (w *flow) clobbered(in *insn.Inst) uint32 {
	if in.Op == insn.Call && w.hasMarks(in.Target, function) {
		if i := w.block(in.Target); i >= 0 {
			return w.b(i).mask
		}
	}
	return w.machine.scratch
}

// lostFP returns the bit of FP if the register does not contain the caller's value.
func (w *flow) lostFP() uint32 {
	if fp := w.machine.fp; w.state.reg[fp] != w.machine.entry.reg[fp] {
		return 1 << fp
	}
	return 0
}

// note records the callee of an instruction, and the registers other than FP that the instruction writes.
func (w *flow) note(b *block, in *insn.Inst, pc uint64) {
	fp := uint32(1) << w.machine.fp
	b.writes |= in.Writes &^ fp
	if in.Mem.Step != 0 {
		b.writes |= 1 << in.Mem.Base &^ fp
	}
	b.byFP = b.byFP || w.machine.loadsFP(in)
	switch in.Op {
	case insn.Store, insn.Push, insn.PushMem, insn.PopMem, insn.Branch, insn.JumpReg:
	case insn.Call:
		if i := w.block(in.Target); i >= 0 && w.hasMarks(in.Target, function) {
			b.calls = append(b.calls, i)
		} else if in.Target != pc+uint64(in.Size) {
			b.writes |= w.machine.scratch
		}
	case insn.CallReg, insn.CallMem:
		b.writes |= w.machine.scratch
	case insn.Swap:
		b.writes |= (1<<in.Reg | 1<<in.Src) &^ fp
	default:
		if in.Reg != insn.None {
			b.writes |= 1 << in.Reg &^ fp
		}
		if in.Op == insn.Load && in.Pair != insn.None {
			b.writes |= 1 << in.Pair &^ fp
		}
	}
}

// followers returns the blocks that follow a block, and the functions that it calls or jumps to.
func (b *block) followers() [3][]int32 { return [...][]int32{b.next, b.calls, b.tails} }

// summarize computes which registers functions change, and reports whether some change more than was known.
func (w *flow) summarize() bool {
	var work []int32
	add := func(i int32, mask uint32) {
		if b := w.b(i); mask&^b.mask != 0 {
			b.mask |= mask
			work = append(work, i)
		}
	}
	// pass adds to block i the registers that block j changes. It does not propagate FP from callees, because their
	// caller may have saved it.
	pass := func(j, i int32) {
		mask := w.b(j).mask
		if w.hasMarks(w.b(j).pc, function) && !slices.Contains(w.b(i).tails, j) {
			mask &^= 1 << w.machine.fp
		}
		add(i, mask)
	}
	// Each change is propagated once, and a block has at most one change per register.
	for _, i := range w.executed {
		add(i, w.b(i).writes&^(1<<w.machine.sp))
		for _, list := range w.b(i).followers() {
			for _, j := range list {
				pass(j, i)
			}
		}
	}
	w.executed = w.executed[:0]
	if len(work) == 0 {
		return false
	}
	more := false
	before := w.reversed((*block).followers)
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		isFunction := w.hasMarks(w.b(i).pc, function)
		for _, j := range before.of(i) {
			w.spend()
			pass(i, j)
			if isFunction {
				w.enqueue(j)
				more = true
			}
		}
	}
	return more
}

// edges holds a list of blocks for each block.
type edges struct {
	start []int32 // indexes in list
	list  []int32
}

func (e *edges) of(i int32) []int32 { return e.list[e.start[i]:e.start[i+1]] }

// reversed returns, for each block, the blocks whose lists contain it.
func (w *flow) reversed(lists func(b *block) [3][]int32) *edges {
	e := &edges{start: make([]int32, w.num+1)}
	for i := range w.num {
		for _, list := range lists(w.b(i)) {
			for _, j := range list {
				e.start[j]++
			}
		}
	}
	n := int32(0)
	for i := range e.start {
		n += e.start[i]
		e.start[i] = n // end of the list; decremented to the start as the list is filled
	}
	e.list = make([]int32, n)
	for i := range w.num {
		for _, list := range lists(w.b(i)) {
			for _, j := range list {
				e.start[j]--
				e.list[e.start[j]] = i
			}
		}
	}
	return e
}

// followIndirect follows a jump through a register or memory.
func (w *flow) followIndirect(i int32, pc uint64, in *insn.Inst, v visitor) {
	to := value{}
	switch {
	case in.Op == insn.JumpReg:
		to = w.state.reg[in.Reg]
	case in.Mem.Index != insn.None:
		to = w.state.entry(&in.Mem, 8)
	}
	t := w.tables[pc]
	switch {
	case to.kind == label && t != nil:
		t.value = to
	case t != nil:
	case w.set(to) != nil, to.kind == target, to.kind == entry && to.reg == 8:
		t = &jumpTable{value: to}
		w.tables[pc] = t
	}
	if t != nil {
		t.block = i
	}
	if t == nil || len(t.targets) == 0 || to.kind == unknown {
		v.out(in)
	}
	if t == nil {
		return
	}
	for _, to := range t.targets {
		v.to(to)
	}
}

// resolve finds targets of indirect jumps, and reports whether it found new targets.
func (w *flow) resolve() bool {
	w.refs = sorted(w.refs)
	more := false
	for _, pc := range slices.Sorted(maps.Keys(w.tables)) {
		t := w.tables[pc]
		n := len(t.targets)
		switch set := w.set(t.value); {
		case set != nil:
			t.targets = set
		case !t.read:
			t.read = true
			t.targets = w.targets(pc, t.value)
		}
		if len(t.targets) > n {
			more = true
			for _, to := range t.targets {
				if w.spend() {
					w.leader(to)
				}
			}
			w.enqueue(t.block)
		}
	}
	return more
}

// newFunctions treats a loaded code address as a function entry if nothing else reaches it and it is not the address of
// a table. It reports whether there are new entries.
func (w *flow) newFunctions() bool {
	found := false
	var all []uint64
	read := map[uint64]bool{}
	for _, t := range w.tables {
		if t.read {
			read[uint64(int64(t.value.off))] = true
		}
	}
	for _, to := range w.labels {
		if !read[to] {
			all = append(all, to)
		}
	}
	for _, to := range sorted(all) {
		if m := w.mark(to); *m&(begins|inside|enters) == 0 {
			w.entry(to, enters)
			found = true
		}
	}
	return found
}

// excludes excludes table targets that are within instructions. It reports whether it excluded any targets, or whether
// a table is shorter than assumed because code refers to an address within it.
func (w *flow) excludes() bool {
	w.refs = sorted(w.refs)
	for _, bad := range []byte{inside, overlap} {
		found := false
		for _, t := range w.tables {
			if w.set(t.value) != nil { // not a table
				continue
			}
			for _, to := range t.targets {
				if w.hasMarks(to, bad) && !w.never[to] {
					w.never[to], found = true, true
				}
			}
		}
		if found {
			return true
		}
	}
	for _, t := range w.tables { // a table in code can be followed by a function
		at := uint64(int64(t.value.off))
		for i := 0; t.read && i < 2*maxEntries && w.isCode(at) && w.spend(); i++ {
			if at++; w.hasMarks(at, begins|enters) {
				w.refs = append(w.refs, at)
				break
			}
		}
	}
	if len(w.tables) > 0 {
		w.referUnreached()
	}
	w.refs = sorted(w.refs)
	for _, pc := range slices.Sorted(maps.Keys(w.tables)) {
		t := w.tables[pc]
		if t.read && len(w.targets(pc, t.value)) < len(t.targets) {
			return true
		}
	}
	return false
}

// referUnreached decodes each range of unreached code from its start, and records the addresses to which it refers.
// They may be the addresses of tables that follow other tables. Data mistaken for code can only shorten a table, which
// does no harm: its other targets have the same state.
func (w *flow) referUnreached() {
	for _, r := range w.unmarked(Unreached) {
		for pc := r.Begin; pc < r.End; {
			in, ok := w.decode(pc)
			if !ok {
				in.Size = 1
			}
			w.refer(&in)
			pc += uint64(in.Size)
		}
	}
}
