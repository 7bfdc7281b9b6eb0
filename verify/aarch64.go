package verify

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/arch/arm64/arm64asm"

	"cfi2sframe/sframe"
)

// DWARF for the Arm 64-bit Architecture: register numbers. A call leaves the return address in x30. Instructions are
// little-endian in both byte orders.
func init() {
	a := abi{machine: elf.EM_AARCH64, sp: 31, fp: 29, ra: 30, pc: 32, injected: 16, decode: decodeAArch64,
		padding: paddingAArch64, prologue: prologueAArch64}
	abis[sframe.AArch64Little] = a
	a.big = true
	abis[sframe.AArch64Big] = a
}

// scratchAArch64 are the registers that stubs may write.
var scratchAArch64 = []string{"X2", "X3", "X16", "X17"}

func decodeAArch64(b []byte, pc uint64) (effect, error) {
	if len(b) >= 4 && (bytes.Equal(b[:4], []byte{0x5f, 0x24, 0x03, 0xd5}) ||
		bytes.Equal(b[:4], []byte{0x9f, 0x21, 0x03, 0xd5})) {
		return effect{size: 4}, nil // bti c and autia1716: hints, which the decoder does not name
	}
	in, err := arm64asm.Decode(b)
	if err != nil {
		return effect{}, err
	}
	e := effect{size: 4}
	// Of these, only stp writes SP, x29 or x30. Hints other than nop may sign x30.
	switch in.Op {
	case arm64asm.NOP:
		e.pad = true
	case arm64asm.ADRP, arm64asm.ADD, arm64asm.LDR:
		m, ok := in.Args[1].(arm64asm.MemImmediate)
		if !slices.Contains(scratchAArch64, in.Args[0].String()) || ok && m.Mode != arm64asm.AddrOffset {
			return effect{}, fmt.Errorf("%v", in)
		}
	case arm64asm.STP:
		m, ok := in.Args[2].(arm64asm.MemImmediate)
		if !ok || m.Mode != arm64asm.AddrPreIndex || m.Base != arm64asm.RegSP(arm64asm.SP) ||
			in.String() != fmt.Sprintf("STP %v, %v, [SP,#-16]!", in.Args[0], in.Args[1]) {
			return effect{}, fmt.Errorf("%v", in)
		}
		e.push = 16
		if in.Args[1] == arm64asm.X30 {
			e.saveRA = 8
		}
	case arm64asm.BR, arm64asm.BRK:
		e.ends, e.pad = true, in.Op == arm64asm.BRK
	default:
		return effect{}, fmt.Errorf("%v", in)
	}
	return e, nil
}

// paddingAArch64 accepts nop, udf #0, and zeros.
func paddingAArch64(b []byte) int {
	if b[0] == 0 && (len(b) < 4 || bytes.Equal(b[:4], make([]byte, 4))) {
		return min(len(b), 4)
	}
	const nop = 0xd503201f // arm64asm.Decode writes to a variable of its package, and this runs on several goroutines
	if len(b) < 4 || binary.LittleEndian.Uint32(b) != nop {
		return 0
	}
	return 4
}

// prologueAArch64 knows what the first instructions of Go's functions do to SP, and where they save x29.
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
