package step

import (
	"fmt"

	"cfi2sframe/sframe"
)

// A frame is a caller as it is, until the call that made it has returned.
type frame struct {
	caller
	signal  bool   // the caller was interrupted
	on      *stack // that it was on: handlers may have another one
	pending doubts // differences that count when it turns out that the frame was right
}

type doubts []pending

type pending struct {
	diff *Diff
	n    uint64
	got  caller
	same bool // at all of the steps
}

func (l *doubts) add(d *Diff, got caller) {
	for i := range *l {
		if p := &(*l)[i]; p.diff == d {
			p.n++
			p.same = p.same && p.got == got
			return
		}
	}
	if len(*l) < maxPending {
		*l = append(*l, pending{d, 1, got, true})
	}
}

// confirm counts the differences: the truth was one.
func (l doubts) confirm() {
	for _, p := range l {
		p.diff.Confirmed += p.n
	}
}

// jumped looks whether answers were where it went.
func (l doubts) jumped(to caller) {
	for _, p := range l {
		if p.same && p.got == to {
			p.diff.Target += p.n
		}
	}
}

// maxSkip is how far, in bytes, a system call that returns to where it was made can lead: a step of QEMU's goes on with
// the instruction after it.
const maxSkip = 16

// maxAlloca is how far down, in bytes, a stack pointer that is loaded stays on its stack: compilers may allocate memory so.
const maxAlloca = 8 << 10

// maxPending bounds how many differences of a frame are kept in mind. More are doubtful.
const maxPending = 256

// A stack is memory that frames lie in, and those frames that are known, the outermost first.
type stack struct {
	lo, hi uint64 // where the stack pointer has been
	frames []frame
	outer  bool    // the first frame is that of code without a caller
	owner  *Thread // that is on it
	left   uint64  // when it was left
}

// A Thread is a thread of the program.
type Thread struct {
	stack *stack
	last  *site // of the instruction that it has executed, or nil
	pc    uint64
	sp    uint64
	// It has gone to another stack, but not yet to the code that belongs there. What answers were wrong meanwhile, and in the
	// frame that it has left?
	moving bool
	left   doubts
}

func (th *Thread) truth() caller {
	if f := th.stack.frames; len(f) > 0 {
		return f[len(f)-1].caller
	}
	return caller{}
}

// A Walk follows the threads of a process.
type Walk struct {
	Report
	m       *machine
	mem     Memory
	opt     Options
	regions []region
	sites   []*site
	modules map[string]*module
	order   []*module
	stacks  []*stack
	th      *Thread // whose step it is
	near    *region // that the last pc was in
	stale   bool    // what is mapped may have changed
	remap   func() ([]mapping, error)
	more    func(*Regs) bool // reads registers that are not read at each step, or nil
	lost    *site            // of instructions in no mapping
}

// Bits of what is wrong about an answer.
const (
	wrongCFA = 1 << iota
	wrongRA
	wrongFP
	noCaller // it says that there is no caller
	noValue  // it leads to where nothing is
)

// enough reports whether to stop.
func (w *Walk) enough() bool {
	return w.opt.Steps > 0 && w.Steps >= w.opt.Steps || w.Steps&0x3ff == 0 && w.opt.Stopped != nil && w.opt.Stopped()
}

// start begins with a thread. Outer says that its code has no caller.
func (w *Walk) start(r *Regs, outer bool) *Thread {
	th := &Thread{}
	sp := r.R[w.m.sp]
	w.drop(sp)
	th.stack = &stack{lo: sp, hi: sp, outer: outer, owner: th}
	w.stacks = append(w.stacks, th.stack)
	return th
}

// drop forgets stacks that nobody is on, and that hold an address.
func (w *Walk) drop(sp uint64) {
	for i := 0; i < len(w.stacks); i++ {
		if s := w.stacks[i]; s.owner == nil && s.lo <= sp && sp <= s.hi {
			w.stacks = append(w.stacks[:i], w.stacks[i+1:]...)
			i--
		}
	}
}

// end forgets a thread.
func (w *Walk) end(th *Thread) { th.stack.owner = nil }

// Step is told the state before each instruction.
func (w *Walk) Step(th *Thread, r *Regs) {
	w.th = th
	s := w.site(r.PC)
	sp := r.R[w.m.sp]
	if th.last != nil {
		w.follow(th, r, s, sp)
	}
	w.compare(th.stack, r, s)
	th.last, th.pc, th.sp = s, r.PC, sp
}

