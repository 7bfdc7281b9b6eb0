package verify

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// An orphan is code that SFrame describes and CFI does not.
type orphan struct {
	begin, end uint64
	row        sframe.Row
	special    bool // says more than where the frame is
}

// A depth is the state of the stack before an instruction of a stub.
type depth struct {
	pushed uint64 // bytes by which SP is lower than where the call arrived
	ra     uint64 // where the return address was saved, in bytes below that; 0: not saved
	lost   bool   // the return address is overwritten
}

// pltNames are the names of sections with PLT stubs.
var pltNames = []string{".plt", ".plt.got", ".plt.sec", ".iplt"}

// Bounds on the code that is followed.
const (
	maxPLT     = 16 << 20 // bytes of all sections
	maxPLTs    = 64       // sections; linkers write four at most
	maxStub    = 256      // bytes of a stub
	maxTargets = 1 << 16  // places that stubs jump to
)

// A plt is a section of PLT stubs.
type plt struct {
	begin, end uint64
	code       []byte
}

// findPLTs returns the sections of PLT stubs, by address.
func findPLTs(f *elffile.File) ([]plt, error) {
	var plts []plt
	room := uint64(maxPLT)
	for i := range f.Sections {
		s := &f.Sections[i]
		code := s.HasBytes() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0
		if !slices.Contains(pltNames, s.Name) || !code || s.Size == 0 || s.Size > room || len(plts) == maxPLTs {
			continue
		}
		// A segment must load the same bytes to this address.
		off, ok := f.FileOffset(s.Addr, s.Size)
		overlaps := func(p plt) bool { return s.Addr < p.end && p.begin < s.Addr+s.Size }
		if !ok || off != s.Off || slices.ContainsFunc(plts, overlaps) {
			continue
		}
		b, err := f.ReadSection(s)
		if err != nil {
			return nil, err
		}
		room -= s.Size
		plts = append(plts, plt{s.Addr, s.Addr + s.Size, b})
	}
	slices.SortFunc(plts, func(a, b plt) int { return cmp.Compare(a.begin, b.begin) })
	return plts, nil
}

// A stub is code in a PLT: a call arrives at its first instruction, and only its last instruction leaves it.
type stub struct {
	begin, end uint64
	code       []instruction // empty for padding after a jump, which nothing runs
	wrong      string        // why it is none, or ""
}

// An effect is the effect of an instruction.
type effect struct {
	size   uint64
	push   uint64 // bytes by which SP goes down
	saveRA uint64 // how far above the new SP the return address is saved, 0: not at all
	ends   bool   // control does not reach the next instruction
	pad    bool   // it does nothing, or traps
	target uint64 // of a direct jump or call, or 0
	call   bool   // it calls target
	loses  bool   // it overwrites the return address, to which SP points
	ret    bool   // it goes to the address to which SP points
}

// An instruction is an instruction of a stub.
type instruction struct {
	begin, end uint64
	at         depth  // before it
	target     uint64 // of a direct jump or call, or 0
	call       bool
	after      depth // where it jumps to
}

// A follower follows the code of PLTs from places into which no code runs: the start of a section, and the address
// after a jump.
type follower struct {
	decode  func(b []byte, pc uint64) (effect, error)
	table   *cfi.Table
	targets map[uint64]target
	code    []instruction
}

// A target is the target of a jump from a stub.
type target struct {
	at        depth // there
	differing bool  // from other places with something else pushed
}

// newFollower returns a follower that has collected the jumps of the stubs of all PLTs.
func newFollower(decode func([]byte, uint64) (effect, error), table *cfi.Table, plts []plt) *follower {
	w := &follower{decode: decode, table: table, targets: make(map[uint64]target)}
	for i := range plts {
		w.all(&plts[i], func(s *stub, _ bool) { w.jumps(s) })
	}
	w.chains(plts)
	return w
}

// all calls yield for each part of a PLT, and says which parts CFI describes.
func (w *follower) all(p *plt, yield func(s *stub, described bool)) {
	open := false // something may run into the code at pc
	i := sort.Search(w.table.Len(), func(i int) bool { return w.table.At(i).End > p.begin })
	for pc := p.begin; pc < p.end; {
		end, described := p.end, false
		if i < w.table.Len() {
			fn := w.table.At(i)
			if described = fn.Begin <= pc; described {
				end = min(end, fn.End)
				i++
			} else {
				end = min(end, fn.Begin)
			}
		}
		if open && !described {
			yield(&stub{begin: pc, end: end, wrong: "the code before it may run into it"}, false)
		} else {
			// Padding at the start of a section or of a function is executed.
			entry := described || pc == p.begin
			open = !w.stubs(p, pc, end, entry, func(s *stub) { yield(s, described) })
		}
		pc = end
	}
}

