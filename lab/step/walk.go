// Package step runs a program instruction by instruction, and compares what its call frame information and SFrame say
// about the caller with what the processor does.
//
// The ground truth is a shadow stack of frames. A call pushes the return address, the stack pointer after the return,
// and the caller's frame pointer; its return pops them. Signals, longjmp, unwinders, other stacks and threads are
// followed as well.
//
// Programs for amd64 run under ptrace (Trace); those for other machines run under QEMU (Remote).
package step

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cfi2sframe/sframe"
)

// Options select what to compare.
type Options struct {
	// Made lists additional versions of SFrame to compare. If a file lacks such a section, one is made in memory.
	Made  []sframe.Version
	Steps uint64 // maximum; 0 for all
	Entry bool   // start at the program's entry point, skipping the loader
	Infer bool   // rows of code without CFI that are inferred from its instructions count as CFI
}

// A frame describes a caller until its call returns.
type frame struct {
	caller
	signal  bool    // the caller was interrupted by a signal
	on      *stack  // the caller's stack; handlers may run on a different stack
	pending doubts  // wrong answers, which may predict a jump
	from    *caller // copy of thread.from, if thread.moving was set at the call
}

// doubts are wrong answers, by site and kind.
type doubts map[*diff]*doubt

type doubt struct {
	steps uint64
	got   caller
	same  bool // at all steps
}

func (d doubts) add(diff *diff, got caller) doubts {
	if d == nil {
		d = make(doubts)
	}
	if p := d[diff]; p != nil {
		p.steps++
		p.same = p.same && p.got == got
	} else {
		d[diff] = &doubt{1, got, true}
	}
	return d
}

// countPredictions counts the answers that predicted a jump.
func (d doubts) countPredictions(to caller) {
	for diff, p := range d {
		if p.same && p.got == to {
			diff.target += p.steps
		}
	}
}

// maxSkip bounds the distance from a system call to the next step: QEMU executes the next instruction in the same step.
const maxSkip = 16

// maxAlloca is the maximum distance in bytes from the lowest SP of a stack so far down to a newly loaded SP on the same
// stack: compilers may allocate memory by loading SP.
const maxAlloca = 8 << 10

// A stack holds the known frames, the outermost first.
type stack struct {
	lo, hi uint64 // range of the stack pointer so far
	frames []frame
	outer  bool    // the first frame belongs to code without a caller
	owner  *thread // the thread on it
	left   uint64  // when it was left
}

// popDead removes frames that have ended, according to the stack pointer.
func (w *walk) popDead(st *stack, sp uint64, exact bool) {
	for n := len(st.frames); n > 0 && w.hasEnded(&st.frames[n-1], sp, exact); n-- {
		st.frames = st.frames[:n-1]
	}
}

// A thread holds the state of a thread of the program.
type thread struct {
	stack *stack
	last  *site // site of the last instruction, or nil
	pc    uint64
	sp    uint64
	// moving is true from the time SP points to a different stack until code that belongs to that stack runs. In
	// the meantime, thread.left collects wrong answers, including those for the previous frame, and thread.from is the
	// true caller of that frame; moving and from are restored after calls made in the meantime (Go's systemstack).
	moving bool
	left   doubts
	from   caller
}

func (th *thread) truth() caller {
	if f := th.stack.frames; len(f) > 0 {
		return f[len(f)-1].caller
	}
	return caller{}
}

// A walk follows the threads of a process.
type walk struct {
	Report
	ctx     context.Context
	m       *machine
	mem     memory
	opt     Options
	maps    func() ([]mapping, error) // returns where code is
	regions []*region
	stale   bool // mappings may have changed
	sites   []*site
	modules map[string]*module
	stacks  []*stack
	th      *thread               // the current thread
	floats  func(*registers) bool // reads registers that most steps do not need; may be nil
	lost    *site                 // for instructions outside mappings
	diffs   map[diffKey]*diff
	buf     [8]byte
}

func newWalk(ctx context.Context, m *machine, mem memory, opt Options) *walk {
	w := &walk{ctx: ctx, m: m, mem: mem, opt: opt, lost: &site{}}
	w.modules, w.diffs = make(map[string]*module), make(map[diffKey]*diff)
	w.Machine = m.fullName()
	w.sites = []*site{w.lost}
	return w
}

// mustStop reports whether the walk must stop.
func (w *walk) mustStop() bool {
	return w.opt.Steps > 0 && w.Steps >= w.opt.Steps || w.Steps&0x3ff == 0 && w.ctx.Err() != nil
}

