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
