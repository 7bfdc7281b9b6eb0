package verify

import (
	"debug/elf"
	"encoding/binary"
	"strings"

	"cfi2sframe/sframe"
)

// System V ABI for AMD64: register numbers. A call leaves the return address on top of the stack.
func init() {
	abis[sframe.AMD64Little] = abi{
		machine: elf.EM_X86_64, sp: 7, fp: 6, ra: noReg, pc: 16,
		entry: 8, fixedRA: -8, stub: stubAMD64, padding: paddingAMD64,
		prologue: prologueAMD64, stack: stackAMD64,
		fpAtFP: []byte{0x76, 0}, epilogue: epilogueAMD64, // breg6 (rbp) 0
	}
}

// An instruction is one of amd64. Registers have the numbers of their encoding; -1 is none.
type instruction struct {
	size     int  // in bytes
	op       int  // opcode; 0x0f00 more for those of two bytes
	wide     bool // REX.W
	short    bool // operands of 16 bits
	repeat   byte // prefix f0 (lock), f2 or f3, or 0
	segment  bool // has a prefix of a segment
	reg      int  // of ModRM; a part of some opcodes
	rm       int  // the other register of ModRM, or that of the opcode; -1 for memory
	base     int  // of memory at base+disp; -1 also for memory elsewhere
	relative bool // memory at disp from the next instruction
	disp     int64
	imm      int64 // immediate operand, or distance of a jump
}

// Numbers of registers in instructions.
const (
	rsp = 4
	rbp = 5
	r10 = 10
	r11 = 11
	r13 = 13
)

// The operands of opcodes: none (.), ModRM (m), an immediate of 1 byte (b) or of 2 or 4 (z), ModRM and an immediate (B,
// Z). Others (-) are unknown. Those with a VEX or EVEX prefix are among them. Intel SDM, volume 2, appendix A.
const (
	oneByte = "mmmmbz--mmmmbz--" + "mmmmbz--mmmmbz--" + "mmmmbz--mmmmbz--" + "mmmmbz--mmmmbz--" +
		"----------------" + "................" + "---m----zZbB----" + "bbbbbbbbbbbbbbbb" +
		"BZ-Bmmmmmmmm-m--" + "..........-....." + "----....bz......" + "bbbbbbbbzzzzzzzz" +
		"BB-.--BZ-.--.b--" + "mmmm----mmmmmmmm" + "bbbb----zz-b----" + "----..mm......mm"
	twoBytes = "-m---.-----.-m--" + "mmmmmmmmmmmmmmmm" + "--------mmmmmmmm" + "-.--------------" +
		"mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "BBBBmmm.----mmmm" +
		"zzzzzzzzzzzzzzzz" + "mmmmmmmmmmmmmmmm" + "--.mBm-----mBmmm" + "mm-m--mmm-Bmmmmm" +
		"mmBmBBBm........" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmmm" + "mmmmmmmmmmmmmmm-"
)

// decodeAMD64 decodes the instruction at the start of code, and reports whether it is known.
func decodeAMD64(code []byte) (in instruction, ok bool) {
	const longest = 15
	var b [2 * longest]byte // zeros follow
	copy(b[:longest], code)
	n := 0
	for ; n < longest-1 && in.prefix(b[n]); n++ {
	}
	var rex int
	if b[n]&0xf0 == 0x40 {
		rex = int(b[n])
		in.wide = rex&8 != 0
		n++
	}
	in.op = int(b[n])
	kind := oneByte[in.op]
	if in.op == 0x0f {
		n++
		in.op, kind = 0x0f00|int(b[n]), twoBytes[b[n]]
	}
	n++
	in.reg, in.rm, in.base = -1, -1, -1
	switch {
	case strings.IndexByte("mBZ", kind) >= 0:
		n += in.modRM(b[n:], rex)
	case in.op&^0xf == 0x50, in.op&^7 == 0x90, in.op&^0xf == 0xb0, in.op&^7 == 0x0fc8:
		in.rm = in.op&7 | rex&1<<3
	}
	size := 0 // of the immediate operand
	switch {
	case kind == '-', in.op&^1 == 0xc6 && in.reg&7 != 0:
		return in, false
	case in.op&^7 == 0xb8 && in.wide: // mov
		size = 8
	case kind == 'b', kind == 'B', in.op == 0xf6 && in.reg&7 < 2: // the latter is test
		size = 1
	case (kind == 'z' || kind == 'Z' || in.op == 0xf7 && in.reg&7 < 2) && in.short && !in.wide:
		size = 2
	case kind == 'z', kind == 'Z', in.op == 0xf7 && in.reg&7 < 2:
		size = 4
	}
	shift := 64 - 8*size
	in.imm = int64(binary.LittleEndian.Uint64(b[n:])) << shift >> shift
	in.size = n + size
	jump, _ := in.isJump()
	differs := in.short && (jump || in.op == 0xe8) // between processors
	return in, in.size <= min(len(code), longest) && !differs
}

