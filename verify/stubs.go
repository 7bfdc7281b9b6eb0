package verify

import (
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// An orphan is code with SFrame rows but without CFI.
type orphan struct {
	begin, end uint64
	row        sframe.Row
	special    bool // the FDE is a signal frame, or return addresses are signed with key B
}

// stubs checks the orphans, which must be PLT stubs: code that is called, may push data, and ends in a jump. All code
// of the PLTs is examined, because any of it can affect a stub.
func (c *checker) stubs(f *elffile.File) error {
	if len(c.orphans) == 0 {
		return nil
	}
	plts, err := findPLTs(f)
	if err != nil {
		return err
	}
	outside := "SFrame describes code that CFI does not: it is not in a section of PLT stubs"
	if len(f.Sections) == 0 {
		outside = "SFrame describes code that CFI does not: without section headers, it cannot be identified as a PLT"
	}
	w := follow(plts, c.abi.stub)
	var last Mismatch // not reported yet, because the next mismatch may extend it
	report := func(begin, end uint64, what string) {
		if what == last.What && begin == last.End {
			last.End = end
			return
		}
		if last.What != "" {
			c.res.mismatch(last.Begin, last.End, "%s", last.What)
		}
		last = Mismatch{begin, end, what}
	}
	for i := range c.orphans {
		o := &c.orphans[i]
		for pc := o.begin; pc < o.end; {
			what, end := outside, o.end
			if k := sort.Search(len(w.code), func(i int) bool { return w.code[i].end > pc }); k < len(w.code) {
				if in := &w.code[k]; in.begin > pc {
					end = min(end, in.begin)
				} else {
					end = min(end, in.end)
					what = c.stubRow(o, in)
				}
			}
			if what == "" {
				c.res.PLT += end - pc
			}
			report(pc, end, what)
			pc = end
		}
	}
	report(0, 0, "")
	return nil
}

// stubRow compares an orphan's row with the depth of the stack before an instruction, and returns what is wrong, or "".
func (c *checker) stubRow(o *orphan, in *stubCode) string {
	e := &o.row
	switch {
	case in.wrong != "":
		return "SFrame describes code that CFI does not: " + in.wrong
	case !in.reached && in.gap: // never executed
		return ""
	case !in.reached:
		return "SFrame describes code that CFI does not: it is unreachable"
	case in.at.lost:
		return "PLT stub: SFrame describes code whose return address is overwritten"
	}
	want, got := c.atDepth(in.at), c.bySFrame(e)
	if got == want && !e.Outermost && !e.Signed && !o.special {
		return ""
	}
	return fmt.Sprintf("PLT stub: %s: SFrame has %s", want.differs(got), c.abi.id.Text(*e))
}

// pltNames are the names of sections with PLT stubs.
var pltNames = []string{".plt", ".plt.got", ".plt.sec", ".iplt"}

// Limits on the amount of code that is examined.
const (
	maxPLT      = 16 << 20 // total size of sections in bytes
	maxPLTs     = 64       // number of sections; linkers emit at most four
	maxOrphans  = 1 << 20  // number of rows for code without CFI
	maxStubCode = 1 << 19  // total number of instructions
)

// A plt is a section of PLT stubs.
type plt struct {
	begin, end uint64
	code       []byte
}

// findPLTs returns the sections of PLT stubs in address order.
func findPLTs(f *elffile.File) ([]plt, error) {
	var plts []plt
	room := uint64(maxPLT)
	for _, s := range elffile.Each(f.Sections) {
		code := s.HasBytes() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0
		if !slices.Contains(pltNames, s.Name) || !code || s.Size == 0 || s.Size > room || len(plts) == maxPLTs {
			continue
		}
		// A segment must load the same bytes at this address.
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

// An effect describes what an instruction of a PLT does. Sizes are in bytes.
type effect struct {
	target uint64 // of a direct jump or call, or 0
	size   uint8
	push   uint8 // decrement of SP
	saveRA uint8 // distance from the new SP up to the saved return address; 0: not saved
	ends   bool  // control does not reach the next instruction
	pad    bool  // no-op or trap
	call   bool  // calls target
	loses  bool  // overwrites the return address, to which SP points
	ret    bool  // jumps to the address at SP
}

// A depth is the state of the stack before an instruction of a stub.
type depth struct {
	pushed uint32 // bytes pushed since the call
	ra     uint32 // location of the saved return address in bytes below SP at the call; 0: not saved
	lost   bool   // the return address is overwritten
	called bool   // after a call that does not return: never executed
	mixed  bool   // jumps arrive with different stack depths
}

// A stubCode is an instruction of a PLT, or a range without known instructions.
type stubCode struct {
	begin, end uint64
	effect
	stub    int32 // index of the first instruction of its stub
	entry   bool  // first instruction of a section
	aimed   bool  // target of a jump
	gap     bool  // padding after a jump
	reached bool  // control reaches it; its depth is then valid
	at      depth
	wrong   string // why it is not part of a stub, or ""
}

// A follower tracks the control flow in PLTs. It assumes that stubs are called at the start of a section and after
// each jump, except at instructions that are jump targets themselves.
type follower struct {
	code []stubCode // by address
	work []int      // indexes of instructions with a new depth
}

// follow computes the depths before the instructions of all PLTs.
func follow(plts []plt, decode func(b []byte, pc uint64) (effect, bool)) *follower {
	w := &follower{}
	for i := range plts {
		w.read(&plts[i], decode)
	}
	for i := range w.code {
		w.aim(i)
	}
	for i := range w.code {
		in := &w.code[i]
		starts := in.entry || w.code[i-1].ends || w.code[i-1].gap
		in.gap = starts && in.pad && !in.entry
		if starts && !in.aimed && !in.gap {
			w.arrive(i, depth{})
		}
	}
	for len(w.work) > 0 {
		i := w.work[len(w.work)-1]
		w.work = w.work[:len(w.work)-1]
		w.propagate(i)
	}
	return w
}

// read decodes the code of a PLT. A stub ends with a jump.
func (w *follower) read(p *plt, decode func(b []byte, pc uint64) (effect, bool)) {
	stub := len(w.code)
	for pc := p.begin; pc < p.end; {
		e, ok := decode(p.code[pc-p.begin:], pc)
		in := stubCode{begin: pc, end: pc + uint64(e.size), effect: e, stub: int32(stub), entry: pc == p.begin}
		if known := ok && len(w.code) < maxStubCode; !known {
			in.effect, in.end = effect{ends: true}, p.end
		}
		w.code = append(w.code, in)
		if in.size == 0 {
			w.fail(stub, fmt.Sprintf("the instruction at %#x is not part of a PLT stub", pc))
		}
		if in.ends || in.pad && !in.entry && stub == len(w.code)-1 { // padding precedes stubs
			stub = len(w.code)
		}
		pc = in.end
	}
	if stub < len(w.code) {
		w.fail(stub, "it does not end in a jump")
	}
}

// fail marks the stub that contains an instruction as invalid.
func (w *follower) fail(i int, why string) {
	for j := int(w.code[i].stub); j < len(w.code) && w.code[j].stub == w.code[i].stub; j++ {
		w.code[j].wrong = why
	}
}

// target returns the index of the instruction that contains the target of a jump or call, or -1.
func (w *follower) target(in *stubCode) int {
	i := sort.Search(len(w.code), func(i int) bool { return w.code[i].end > in.effect.target })
	if i == len(w.code) || w.code[i].begin > in.effect.target || in.effect.target == 0 {
		return -1
	}
	return i
}

// aim marks the target of an instruction. The target of a call must overwrite the return address and then return, like
// a retpoline.
func (w *follower) aim(i int) {
	in := &w.code[i]
	to := w.target(in)
	if in.call && (to < 0 || to+1 == len(w.code) || !w.code[to].loses || !w.code[to+1].ret) {
		w.fail(i, fmt.Sprintf("at %#x, it calls code that may return", in.begin))
	}
	switch {
	case to < 0:
	case w.code[to].begin != in.effect.target:
		w.fail(to, fmt.Sprintf("a stub jumps into an instruction, to %#x", in.effect.target))
	default:
		w.code[to].aimed = true
	}
}

// arrive records the depth of the stack before an instruction.
func (w *follower) arrive(i int, d depth) {
	in := &w.code[i]
	switch {
	case !in.reached:
		in.reached, in.at = true, d
	case in.at.mixed || in.at == d:
		return
	default:
		in.at = depth{mixed: true}
		w.fail(i, "stubs reach it with different stack contents")
	}
	w.work = append(w.work, i)
}

// propagate records, for the successors of an instruction, the stack depth after it.
func (w *follower) propagate(i int) {
	in, d := &w.code[i], w.code[i].at
	switch {
	case in.ret && !d.lost && !d.called:
		w.fail(i, fmt.Sprintf("it returns at %#x", in.begin))
	case d.lost && !in.ret, in.loses && d.pushed > 0:
		w.fail(i, fmt.Sprintf("the return address is overwritten before %#x", in.end))
	}
	if !d.called && !d.mixed {
		d.lost, d.called = in.loses, in.call
		if d.pushed += uint32(in.push); in.saveRA > 0 {
			d.ra = d.pushed - uint32(in.saveRA)
		}
	}
	if !in.ends && i+1 < len(w.code) {
		w.arrive(i+1, d)
	}
	switch to := w.target(in); {
	case to < 0 || in.at.called || w.code[to].begin != in.effect.target:
	case in.call:
		w.arrive(to, depth{})
	default:
		w.arrive(to, d)
	}
}

// atDepth unwinds one frame, given the depth of the stack.
func (c *checker) atDepth(at depth) (f frameState) {
	sp := c.vm.reg(c.abi.sp) + uint64(at.pushed) // SP at the call
	f.cfa = sp + c.abi.entry
	switch {
	case c.abi.fixedRA != 0:
		f.ra = c.vm.load(f.cfa + uint64(c.abi.fixedRA))
	case at.ra > 0:
		f.ra = c.vm.load(sp - uint64(at.ra))
	default:
		f.ra = c.vm.reg(c.abi.ra)
	}
	f.fp = c.vm.reg(c.abi.fp)
	f.sp = f.cfa + uint64(c.abi.caller)
	return f
}
