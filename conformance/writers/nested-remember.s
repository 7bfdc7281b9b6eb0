# amd64: as --gsframe. The two .cfi_restore_state restore rsp+24, c-24, and then rsp+16, u. In 2.47, both restore the
# former; in 2.40 and 2.44, both restore the latter.
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
