package code

import (
	"cmp"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/insn"
)

// A finder finds functions, and holds the results of their analysis.
type finder struct {
	*Text
	machine *machine
	regions []region
	at      *region          // most recently used
	size    uint64           // of all gaps in bytes
	refs    []uint64         // sorted addresses to which code refers
	pages   [maxRegs]int64   // page addresses in registers, set by Page instructions
	jumps   []described      // jumps out of described code
	taken   []uint64         // addresses loaded by described code
	numbers []uint64         // immediate operands that may be addresses of code
	bodies  []*body          // all functions
	entries map[uint64]*body // by address of an entry
	owner   map[uint64]*body // by start of a block
	work    []*body          // to be analysed
	decoded int              // number of decoded instructions
	err     error            // why the analysis ended early
	barred  []elffile.Span   // code in which only calls show where functions start
	tried   map[uint64]bool  // addresses that were tried as functions

	analysed uint64             // size of all functions found so far in bytes
	searches map[uint64]*search // keyed by function entry
	endsHere map[uint64]bool    // doubtful calls, which are taken not to return
}

// A described is a jump from described code, at from, to code in a gap.
type described struct{ from, to uint64 }

// A trust says how likely the entries of a function are entries.
type trust uint8

const (
	firm    trust = iota // called, or with a global symbol
	named                // another symbol or a relocation
	loose                // an address that code loads
	guessed              // a number in data that may be an address
)

func newFinder(t *Text) *finder {
	f := &finder{Text: t, machine: machines[t.Machine], searches: map[uint64]*search{}, entries: map[uint64]*body{},
		owner: map[uint64]*body{}, tried: map[uint64]bool{}, endsHere: map[uint64]bool{}}
	f.at = &region{Gap: &Gap{}}
	f.regions = make([]region, len(t.Gaps))
	for i := range t.Gaps {
		n := len(t.Gaps[i].Code)
		f.regions[i] = region{&t.Gaps[i], make([]byte, n), make([]uint64, n/64+1)}
		f.size += uint64(len(t.Gaps[i].Code))
	}
	return f
}

// find analyses all functions.
func (f *finder) find() error {
	if err := f.Text.Described(f.scan); err != nil {
		return err
	}
	f.sweep()
	w := newFlow(f)
	for _, e := range f.Functions {
		if m := f.mark(e); m != nil {
			*m |= enters | function
		}
	}
	for _, e := range f.Entries {
		if m := f.mark(e); m != nil {
			*m |= enters
		}
	}
	f.add(f.Start, firm)
	for _, e := range f.Functions {
		f.add(e, firm)
	}
	w.run()
	for _, j := range f.jumps {
		w.jumpedTo(j)
	}
	w.run()
	for _, e := range sorted(slices.Clone(f.Entries)) {
		w.try(e, named)
	}
	if start := f.entries[f.Start]; start != nil {
		for _, e := range start.labels { // main
			w.try(e, named)
		}
	}
	for _, e := range sorted(f.taken) {
		w.try(e, loose)
	}
	for n := 0; n < len(f.bodies); { // addresses that functions load may be functions that load others
		var all []uint64
		for _, b := range f.bodies[n:] {
			all = append(all, b.labels...)
		}
		n = len(f.bodies)
		for _, e := range sorted(all) {
			w.try(e, loose)
		}
	}
	if f.Pointers != nil {
		guess := func(addr uint64) {
			if w.mayStart(addr) {
				w.try(addr, guessed)
			}
		}
		if err := f.Pointers(guess); err != nil {
			return err
		}
		for _, n := range sorted(f.numbers) {
			guess(n)
		}
	}
	for i := range f.regions { // targets of calls in code that was not reached
		r := &f.regions[i]
		for off := range r.marks {
			if r.marks[off]&(function|begins|inside) == function {
				w.try(r.Addr+uint64(off), named)
			}
		}
	}
	w.resolve()
	w.settle()
	if w.resolve() {
		w.settle()
	}
	w.refuseDoubtful()
	return w.err
}

