# amd64: as --gsframe (2.47). FP = *(CFA-16), given by the expression "lit16, minus", is encoded in 5 data words: the
# fourth is 0 (no rule), so the fifth is unused.
f:	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_escape 0x10, 6, 2, 0x40, 0x1c
	pop	%rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
