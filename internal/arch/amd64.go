package arch

import (
	"bytes"
	"debug/elf"

	"cfi2sframe/internal/insn"
	"cfi2sframe/sframe"
)

// Sources: System V ABI for AMD64, figure 3.36, "DWARF Register Number Mapping", and table 4.9, "Relocation Types".
var amd64 = Arch{
	Machine: elf.EM_X86_64,
	Name:    "amd64",
	Little:  sframe.AMD64Little,

	SP:      uint64(sframe.AMD64Little.SP()),
	FP:      uint64(sframe.AMD64Little.FP()),
	RA:      16,
	PC:      16,
	RAState: NoReg,

	EntryCFA: 8, // the return address is at the top of the stack
	FixedRA:  int64(sframe.AMD64Little.FixedRA()),
	// breg7 (rsp) 8; breg16 (rip) 0; lit15; and; lit<push offset>; ge; lit3; shl; plus
	PLTCFA: []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, pltByte, 0x2a, 0x33, 0x24, 0x22},

	Epilogue: epilogueAMD64,

	MaxPage: 4 << 10,
	Fields: map[uint32]Field{
		uint32(elf.R_X86_64_64):   {Size: 8},
		uint32(elf.R_X86_64_PC64): {Size: 8, PCRel: true},
		uint32(elf.R_X86_64_32):   {Size: 4},
		uint32(elf.R_X86_64_32S):  {Size: 4, Signed: true},
		uint32(elf.R_X86_64_PC32): {Size: 4, PCRel: true},
	},
	Relative: []uint32{uint32(elf.R_X86_64_RELATIVE), uint32(elf.R_X86_64_IRELATIVE), 38}, // R_X86_64_RELATIVE64
}

// epilogueAMD64 recognizes GCC's epilogues: "pop %rbp" or "leave"; "lea -n(reg),%rsp", where reg is r10 or r13; "pop
// reg" if reg is r13; optional moves between registers; then a return or a jump.
func epilogueAMD64(code []byte, pc uint64, end int, reg uint64, isInside func(pc uint64) bool) (first, last int) {
	first = end - 4
	if first < 1 || reg-8 > 7 || code[first-1] != 0x5d && code[first-1] != 0xc9 ||
		!bytes.Equal(code[first:first+3], []byte{0x49, 0x8d, 0x60 + byte(reg-8)}) {
		return 0, 0
	}
	rest := code[end:]
	if bytes.HasPrefix(rest, []byte{0x41, 0x58 + byte(reg-8)}) { // pop reg
		rest = rest[2:]
	}
	for n := moveAMD64(rest); n != 0; n = moveAMD64(rest) {
		rest = rest[n:]
	}
	in, ok := insn.DecodeAMD64(rest, pc+uint64(len(code)-len(rest)))
	switch {
	case ok && in.Op == insn.Return && in.Mem.Step == 0, ok && in.Op == insn.Jump && !isInside(in.Target),
		ok && in.Op == insn.JumpReg, ok && in.Op == insn.JumpMem:
	default:
		return 0, 0
	}
	for rest = rest[in.Size:]; ; rest = rest[in.Size:] {
		if in, ok = insn.DecodeAMD64(rest, 0); !ok || in.Op != insn.Nop {
			return first, len(code) - len(rest)
		}
	}
}

// moveAMD64 returns the size in bytes of the register-to-register move at the start of b, or 0 if there is none or it
// writes rbp or rsp.
func moveAMD64(b []byte) int {
	var c [4]byte
	copy(c[:], b)
	i, rex := 0, byte(0)
	if c[0]&0xf0 == 0x40 {
		i, rex = 1, c[0]
	} else if c[0] == 0x66 {
		i = 1
	}
	switch b := c[i:]; {
	case b[0] == 0x0f && b[1] == 0x28 && b[2]>>6 == 3: // movaps, movapd
		return i + 3
	case b[0] == 0x89 && b[1]>>6 == 3 && (rex&1 == 1 || b[1]&6 != 4): // mov reg,rm; register 4 is rsp, and 5 is rbp
		return i + 2
	case b[0] == 0x8b && b[1]>>6 == 3 && (rex&4 == 4 || b[1]>>3&6 != 4): // mov rm,reg
		return i + 2
	}
	return 0
}