// stopped reports whether the analysis is to end.
func (f *finder) stopped() bool {
	if f.err == nil {
		f.err = f.Step(f.analysed)
	}
	return f.err != nil
}

// sweep decodes all code in order of addresses. It marks the targets of calls, and collects the addresses to which code
// refers, which bound jump tables. Data in code is decoded, too: a call in it makes an address look like the entry of a
// function, which loses rows, but gives no wrong ones.
func (f *finder) sweep() {
	for i := range f.regions {
		g := f.regions[i].Gap
		for off := 0; off < len(g.Code); {
			pc := g.Addr + uint64(off)
			in, ok := f.machine.decode(g.Code[off:], pc)
			if !ok {
				off += f.machine.align
				continue
			}
			f.regions[i].starts[off/64] |= 1 << (off % 64)
			off += in.Size
			f.refer(&in)
			if n := uint64(in.Imm); f.Pointers != nil && n != 0 && f.isCode(n) {
				f.numbers = append(f.numbers, n)
			}
			if in.Op == insn.Call {
				if m := f.mark(in.Target); m != nil {
					*m |= enters | function
				}
			}
		}
	}
	f.refs = sorted(f.refs)
}

// scan records addresses in gaps to which code outside the gaps refers: those that it calls, jumps to, or loads.
func (f *finder) scan(addr uint64, code []byte) {
	for off := 0; off < len(code); {
		pc := addr + uint64(off)
		in, ok := f.machine.decode(code[off:], pc)
		if !ok {
			return
		}
		to, loads := f.refer(&in)
		switch {
		case in.Op == insn.Call && f.isCode(in.Target):
			f.call(in.Target)
		case (in.Op == insn.Jump || in.Op == insn.Branch) && f.isCode(in.Target):
			f.jumps = append(f.jumps, described{pc, in.Target})
		case loads && f.isCode(to):
			f.taken = append(f.taken, to)
		}
		off += in.Size
	}
}

// refer records the address to which an instruction refers. It returns the address that the instruction loads, if it is
// known. Between a Page and its Address, only an instruction that does not fall through clears the page: other writes
// to its register are rare.
func (f *finder) refer(in *insn.Inst) (loaded uint64, ok bool) {
	m := &in.Mem
	switch {
	case in.Op == insn.Page && in.Reg != insn.None:
		f.pages[in.Reg] = in.Imm
	case in.Op == insn.Address && m.Relative:
		loaded, ok = uint64(m.Disp), true
	case in.Op == insn.Address && m.Base != insn.None && m.Index == insn.None && f.pages[m.Base] != 0:
		loaded, ok = uint64(f.pages[m.Base]+m.Disp), true
	case in.Op.Leaves():
		f.pages = [maxRegs]int64{}
	}
	switch {
	case ok:
		f.refs = append(f.refs, loaded)
	case m.Relative || m.Base == insn.None && m.Index != insn.None:
		f.refs = append(f.refs, uint64(m.Disp))
	}
	return loaded, ok
}

// call adds the function at pc, which is called.
func (f *finder) call(pc uint64) {
	m := f.mark(pc)
	if m == nil || *m&known != 0 {
		return
	}
	*m |= enters | function | known
	f.add(pc, firm)
}

// add adds a function with an entry at pc.
func (f *finder) add(pc uint64, t trust) *body {
	m := f.mark(pc)
	if m == nil || f.entries[pc] != nil {
		return nil
	}
	*m |= enters
	if *m&begins != 0 { // it was taken for a part of another function
		if old := f.ownerOf(pc); old != nil {
			f.again(old)
		}
	}
	b := &body{trust: t, arrivals: []arrival{{pc: pc}}}
	b.arrivals[0].state.copyFrom(&f.machine.entry)
	f.entries[pc] = b
	f.bodies = append(f.bodies, b)
	f.again(b)
	return b
}

