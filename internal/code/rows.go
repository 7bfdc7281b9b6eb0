package code

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/insn"
)

// A judgment records the rows and the effects of a function, or why it cannot have rows.
type judgment struct {
	*flow
	odd      Reason
	returns  bool // control leaves the function
	movesSP  bool
	lost     uint32
	computed bool // a jump to a computed address
	unknown  bool // bytes that are not instructions
	saves    bool // a callee-saved register, or the return address
	suspects []uint64
	aligned  []uint64 // calls at which SP is a multiple of 16, as in most functions of compilers
	starts   []uint64 // instructions that would be odd here, but not in another function
	cross    []arrival
	block    int // current block
	sites    []site
	edges    []edge
}

// record walks through all blocks once more, and records what they mean for the function and others. If ok is false,
// the states are not final.
func (w *flow) record(ok bool) {
	b := w.body
	x := &judgment{flow: w}
	order := make([]int, w.num)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(w.blocks[i].pc, w.blocks[j].pc) })
	for _, i := range order {
		t := &w.blocks[i]
		if x.block = i; ok {
			w.walk(i, x)
		}
		if n := len(b.spans); n > 0 && b.spans[n-1].End == t.pc {
			b.spans[n-1].End = t.end
		} else {
			b.spans = append(b.spans, elffile.Span{Begin: t.pc, End: t.end})
		}
	}
	if !ok {
		x.odd = TooComplex
	}
	if w.clash {
		x.odd = cmp.Or(x.odd, Overlap)
	}
	if x.odd != 0 && x.odd != Indirect {
		for _, pc := range x.suspects {
			if !w.stops[pc] {
				w.questions = append(w.questions, pc)
			}
		}
	}
	x.findStarts()
	if b.trust > firm && !b.evident && len(x.starts) > 0 && len(x.aligned) == 0 { // a label
		x.isOdd(NotCalled)
	}
	w.questions = slices.DeleteFunc(w.questions, func(pc uint64) bool { return w.stops[pc] })
	if len(w.questions) > 0 && ok {
		b.pieces = nil
		return
	}
	x.conclude()
}

// conclude decides whether the function has rows, and what calls of it change.
func (x *judgment) conclude() {
	b, m := x.body, x.machine
	if b.odd = x.odd; b.odd != 0 {
		b.pieces = nil
	}
	b.evident = b.evident || x.saves
	b.effect = effect{lost: x.lost, movesSP: x.movesSP, noReturn: !x.returns && b.odd == 0}
	switch saved := ^m.convention.lost & (1<<len(m.dwarf) - 1) &^ (1 << m.sp); {
	case x.movesSP, x.computed, x.unknown:
		b.effect.lost |= saved | m.convention.lost
	case b.odd == UnknownStack, b.odd == Unbalanced, b.odd == TooComplex:
		b.effect.lost = m.convention.lost
	case b.odd != 0:
		b.effect.lost |= m.convention.lost
	}
	if x.computed { // what follows may be labels of this function
		b.labels = nil
	}
	for _, t := range x.tables {
		if t.value.reg&multiplied != 0 && t.value.kind == target {
			base := uint64(x.flow.sites[t.value.site].at)
			b.labels = slices.DeleteFunc(b.labels, func(pc uint64) bool { return pc == base })
		}
	}
	if b.odd == 0 {
		x.doubt()
		b.stops = slices.Sorted(maps.Keys(x.stops))
		b.tables = map[uint64][]uint64{}
		for pc, t := range x.tables {
			if len(t.targets) > 0 {
				b.tables[pc] = t.targets
			}
		}
	}
	x.finished = x
}