// follow draws from what the last instruction has done what has become of the frames.
func (w *Walk) follow(th *Thread, r *Regs, s *site, sp uint64) {
	last := th.last
	if last.class == kernel && r.PC-th.pc > maxSkip {
		if n := len(th.stack.frames); n > 0 {
			if f := &th.stack.frames[n-1]; !f.signal && r.PC == f.ra && sp == f.cfa+uint64(w.m.caller) {
				f.pending.confirm()
				th.stack.frames = th.stack.frames[:n-1]
				w.Returns++
				return
			}
		}
		w.resumed(th, r, sp)
		return
	}
	if st := th.stack; sp < st.lo || sp > st.hi {
		switch {
		case last.loads && (sp > st.hi || st.lo-sp > maxAlloca || w.known(sp)):
			if n := len(st.frames); n > 0 {
				th.left = st.frames[n-1].pending
				st.frames[n-1].pending = nil
			}
			th.moving = true
			w.change(th, sp)
		case sp < st.lo:
			st.lo = sp
		case len(st.frames) == 0 && sp-st.hi < 1<<16:
			st.hi = sp
		default:
			w.change(th, sp)
		}
	}
	st := th.stack
	switch last.class {
	case call:
		back := th.pc + uint64(last.size)
		if r.PC == back {
			return // which only wants to know where it is
		}
		for n := len(st.frames); n > 0 && w.dead(&st.frames[n-1], th.sp, false); n = len(st.frames) {
			st.frames = st.frames[:n-1]
		}
		st.frames = append(st.frames, frame{caller: caller{th.sp - uint64(w.m.caller), back, r.R[w.m.fp]}})
		w.Calls++
		th.moving, th.left = false, nil
	case ret, indirect:
		returns := w.Returns
		if th.moving && s.begins && !w.begun(st, sp) {
			// What was left there is of another time: the function begins anew, as Go's do on another stack.
			st.frames = nil
		}
		w.transfer(st, last, r, s, sp)
		if th.moving {
			if w.Returns > returns {
				th.left.confirm()
			}
			th.left.jumped(w.target(r))
			th.moving, th.left = false, nil
		}
	}
}

// known reports whether an address is in a stack that was left.
func (w *Walk) known(sp uint64) bool {
	for _, s := range w.stacks {
		if s.owner == nil && s.lo <= sp && sp <= s.hi {
			return true
		}
	}
	return false
}

// begun takes away frames that have ended, and reports whether the last one is that of a function that begins.
func (w *Walk) begun(st *stack, sp uint64) bool {
	n := len(st.frames)
	for ; n > 0 && w.dead(&st.frames[n-1], sp, false); n-- {
		st.frames = st.frames[:n-1]
	}
	return n > 0 && sp == st.frames[n-1].cfa-uint64(w.m.EntryCFA)
}

// target returns the frame that a jump has gone to.
func (w *Walk) target(r *Regs) caller {
	return caller{r.R[w.m.sp] - uint64(w.m.caller), r.PC, r.R[w.m.fp]}
}

// dead reports whether a stack pointer says that the frame has ended. Where calls leave the return address in a register, one that
// is as in the caller may be that of a function without a frame; exact says that it is not.
func (w *Walk) dead(f *frame, sp uint64, exact bool) bool {
	back := f.cfa + uint64(w.m.caller)
	return sp > back || sp == back && (exact || !w.m.linked)
}

// transfer follows a jump to an address that was in memory or in a register.
func (w *Walk) transfer(st *stack, last *site, r *Regs, s *site, sp uint64) {
	n := len(st.frames)
	if n == 0 {
		if s.begins && !st.outer {
			// Another stack, such as makecontext(3) makes: as if it was called.
			w.enter(st, r, sp)
		}
		return
	}
	top := &st.frames[n-1]
	back := top.cfa + uint64(w.m.caller)
	switch {
	case r.PC == top.ra && (sp == back || sp > back && last.class == ret && !w.m.linked): // ret n takes arguments, too
		top.pending.confirm()
		st.frames = st.frames[:n-1]
		w.Returns++
		if a := s.answers[0]; w.m.linked && a != nil && a.outermost {
			// Where makecontext(3) lets functions return to. Frames of another time may have been left on that stack,
			// which cannot be told where return addresses are in a register.
			st.frames, st.outer = nil, true
		}
		return
	case sp < back:
		return
	case sp == back && w.m.linked && (s.begins || s.fn < 0 || s.mod == last.mod && s.fn == last.fn):
		return // a tail call, or a table of jumps
	}
	// longjmp, or an unwinder that goes to a handler.
	for n > 0 && w.dead(&st.frames[n-1], sp, true) {
		n--
	}
	if n < len(st.frames) {
		w.Jumps++
		top.pending.jumped(w.target(r))
	}
	st.frames = st.frames[:n]
}

