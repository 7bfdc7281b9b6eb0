package code

import (
	"cmp"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/insn"
)

// A Reason tells why code has no rows.
type Reason uint8

const (
	Unreached    Reason = iota + 1 // not reachable from a known entry
	Overlap                        // instructions overlap or are unknown
	UnknownStack                   // no register is known to locate the frame
	Unbalanced                     // control leaves with a different stack depth than at the entry
	Indirect                       // a jump to an unknown address
	RunsOn                         // control runs into bytes that are not code, or never leaves the function
	TooComplex                     // the analysis takes too long
	Unproved                       // the rows could not be proved
)

var reasonNames = [...]string{
	Unreached: "code-unreached", Overlap: "code-overlap", UnknownStack: "code-unknown-stack",
	Unbalanced: "code-unbalanced", Indirect: "code-indirect", RunsOn: "code-runs-on", TooComplex: "code-too-complex",
	Unproved: "code-unproved",
}

// String returns the name of the reason, as used in reports.
func (r Reason) String() string { return reasonNames[r] }

// A judgment records the rows of a block, or why the block cannot have rows.
type judgment struct {
	*flow
	*block
	component int32
	canExit   bool // control can leave the function after the block
	byFP      bool
	inf       *cfi.Inference
}

func (x *judgment) isOdd(why Reason) { x.odd = cmp.Or(x.odd, why) }

// leave records the reason if control leaves while the stack differs from that at the entry.
func (x *judgment) leave(why Reason) {
	if !x.state.isEntry() {
		x.isOdd(why)
	}
}

func (x *judgment) each(pc uint64, in *insn.Inst) {
	if x.hasMarks(pc, overlap) {
		x.isOdd(Overlap)
	}
	if sp := x.state.reg[x.machine.sp]; sp.kind == frame && sp.off > x.machine.atEntry {
		x.isOdd(Unbalanced)
		x.astray = true
	}
	row, ok := x.state.row(x.byFP)
	if !ok {
		x.isOdd(UnknownStack)
	}
	x.addRow(pc, pc+uint64(in.Size), row)
}

func (x *judgment) to(pc uint64) {
	if x.flow.block(pc) < 0 || x.hasMarks(pc, function) {
		x.leave(Unbalanced)
	}
}

func (x *judgment) out(in *insn.Inst) {
	if in.Op == insn.Return {
		x.leave(Unbalanced)
		x.astray = x.astray || x.state.reg[x.machine.sp].kind == frame && !x.state.isEntry()
	} else {
		x.leave(Indirect)
		x.block.indirect = true
	}
}

func (x *judgment) ends(pc uint64) {
	if x.isCode(pc) {
		x.isOdd(Overlap)
		x.addRow(pc, pc+1, cfi.InferredRow{})
	} else {
		x.isOdd(RunsOn)
	}
}

func (x *judgment) stop(pc uint64) { x.inf.NoReturn[pc] = true }

// addRow adds the row of an instruction. A function ends where the next function or another component starts.
func (x *judgment) addRow(pc, end uint64, row cfi.InferredRow) {
	list, n, component := x.inf.Functions, len(x.inf.Functions), int(x.component)
	if n == 0 || list[n-1].End != pc || list[n-1].Component != component ||
		x.hasMarks(pc, enters) {
		list = append(list, cfi.InferredFunction{Begin: pc, Component: component})
		x.inf.Functions = list
		n++
	}
	fn := &list[n-1]
	fn.End = end
	row.Off = uint32(pc - fn.Begin)
	if k := len(fn.Rows); k > 0 {
		last := fn.Rows[k-1]
		if last.Off = row.Off; last == row {
			return
		}
	}
	fn.Rows = append(fn.Rows, row)
}

// claim returns the rows of the components that have no problems, and the code of all others.
func (w *flow) claim() (*cfi.Inference, []Refusal) {
	inf := &cfi.Inference{Jumps: map[uint64][]uint64{}, NoReturn: map[uint64]bool{}}
	pcs := make([]uint64, w.num)
	for i := range w.num {
		b, c := w.b(i), w.b(w.component(i))
		c.byFP = c.byFP || b.byFP
		pcs[i] = b.pc
	}
	slices.Sort(pcs)
	within := w.reversed(func(b *block) [3][]int32 { return [3][]int32{b.next} })
	exits := w.reaching(within, func(b *block) bool { return b.exits })
	ends := w.reaching(within, func(b *block) bool { return b.exits || b.stops })
	jumps := w.reversed(func(b *block) [3][]int32 { return [3][]int32{b.next, b.tails} })
	returns := w.reaching(jumps, func(b *block) bool { return b.returns })
	for _, pc := range pcs {
		i := w.block(pc)
		b, c := w.b(i), w.component(i)
		if !b.seen {
			b.in, b.odd = w.machine.entry, Unreached
		}
		w.walk(i, &judgment{w, b, c, exits[i], w.b(c).byFP, inf})
	}
	w.spread()
	for i := range w.num { // combine the facts about all blocks in the component's representative
		b, c := w.b(i), w.b(w.component(i))
		c.odd = cmp.Or(c.odd, b.odd)
		c.indirect = c.indirect || b.indirect
		c.returns = c.returns || returns[i]
		c.label = c.label || w.hasMarks(b.pc, enters) && !w.hasMarks(b.pc, known)
	}
	for i := range w.num {
		b, c := w.b(i), w.b(w.component(i))
		if b.seen && !ends[i] {
			c.odd = cmp.Or(c.odd, RunsOn)
		}
		if c.label && (c.indirect || !c.returns) { // may be part of a function that is entered and left elsewhere
			c.odd = cmp.Or(c.odd, Indirect)
		}
	}
	for pc, t := range w.tables {
		if len(t.targets) > 0 && w.b(w.component(t.block)).odd == 0 {
			inf.Jumps[pc] = t.targets
		}
	}
	refused := w.unmarked(Unreached)
	inf.Functions = slices.DeleteFunc(inf.Functions, func(fn cfi.InferredFunction) bool {
		why := w.b(int32(fn.Component)).odd
		if why != 0 {
			refused = append(refused, Refusal{elffile.Span{Begin: fn.Begin, End: fn.End}, why})
		}
		return why != 0
	})
	return inf, disjoint(refused)
}