// stubs calls yield for the stubs from pc to end, and reports whether no code runs beyond end. With entry, a call may
// arrive at pc; otherwise a jump precedes it.
func (w *follower) stubs(p *plt, pc, end uint64, entry bool, yield func(*stub)) bool {
	for ; pc < end; entry = false {
		if !entry {
			if pad := w.padding(p, pc, end); pad > pc {
				yield(&stub{begin: pc, end: pad})
				pc = pad
				continue
			}
		}
		s := w.stub(p, pc, end)
		yield(&s)
		if s.wrong != "" {
			return false
		}
		pc = s.end
	}
	return true
}

// padding returns the end of the padding at pc.
func (w *follower) padding(p *plt, pc, end uint64) uint64 {
	for pc < end {
		e, err := w.decode(p.code[pc-p.begin:end-p.begin], pc)
		if err != nil || !e.pad {
			break
		}
		pc += e.size
	}
	return pc
}

// stub returns the stub at pc. If there is none, all code up to end is wrong. Its instructions are valid until the next
// call.
func (w *follower) stub(p *plt, pc, end uint64) stub {
	s := stub{begin: pc, end: end}
	var now depth
	called := false // the current code is after a call that does not return: nothing runs it
	w.code = w.code[:0]
	for pc < end {
		e, err := w.decode(p.code[pc-p.begin:end-p.begin], pc)
		if err != nil {
			s.wrong = fmt.Sprintf("%v at %#x, which is not part of a PLT stub", err, pc)
			return s
		}
		in := instruction{begin: pc, end: pc + e.size, at: now, target: e.target, call: e.call}
		switch {
		case called:
			in.target, e.push, e.saveRA = 0, 0, 0
		case e.call && !w.returnsNever(p, e.target):
			s.wrong = fmt.Sprintf("at %#x, it calls code that may return", pc)
			return s
		case e.ret && !now.lost:
			s.wrong = fmt.Sprintf("it returns at %#x", pc)
			return s
		case now.lost && !e.ret, e.loses && now.pushed > 0:
			s.wrong = fmt.Sprintf("the return address is overwritten before %#x", in.end)
			return s
		}
		called = called || e.call
		now.lost = now.lost || e.loses && !called
		if now.pushed += e.push; e.saveRA > 0 {
			now.ra = now.pushed - e.saveRA
		}
		if in.after = now; in.call {
			in.after = depth{}
		}
		w.code = append(w.code, in)
		s.code = w.code
		switch pc = in.end; {
		case pc-s.begin > maxStub:
			s.wrong = fmt.Sprintf("it has no jump in %d bytes", maxStub)
			return s
		case e.ends:
			s.end = pc
			return s
		}
	}
	s.wrong = "it does not end in a jump"
	return s
}

// returnsNever reports whether the code at an address of a PLT overwrites the return address and goes to the new one.
func (w *follower) returnsNever(p *plt, pc uint64) bool {
	if pc < p.begin || pc >= p.end {
		return false
	}
	first, err := w.decode(p.code[pc-p.begin:], pc)
	if err != nil || !first.loses || pc+first.size >= p.end {
		return false
	}
	next, err := w.decode(p.code[pc-p.begin+first.size:], pc+first.size)
	return err == nil && next.ret
}

// jumps records the jumps of a stub.
func (w *follower) jumps(s *stub) {
	for _, in := range s.code {
		if in.target == 0 || len(w.targets) > maxTargets {
			continue
		}
		t, ok := w.targets[in.target]
		t.differing = t.differing || ok && t.at != in.after
		t.at = in.after
		w.targets[in.target] = t
	}
}

// chains marks the targets of stubs that are themselves targets of jumps with pushed data. The sum is unknown, as each
// stub was followed from a call. No linker writes such stubs.
func (w *follower) chains(plts []plt) {
	var left []uint64
	for pc, t := range w.targets {
		if t.differing || t.at != (depth{}) {
			left = append(left, pc)
		}
	}
	for len(left) > 0 && len(w.targets) <= maxTargets {
		pc := left[len(left)-1]
		left = left[:len(left)-1]
		i := slices.IndexFunc(plts, func(p plt) bool { return p.begin <= pc && pc < p.end })
		if i < 0 {
			continue
		}
		s := w.stub(&plts[i], pc, plts[i].end)
		for _, in := range s.code {
			if t := w.targets[in.target]; in.target != 0 && !in.call && !t.differing {
				t.differing = true
				w.targets[in.target] = t
				left = append(left, in.target)
			}
		}
	}
}

