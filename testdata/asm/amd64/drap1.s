# Stack realignment with a dynamic realign argument pointer (DRAP), the
# shape of GCC with r10: r10 holds the CFA at first, then the CFA is loaded
# from a slot below rbp.
#
# SFrame V2: neither CFA = r10 nor CFA = *(rbp-8) has a row, as the base is
# rsp or rbp without a load. rbp's own save is an expression too: the slot is
# at rbp+0, and not at a constant distance from the CFA. Only the first and
# the last row have a CFA with an SFrame form (rsp+8). At the last one the
# expression is still in force although rbp has been popped.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	(%rdi), %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

	.globl	realign
	.type	realign, @function
realign:
	.cfi_startproc
	leaq	8(%rsp), %r10
	.cfi_def_cfa %r10, 0
	andq	$-32, %rsp
	pushq	-8(%r10)
	pushq	%rbp
	movq	%rsp, %rbp
	# rbp saved at rbp+0
	.cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
	pushq	%r10
	# CFA = *(rbp-8)
	.cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06
	subq	$40, %rsp
	leaq	-48(%rbp), %rdi
	movl	$0, (%rdi)
	call	leaf
	addq	$40, %rsp
	popq	%r10
	.cfi_def_cfa %r10, 0
	popq	%rbp
	leaq	-8(%r10), %rsp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	realign, .-realign

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	call	realign
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
