package code

import "cfi2sframe/internal/insn"

// Source: Procedure Call Standard for the Arm 64-bit Architecture, 6.1.1: functions need not preserve x0 to
// x18. A call leaves the return address in x30. Signals overwrite everything below SP (6.4.5.1). Register 31 is SP.
var aarch64 = newMachine(machine{
	decode: insn.DecodeAArch64,
	dwarf: []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
		27, 28, 29, 30, 31},
	align: 4,
	sp:    31, fp: 29, ra: 30,
	number:  8,
	leaving: []int32{93, 94, 139}, // exit, exit_group, rt_sigreturn
	spawns:  []int32{220, 435},    // clone, clone3
	scratch: 1<<19 - 1,
	holders: []insn.Reg{31, 29, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 9, 10, 11, 12, 13, 14, 15, 16, 17, 0, 1, 2, 3,
		4, 5, 6, 7, 8},
})
