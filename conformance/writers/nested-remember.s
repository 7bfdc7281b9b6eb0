# amd64: as --gsframe. The two .cfi_restore_state lead to rsp+24, c-24, and then to rsp+16, u. As of 2.47 both lead to the former, before to the latter.
f:	.cfi_startproc
	push	%rbx
	.cfi_def_cfa_offset 16
	.cfi_remember_state
	push	%rbp
	.cfi_def_cfa_offset 24
	.cfi_offset 6, -24
	.cfi_remember_state
	mov	%rsp, %rbp
	.cfi_def_cfa_register 6
	nop
	.cfi_restore_state
	pop	%rbp
	.cfi_restore_state
	ret
	.cfi_endproc
