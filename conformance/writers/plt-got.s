# amd64: as --gsframe, ld -shared. For .plt.got, ld writes the CFA sp+16 starting at the first byte, but rsp+8
# in its .eh_frame.
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
