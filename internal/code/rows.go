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
	RunsOn                         // control runs into something other than code, or never leaves
	TooComplex                     // the analysis takes too long
	Unproved                       // the rows could not be proved
)

var reasonNames = [...]string{
	Unreached: "code-unreached", Overlap: "code-overlap", UnknownStack: "code-unknown-stack",
	Unbalanced: "code-unbalanced", Indirect: "code-indirect", RunsOn: "code-runs-on", TooComplex: "code-too-complex",
	Unproved: "code-unproved",
}

// String returns the name of the reason in reports.
func (r Reason) String() string { return reasonNames[r] }

// judge records why a block can have no rows, and whether control leaves there.
func (w *flow) judge(i int32) {
	b := w.b(i)
	odd := func(why Reason) { b.odd = cmp.Or(b.odd, why) }
	leave := func(otherwise Reason) {
		if w.state.isEntry() {
			b.leaves = true
		} else {
			odd(otherwise)
		}
	}
	w.walk(i, visitor{
		each: func(pc uint64, in *insn.Inst) {
			if w.is(pc, overlap) {
				odd(Overlap)
			}
			if sp := w.state.reg[w.machine.sp]; sp.kind == frame && sp.off > w.machine.atEntry {
				odd(Unbalanced)
				b.astray = true
			}
			if _, ok := w.state.row(false); !ok {
				odd(UnknownStack)
			}
		},
		to: func(pc uint64) {
			if w.block(pc) < 0 || w.is(pc, function) {
				leave(Unbalanced)
			}
		},
		out: func(in *insn.Inst) {
			if in.Op == insn.Return {
				leave(Unbalanced)
				b.returns = true
				b.astray = b.astray || w.state.reg[w.machine.sp].kind == frame && !w.state.isEntry()
			} else {
				leave(Indirect)
				b.indirect = true
			}
		},
		ends: func(pc uint64) {
			if w.isCode(pc) {
				odd(Overlap)
			} else {
				odd(RunsOn)
			}
		},
		stop: func(uint64) { b.leaves = true },
	})
}

// claim returns the rows of the components without problems, and the other code.
func (w *flow) claim() (*cfi.Inference, []Refusal) {
	for i := range w.num {
		if w.b(i).seen {
			w.judge(i)
		}
	}
	w.balance()
	w.spread()
	for i := range w.num { // collect the facts of all blocks in the block that represents the component
		b, c := w.b(i), w.b(w.component(i))
		c.odd = cmp.Or(c.odd, b.odd)
		c.byFP = c.byFP || b.byFP
		c.indirect = c.indirect || b.indirect
		c.returns = c.returns || b.returns
		c.label = c.label || w.is(b.pc, enters) && !w.is(b.pc, known)
	}
	for i := range w.num {
		b, c := w.b(i), w.b(w.component(i))
		if b.seen && !b.balanced {
			c.odd = cmp.Or(c.odd, RunsOn)
		}
		if c.label && (c.indirect || !c.returns) { // it may be part of a function that is entered and left elsewhere
			c.odd = cmp.Or(c.odd, Indirect)
		}
	}
	inf := &cfi.Inference{Jumps: map[uint64][]uint64{}, NoReturn: map[uint64]bool{}}
	refused := w.unmarked(Unreached)
	order := make([]int32, w.num)
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int { return cmp.Compare(w.b(i).pc, w.b(j).pc) })
	for _, i := range order {
		c := w.component(i)
		why := w.b(c).odd
		if !w.b(i).seen {
			why = Unreached
		}
		w.walk(i, visitor{
			each: func(pc uint64, in *insn.Inst) {
				end := pc + uint64(in.Size)
				if why != 0 {
					refused = addRefusal(refused, Refusal{elffile.Span{Begin: pc, End: end}, why})
					return
				}
				row, _ := w.state.row(w.b(c).byFP)
				addRow(inf, pc, end, c, w.is(pc, enters), row)
				if t := w.tables[pc]; t != nil && len(t.targets) > 0 {
					inf.Jumps[pc] = t.targets
				}
			},
			to:   func(uint64) {},
			stop: func(pc uint64) { inf.NoReturn[pc] = true },
			ends: func(pc uint64) {
				if w.isCode(pc) {
					refused = append(refused, Refusal{elffile.Span{Begin: pc, End: pc + 1}, why})
				}
			},
		})
	}
	return inf, disjoint(refused)
}

