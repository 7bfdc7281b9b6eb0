package arch

import (
	"debug/elf"
	"encoding/binary"

	"cfi2sframe/sframe"
)

// System V ABI for AMD64: figure 3.36, "DWARF Register Number Mapping", and table 4.9,
// "Relocation Types".
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
	Probing: []string{"r11"},

	EntryCFA: 8, // with the return address on top
	FixedRA:  int64(sframe.AMD64Little.FixedRA()),
	// breg7 (rsp) 8; breg16 (rip) 0; lit15; and; lit of the byte; ge; lit3; shl; plus
	PLTCFA: []byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, pltByte, 0x2a, 0x33, 0x24, 0x22},

	MaxPage:  4 << 10,
	HashWord: 4,
	Branch:   branchAMD64,
	Fields: map[uint32]Field{
		uint32(elf.R_X86_64_64):   {Size: 8},
		uint32(elf.R_X86_64_PC64): {Size: 8, PCRel: true},
		uint32(elf.R_X86_64_32):   {Size: 4},
		uint32(elf.R_X86_64_32S):  {Size: 4, Signed: true},
		uint32(elf.R_X86_64_PC32): {Size: 4, PCRel: true},
	},
	Relative: []uint32{uint32(elf.R_X86_64_RELATIVE), uint32(elf.R_X86_64_IRELATIVE), 38}, // R_X86_64_RELATIVE64
}

// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: CALL and JMP with a relative displacement.
func branchAMD64(b []byte, pc uint64) (size int, target uint64, call bool) {
	switch {
	case len(b) >= 2 && b[0] == 0xeb:
		return 2, pc + 2 + uint64(int8(b[1])), false
	case len(b) >= 5 && b[0]&0xfe == 0xe8:
		return 5, pc + 5 + uint64(int32(binary.LittleEndian.Uint32(b[1:]))), b[0] == 0xe8
	}
	return 0, 0, false
}
