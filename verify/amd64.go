package verify

import (
	"debug/elf"

	"cfi2sframe/sframe"
)

// Source: System V ABI for AMD64, for register numbers. A call leaves the return address at the top of the stack.
func init() {
	abis[sframe.AMD64Little] = abi{
		machine: elf.EM_X86_64, sp: 7, fp: 6, ra: noReg, pc: 16,
		entry: 8, fixedRA: -8, stub: stubAMD64, padding: paddingAMD64,
		prologue: prologueAMD64, stack: stackAMD64,
		fpAtFP: []byte{0x76, 0}, epilogue: epilogueAMD64, // breg6 (rbp) 0
	}
}

// stubAMD64 decodes the instructions of PLT stubs.
func stubAMD64(b []byte, pc uint64) (e effect, ok bool) {
	in, ok := decodeAMD64(b)
	if !ok || in.short && in.op != 0x90 && in.op != 0x0f1f {
		return e, false
	}
	e.size = uint8(in.size)
	jump, conditional := in.isJump()
	switch {
	case in.isNop():
		e.pad = true
	case in.op == 0xcc: // int3
		e.pad, e.ends = true, true
	case in.op == 0x90 && in.repeat == 0xf3: // pause
	case in.op == 0x0f1e && in.repeat == 0xf3 && b[in.size-1] == 0xfa: // endbr64
	case in.op == 0x0fae && b[in.size-1] == 0xe8: // lfence
	case in.op&^7 == 0xb8 && in.rm == r11 && !in.wide: // mov $n,%r11d
	case in.op == 0x8b && in.wide && in.reg == r11 && in.relative: // mov x(%rip),%r11
	case in.op == 0x89 && in.wide && in.reg == r11 && in.base == rsp && in.disp == 0: // mov %r11,(%rsp)
		e.loses = true
	case in.op&^7 == 0x50, in.op == 0x68, in.op == 0x6a, in.op == 0xff && in.reg&7 == 6: // push
		e.push = 8
	case in.op == 0xe8:
		e.call, e.target = true, in.target(pc)
	case in.op == 0xc3:
		e.ret, e.ends = true, true
	case jump && !conditional:
		e.ends, e.target = true, in.target(pc)
	case in.op == 0xff && in.reg&7 == 4: // jmp
		e.ends = true
	default:
		return e, false
	}
	return e, true
}

// paddingAMD64 accepts int3, zeros, and all forms of nop. A truncated instruction is not padding.
func paddingAMD64(b []byte) int {
	if b[0] == 0 || b[0] == 0xcc {
		return 1
	}
	if in, ok := decodeAMD64(b); ok && in.isNop() {
		return in.size
	}
	return 0
}

// isNop reports whether the instruction does nothing.
func (in *instruction) isNop() bool {
	return (in.op == 0x90 && in.rm == 0 || in.op == 0x0f1f && in.reg == 0) && in.repeat == 0 && !in.wide
}

// prologueAMD64 tracks how the first instructions of Go functions change rsp, and where they save rbp.
func prologueAMD64(p *prologue, b []byte) int {
	in, ok := decodeAMD64(b)
	jump, conditional := in.isJump()
	group := in.reg & 7
	switch {
	case !ok, in.short && (in.written()>>rsp&1 != 0 || in.op&^7 == 0x50 || in.op == 0x68 || in.op == 0x6a ||
		in.op == 0xff):
		return 0
	case in.op&^7 == 0x50, in.op == 0x68, in.op == 0x6a, in.op == 0xff && group == 6: // push
		if p.sp += 8; in.op == 0x55 && in.rm == rbp {
			p.saved, p.slot = true, p.sp
		}
	case (in.op == 0x81 || in.op == 0x83) && in.rm == rsp && group == 5: // sub
		p.sp += in.imm
	case (in.op == 0x81 || in.op == 0x83) && in.rm == rsp && group == 0: // add
		p.sp -= in.imm
	case in.op == 0x89 && in.wide && in.reg == rbp && in.base == rsp: // mov %rbp,x(%rsp)
		p.saved, p.slot = true, p.sp-in.disp
	case jump && conditional:
		p.skip = in.imm
	case jump, in.op == 0xff && group&^1 == 4, // jmp; call, ret and pop write rsp
		in.written()>>rsp&1 != 0, in.written()>>rbp&1 != 0:
		return 0
	}
	return in.size
}

// epilogueAMD64 accepts lea that sets rsp from the register that contains the CFA, pop of r13, moves to registers other
// than rsp and rbp, no-ops, and ret or jmp.
func epilogueAMD64(code []byte, pc, reg uint64, stays func(pc uint64) bool) int {
	if reg != noReg && reg != r10 && reg != r13 { // DWARF numbers are the same
		return 0
	}
	for n := 0; n < len(code); {
		in, ok := decodeAMD64(code[n:])
		n += in.size
		jump, conditional := in.isJump()
		switch restored := reg == noReg; {
		case !ok:
			return 0
		case in.isNop():
		case !restored && in.op == 0x8d && in.wide && in.reg == rsp && in.base == int(reg) && !in.segment: // lea
			reg = noReg
		case restored && in.op == 0x58|r13&7 && in.rm == r13: // pop
		case restored && in.op == 0x89 && in.rm >= 0 && in.rm != rsp && in.rm != rbp, // mov
			restored && in.op == 0x8b && in.rm >= 0 && in.reg != rsp && in.reg != rbp,
			restored && in.op == 0x0f28 && in.rm >= 0: // movaps, movapd
		case restored && in.op == 0xc3, restored && in.op == 0xff && in.reg&7 == 4: // ret, jmp
			return n
		case restored && jump && !conditional && !stays(in.target(pc)+uint64(n-in.size)):
			return n
		default:
			return 0
		}
	}
	return 0
}

// stackAMD64 decodes an instruction of a Go function that switches stacks.
func stackAMD64(b []byte) stackEffect {
	in, ok := decodeAMD64(b)
	if !ok {
		return stackEffect{}
	}
	jump, conditional := in.isJump()
	group := in.reg & 7
	constant := in.op == 0xc7 || in.op&^7 == 0xb8
	mov := in.op == 0x8b || in.op == 0x89 || constant
	to, from := in.rm, in.reg
	if in.op == 0x8b {
		to, from = from, to
	}
	e := stackEffect{size: in.size, jumps: jump, skip: in.imm, writesFP: in.written()>>rbp&1 != 0}
	switch in.op {
	case 0xc2, 0xc3, 0xcc, 0xcd, 0xf4, 0x0f0b: // ret, int3, int, hlt, ud2
		e.ends = true
	default:
		e.ends = jump && !conditional || in.op == 0xff && group == 4 // jmp
	}
	e.pushesFP = in.op == 0x55 && in.rm == rbp && !in.short
	e.popsFP = in.op == 0x5d && in.rm == rbp && !in.short
	e.copiesSP = mov && !constant && in.wide && to == rbp && from == rsp
	zero := constant && to == rbp && in.imm == 0 || in.op|2 == 0x33 && to == rbp && from == rbp // mov or xor
	e.clearsFP = zero && !in.short
	e.loadsSP = mov && to == rsp
	e.fromMemory = e.loadsSP && in.op == 0x8b && from < 0 && in.base != rsp
	e.alignsSP = in.op&^2 == 0x81 && group == 4 && in.rm == rsp // and
	return e
}