// again causes a function to be analysed, or to be analysed again.
func (f *finder) again(b *body) {
	if !b.queued {
		b.queued = true
		f.work = append(f.work, b)
	}
}

// ownerOf returns the function whose blocks contain the instruction at pc, or nil.
func (f *finder) ownerOf(pc uint64) *body { return f.owner[f.blockAt(pc)] }

// blockAt returns the start of the block that contains the reached instruction at pc.
func (f *finder) blockAt(pc uint64) uint64 {
	for n := 0; n < maxBlock; n++ {
		switch m := f.mark(pc); {
		case m == nil || *m&(begins|inside) == 0:
			return 0
		case *m&(begins|leads) == begins|leads:
			return pc
		}
		pc--
	}
	return 0
}

// maxBlock bounds the size of blocks in bytes, so that their starts are found quickly.
const maxBlock = 1 << 12

// run analyses the queued functions.
func (w *flow) run() {
	for len(w.work) > 0 && !w.stopped() {
		b := w.work[len(w.work)-1]
		w.work = w.work[:len(w.work)-1]
		b.queued = false
		w.analyze(b)
	}
}

// jumpedTo adds code to which described code jumps: a function, if the jump is a tail call, or a part of that code.
func (w *flow) jumpedTo(j described) {
	row, ok, _ := w.Row(j.from)
	entry := row
	if entry.FP < w.machine.atEntry { // below SP: compilers do not say that an epilogue restores FP
		entry.FP = 0
	}
	switch {
	case w.machine.isEntryRow(&entry) && ok:
		if w.add(j.to, firm) != nil {
			*w.mark(j.to) |= known
		}
	case !ok || w.hasMarks(j.to, begins) || w.entries[j.to] != nil:
	default:
		b := &body{trust: named, from: j.from, arrivals: []arrival{{pc: j.to}}}
		w.machine.fromRow(&b.arrivals[0].state, &row)
		*w.mark(j.to) |= enters
		w.entries[j.to] = b
		w.bodies = append(w.bodies, b)
		w.again(b)
	}
}

// labelsAfter returns the end of the code that a computed jump at pc may reach: it ends at a function, or with a jump
// or a return that padding follows.
func (f *finder) labelsAfter(pc uint64) uint64 {
	left, last := false, pc
	for f.isCode(pc) && !f.hasMarks(pc, function) {
		in, ok := f.decodeAt(pc)
		switch nop := isPadding(&in); {
		case !ok:
			in.Size = f.machine.align
		case nop && left && pc > last:
			return pc
		case !nop:
			left = in.Op.Leaves() && pc > last
		}
		pc += uint64(in.Size)
	}
	return pc
}

// mayStart reports whether the code before an address does not continue there: it ends with a jump, a return, or a call
// that padding follows.
func (f *finder) mayStart(pc uint64) bool {
	const before = 128 // bytes, after which decoding is in step with the instructions
	if f.mark(pc) == nil {
		return false
	}
	at, last, nops := max(f.at.Addr, pc-before), insn.Trap, 0
	for at < pc {
		in, ok := f.decodeAt(at)
		switch {
		case last.Leaves() && f.at.Code[at-f.at.Addr] == 0: // Free Pascal pads with zeros
			in.Size = f.machine.align
		case !ok:
			in.Size, last = f.machine.align, insn.Other
		case isPadding(&in):
			nops++
		default:
			last, nops = in.Op, 0
		}
		at += uint64(in.Size)
	}
	return at == pc && (last.Leaves() || nops > 0 && last.Calls())
}