// from returns the size of the data on the stack at the start of a stub: nothing after a call, and at the start of a
// PLT what its entries push before they jump there. It returns an error message if a jump contradicts that.
func (w *follower) from(s *stub) (from uint64, wrong string) {
	if len(w.targets) > maxTargets {
		return 0, fmt.Sprintf("stubs jump to more than %d places", maxTargets)
	}
	if s.wrong != "" {
		return 0, s.wrong
	}
	if t, ok := w.targets[s.begin]; ok && len(s.code) > 0 {
		if t.differing || t.at.ra != 0 {
			return 0, "stubs jump to it with different things pushed"
		}
		from = t.at.pushed
	}
	for pc := s.begin; pc < s.end; pc++ {
		if t, ok := w.targets[pc]; ok {
			at, ok := s.at(pc)
			if at.pushed += from; !ok || t.differing || t.at != at {
				return 0, fmt.Sprintf("a stub jumps into it, to %#x", pc)
			}
		}
	}
	return from, ""
}

// at returns the size of the data that the stub has pushed at pc, and whether an instruction begins there.
func (s *stub) at(pc uint64) (depth, bool) {
	i := slices.IndexFunc(s.code, func(in instruction) bool { return in.begin == pc })
	if i < 0 {
		return depth{}, false
	}
	return s.code[i].at, true
}

// stubs follows the instructions of orphans, which must be PLT stubs: a call arrives, the stub may push data, and
// control leaves by a jump. It follows the whole PLT, so that no other code runs into them.
func (c *checker) stubs(t *cfi.Table, f *elffile.File) error {
	if len(c.orphans) == 0 {
		return nil
	}
	plts, err := findPLTs(f)
	if err != nil {
		return err
	}
	w := newFollower(c.abi.decode, t, plts)
	at := uint64(0) // the code before it was read
	for i := range plts {
		c.outside(f, at, plts[i].begin)
		at = plts[i].end
		w.all(&plts[i], func(s *stub, described bool) {
			if !described {
				c.stub(w, s)
			}
		})
	}
	c.outside(f, at, ^uint64(0))
	return nil
}

// outside reports the orphans from begin to end, outside of PLTs.
func (c *checker) outside(f *elffile.File, begin, end uint64) {
	why := "it is in no section of PLT stubs"
	if len(f.Sections) == 0 {
		why = "there are no section headers, which could say that it is a PLT"
	}
	c.wrong(begin, end, why)
}

// wrong reports the orphans from begin to end. Neighbours count as one mismatch.
func (c *checker) wrong(begin, end uint64, why string) {
	var lo, hi uint64
	report := func() {
		if lo < hi {
			c.res.mismatch(lo, hi, "SFrame describes code that CFI does not: %s", why)
		}
	}
	for _, o := range c.between(begin, end) {
		if first := max(begin, o.begin); first != hi {
			report()
			lo = first
		}
		hi = min(end, o.end)
	}
	report()
}

// between returns the orphans that overlap the range from begin to end. Orphans are in address order.
func (c *checker) between(begin, end uint64) []orphan {
	first := sort.Search(len(c.orphans), func(i int) bool { return c.orphans[i].end > begin })
	last := first + sort.Search(len(c.orphans)-first, func(i int) bool { return c.orphans[first+i].begin >= end })
	return c.orphans[first:last]
}

// stub checks the rows of a stub.
func (c *checker) stub(w *follower, s *stub) {
	if len(c.between(s.begin, s.end)) == 0 {
		return
	}
	from, wrong := w.from(s)
	if wrong != "" {
		c.wrong(s.begin, s.end, wrong)
		return
	}
	if len(s.code) == 0 { // padding
		for _, o := range c.between(s.begin, s.end) {
			c.res.Stubs += min(s.end, o.end) - max(s.begin, o.begin)
		}
	}
	for i := range s.code {
		in := &s.code[i]
		c.followed(in.begin, in.end, depth{in.at.pushed + from, in.at.ra, in.at.lost})
	}
}

// followed checks the rows of an instruction against the depth of the stack.
func (c *checker) followed(begin, end uint64, at depth) {
	orphans := c.between(begin, end)
	for i := range orphans {
		o := &orphans[i]
		lo, hi := max(begin, o.begin), min(end, o.end)
		e := &o.row
		got := c.bySFrame(e)
		sp := c.vm.reg(c.abi.sp) + at.pushed // where the call arrived
		var want frameState
		want.cfa = sp + c.abi.entry
		switch {
		case c.abi.fixedRA != 0:
			want.ra = c.vm.load(want.cfa + uint64(c.abi.fixedRA))
		case at.ra > 0:
			want.ra = c.vm.load(sp - at.ra)
		default:
			want.ra = c.vm.reg(c.abi.ra)
		}
		want.fp = c.vm.reg(c.abi.fp)
		want.sp = want.cfa + uint64(c.abi.caller)
		if at.lost {
			c.res.mismatch(lo, hi, "PLT stub: SFrame describes code whose return address is overwritten")
			continue
		}
		if got != want || e.Outermost || e.Signed || o.special {
			c.res.mismatch(lo, hi, "PLT stub: %s: SFrame has CFA %v, RA %v, FP %v", want.differs(got), e.CFA,
				e.RA, e.FP)
			continue
		}
		c.res.Stubs += hi - lo
	}
}
