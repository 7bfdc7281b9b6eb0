# DRAP with more callee saves and a dynamic allocation: rbx, r12 and r13 are
# saved relative to rbp by DW_CFA_expression, before and after the slot that
# holds the CFA; the body moves rsp by a run-time amount.
#
# SFrame V2: as in drap1.s the rows between the lea and the last
# instructions have no SFrame form. The further expressions concern
# registers SFrame does not track and must not make anything worse.

	.text

	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	(%rdi), %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# CFA = *(rbp-24), between the saves.
	.globl	realign_alloca
	.type	realign_alloca, @function
realign_alloca:
	.cfi_startproc
	leaq	8(%rsp), %r10
	.cfi_def_cfa %r10, 0
	andq	$-32, %rsp
	pushq	-8(%r10)
	pushq	%rbp
	movq	%rsp, %rbp
	# rbp saved at rbp+0
	.cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
	pushq	%r13
	# r13 saved at rbp-8
	.cfi_escape 0x10, 0x0d, 0x02, 0x76, 0x78
	pushq	%r12
	pushq	%r10
	# CFA = *(rbp-24), r12 saved at rbp-16
	.cfi_escape 0x0f, 0x03, 0x76, 0x68, 0x06
	.cfi_escape 0x10, 0x0c, 0x02, 0x76, 0x70
	pushq	%rbx
	# rbx saved at rbp-32
	.cfi_escape 0x10, 0x03, 0x02, 0x76, 0x60
	subq	$64, %rsp
	movl	%edi, %ebx
	leaq	15(%rdi), %rax
	andq	$-16, %rax
	subq	%rax, %rsp
	leaq	31(%rsp), %r12
	andq	$-32, %r12
	leaq	-64(%rbp), %r13
	movl	$1, (%r13)
	movq	%r13, %rdi
	call	leaf
	addl	%ebx, %eax
	leaq	-32(%rbp), %rsp
	popq	%rbx
	popq	%r10
	.cfi_def_cfa %r10, 0
	popq	%r12
	popq	%r13
	popq	%rbp
	leaq	-8(%r10), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	realign_alloca, .-realign_alloca

# Only rbx after the slot: CFA = *(rbp-8), rbx saved at rbp-16.
	.globl	realign_rbx
	.type	realign_rbx, @function
realign_rbx:
	.cfi_startproc
	leaq	8(%rsp), %r10
	.cfi_def_cfa %r10, 0
	andq	$-32, %rsp
	pushq	-8(%r10)
	pushq	%rbp
	movq	%rsp, %rbp
	.cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
	pushq	%r10
	.cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06
	pushq	%rbx
	.cfi_escape 0x10, 0x03, 0x02, 0x76, 0x70
	subq	$64, %rsp
	movl	%edi, %ebx
	leaq	-64(%rbp), %rdi
	movl	$2, (%rdi)
	call	leaf
	addl	%ebx, %eax
	addq	$64, %rsp
	popq	%rbx
	popq	%r10
	.cfi_def_cfa %r10, 0
	popq	%rbp
	leaq	-8(%r10), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	realign_rbx, .-realign_rbx

	.section .note.GNU-stack,"",@progbits
