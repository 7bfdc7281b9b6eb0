package translate

import "cfi2sframe/sframe"

// System V ABI for AMD64, figure 3.36, "DWARF Register Number Mapping".
var amd64 = abi{
	id:      sframe.AMD64Little,
	sp:      7,
	fp:      6,
	ra:      16,
	pc:      16,
	fixedRA: -8,
	names: []string{
		"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp",
		"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rip",
	},
}
