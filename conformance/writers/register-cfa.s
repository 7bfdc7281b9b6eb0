# amd64: as --gsframe (2.40). The CFA is rbx+16; the row says sp+16.
f:	.cfi_startproc
	mov	%rsp, %rbx
	.cfi_def_cfa 3, 16
	ret
	.cfi_endproc