// enter puts a frame there for a function that begins.
func (w *Walk) enter(st *stack, r *Regs, sp uint64) {
	f := frame{caller: caller{cfa: sp - uint64(w.m.caller), fp: r.R[w.m.fp]}}
	if w.m.linked {
		f.ra = r.R[w.m.ra]
	} else {
		f.cfa += uint64(w.m.EntryCFA)
		var err error
		if f.ra, _, err = w.mem.Words(sp, sp); err != nil {
			return
		}
	}
	st.frames = append(st.frames, f)
}

// change goes to the stack that an address is in.
func (w *Walk) change(th *Thread, sp uint64) {
	w.Switches++
	th.stack.owner, th.stack.left = nil, w.Switches
	var last *stack // memory of one that is gone may be that of another one
	for _, s := range w.stacks {
		if s.owner == nil && s != th.stack && s.lo <= sp && sp <= s.hi && (last == nil || s.left > last.left) {
			last = s
		}
	}
	if last != nil {
		w.revive(last)
		last.owner, th.stack = th, last
		return
	}
	s := &stack{lo: sp, hi: sp, owner: th}
	w.stacks = append(w.stacks, s)
	th.stack = s
}

// revive looks at a stack that was left: memory may serve something else by now.
func (w *Walk) revive(s *stack) {
	if w.m.linked {
		return
	}
	for i := range s.frames {
		f := &s.frames[i]
		if f.signal {
			continue
		}
		if x, _, err := w.mem.Words(f.cfa+uint64(w.m.fixedRA), f.cfa); err != nil || x != f.ra {
			s.frames = s.frames[:i]
			return
		}
	}
}

// signal puts the frames of a signal handler there, of which r are the registers at its first instruction. From is what was
// interrupted.
func (w *Walk) signal(th *Thread, r *Regs, from caller) {
	sp := r.R[w.m.sp]
	on := th.stack
	if st := th.stack; sp < st.lo || sp > st.hi {
		if sp < st.lo && st.lo-sp < 1<<16 {
			st.lo = sp
		} else { // sigaltstack(2)
			w.drop(sp)
			w.change(th, sp)
		}
	}
	th.stack.frames = append(th.stack.frames, frame{caller: from, signal: true, on: on})
	w.enter(th.stack, r, sp)
	th.last, th.moving, th.left = nil, false, nil
	w.Signals++
}

// resumed follows the return from a signal.
func (w *Walk) resumed(th *Thread, r *Regs, sp uint64) {
	st := th.stack
	n := len(st.frames)
	var f *frame
	if n > 0 && st.frames[n-1].signal {
		f = &frame{}
		*f = st.frames[n-1]
		st.frames = st.frames[:n-1]
	}
	if f != nil && f.on != st && f.on.owner == nil && f.on.lo <= sp && sp <= f.on.hi {
		st.owner = nil
		f.on.owner, th.stack = th, f.on
		st = f.on
		w.Switches++
	} else if sp < st.lo || sp > st.hi {
		w.change(th, sp)
		st = th.stack
	}
	switch {
	case f == nil:
	case r.PC == f.ra && sp == f.cfa+uint64(w.m.caller):
		f.pending.confirm()
		return
	case !w.m.linked && sp == f.cfa-8: // the handler has put a call there, as that of Go does
		f.signal, f.pending, f.fp = false, nil, r.R[w.m.fp]
		st.frames = append(st.frames, *f)
		return
	}
	for n := len(st.frames); n > 0 && w.dead(&st.frames[n-1], sp, true); n = len(st.frames) {
		st.frames = st.frames[:n-1]
	}
}

