# amd64: as --gsframe. 2.40 and 2.44 write a row with the return address at CFA-8 for code without a caller.
f:	.cfi_startproc
	.cfi_undefined 16
	hlt
	.cfi_endproc
