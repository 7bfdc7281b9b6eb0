package gopclntab

import (
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/insn"
)

// A codeReader reads the code of functions in ascending order of address.
type codeReader struct {
	machine
	file *elffile.File
	code elffile.Window
}

// A finder examines the instructions around the first pc at which a function has a frame. It returns the number of
// bytes from that pc to the end of the instruction that saves the caller's frame pointer (0 if it is already saved),
// and the location of the saved value as in Row.Saved.
type finder func(before, after []byte, frame uint32) (done int, saved uint32, ok bool)

// Maximum sizes in bytes: of the code before and after the pc that a finder examines, and of a function.
const (
	maxBefore = 8
	maxAfter  = 8
	maxCode   = 1 << 16
)

// A machine holds facts about Go's code.
type machine struct {
	find finder // nil if functions save no frame pointers
	// sigreturn is the code to which signal handlers return, or "" if it is in the vDSO.
	sigreturn string
	// pushed is the number of bytes that a signal handler pushes before it injects a call: it saves the link register,
	// which the call overwrites (pushCall and preparePanic in runtime/signal_arm64.go and signal_linux_s390x.go).
	pushed uint32
	stacks bool // functions that switch stacks can be followed
}

var machines = arch.PerMachine(
	machine{find: prologueAMD64, stacks: true,
		sigreturn: "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"}, // mov $15,%rax; syscall
	machine{find: prologueAArch64, pushed: 16},
	machine{pushed: 8},
)

// prologue finds where the function saves the caller's frame pointer, and updates its rows. Go functions set up a frame
// only in their prologues, and the saved value is unchanged until the frame is removed.
func (c *codeReader) prologue(fn *Function) {
	if c.find == nil || len(fn.Rows) < 2 || fn.Rows[0].Frame != 0 {
		return
	}
	at, frame := fn.Begin+uint64(fn.Rows[1].Off), fn.Rows[1].Frame
	first := max(fn.Begin, at-min(at, maxBefore))
	b := c.bytes(first, min(fn.End, at+maxAfter))
	if b == nil {
		return
	}
	done, saved, ok := c.find(b[:at-first], b[at-first:], frame)
	if !ok {
		return
	}
	from := fn.Rows[1].Off + uint32(done)
	rows := fn.Rows
	for i := range rows {
		if rows[i].Off >= from && rows[i].Frame >= frame {
			rows[i].Saved = saved
		}
	}
	if done > 0 && (len(rows) == 2 || rows[2].Off > from) {
		fn.Rows = slices.Insert(rows, 2, Row{Off: from, Frame: frame, Saved: saved})
	}
}

// bytes returns the code from begin to end, or nil.
func (c *codeReader) bytes(begin, end uint64) []byte {
	if begin >= end || end-begin > maxCode {
		return nil
	}
	return c.code.Read(c.file, begin, end-begin)
}

// isSigreturn reports whether a function starts with the sigreturn system call.
func (c *codeReader) isSigreturn(fn *Function) bool {
	n := uint64(len(c.sigreturn))
	return n > 0 && fn.End-fn.Begin >= n && string(c.bytes(fn.Begin, fn.Begin+n)) == c.sigreturn
}

// extendBack extends a function by the byte before it, if that is padding. Signal handlers return to the first byte of
// the function, and readers look up the byte before a return address.
func (c *codeReader) extendBack(fn *Function) {
	const int3 = 0xcc
	if b := c.bytes(fn.Begin-1, fn.Begin); len(b) > 0 && b[0] == int3 {
		fn.Begin--
	}
}

// prologueAMD64 matches the prologues that Go's assembler emits (cmd/internal/obj/x86/obj6.go):
//
//	push %rbp; mov %rsp,%rbp                                          since Go 1.21
//	sub $frame,%rsp; mov %rbp,frame-8(%rsp); lea frame-8(%rsp),%rbp   in earlier releases
func prologueAMD64(before, after []byte, frame uint32) (done int, saved uint32, ok bool) {
	const slot = 8 // below the stack pointer at function entry, which points to the return address
	next, ok := insn.DecodeAMD64(after, 0)
	if !ok {
		return 0, 0, false
	}
	if n := len(before); frame == 8 && n > 0 && before[n-1] == 0x55 && next.Op == insn.Move && next.Reg == numberFP &&
		next.Src == numberSP {
		// 41 55 is push %r13, unless 41 is the displacement of a conditional jump, 76 41.
		return 0, slot, n == 1 || before[n-2] != 0x41 || n > 2 && before[n-3] == 0x76
	}
	saving := insn.Mem{Base: numberSP, Index: insn.None, Scale: 1, Disp: int64(frame) - slot}
	if next.Op != insn.Store || next.Src != numberFP || next.Mem != saving {
		return 0, 0, false
	}
	for _, n := range []int{4, 7} { // sub $imm8,%rsp or add $-128,%rsp; sub $imm32,%rsp
		sub, ok := insn.DecodeAMD64(before[max(0, len(before)-n):], 0)
		if ok && sub.Size == n && sub.Op == insn.Add && sub.Reg == numberSP && sub.Imm == -int64(frame) {
			return next.Size, slot, true
		}
	}
	return 0, 0, false
}

// prologueAArch64 matches the prologues that Go's assembler emits (cmd/internal/obj/arm64/obj7.go). They save FP below
// SP:
//
//	str x30,[sp,#-frame]!; stur x29,[sp,#-8]
//	sub x20,sp,#frame; stp x29,x30,[x20,#-8]; mov sp,x20
//	sub x27,sp,#frame; str x30,[x27]; mov sp,x27; stur x29,[sp,#-8]    in Go 1.18
//	sub sp,sp,#frame; stur x29,[sp,#-8]                    in asyncPreempt
//	stp x29,x30,[sp,#-frame-8]; sub sp,sp,#frame           in debugCallV2
func prologueAArch64(before, after []byte, frame uint32) (done int, saved uint32, ok bool) {
	const fp, lr, sp = 29, 30, 31
	decode := func(b []byte) insn.Inst {
		if in, ok := insn.DecodeAArch64(b, 0); ok {
			return in
		}
		return insn.Inst{}
	}
	last, next := decode(before[max(0, len(before)-4):]), decode(after)
	previous := decode(before[max(0, len(before)-8):])
	at := func(base insn.Reg, disp int64) insn.Mem { return insn.Mem{Base: base, Index: insn.None, Disp: disp} }
	n, saved := int64(frame), frame+8
	push := insn.Mem{Base: sp, Index: insn.None, Disp: -n, Step: -n}
	pair := previous.Op == insn.Store && previous.Src == fp && previous.Pair == lr
	single := next.Op == insn.Store && next.Src == fp && next.Mem == at(sp, -8)
	setsSP := last.Op == insn.Address && last.Reg == sp
	switch {
	case setsSP && last.Mem == at(20, 0):
		return 0, saved, pair && previous.Mem == at(20, -8)
	case setsSP && last.Mem == at(sp, -n) && pair && previous.Mem == at(sp, -n-8):
		return 0, saved, true
	case setsSP && last.Mem == at(27, 0), setsSP && last.Mem == at(sp, -n),
		last.Op == insn.Store && last.Src == lr && last.Mem == push:
		return 4, saved, single
	}
	return 0, 0, false
}
