# amd64: as --gsframe. The last row still has FP at CFA-16, but the CFI says that it is unchanged.
f:	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset 6, -16
	pop	%rbp
	.cfi_def_cfa_offset 8
	.cfi_same_value 6
	ret
	.cfi_endproc
