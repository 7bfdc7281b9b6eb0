package code

import "cfi2sframe/internal/insn"

// Source: System V ABI for AMD64, 3.2: a call leaves the return address at the top of the stack, and signals do not
// overwrite the 128 bytes below it. Registers are numbered as in instruction encodings; figure 3.36 of the ABI lists
// their DWARF numbers.
var amd64 = newMachine(machine{
	decode: insn.DecodeAMD64,
	dwarf:  []uint64{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15},
	align:  1,
	sp:     4, fp: 5, ra: insn.None,
	scratch: 1<<0 | 1<<1 | 1<<2 | 1<<6 | 1<<7 | 0xf<<8,
	holders: []insn.Reg{4, 5, 3, 12, 13, 14, 15, 0, 1, 2, 6, 7, 8, 9, 10, 11},
	atEntry: -8,
	redZone: 128,
	number:  0,
	leaving: []int32{15, 60, 231}, // rt_sigreturn, exit, exit_group
	spawns:  []int32{56, 435},     // clone, clone3
})