// compare compares all answers with the truth.
func (w *Walk) compare(st *stack, r *Regs, s *site) {
	w.Steps++
	s.steps++
	n := len(st.frames)
	if n == 0 {
		if a := s.answers[0]; st.outer && a != nil && a.outermost {
			w.Outermost++
			s.outer++
		} else {
			w.Unknown++
			s.unknown++
		}
		return
	}
	f := &st.frames[n-1]
	bits, got := 0, caller{}
	if s.answers[0] != nil {
		if bits, got = w.check(s.answers[0], r, &f.caller); bits != 0 {
			w.differ(f, s, 0, bits, r, got)
		} else {
			w.Right++
		}
	}
	for i := 1; i < len(s.answers); i++ {
		a, b, g := s.answers[i], bits, got
		if a == nil {
			continue
		}
		if a != s.answers[0] { // which is the very same where they say the same in the same way
			b, g = w.check(a, r, &f.caller)
		}
		switch {
		case b == 0:
			w.Sections[i-1].Right++
		case s.answers[0] != nil && b == bits && g == got:
			w.Sections[i-1].Repeats++
		default:
			w.differ(f, s, i, b, r, g)
		}
	}
}

// check compares an answer with the truth.
func (w *Walk) check(a *answer, r *Regs, is *caller) (int, caller) {
	if a.outermost {
		return noCaller, caller{}
	}
	c, ok := w.evaluate(a, r)
	if !ok {
		return noValue, c
	}
	if c == *is {
		return 0, c
	}
	bits := 0
	if c.cfa != is.cfa {
		bits |= wrongCFA
	}
	if c.ra != is.ra {
		bits |= wrongRA
	}
	if c.fp != is.fp {
		bits |= wrongFP
	}
	return bits, c
}

// differ notes a difference.
func (w *Walk) differ(f *frame, s *site, side, bits int, r *Regs, got caller) {
	d := s.diffs
	for d != nil && (d.side != side || d.bits != bits) {
		d = d.next
	}
	if d == nil {
		d = &Diff{site: s, side: side, bits: bits, next: s.diffs}
		s.diffs = d
		w.diffs = append(w.diffs, d)
		sp := r.R[w.m.sp]
		d.Truth = w.relation(bits, sp, r, f.caller, got)
	}
	d.Steps++
	if w.th.moving {
		w.th.left.add(d, got)
	} else {
		f.pending.add(d, got)
	}
}

// relation says what is so where an answer is wrong.
func (w *Walk) relation(bits int, sp uint64, r *Regs, is, got caller) string {
	if bits&(wrongCFA|noCaller|noValue) != 0 {
		return fmt.Sprintf("the CFA is %s%+d", w.m.name(w.m.sp), int64(is.cfa-sp))
	}
	if bits&wrongRA != 0 {
		for reg, name := range w.m.Registers {
			if reg < NumRegs && r.R[reg] == is.ra && uint16(reg) != w.m.sp {
				return "the return address is in " + name
			}
		}
		return "the return address is elsewhere"
	}
	fp := w.m.name(w.m.fp)
	if r.R[w.m.fp] == is.fp {
		return fp + " is the caller's"
	}
	for reg, name := range w.m.Registers {
		if reg < NumRegs && uint16(reg) != w.m.sp && r.R[reg] == is.fp && is.fp != 0 {
			return "the caller's " + fp + " is in " + name
		}
	}
	// Most code that loses it saves it somewhere.
	var at []int64
	for off := int64(-8); off >= -4096 && len(at) < 1; off -= 8 {
		if x, _, err := w.mem.Words(is.cfa+uint64(off), is.cfa+uint64(off)); err == nil && x == is.fp && is.cfa+uint64(off) >= sp {
			at = append(at, off)
		}
	}
	if len(at) > 0 && is.fp != 0 {
		return fmt.Sprintf("the caller's %s is at c%+d", fp, at[0])
	}
	return fp + " is another"
}

// newWalk returns a Walk of a process that compares the sections of files, of any version, and those that are made.
func newWalk(opt Options) *Walk {
	w := &Walk{opt: opt, modules: make(map[string]*module)}
	for _, v := range sframe.Versions() {
		w.Sections = append(w.Sections, SectionReport{Version: v})
	}
	w.lost = w.nowhere()
	return w
}