// newThread adds a thread, whose code has no caller.
func (w *walk) newThread(r *registers) *thread {
	th := &thread{}
	sp := r.r[w.m.SP]
	w.drop(sp)
	th.stack = &stack{lo: sp, hi: sp, outer: true, owner: th}
	w.stacks = append(w.stacks, th.stack)
	w.Threads++
	return th
}

// drop forgets unused stacks that contain the given address.
func (w *walk) drop(sp uint64) {
	w.stacks = slices.DeleteFunc(w.stacks, func(s *stack) bool { return s.isFreeAt(sp) })
}

// isFreeAt reports whether the stack contains an address, and no thread is on it.
func (s *stack) isFreeAt(sp uint64) bool { return s.owner == nil && s.lo <= sp && sp <= s.hi }

// step updates the walk with the state before an instruction.
func (w *walk) step(th *thread, r *registers) {
	w.th = th
	s := w.site(r.pc)
	sp := r.r[w.m.SP]
	if th.last != nil {
		w.follow(th, r, s, sp)
	}
	w.compare(th, r, s)
	th.last, th.pc, th.sp = s, r.pc, sp
}

// follow updates the frames according to the last instruction.
func (w *walk) follow(th *thread, r *registers, s *site, sp uint64) {
	last := th.last
	if last.class == kernel && r.pc-th.pc > maxSkip {
		if n := len(th.stack.frames); n > 0 {
			if f := &th.stack.frames[n-1]; !f.signal && r.pc == f.ra && sp == w.returnSP(f) {
				w.popReturned(th.stack)
				return
			}
		}
		w.leaveHandler(th, r, sp)
		return
	}
	if st := th.stack; sp < st.lo || sp > st.hi {
		known := slices.ContainsFunc(w.stacks, func(s *stack) bool { return s.isFreeAt(sp) })
		switch {
		case last.loads && (sp > st.hi || st.lo-sp > maxAlloca || known):
			if n := len(st.frames); n > 0 {
				th.left, st.frames[n-1].pending = st.frames[n-1].pending, nil
			}
			if !th.moving {
				th.moving, th.from = true, th.truth()
			}
			w.switchStack(th, sp)
		case sp < st.lo:
			st.lo = sp
		case len(st.frames) == 0 && sp-st.hi < 1<<16:
			st.hi = sp
		default:
			w.switchStack(th, sp)
		}
	}
	st := th.stack
	switch last.class {
	case call:
		back := th.pc + uint64(last.size)
		if r.pc == back {
			return // the code reads its own address
		}
		w.popDead(st, th.sp, false)
		f := frame{caller: caller{th.sp - uint64(w.m.CallerSP), back, r.r[w.m.FP]}}
		if from := th.from; th.moving {
			f.from = &from
		}
		st.frames = append(st.frames, f)
		w.Calls++
		th.moving, th.left = false, nil
	case ret, indirect:
		moving := th.moving
		th.moving = false
		if moving && s.isEntry() && !w.isAtEntry(st, sp) {
			// The frames are outdated: the function starts again on a different stack, as in Go when a stack grows.
			st.frames = nil
		}
		w.transfer(st, last, r, s, sp)
		if moving {
			th.left.countPredictions(w.target(r))
			th.left = nil
		}
	}
}

// isAtEntry removes frames that have ended, and reports whether the last remaining frame's function is just starting.
func (w *walk) isAtEntry(st *stack, sp uint64) bool {
	w.popDead(st, sp, false)
	n := len(st.frames)
	return n > 0 && sp == st.frames[n-1].cfa-uint64(w.m.EntryCFA)
}

// target returns the frame that a jump leads to.
func (w *walk) target(r *registers) caller {
	return caller{r.r[w.m.SP] - uint64(w.m.CallerSP), r.pc, r.r[w.m.FP]}
}

// returnSP returns the stack pointer after the return that ends a frame.
func (w *walk) returnSP(f *frame) uint64 { return f.cfa + uint64(w.m.CallerSP) }

// hasEnded reports whether a frame has ended, according to a stack pointer. Where calls leave the return address in a
// register, SP may be the same before and after a return, so it must exceed returnSP unless exact is set.
func (w *walk) hasEnded(f *frame, sp uint64, exact bool) bool {
	return sp > w.returnSP(f) || sp == w.returnSP(f) && (exact || !w.m.linked())
}

// popReturned removes the last frame, whose function has returned.
func (w *walk) popReturned(st *stack) {
	n := len(st.frames) - 1
	if from := st.frames[n].from; from != nil {
		w.th.moving, w.th.from = true, *from
	}
	st.frames = st.frames[:n]
	w.Returns++
}