// disjoint sorts refused code by address. Where instructions overlap, the first takes precedence.
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

// spread marks components that call components that do not return with the same stack.
func (w *flow) spread() {
	callers := w.reversed(w.callees)
	members := w.reversed(func(b *block, f func(j int32)) { f(w.component(b.component)) })
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
		for _, i := range members.of(c) {
			for _, j := range callers.of(i) {
				add(j)
			}
		}
	}
}

// balance marks the blocks from which a block that leaves is reachable.
func (w *flow) balance() {
	before := w.reversed(func(b *block, f func(j int32)) {
		for _, j := range b.next {
			f(j)
		}
	})
	var work []int32
	for i := range w.num {
		if w.b(i).leaves {
			work = append(work, i)
		}
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		if b := w.b(i); !b.balanced {
			b.balanced = true
			work = append(work, before.of(i)...)
		}
	}
}

// addRefusal appends refused code, or extends the last refusal if it is adjacent and has the same reason.
func addRefusal(list []Refusal, r Refusal) []Refusal {
	if n := len(list); n > 0 && list[n-1].End == r.Begin && list[n-1].Reason == r.Reason {
		list[n-1].End = r.End
		return list
	}
	return append(list, r)
}

// addRow adds the row of an instruction. A function ends where the next function or another component starts.
func addRow(inf *cfi.Inference, pc, end uint64, component int32, enters bool, row cfi.InferredRow) {
	n := len(inf.Functions)
	if n == 0 || enters || inf.Functions[n-1].End != pc || inf.Functions[n-1].Component != int(component) {
		inf.Functions = append(inf.Functions, cfi.InferredFunction{Begin: pc, Component: int(component)})
		n++
	}
	fn := &inf.Functions[n-1]
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

// row returns the row that locates the frame, based on FP if byFP is set and FP locates the frame.
func (s *state) row(byFP bool) (row cfi.InferredRow, ok bool) {
	m, r := s.machine, 0
	switch i := slices.IndexFunc(m.holders, func(r int) bool { return s.reg[r].kind == frame }); {
	case i < 0:
		return row, false
	case byFP && s.reg[m.fp].kind == frame:
		r = m.fp
	default:
		r = m.holders[i]
	}
	row.Reg, row.Offset = m.dwarf[r], -int64(s.reg[r].off)
	row.FP, ok = s.place(m.entry.reg[m.fp])
	row.Lost = !ok
	if m.ra == insn.None {
		return row, true
	}
	ra := m.entry.reg[m.ra]
	row.RAReg = m.dwarf[m.ra]
	if row.RA, ok = s.place(ra); ok {
		row.Kept = row.RA != 0 && s.reg[m.ra] == ra
		return row, true
	}
	if i := slices.IndexFunc(m.holders, func(r int) bool { return s.reg[r] == ra }); i >= 0 {
		row.RAReg = m.dwarf[m.holders[i]]
		return row, true
	}
	ra.off = signed
	row.RA, row.Signed = s.place(ra)
	row.Kept = row.RA != 0 && s.reg[m.ra] == ra
	return row, row.Signed
}

// place returns where the value is that a register had at the entry, from the CFA; 0 is the register. A place on the
// stack is better than the register, which soon may have another value.
func (s *state) place(saved value) (at int64, ok bool) {
	ok = s.reg[saved.reg] == saved
	for _, x := range s.slots {
		if x.value == saved && x.at.kind == frame && s.holds(x.at, !ok) && int64(x.at.off) < at {
			at = int64(x.at.off)
		}
	}
	return at, ok || at != 0
}
