# amd64: as --gsframe. The rule for the caller's stack pointer (CFA+8) is dropped; in SFrame it is the CFA.
f:	.cfi_startproc
	nop
	.cfi_val_offset 7, 8
	ret
	.cfi_endproc