// transfer follows a jump to an address from memory or a register.
func (w *walk) transfer(st *stack, last *site, r *registers, s *site, sp uint64) {
	n := len(st.frames)
	if n == 0 {
		if s.isEntry() && !st.outer {
			// A switch to a different stack, for example one from makecontext(3), is treated as a call.
			w.enter(st, r, sp)
		}
		return
	}
	top := &st.frames[n-1]
	back := w.returnSP(top)
	switch {
	case r.pc == top.ra && (sp == back || sp > back && last.class == ret && !w.m.linked()): // ret n removes arguments
		w.popReturned(st)
		if a := s.answers[0]; w.m.linked() && a != nil && a.outermost {
			// Functions started by makecontext(3) return here. The stack may hold outdated frames, which memory does
			// not reveal if return addresses are in a register.
			st.frames, st.outer = nil, true
		}
		return
	case sp < back:
		return
	case sp == back && w.m.linked() && (s.isEntry() || s.fn == nil || s.fn == last.fn):
		return // a tail call, or a jump table
	}
	// longjmp, or an unwinder that jumps to a handler.
	pending := top.pending
	w.popDead(st, sp, true)
	if len(st.frames) < n {
		w.Jumps++
		pending.countPredictions(w.target(r))
	}
}

// enter adds a frame for a starting function.
func (w *walk) enter(st *stack, r *registers, sp uint64) {
	f := frame{caller: caller{cfa: sp - uint64(w.m.CallerSP), ra: r.r[w.m.RA], fp: r.r[w.m.FP]}}
	if !w.m.linked() {
		f.cfa += uint64(w.m.EntryCFA)
		var ok bool
		if f.ra, ok = w.word(sp); !ok {
			return
		}
	}
	st.frames = append(st.frames, f)
}

// switchStack switches to the stack that contains an address.
func (w *walk) switchStack(th *thread, sp uint64) {
	w.Switches++
	th.stack.owner, th.stack.left = nil, w.Switches
	var last *stack // memory of a removed stack may be reused
	for _, s := range w.stacks {
		if s.isFreeAt(sp) && s != th.stack && (last == nil || s.left > last.left) {
			last = s
		}
	}
	if last == nil {
		last = &stack{lo: sp, hi: sp}
		w.stacks = append(w.stacks, last)
	}
	w.revive(last)
	last.owner, th.stack = th, last
}

// revive prepares a stack that becomes current again: it removes frames, starting with the first whose return address
// in memory has changed.
func (w *walk) revive(s *stack) {
	if w.m.linked() {
		return
	}
	for i := range s.frames {
		f := &s.frames[i]
		if f.signal {
			continue
		}
		if x, ok := w.word(f.cfa + uint64(w.m.FixedRA)); !ok || x != f.ra {
			s.frames = s.frames[:i]
			return
		}
	}
}

// enterSignal adds the frames of a signal handler, with the registers at its first instruction. The argument from is
// the interrupted frame.
func (w *walk) enterSignal(th *thread, r *registers, from caller) {
	sp := r.r[w.m.SP]
	on := th.stack
	if st := th.stack; sp < st.lo || sp > st.hi {
		if sp < st.lo && st.lo-sp < 1<<16 {
			st.lo = sp
		} else { // sigaltstack(2)
			w.drop(sp)
			w.switchStack(th, sp)
		}
	}
	th.stack.frames = append(th.stack.frames, frame{caller: from, signal: true, on: on})
	w.enter(th.stack, r, sp)
	th.last, th.moving, th.left = nil, false, nil
	w.Signals++
}

// leaveHandler follows the return from a signal handler.
func (w *walk) leaveHandler(th *thread, r *registers, sp uint64) {
	st := th.stack
	var f *frame
	if n := len(st.frames); n > 0 && st.frames[n-1].signal {
		last := st.frames[n-1]
		f, st.frames = &last, st.frames[:n-1]
	}
	if f != nil && f.on != st && f.on.isFreeAt(sp) {
		st.owner = nil
		f.on.owner, th.stack = th, f.on
		w.Switches++
	} else if sp < st.lo || sp > st.hi {
		w.switchStack(th, sp)
	}
	st = th.stack
	switch {
	case f == nil:
	case r.pc == f.ra && sp == w.returnSP(f):
		return
	case !w.m.linked() && sp == f.cfa-8: // the handler has simulated a call, as Go's does
		f.signal, f.pending, f.fp = false, nil, r.r[w.m.FP]
		st.frames = append(st.frames, *f)
		return
	}
	w.popDead(st, sp, true)
}

