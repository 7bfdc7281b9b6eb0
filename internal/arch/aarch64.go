package arch

import (
	"debug/elf"

	"cfi2sframe/sframe"
)

// Sources: DWARF for the Arm 64-bit Architecture, "DWARF register names"; ELF for the Arm 64-bit Architecture,
// "Relocation" and "Mapping symbols". The fields apply to both byte orders.
var aarch64 = Arch{
	Machine: elf.EM_AARCH64,
	Name:    "aarch64",
	Little:  sframe.AArch64Little,
	Big:     sframe.AArch64Big,

	SP:      uint64(sframe.AArch64Little.SP()),
	FP:      uint64(sframe.AArch64Little.FP()),
	RA:      30,
	PC:      32,
	RAState: 34,
	Registers: []string{
		"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10",
		"x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18", "x19", "x20",
		"x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
	},

	MaxPage:        64 << 10,
	MappingSymbols: true,
	Fields: map[uint32]Field{
		uint32(elf.R_AARCH64_ABS64):  {Size: 8},
		uint32(elf.R_AARCH64_PREL64): {Size: 8, PCRel: true},
		uint32(elf.R_AARCH64_ABS32):  {Size: 4},
		uint32(elf.R_AARCH64_PREL32): {Size: 4, PCRel: true},
	},
	Relative: []uint32{uint32(elf.R_AARCH64_RELATIVE), uint32(elf.R_AARCH64_IRELATIVE)},
}
