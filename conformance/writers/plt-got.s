# amd64: as --gsframe, ld -shared. ld gives .plt.got the CFA sp+16 from its first byte on; its own .eh_frame says rsp+8.
	.globl	f
f:	.cfi_startproc
	subq	$8, %rsp
	.cfi_def_cfa_offset 16
	movq	g@GOTPCREL(%rip), %rax
	call	g@PLT
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
