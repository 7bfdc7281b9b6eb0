package gopclntab

import (
	"slices"

	"cfi2sframe/internal/insn"
)

// A Base tells which register locates the caller's frame.
type Base uint8

const (
	OfSP     Base = iota // Row.Frame bytes above the stack pointer
	OfFP                 // above the frame pointer, which points to the saved frame pointer of the caller
	NoCaller             // none: the runtime has cleared the frame pointer, as at the base of a stack
	Unknown
)

// largest is the maximum size in bytes of functions that are analyzed.
const largest = 1 << 14

// onStacks sets the rows of a function that switches stacks. The table does not tell which stack is active, but
// some functions preserve the frame pointer, or clear it on a stack without callers. onStacks follows the
// instructions from the start of the function. Final means that the function does not return from the other stack: its
// caller resumes elsewhere.
func (c *codeReader) onStacks(fn *Function, final bool) {
	at, base := uint32(0), Unknown
	if len(fn.Rows) > 1 && fn.Rows[1].Off == 1 && fn.Rows[1].Saved > 0 {
		const prologue = 4 // size of push %rbp; mov %rsp,%rbp in bytes
		at, base = prologue, OfFP
		fn.Rows = append(fn.Rows[:2], Row{Off: prologue})
	} else {
		fn.Rows = fn.Rows[:1]
	}
	last := &fn.Rows[len(fn.Rows)-1]
	*last = Row{Off: at, Base: Unknown}
	if !c.stacks || fn.End-fn.Begin > largest {
		return
	}
	b := c.bytes(fn.Begin, fn.End)
	f := flow{code: b, final: final, base: make([]Base, len(b)), size: make([]uint8, len(b))}
	if !f.follow(at, base) {
		return
	}
	for i := int(at); i < len(b); i += max(1, int(f.size[i])) {
		now := Unknown
		if f.size[i] > 0 {
			now = f.base[i]
		}
		if last = &fn.Rows[len(fn.Rows)-1]; last.Off == uint32(i) {
			last.Base = now
		} else if last.Base != now {
			fn.Rows = append(fn.Rows, Row{Off: uint32(i), Base: now})
		}
	}
}

// withoutFP makes the first row that relies on the frame pointer unknown, and removes the rows after it.
func (fn *Function) withoutFP() {
	if i := slices.IndexFunc(fn.Rows, func(r Row) bool { return r.Base == OfFP }); i >= 0 {
		fn.Rows = fn.Rows[:i+1]
		fn.Rows[i].Base = Unknown
	}
}

// A flow tracks control flow through a function.
type flow struct {
	code  []byte
	final bool
	base  []Base  // by offset of a reached instruction
	size  []uint8 // sizes of reached instructions; otherwise 0
}

// follow follows control flow starting at an offset. It reports whether all instructions were decoded and each has a
// unique base.
func (f *flow) follow(at uint32, base Base) bool {
	for {
		if uint64(at) >= uint64(len(f.code)) {
			return false
		}
		if f.size[at] > 0 {
			return f.base[at] == base
		}
		in, ok := insn.DecodeAMD64(f.code[at:], uint64(at))
		if !ok {
			return false
		}
		f.size[at], f.base[at] = uint8(in.Size), base
		switch {
		case clearsFP(&in), f.final && (base == NoCaller || loadsSP(&in)):
			base = NoCaller
		case popsFP(&in) && base == OfFP:
			base = OfSP // if the popped value is the caller's FP, the return address is next on the stack
		case writesFP(&in) || base == OfSP:
			base = Unknown
		}
		if mayJump(&in) && in.Target < uint64(len(f.code)) && !f.follow(uint32(in.Target), base) {
			return false
		}
		if in.Op.Leaves() {
			return true
		}
		at += uint32(in.Size)
	}
}
