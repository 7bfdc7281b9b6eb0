package translate

import "cfi2sframe/sframe"

// zSeries ELF Application Binary Interface Supplement, "DWARF Register Number
// Mapping". The CFA is 160 bytes above the caller's SP: the register save area.
var s390x = abi{
	id:        sframe.S390XBig,
	sp:        15,
	fp:        11,
	ra:        14,
	pc:        noReg,
	spFromCFA: -160,
	savesSP:   true,
	names: []string{
		"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
		"f0", "f2", "f4", "f6", "f1", "f3", "f5", "f7", "f8", "f10", "f12", "f14", "f9", "f11", "f13", "f15",
	},
}