// try analyses the code at pc as a function, unless it was already reached, and forgets it if it is not one.
func (w *flow) try(pc uint64, t trust) {
	if m := w.mark(pc); m == nil || *m&(begins|inside) != 0 || w.entries[pc] != nil || w.tried[pc] {
		return
	}
	w.tried[pc] = true
	const most = 1 << 10
	within := func(s elffile.Span) bool { return s.Begin <= pc && pc < s.End }
	if len(w.barred) > most || slices.ContainsFunc(w.barred, within) {
		return
	}
	if b := w.add(pc, t); b != nil {
		w.run()
		if b.odd != 0 && t >= loose && !w.hasMarks(pc, known) {
			delete(w.entries, pc)
		}
	}
}

// settle analyses functions again until the effects of their callees are those that they assume. Callees come first, so
// that a function is seldom analysed more than once.
func (w *flow) settle() {
	callers := map[*body][]*body{}
	for _, b := range w.bodies {
		for _, c := range b.callees {
			if callee := w.entries[c.to]; callee != nil && callee != b {
				callers[callee] = append(callers[callee], b)
			}
		}
	}
	order := w.calleesFirst()
	found := len(w.bodies)
	for _, b := range order {
		if w.isStale(b) {
			w.again(b)
		}
	}
	for sweep := 0; len(w.work) > 0 && !w.stopped(); sweep++ {
		w.work = w.work[:0]
		for _, b := range order {
			if !b.queued {
				continue
			}
			if w.stopped() {
				return
			}
			b.queued = false
			if b.rounds++; b.rounds > maxRounds || sweep == maxSweeps {
				b.refuse(TooComplex)
				continue
			}
			w.analyze(b)
			for _, c := range callers[b] {
				if w.isStale(c) {
					w.again(c)
				}
			}
		}
		order = append(order, w.bodies[found:]...)
		found = len(w.bodies)
		w.work = slices.DeleteFunc(w.work, func(b *body) bool { return !b.queued })
	}
}

// calleesFirst returns all functions, callees before their callers, except for recursion.
func (w *flow) calleesFirst() []*body {
	type frame struct {
		b    *body
		next int // index of a callee
	}
	order := make([]*body, 0, len(w.bodies))
	seen := make(map[*body]bool, len(w.bodies))
	var stack []frame
	for _, b := range w.bodies {
		if !seen[b] {
			seen[b] = true
			stack = append(stack, frame{b, 0})
		}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.next == len(top.b.callees) {
				order = append(order, top.b)
				stack = stack[:len(stack)-1]
				continue
			}
			callee := w.entries[top.b.callees[top.next].to]
			top.next++
			if callee != nil && !seen[callee] {
				seen[callee] = true
				stack = append(stack, frame{callee, 0})
			}
		}
	}
	return order
}

// isStale reports whether a function assumes that a callee changes less than it does, or has no rows although a callee
// changes less than the convention allows.
func (w *flow) isStale(b *body) bool {
	for _, c := range b.callees {
		callee := w.entries[c.to]
		switch {
		case callee == nil || b.odd == TooComplex:
		case !c.assumed.covers(callee.effect):
			return true
		case b.odd != 0 && !callee.effect.covers(c.assumed) && callee.analysed && callee.odd == 0:
			return true
		}
	}
	return false
}

// maxRounds bounds how often a function is analysed because its callees changed.
const maxRounds = 8

// maxSweeps bounds how often all functions are examined.
const maxSweeps = 1 << 8

func sorted(list []uint64) []uint64 {
	slices.Sort(list)
	return slices.Compact(list)
}

// unmarked returns the code that was not reached.
func (f *finder) unmarked(why Reason) []Refusal {
	var out []Refusal
	for i := range f.regions {
		r := &f.regions[i]
		for off := 0; off < len(r.marks); off++ {
			if r.marks[off]&(begins|inside) != 0 {
				continue
			}
			at := r.Addr + uint64(off)
			for off < len(r.marks) && r.marks[off]&(begins|inside) == 0 {
				off++
			}
			out = append(out, Refusal{span(at, r.Addr+uint64(off)), why})
		}
	}
	return out
}

func byAddress(a, b *body) int { return cmp.Compare(a.arrivals[0].pc, b.arrivals[0].pc) }
