package verify

import (
	"debug/elf"
	"encoding/binary"

	"cfi2sframe/sframe"
)

// Source: DWARF for the Arm 64-bit Architecture, for register numbers. A call leaves the return address in x30.
// Instructions are little-endian regardless of the byte order of data.
func init() {
	a := abi{machine: elf.EM_AARCH64, sp: 31, fp: 29, ra: 30, pc: 32, injected: 16, stub: stubAArch64,
		padding: paddingAArch64, prologue: prologueAArch64}
	abis[sframe.AArch64Little] = a
	a.big = true
	abis[sframe.AArch64Big] = a
}

// stubAArch64 decodes the instructions of PLT stubs (Arm Architecture Reference Manual for A-profile, C6.2). Only stp
// may change SP, and no instruction may change x29 or x30.
func stubAArch64(b []byte, _ uint64) (e effect, ok bool) {
	if len(b) < 4 {
		return e, false
	}
	in := binary.LittleEndian.Uint32(b)
	to := in & 0x1f
	scratch := to == 2 || to == 3 || to == 16 || to == 17 // stubs may write them
	e.size = 4
	switch {
	case in == 0xd503201f: // nop
		e.pad = true
	case in == 0xd503245f, in == 0xd503219f: // bti c, autia1716
	case scratch && in&0x9f000000 == 0x90000000: // adrp
	case scratch && (in&0xff800000 == 0x91000000 || in&0xff200000 == 0x8b000000): // add
	case scratch && (in&0xffc00000 == 0xf9400000 || in&0xff000000 == 0x58000000): // ldr x
	case in&0xffff83e0 == 0xa9bf03e0: // stp x, x, [sp, #-16]!
		if e.push = 16; in>>10&0x1f == 30 {
			e.saveRA = 8
		}
	case in&0xfffffc1f == 0xd61f0000: // br
		e.ends = true
	case in&0xffe0001f == 0xd4200000: // brk
		e.ends, e.pad = true, true
	default:
		return e, false
	}
	return e, true
}

// paddingAArch64 accepts nop, and zeros (udf #0).
func paddingAArch64(b []byte) int {
	const nop = 0xd503201f
	var word [4]byte
	copy(word[:], b)
	in := binary.LittleEndian.Uint32(word[:])
	if in != 0 && (in != nop || len(b) < 4) {
		return 0
	}
	return min(len(b), 4)
}

// prologueAArch64 tracks how the first instructions of Go functions change SP, and where they save x29.
func prologueAArch64(p *prologue, b []byte) int {
	if len(b) < 4 {
		return 0
	}
	in := binary.LittleEndian.Uint32(b)
	field := func(low, bits uint) int64 { return int64(in >> low & (1<<bits - 1)) }
	switch {
	case in&^(0x1ff<<12) == 0xf8000ffe: // str x30, [sp, #n]!
		p.sp -= field(12, 9) - field(20, 1)<<9
	case in&^(0xfff<<10) == 0xd10003ff: // sub sp, sp, #n
		p.sp += field(10, 12)
	case in == 0xf81f83fd: // stur x29, [sp, #-8]
		p.saved, p.slot = true, p.sp+8
	case in&^(0x7f<<15) == 0xa9007bfd: // stp x29, x30, [sp, #n]
		p.saved, p.slot = true, p.sp-8*(field(15, 7)-field(21, 1)<<7)
	case in == 0xa93ffa9d: // stp x29, x30, [x20, #-8]
		p.saved, p.slot, p.relative = true, 8, 1
	case in == 0x9100029f, in == 0x9100037f: // mov sp, x20; mov sp, x27 (Go 1.18)
		p.loaded = true
	case in&0x1c000000 == 0x14000000: // a branch, or a system instruction
	case in&0x1f == 29: // it may write x29
		return 0
	}
	return 4
}
