package arch

import (
	"debug/elf"
	"encoding/binary"

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
	Branch:  branchS390X,
	Fields: map[uint32]Field{
		uint32(elf.R_390_64):   {Size: 8},
		uint32(elf.R_390_PC64): {Size: 8, PCRel: true},
		uint32(elf.R_390_32):   {Size: 4},
		uint32(elf.R_390_PC32): {Size: 4, PCRel: true},
	},
	Relative: []uint32{uint32(elf.R_390_RELATIVE), 61}, // R_390_IRELATIVE
}

// branchS390X decodes BRANCH RELATIVE ON CONDITION LONG with mask 15, and BRANCH RELATIVE AND SAVE LONG (z/Architecture
// Principles of Operation). Displacements are in halfwords.
func branchS390X(b []byte, pc uint64) (size int, target uint64, call bool) {
	if len(b) < 6 || pc%2 != 0 || b[0] != 0xc0 || b[1] != 0xf4 && b[1] != 0xe5 {
		return 0, 0, false
	}
	return 6, pc + 2*uint64(int64(int32(binary.BigEndian.Uint32(b[2:])))), b[1] == 0xe5
}
