# amd64: as --gsframe. 2.40 and 2.44 have a row for code without a caller, with the return address at CFA-8.
f:	.cfi_startproc
	.cfi_undefined 16
	hlt
	.cfi_endproc