// compare compares all answers with the truth.
func (w *walk) compare(th *thread, r *registers, s *site) {
	w.Steps++
	st, n := th.stack, len(th.stack.frames)
	if a := s.answers[0]; th.moving && a != nil && !a.outermost {
		if wrong, _ := w.check(a, r, &th.from); wrong == "" {
			f := frame{caller: th.from}
			w.judge(&f, r, s)
			return
		}
	}
	if n == 0 {
		if a := s.answers[0]; st.outer && a != nil && a.outermost {
			w.Outermost++
		} else {
			w.Unknown++
		}
		return
	}
	w.judge(&st.frames[n-1], r, s)
}

// judge compares the answers with a frame.
func (w *walk) judge(f *frame, r *registers, s *site) {
	s.steps++
	if s.fn != nil && s.fn.Inferred() && s.answers[0] != nil {
		w.Inferred++
	}
	var wrong [sides]string
	var got [sides]caller
	for side, a := range s.answers {
		if a == nil {
			continue
		}
		if cfi := s.answers[0]; side > 0 && cfi != nil && *a == *cfi {
			wrong[side], got[side] = wrong[0], got[0] // reading memory is slow
		} else {
			wrong[side], got[side] = w.check(a, r, &f.caller)
		}
		switch {
		case wrong[side] == "":
			w.Sides[side].Right++
		case side > 0 && s.answers[0] != nil && wrong[side] == wrong[0] && got[side] == got[0]:
			w.Sides[side].Repeats++
		default:
			w.differ(f, s, side, wrong[side], r, got[side])
		}
	}
}

// check compares an answer with the truth. It returns what is wrong: any of CFA, RA, FP; or "caller" if the answer
// denies a caller; or "address" if memory is not readable.
func (w *walk) check(a *answer, r *registers, is *caller) (wrong string, got caller) {
	if a.outermost {
		return "caller", got
	}
	got, ok := w.evaluate(a, r)
	switch {
	case !ok:
		return "address", got
	case got == *is:
		return "", got
	}
	var list []string
	for _, c := range []struct {
		name    string
		got, is uint64
	}{{"CFA", got.cfa, is.cfa}, {"RA", got.ra, is.ra}, {"FP", got.fp, is.fp}} {
		if c.got != c.is {
			list = append(list, c.name)
		}
	}
	return strings.Join(list, ", "), got
}

// A diff is a wrong answer at an instruction.
type diff struct {
	diffKey
	steps  uint64
	target uint64 // steps that preceded a jump to the frame that the wrong answer describes
	truth  string // at the first step
}

type diffKey struct {
	site  *site
	side  int
	wrong string
}

// differ records a difference.
func (w *walk) differ(f *frame, s *site, side int, wrong string, r *registers, got caller) {
	key := diffKey{s, side, wrong}
	d := w.diffs[key]
	if d == nil {
		d = &diff{diffKey: key, truth: w.truth(wrong, r, f.caller)}
		w.diffs[key] = d
	}
	d.steps++
	if w.th.moving {
		w.th.left = w.th.left.add(d, got)
	} else {
		f.pending = f.pending.add(d, got)
	}
}

// truth describes what an answer should have said.
func (w *walk) truth(wrong string, r *registers, is caller) string {
	sp, fp := r.r[w.m.SP], w.m.Register(w.m.FP)
	in := func(value uint64) string {
		for reg := range r.r {
			if r.r[reg] == value && uint64(reg) != w.m.SP {
				return "in " + w.m.Register(uint64(reg))
			}
		}
		return "elsewhere"
	}
	switch {
	case wrong == "FP" && r.r[w.m.FP] == is.fp:
		return fp + " is the caller's"
	case wrong == "FP":
		// Most code that overwrites the frame pointer has saved it on the stack.
		for at := is.cfa - 8; at >= sp && is.cfa-at <= 4096; at -= 8 {
			if x, ok := w.word(at); ok && x == is.fp {
				return fmt.Sprintf("the caller's %s is at c-%d", fp, is.cfa-at)
			}
		}
		return fmt.Sprintf("the caller's %s is %s", fp, in(is.fp))
	case wrong[0] == 'R':
		return "the return address is " + in(is.ra)
	}
	return fmt.Sprintf("the CFA is %s%+d", w.m.Register(w.m.SP), int64(is.cfa-sp))
}