// prefix reports whether b is a prefix other than REX. A later REX.W would cancel in.short.
func (in *instruction) prefix(b byte) bool {
	switch b {
	case 0x66:
		in.short = true
	case 0xf0, 0xf2, 0xf3:
		in.repeat = b
	case 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65:
		in.segment = true
	default:
		return false
	}
	return true
}

// modRM decodes ModRM, SIB and displacement, and returns their size.
func (in *instruction) modRM(b []byte, rex int) (size int) {
	mod, low := b[0]>>6, int(b[0]&7)
	in.reg, in.rm = int(b[0]>>3&7)|rex&4<<1, -1
	size = 1
	base := low
	if low == 4 && mod != 3 { // SIB
		base, size = int(b[1]&7), 2
	}
	if low != 4 || b[1]>>3&7 == 4 && rex&2 == 0 { // without an index
		in.base = base | rex&1<<3
	}
	switch {
	case mod == 3:
		in.rm, in.base = low|rex&1<<3, -1
	case mod == 0 && base == 5:
		in.base, in.relative = -1, low == 5
		in.disp = int64(int32(binary.LittleEndian.Uint32(b[size:])))
		size += 4
	case mod == 1:
		in.disp = int64(int8(b[size]))
		size++
	case mod == 2:
		in.disp = int64(int32(binary.LittleEndian.Uint32(b[size:])))
		size += 4
	}
	return size
}

// isJump reports whether the instruction is a direct jump, and whether it depends on a condition.
func (in *instruction) isJump() (jump, conditional bool) {
	conditional = in.op&^0xf == 0x70 || in.op&^0xf == 0x0f80 || in.op&^3 == 0xe0
	return conditional || in.op == 0xe9 || in.op == 0xeb, conditional
}

// target returns where a direct jump or call at pc leads.
func (in *instruction) target(pc uint64) uint64 { return pc + uint64(in.size) + uint64(in.imm) }

// stubAMD64 knows the instructions of PLT stubs.
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

// paddingAMD64 knows all forms of nop, int3, and zeros. A truncated instruction is not padding.
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

// prologueAMD64 knows what the first instructions of Go's functions do to rsp, and where they save rbp.
func prologueAMD64(p *prologue, b []byte) int {
	in, ok := decodeAMD64(b)
	jump, conditional := in.isJump()
	group := in.reg & 7
	switch {
	case !ok, in.short && (in.writes(rsp) || in.op&^7 == 0x50 || in.op == 0x68 || in.op == 0x6a || in.op == 0xff):
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
	case jump, in.op == 0xe8, in.op == 0xc3, in.op == 0xff && group >= 2, in.op&^7 == 0x58,
		in.writes(rsp), in.writes(rbp): // jmp, call, ret, pop
		return 0
	}
	return in.size
}

// writes reports whether the instruction may write a register that has a number below 8. It is true for some that only
// read it.
func (in *instruction) writes(reg int) bool {
	switch op, group := in.op, in.reg&7; {
	case op&^7 == 0x50, op&^3 == 0x38, op&^1 == 0x84, op&^1 == 0xf6 && group < 2, // push, cmp, test
		op&^3 == 0x80 && group == 7, op == 0xff && group >= 2, // cmp; push, and control flow
		op == 0x0f1f, op&^1 == 0x0f10, op&^1 == 0x0f28, op == 0x0f57, op == 0x0fef: // no-op, and of vectors
		return false
	case op&^1 == 0x88, op&^3 == 0x80, op&^1 == 0xc0, op&^1 == 0xc6, op&^3 == 0xd0, op&^1 == 0xf6, op == 0xff: // to r/m
		return in.rm == reg
	case op == 0xc9: // leave
		return true
	}
	return in.rm == reg || in.reg == reg
}

// epilogueAMD64 takes lea from the register that has the CFA, pop of that register, moves between others, no-ops, and
// ret or jmp.
func epilogueAMD64(code []byte, pc, reg uint64, stays func(pc uint64) bool) int {
	if reg != noReg && reg != r10 && reg != r13 { // the numbers of DWARF are the same
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

// stackAMD64 decodes an instruction of a function of Go that leaves its stack.
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
	e := stackEffect{size: in.size, jumps: jump, skip: in.imm, writesFP: in.writes(rbp)}
	switch in.op {
	case 0xc3, 0xcc, 0xcd, 0xf4, 0x0f0b: // ret, int3, int, hlt, ud2
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