// finish makes the results of an analysis known to other functions.
func (w *flow) finish() {
	b, x := w.body, w.finished
	for _, s := range b.spans {
		w.analysed += s.Size()
	}
	label := len(x.cross) > 0 && b.trust == guessed
	if b.trust >= loose && (b.odd != 0 || !b.evident && len(b.callees)+len(x.cross) == 0 || label) &&
		!w.hasMarks(b.arrivals[0].pc, known) { // a label, or data
		for _, t := range w.tables { // what leads there is not a function, so these are labels, too
			for _, to := range t.targets {
				w.tried[to] = w.tried[to] || !w.hasMarks(to, function)
			}
		}
		odd := b.odd
		w.discard(b)
		b.odd = cmp.Or(odd, NotCalled)
		return
	}
	for i := range w.num {
		w.owner[w.blocks[i].pc] = b
	}
	isNew := func(c callee) bool { return c.way == within && (w.entries[c.to] == nil || !w.entries[c.to].analysed) }
	waits := len(x.cross) > 0 && !b.waited && slices.ContainsFunc(b.callees, isNew)
	if waits { // what the callees change is known before b is analysed again
		b.waited = true
		w.again(b)
	}
	for _, c := range b.callees {
		if c.way == within {
			w.call(c.to)
		} else if w.hasMarks(c.to, function) {
			w.add(c.to, firm)
		}
	}
	for i := range x.cross {
		a := &x.cross[i]
		if waits {
			break
		}
		if owner := w.ownerOf(a.pc); owner != nil && owner != b {
			b.callees = append(b.callees, callee{to: owner.arrivals[0].pc, assumed: w.machine.convention, way: across})
			w.cross(owner, a)
		}
	}
}

// cross adds a way into the middle of a function.
func (w *flow) cross(b *body, a *arrival) {
	a.state.scrub()
	for i := range b.arrivals {
		if old := &b.arrivals[i]; old.pc == a.pc {
			changed := w.meet(&old.state, &a.state)
			if old.state.scrub(); changed {
				w.again(b)
			}
			return
		}
	}
	b.arrivals = append(b.arrivals, *a)
	w.again(b)
}

func (x *judgment) isOdd(why Reason) {
	x.odd = cmp.Or(x.odd, why)
}

func (x *judgment) each(pc uint64, in *insn.Inst) {
	if x.hasMarks(pc, overlap) {
		x.isOdd(Overlap)
	}
	s := &x.state
	if sp := s.reg[x.machine.sp]; sp.kind == frame && sp.off > x.machine.atEntry && x.body.from == 0 {
		x.isOdd(Unbalanced)
	}
	row, ok := s.row(x.byFP)
	if !ok {
		x.isOdd(UnknownStack)
	}
	next := pc + uint64(in.Size)
	x.addRow(pc, next, row)
	switch in.Op {
	case insn.Call, insn.CallReg, insn.CallMem:
		if in.Op == insn.Call && x.isCode(in.Target) {
			x.body.callees = append(x.body.callees, callee{to: in.Target, assumed: x.effectOf(in)})
		}
		x.suspect(pc, next)
		x.align(pc)
		x.sites = append(x.sites, site{pc, x.block, x.keyOf(in)})
	case insn.Push, insn.Store:
		v := s.get(in.Src)
		if ra := x.machine.ra; ra != insn.None && (in.Src == ra || in.Pair == ra) && s.reg[ra].kind == unknown {
			x.starts = append(x.starts, pc)
		}
		saved := v.kind == entryValue && x.machine.convention.lost>>v.reg&1 == 0
		x.saves = x.saves || saved && in.Op == insn.Push || v == x.machine.back || x.savesFrame(in)
	case insn.Sign:
		x.saves = x.saves || in.Imm != 0 && s.isEntry()
	case insn.Address:
		if a := s.address(&in.Mem); a.kind == constant && x.isCode(uint64(int64(a.off))) {
			x.body.labels = append(x.body.labels, uint64(int64(a.off)))
		}
	}
}

// savesFrame reports whether an instruction stores the caller's FP and the return address next to each other.
func (x *judgment) savesFrame(in *insn.Inst) bool {
	m, s := x.machine, &x.state
	return m.ra != insn.None && in.Src == m.fp && in.Pair == m.ra && x.keepsFP() && s.reg[m.ra] == m.back
}

// suspect notes a call that padding follows, up to an address at which a function could start. The call does not return
// if nothing else leads there, and may not return if the code there is odd.
func (x *judgment) suspect(pc, next uint64) {
	switch at := x.skipPadding(next, math.MaxUint64); {
	case at%16 != 0 || x.stops[pc] || at > next && x.restoresRA(at):
	case at > next && !x.hasMarks(at, leads): // compilers align only functions, and labels to which jumps lead
		x.questions = append(x.questions, pc)
	case at > next || x.hasMarks(at, enters):
		x.suspects = append(x.suspects, pc)
	}
}

