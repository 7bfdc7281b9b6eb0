# amd64: as --gsframe. 2.40 and 2.44 fail with "Fatal error: SFrame unsupported offset value" instead of omitting the
# function.
f:	.cfi_startproc
	subq	%rax, %rsp
	.cfi_def_cfa_offset 0x90000000
	ret
	.cfi_endproc