// disjoint sorts refused code by address. Where functions overlap, the first takes precedence.
func disjoint(list []Refusal) []Refusal {
	slices.SortFunc(list, func(a, b Refusal) int { return cmp.Compare(a.Begin, b.Begin) })
	var out []Refusal
	end := uint64(0)
	for _, r := range list {
		r.Begin = max(r.Begin, end)
		if r.Begin < r.End {
			out = addRefusal(out, r)
			end = r.End
		}
	}
	return out
}

// spread marks components that call components from which control leaves with a different stack depth.
func (w *flow) spread() {
	callers := w.reversed(func(b *block) [3][]int32 { return [3][]int32{b.calls, b.tails} })
	members := make([][]int32, w.num) // by component
	for i := range w.num {
		c := w.component(i)
		members[c] = append(members[c], i)
	}
	var work []int32 // components
	add := func(i int32) {
		if c := w.component(i); !w.b(c).lost {
			w.b(c).lost = true
			w.b(c).odd = cmp.Or(w.b(c).odd, Unbalanced)
			work = append(work, c)
		}
	}
	for i := range w.num {
		if w.b(i).astray {
			add(i)
		}
	}
	for len(work) > 0 {
		c := work[len(work)-1]
		work = work[:len(work)-1]
		for _, i := range members[c] {
			for _, j := range callers.of(i) {
				add(j)
			}
		}
	}
}

// reaching reports for each block whether a block that satisfies a condition is reachable from it.
func (w *flow) reaching(before *edges, condition func(*block) bool) []bool {
	reaches := make([]bool, w.num)
	var work []int32
	for i := range w.num {
		if condition(w.b(i)) {
			work = append(work, i)
		}
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		if !reaches[i] {
			reaches[i] = true
			work = append(work, before.of(i)...)
		}
	}
	return reaches
}

// addRefusal appends refused code, or extends the last refusal if it is adjacent and has the same reason.
func addRefusal(list []Refusal, r Refusal) []Refusal {
	if n := len(list); n > 0 && list[n-1].End == r.Begin && list[n-1].Reason == r.Reason {
		list[n-1].End = r.End
		return list
	}
	return append(list, r)
}

// row returns the row that locates the frame, based on FP if byFP is set and FP locates the frame.
func (s *state) row(byFP bool) (row cfi.InferredRow, ok bool) {
	m := s.machine
	var r insn.Reg
	switch i := slices.IndexFunc(m.holders, func(r insn.Reg) bool { return s.reg[r].kind == frame }); {
	case i < 0:
		return row, false
	case byFP && s.reg[m.fp].kind == frame:
		r = m.fp
	default:
		r = m.holders[i]
	}
	row.Reg, row.Offset = uint8(m.dwarf[r]), -s.reg[r].off
	row.FP, ok = s.place(m.entry.reg[m.fp])
	row.Lost = !ok
	if m.ra == insn.None {
		return row, true
	}
	ra := m.entry.reg[m.ra]
	row.RAReg = uint8(m.dwarf[m.ra])
	if row.RA, ok = s.place(ra); ok {
		row.Kept = row.RA != 0 && s.reg[m.ra] == ra
		return row, true
	}
	if i := slices.IndexFunc(m.holders, func(r insn.Reg) bool { return s.reg[r] == ra }); i >= 0 {
		row.RAReg = uint8(m.dwarf[m.holders[i]])
		return row, true
	}
	ra.off = signed
	row.RA, row.Signed = s.place(ra)
	row.Kept = row.RA != 0 && s.reg[m.ra] == ra
	return row, row.Signed
}

// place returns the offset from the CFA at which the entry value of a register is saved, or 0 if only the register
// holds it. A stack slot is preferred because the register may soon be overwritten.
func (s *state) place(saved value) (at int32, ok bool) {
	ok = s.reg[saved.reg] == saved
	for _, x := range s.slots {
		if x.value == saved && x.at.kind == frame && s.isReliable(x.at, !ok) && x.at.off < at {
			at = x.at.off
		}
	}
	return at, ok || at != 0
}