// restoresRA reports whether code loads the return address before it saves it, as only the end of a function does.
func (x *judgment) restoresRA(pc uint64) bool {
	const most = 16 // instructions
	m := x.machine
	for range most {
		in, ok := x.decodeAt(pc)
		switch holds := in.Reg == m.ra || in.Pair == m.ra; {
		case !ok || m.ra == insn.None || in.Op.Leaves() || in.Op.Calls() || in.Op == insn.Store || in.Op == insn.Sign:
			return false
		case in.Op == insn.Load && in.Mem.Base == m.sp && holds:
			return true
		}
		pc += uint64(in.Size)
	}
	return false
}

// align notes whether SP is a multiple of 16 at a call.
func (x *judgment) align(pc uint64) {
	sp := x.state.reg[x.machine.sp]
	switch {
	case sp.kind != frame:
	case sp.off%16 != 0:
		x.starts = append(x.starts, pc)
	default:
		x.aligned = append(x.aligned, pc)
	}
}

// findStarts looks for another function after a call that does not return. No return shows that its stack depth is
// different; but its calls are at an SP that is not a multiple of 16, or it saves the return address of its caller.
func (x *judgment) findStarts() {
	if len(x.starts) == 0 {
		return
	}
	var calls, starts []uint64
	for _, pc := range slices.Backward(x.aligned) {
		if !x.returnsFrom(pc) {
			calls = append(calls, pc)
		}
	}
	for _, pc := range slices.Backward(x.starts) {
		if !x.returnsFrom(pc) {
			starts = append(starts, pc)
		}
	}
	if len(starts) > 0 {
		x.questions = append(x.questions, calls...)
	}
}

func (x *judgment) to(pc uint64) {
	call := x.fallsFrom(pc)
	way := x.goes(pc)
	if way != within && call != 0 && !(x.state.isEntry() && x.keepsFP()) && !x.stops[call] {
		x.questions = append(x.questions, call)
		return
	}
	x.addEdge(pc, way == within)
	switch way {
	case tail:
		x.leave(pc, x.machine.convention)
	case beyond:
		x.leaveTo(pc)
	case across:
		x.returns = true
		x.lost |= x.machine.convention.lost
		a := arrival{pc: pc}
		a.state.copyFrom(&x.state)
		x.cross = append(x.cross, a)
	}
}

// keepsFP reports whether FP has its value at function entry.
func (x *judgment) keepsFP() bool {
	fp := x.machine.fp
	return x.state.reg[fp] == x.machine.entry.reg[fp]
}

// leave records a jump to a function in a gap.
func (x *judgment) leave(pc uint64, e effect) {
	x.returns = true
	if !x.state.isEntry() || !x.keepsFP() {
		x.isOdd(Unbalanced)
	}
	if b := x.entries[pc]; b != nil && b.analysed && b != x.body {
		e = b.effect
	}
	x.lost |= x.state.lost() | e.lost
	x.movesSP = x.movesSP || e.movesSP
	if pc != x.body.arrivals[0].pc {
		x.body.callees = append(x.body.callees, callee{to: pc, assumed: e, way: tail})
	}
}

// leaveTo records that control reaches code outside of the gaps.
func (x *judgment) leaveTo(pc uint64) {
	x.returns = true
	x.lost |= x.state.lost() | x.machine.convention.lost
	row, ok, described := x.Row(pc)
	switch entry := x.state.isEntry() && x.keepsFP(); {
	case !described && x.falls:
		x.isOdd(RunsOn)
	case !described || ok && x.machine.isEntryRow(&row):
		if !entry {
			x.isOdd(Unbalanced)
		}
		x.body.evident = x.body.evident || entry && described
	case !ok || !x.state.agrees(&row):
		x.isOdd(Unbalanced)
	default:
		x.body.evident = true
	}
}

