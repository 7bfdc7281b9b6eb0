package arch

import (
	"debug/elf"

	"cfi2sframe/sframe"
)

// Source: zSeries ELF Application Binary Interface Supplement, "DWARF Register Number Mapping", "Relocation Types" and
// "Hash Table". The CFA is 160 bytes above the caller's SP because of the register save area.
var s390x = Arch{
	Machine: elf.EM_S390,
	Name:    "s390x",
	Big:     sframe.S390XBig,

	SP:      uint64(sframe.S390XBig.SP()),
	FP:      uint64(sframe.S390XBig.FP()),
	RA:      14,
	PC:      NoReg,
	RAState: NoReg,
	Registers: []string{
		"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
		"f0", "f2", "f4", "f6", "f1", "f3", "f5", "f7", "f8", "f10", "f12", "f14", "f9", "f11", "f13", "f15",
	},

	EntryCFA: 160,
	CallerSP: -160,
	SavesSP:  true,

	MaxPage: 4 << 10,
	Fields: map[uint32]Field{
		uint32(elf.R_390_64):   {Size: 8},
		uint32(elf.R_390_PC64): {Size: 8, PCRel: true},
		uint32(elf.R_390_32):   {Size: 4},
		uint32(elf.R_390_PC32): {Size: 4, PCRel: true},
	},
	Relative: []uint32{uint32(elf.R_390_RELATIVE), 61}, // R_390_IRELATIVE
}
