package gopclntab

import (
	"bytes"
	"encoding/binary"
)

// An instruction is an instruction of amd64, as far as it matters to functions that leave their stack.
type instruction struct {
	size  int  // in bytes; 0 if it is unknown
	ends  bool // control does not reach the next instruction
	jumps bool
	jump  int32 // bytes from its end

	writesFP, clearsFP, popsFP, loadsSP bool
}

// prefixes are those of operand size, segments and repetition.
var prefixes = []byte{0x66, 0x2e, 0x64, 0x65, 0xf2, 0xf3}

// Numbers of registers in instructions.
const (
	numberSP = 4
	numberFP = 5
)

// decodeAMD64 decodes the instruction at the start of code (Intel SDM, volume 2, appendix A). Instructions that the
// runtime does not use in such functions are unknown.
func decodeAMD64(code []byte) (in instruction) {
	const longest = 15 // bytes of an instruction
	var b [2 * longest]byte
	copy(b[:longest], code)
	n, rex, imm := 0, byte(0), 4
	for ; n < longest-2 && bytes.IndexByte(prefixes, b[n]) >= 0; n++ {
		if b[n] == prefixes[0] {
			imm = 2
		}
	}
	if b[n]&0xf0 == 0x40 {
		rex, n = b[n], n+1
		if rex&8 != 0 {
			imm = 4
		}
	}
	op := uint32(b[n])
	if n++; op == 0x0f {
		op, n = 0x0f00|uint32(b[n]), n+1
	}
	modrm := b[n:]
	group := modrm[0] >> 3 & 7 // a part of the opcode, or a register
	reg, rm, low := group|rex&4<<1, byte(0xff), byte(op)&7|rex&1<<3
	if modrm[0] >= 0xc0 {
		rm = modrm[0]&7 | rex&1<<3
	}
	next := n + sizeModRM(modrm) // if there is a ModRM
	switch {
	case op < 0x40 && op&4 == 0, op == 0x63, 0x84 <= op && op <= 0x8b, op == 0x8d, // register and r/m
		op&^0xf == 0x0f40, op == 0x0faf, op&^9 == 0x0fb6, op&^1 == 0x0fb0, op&^1 == 0x0fc0:
		n = next
		reads := op&^3 == 0x38 || op&^1 == 0x84 || op == 0x89 && rm != numberFP // cmp, test, mov
		in.writesFP = (reg == numberFP || rm == numberFP) && !reads
		in.clearsFP = op|2 == 0x33 && imm != 2 && reg == numberFP && rm == numberFP // xor
		in.loadsSP = op == 0x8b && reg == numberSP || op == 0x89 && rm == numberSP
	case op == 0x69, op == 0x6b: // imul
		n, in.writesFP = next+imm, reg == numberFP
		if op == 0x6b {
			n = next + 1
		}
	case op&^3 == 0x80 && op != 0x82, op&^1 == 0xc0, op&^1 == 0xc6 && group == 0: // r/m and a number
		in.writesFP = rm == numberFP && (op >= 0xc0 || group != 7) // cmp
		in.clearsFP = op == 0xc7 && imm != 2 && rm == numberFP && binary.LittleEndian.Uint32(b[next:]) == 0
		in.loadsSP = op == 0xc7 && rm == numberSP
		if n = next + 1; op == 0x81 || op == 0xc7 {
			n = next + imm
		}
	case op&^3 == 0xd0, op == 0xff && group != 7: // r/m
		n, in.writesFP = next, rm == numberFP && (op < 0xff || group < 2)
		in.ends = op == 0xff && group == 4 // jmp
	case op&^1 == 0xf6: // test, not, neg, mul, div
		if n = next; group < 2 {
			n += 1 + int(op&1)*(imm-1)
		}
		in.writesFP = rm == numberFP && group >= 2
	case op&^1 == 0x0f10, op == 0x0f1f, op&^1 == 0x0f28, op == 0x0f57, op == 0x0fef: // SSE, and no-op
		n = next
	case op&^7 == 0x50, op == 0x90, op == 0x98, op == 0x99, op == 0xfc, op == 0x0f05, op == 0x0f31, op == 0x0fa2:
	case op&^7 == 0x58:
		in.popsFP = low == numberFP
		in.writesFP = in.popsFP
	case op == 0xc9: // leave
		in.writesFP = true
	case op&^7 == 0xb8: // mov
		if rex&8 != 0 {
			imm = 8
		}
		in.writesFP, in.loadsSP = low == numberFP, low == numberSP
		in.clearsFP = in.writesFP && imm != 2 && binary.LittleEndian.Uint64(b[n:])<<(64-8*imm) == 0
		n += imm
	case op == 0x68, op == 0xa9, op == 0xe8: // push, test, call
		n += imm
	case op == 0x6a, op == 0xa8:
		n++
	case op&^0xf == 0x70, op == 0xeb:
		in.jumps, in.jump, in.ends = true, int32(int8(b[n])), op == 0xeb
		n++
	case op&^0xf == 0x0f80, op == 0xe9:
		in.jumps, in.jump, in.ends = true, int32(binary.LittleEndian.Uint32(b[n:])), op == 0xe9
		n += imm
	case op == 0xc3, op == 0xcc, op == 0xf4, op == 0x0f0b: // ret, int3, hlt, ud2
		in.ends = true
	case op == 0xcd: // int
		n, in.ends = n+1, true
	default:
		return instruction{}
	}
	branch := in.jumps || op == 0xe8
	if n > min(len(code), longest) || branch && imm != 4 {
		return instruction{}
	}
	in.size = n
	return in
}

// sizeModRM returns the size in bytes of ModRM, SIB and displacement at the start of b.
func sizeModRM(b []byte) int {
	mod, base, n := b[0]>>6, b[0]&7, 1
	if base == 4 && mod != 3 { // SIB
		base, n = b[1]&7, 2
	}
	switch {
	case mod == 1:
		n++
	case mod == 2, mod == 0 && base == 5:
		n += 4
	}
	return n
}