func (x *judgment) out(in *insn.Inst) {
	x.addEdge(0, false)
	x.returns = true
	s := &x.state
	sp := s.reg[x.machine.sp]
	x.lost |= s.lost()
	switch {
	case in.Op == insn.Return && in.Mem.Step != 0:
		x.isOdd(Unbalanced)
		x.movesSP = true
	case in.Op == insn.Return && s.isEntry():
		x.body.evident = true
	case in.Op == insn.Return:
		x.isOdd(Unbalanced)
		m := x.machine
		hasRA := s.load(sp) == m.back || m.ra != insn.None && s.reg[m.ra] == m.back
		x.movesSP = x.movesSP || sp.kind == unknown && x.unsure || sp.kind == frame && (sp.off > m.atEntry || hasRA)
	default:
		x.lost |= x.machine.convention.lost
		if t := x.tables[x.pc]; t != nil && t.computed {
			x.computed = true
			x.barred = append(x.barred, span(x.pc, x.labelsAfter(x.pc)))
			x.isOdd(Indirect)
		}
		if !s.isEntry() || !x.keepsFP() {
			x.isOdd(Indirect)
		}
	}
}

func (x *judgment) ends(pc uint64) {
	if x.isCode(pc) {
		x.isOdd(Overlap)
		x.unknown = true
	} else {
		x.isOdd(RunsOn)
	}
}

func (x *judgment) stop(pc uint64) {
	x.flow.stop(pc)
	if x.leadsTo(&x.inst, x.Resume) { // a landing pad: control reached it by returning from a call that does not return
		x.isOdd(RunsOn)
	}
}

// addRow adds the row of an instruction. A piece ends where the next function or other code starts.
func (x *judgment) addRow(pc, end uint64, row cfi.InferredRow) {
	list := x.body.pieces
	n := len(list)
	if n == 0 || list[n-1].End != pc || x.hasMarks(pc, enters) {
		list = append(list, piece{Span: span(pc, pc)})
		x.body.pieces = list
		n++
	}
	p := &list[n-1]
	p.End = end
	row.Off = uint32(pc - p.Begin)
	if k := len(p.rows); k > 0 {
		last := p.rows[k-1]
		if last.Off = row.Off; last == row {
			return
		}
	}
	p.rows = append(p.rows, row)
}

func span(begin, end uint64) elffile.Span { return elffile.Span{Begin: begin, End: end} }

// evidence marks functions that only jump to functions which are evident, or are called.
func (f *finder) evidence() {
	for more := true; more; {
		more = false
		for _, b := range f.bodies {
			if b.evident || b.odd != 0 {
				continue
			}
			for _, c := range b.callees {
				to := f.entries[c.to]
				if c.way != within && (f.hasMarks(c.to, known) || to != nil && to.evident && to.odd == 0) {
					b.evident, more = true, true
					break
				}
			}
		}
	}
}

// lacksRows reports whether a callee is entered in the middle, and has no rows.
func (f *finder) lacksRows(c callee) bool {
	to := f.entries[c.to]
	return c.way == across && (to == nil || to.odd != 0)
}

// claim returns the rows of all functions that have some, and the other code.
func (f *finder) claim() (*cfi.Inference, []Refusal) {
	f.evidence()
	for more := true; more; { // nothing shows that jumps into code without rows are right
		more = false
		for _, b := range f.bodies {
			if b.odd == 0 && slices.ContainsFunc(b.callees, f.lacksRows) {
				b.odd, more = Unbalanced, true
			}
		}
	}
	slices.SortStableFunc(f.bodies, byAddress)
	inf := &cfi.Inference{Jumps: map[uint64][]uint64{}, NoReturn: map[uint64]bool{}, From: map[uint64]uint64{}}
	refused := f.unmarked(Unreached)
	for i, b := range f.bodies {
		entry := b.arrivals[0].pc
		if b.odd == 0 && !b.evident && !f.hasMarks(entry, known) && entry != f.Start {
			b.odd = NotCalled
		}
		if b.odd == 0 && f.overlaps(b) {
			b.odd = Overlap
		}
		if b.odd != 0 {
			for _, s := range b.spans {
				refused = append(refused, Refusal{s, b.odd})
			}
			continue
		}
		outermost := entry == f.Start && !f.hasMarks(entry, known)
		for _, p := range b.pieces {
			if outermost {
				for k := range p.rows {
					p.rows[k].Outermost = true
				}
			}
			fn := cfi.InferredFunction{Begin: p.Begin, End: p.End, Component: i, Rows: p.rows}
			inf.Functions = append(inf.Functions, fn)
		}
		maps.Copy(inf.Jumps, b.tables)
		for _, pc := range b.stops {
			inf.NoReturn[pc] = true
		}
		if b.from != 0 {
			inf.From[entry] = b.from
		}
		b.pieces, b.callees, b.tables = nil, nil, nil
	}
	slices.SortFunc(inf.Functions, func(a, b cfi.InferredFunction) int { return cmp.Compare(a.Begin, b.Begin) })
	end := uint64(0)
	inf.Functions = slices.DeleteFunc(inf.Functions, func(fn cfi.InferredFunction) bool { // two functions share bytes
		if fn.Begin < end {
			return true
		}
		end = fn.End
		return false
	})
	return inf, f.rest(inf.Functions, refused)
}

