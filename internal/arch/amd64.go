package arch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"

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
	Registers: []string{
		"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
	},

	EntryCFA: 8, // the return address is at the top of the stack
	FixedRA:  int64(sframe.AMD64Little.FixedRA()),
	// breg7 (rsp) 8; breg16 (rip) 0; lit15; and; lit<push offset>; ge; lit3; shl; plus
	PLTCFA: []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, pltByte, 0x2a, 0x33, 0x24, 0x22},

	Epilogue: epilogueAMD64,

	MaxPage: 4 << 10,
	Branch:  branchAMD64,
	Fields: map[uint32]Field{
		uint32(elf.R_X86_64_64):   {Size: 8},
		uint32(elf.R_X86_64_PC64): {Size: 8, PCRel: true},
		uint32(elf.R_X86_64_32):   {Size: 4},
		uint32(elf.R_X86_64_32S):  {Size: 4, Signed: true},
		uint32(elf.R_X86_64_PC32): {Size: 4, PCRel: true},
	},
	Relative: []uint32{uint32(elf.R_X86_64_RELATIVE), uint32(elf.R_X86_64_IRELATIVE), 38}, // R_X86_64_RELATIVE64
}

// branchAMD64 decodes CALL and JMP with a relative displacement (Intel 64 and IA-32 Architectures Software Developer's
// Manual, volume 2).
func branchAMD64(b []byte, pc uint64) (size int, target uint64, call bool) {
	switch {
	case len(b) >= 2 && b[0] == 0xeb:
		return 2, pc + 2 + uint64(int8(b[1])), false
	case len(b) >= 5 && b[0]&0xfe == 0xe8:
		return 5, pc + 5 + uint64(int32(binary.LittleEndian.Uint32(b[1:]))), b[0] == 0xe8
	}
	return 0, 0, false
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
	n := leavesAMD64(rest)
	if n == 0 || n > len(rest) {
		return 0, 0
	}
	if _, target, _ := branchAMD64(rest, pc+uint64(len(code)-len(rest))); isInside(target) {
		return 0, 0
	}
	for rest = rest[n:]; ; rest = rest[n:] {
		if n = noOpAMD64(rest); n == 0 || n > len(rest) {
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

// leavesAMD64 returns the size in bytes of the return or jump at the start of b, or 0.
func leavesAMD64(b []byte) int {
	var c [3]byte
	copy(c[:], b)
	switch {
	case c[0] == 0xc3: // ret
		return 1
	case c[0] == 0xf3 && c[1] == 0xc3, c[0] == 0xeb, c[0] == 0xff && c[1]&0xf8 == 0xe0: // rep ret; jmp; jmp *reg
		return 2
	case (c[0] == 0x41 || c[0] == 0x3e) && c[1] == 0xff && c[2]&0xf8 == 0xe0: // jmp *reg; notrack jmp *reg
		return 3
	case c[0] == 0xe9: // jmp
		return 5
	case c[0] == 0xff && c[1] == 0x25: // jmp *x(%rip)
		return 6
	}
	return 0
}

// noOpAMD64 returns the size in bytes of the no-op at the start of b, or 0. It recognizes the forms that assemblers
// emit.
func noOpAMD64(b []byte) int {
	i := 0
	for i < len(b) && (b[i] == 0x66 || b[i] == 0x2e) {
		i++
	}
	switch b := b[i:]; {
	case len(b) > 0 && b[0] == 0x90: // nop
		return i + 1
	case len(b) > 2 && b[0] == 0x0f && b[1] == 0x1f: // nop with an operand
		if n, ok := map[byte]int{0x00: 3, 0x40: 4, 0x44: 5, 0x80: 7, 0x84: 8}[b[2]]; ok {
			return i + n
		}
	}
	return 0
}
