package generate

import (
	"debug/elf"
	"encoding/binary"

	"cfi2sframe/internal/testkit/elftest"
)

// A Machine is a machine supported by SFrame, in one byte order. Registers are DWARF numbers.
type Machine struct {
	Elf        elf.Machine
	Order      elftest.Order
	SP, FP, RA uint64
	Entry      int64 // CFA at a function's entry, relative to SP
	FixedRA    int64 // where calls leave the return address, relative to the CFA; 0: in RA
	Signs      bool  // return addresses can be signed
	HashWord   int   // of DT_HASH, in bytes
	Relative   uint32
}

// Machines lists all machines.
var Machines = []Machine{
	{elf.EM_X86_64, binary.LittleEndian, 7, 6, 16, 8, -8, false, 4, uint32(elf.R_X86_64_RELATIVE)},
	{elf.EM_AARCH64, binary.LittleEndian, 31, 29, 30, 0, 0, true, 4, uint32(elf.R_AARCH64_RELATIVE)},
	{elf.EM_S390, binary.BigEndian, 15, 11, 14, 160, 0, false, 8, uint32(elf.R_390_RELATIVE)},
	{elf.EM_AARCH64, binary.BigEndian, 31, 29, 30, 0, 0, true, 4, uint32(elf.R_AARCH64_RELATIVE)},
}