// overlaps reports whether instructions of a function overlap others.
func (f *finder) overlaps(b *body) bool {
	for _, p := range b.pieces {
		if f.mark(p.Begin) == nil {
			continue
		}
		off := p.Begin - f.at.Addr
		for _, m := range f.at.marks[off : off+p.Size()] {
			if m&overlap != 0 {
				return true
			}
		}
	}
	return false
}

// rest returns the code without rows. The first of several reasons for the same code takes precedence.
func (f *finder) rest(functions []cfi.InferredFunction, refused []Refusal) []Refusal {
	slices.SortFunc(refused, func(a, b Refusal) int { return cmp.Compare(a.Begin, b.Begin) })
	var out []Refusal
	add := func(at, end uint64) { // code between functions
		for ; at < end; at = out[len(out)-1].End {
			for len(refused) > 0 && refused[0].End <= at {
				refused = refused[1:]
			}
			why, next := Overlap, end
			if len(refused) > 0 && refused[0].Begin <= at {
				why, next = refused[0].Reason, min(end, refused[0].End)
			} else if len(refused) > 0 {
				next = min(end, refused[0].Begin)
			}
			out = addRefusal(out, Refusal{span(at, next), why})
		}
	}
	for i := range f.Gaps {
		at := f.Gaps[i].Addr
		for ; len(functions) > 0 && functions[0].Begin < f.Gaps[i].end(); functions = functions[1:] {
			add(at, functions[0].Begin)
			at = functions[0].End
		}
		add(at, f.Gaps[i].end())
	}
	return out
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
		return row, s.load(value{kind: frame, off: m.atEntry}) == m.back
	}
	ra := m.back
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

// isEntryRow reports whether a row is that of a function entry.
func (m *machine) isEntryRow(row *cfi.InferredRow) bool {
	entry, _ := m.entry.row(false)
	entry.Off = row.Off
	return *row == entry
}

// fromRow sets the state that a row describes.
func (m *machine) fromRow(s *state, row *cfi.InferredRow) {
	s.machine, s.reg, s.slots = m, [maxRegs]value{}, nil
	cfa := slices.Index(m.dwarf, uint64(row.Reg))
	s.reg[cfa] = value{kind: frame, off: -row.Offset}
	fp := m.entry.reg[m.fp]
	switch {
	case row.Lost:
	case row.FP != 0:
		s.slots = append(s.slots, slot{value{kind: frame, off: row.FP}, fp})
	default:
		s.reg[m.fp] = fp
	}
	back := m.back
	if row.Signed {
		back.off = signed
	}
	switch {
	case m.ra == insn.None:
		s.slots = append(s.slots, slot{value{kind: frame, off: m.atEntry}, back})
	case row.RA != 0:
		s.slots = append(s.slots, slot{value{kind: frame, off: row.RA}, back})
	default:
		s.reg[slices.Index(m.dwarf, uint64(row.RAReg))] = back
	}
}

// agrees reports whether the state implies a row.
func (s *state) agrees(row *cfi.InferredRow) bool {
	var want state
	s.machine.fromRow(&want, row)
	for r, v := range want.reg {
		if v.kind != unknown && s.reg[r] != v {
			return false
		}
	}
	return !slices.ContainsFunc(want.slots, func(x slot) bool { return s.load(x.at) != x.value })
}

// scrub removes what is only known within a function.
func (s *state) scrub() {
	local := func(v value) bool { return v.kind == aligned || v.kind == target }
	for r := range s.reg {
		if local(s.reg[r]) {
			s.reg[r] = value{}
		}
	}
	s.slots = slices.DeleteFunc(s.slots, func(x slot) bool { return local(x.at) || local(x.value) })
}
