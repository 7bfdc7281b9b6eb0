package gopclntab

import (
	"debug/elf"
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

// A Base says where the caller's frame is.
type Base uint8

const (
	OfSP     Base = iota // Row.Frame above the stack pointer
	OfFP                 // above the frame pointer, which a push at the function's start has made
	NoCaller             // nowhere: the runtime has cleared the frame pointer, as at the start of a stack
	Unknown
)

// largest bounds the bytes of functions that are read to the end.
const largest = 1 << 14

// onStacks sets the rows of a function that leaves its stack. The table does not know on which stack the function is,
// but some functions have a frame pointer all the time, or clear it on a stack where nothing called them. The
// instructions are followed from the function's start on: where they have come to with one Base only, it holds. Final
// says that the function does not come back from the other stack: its caller goes on elsewhere.
func (c *code) onStacks(fn *Function, final bool) {
	at, base := uint32(0), Unknown
	if len(fn.Rows) > 1 && fn.Rows[1].Off == 1 && fn.Rows[1].Saved > 0 {
		const prologue = 4 // bytes of push %rbp; mov %rsp,%rbp
		at, base = prologue, OfFP
		fn.Rows = append(fn.Rows[:2], Row{Off: prologue})
	} else {
		fn.Rows = fn.Rows[:1]
	}
	last := &fn.Rows[len(fn.Rows)-1]
	*last = Row{Off: at, Base: Unknown}
	if elf.Machine(c.file.Machine) != elf.EM_X86_64 || fn.End-fn.Begin > largest {
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

// withoutFP removes the rows from the first one on that leads on by the frame pointer.
func (fn *Function) withoutFP() {
	if i := slices.IndexFunc(fn.Rows, func(r Row) bool { return r.Base == OfFP }); i >= 0 {
		fn.Rows = fn.Rows[:i+1]
		fn.Rows[i].Base = Unknown
	}
}

// A flow is the flow of control in a function.
type flow struct {
	code  []byte
	final bool
	base  []Base  // by the offset of an instruction, if it has a size
	size  []uint8 // of instructions that control comes to
}

// follow follows the instructions from an offset on, and reports whether it could follow all, and came to each with
// one base.
func (f *flow) follow(at uint32, base Base) bool {
	for {
		if uint64(at) >= uint64(len(f.code)) {
			return false
		}
		if f.size[at] > 0 {
			return f.base[at] == base
		}
		in, err := x86asm.Decode(f.code[at:], 64)
		if err != nil || vector(in) {
			return false
		}
		f.size[at], f.base[at] = uint8(in.Len), base
		next := at + uint32(in.Len)
		switch {
		case clearsFP(in), f.final && (base == NoCaller || in.Op == x86asm.MOV && in.Args[0] == x86asm.RSP):
			base = NoCaller
		case in.Op == x86asm.POP && in.Args[0] == x86asm.RBP && base == OfFP:
			base = OfSP // what it pops is the caller's only where the return address is next
		case writesFP(in) || base == OfSP:
			base = Unknown
		}
		switch in.Op {
		case x86asm.RET, x86asm.UD2, x86asm.HLT, x86asm.INT:
			return true
		case x86asm.CALL:
		default:
			rel, jumps := in.Args[0].(x86asm.Rel)
			if to := next + uint32(rel); jumps && to < uint32(len(f.code)) && !f.follow(to, base) {
				return false
			}
			if in.Op == x86asm.JMP {
				return true
			}
		}
		at = next
	}
}

// vector reports whether an instruction has a prefix of AVX: the decoder does not know the sizes of all of them.
func vector(in x86asm.Inst) bool {
	return slices.ContainsFunc(in.Prefix[:], func(p x86asm.Prefix) bool { return p.IsVEX() || p.IsEVEX() })
}

// clearsFP reports whether an instruction sets the frame pointer to 0.
func clearsFP(in x86asm.Inst) bool {
	to, from := in.Args[0], in.Args[1]
	return in.Op == x86asm.MOV && (to == x86asm.RBP || to == x86asm.EBP) && from == x86asm.Imm(0) ||
		in.Op == x86asm.XOR && to == x86asm.EBP && from == x86asm.EBP
}

// writesFP reports whether an instruction may write the frame pointer.
func writesFP(in x86asm.Inst) bool {
	switch in.Op {
	case x86asm.PUSH, x86asm.CMP, x86asm.TEST:
		return false
	case x86asm.LEAVE, x86asm.ENTER:
		return true
	}
	for i, arg := range in.Args {
		switch arg {
		case x86asm.RBP, x86asm.EBP, x86asm.BP, x86asm.BPB:
			if i == 0 || in.Op != x86asm.MOV {
				return true
			}
		}
	}
	return false
}
