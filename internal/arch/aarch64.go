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
