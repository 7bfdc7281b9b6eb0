# Dynamic stack allocation: rsp changes by amounts known only at run time, in
# the middle and in a loop, while the CFA stays rbp+16.
#
# SFrame: no row is needed for the moves of rsp, as the CFA is based on rbp;
# from the switch to rbp to the epilogue there is one row, however rsp moves.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# One allocation of rdi bytes, rounded up to 16.
	.globl	once
	.type	once, @function
once:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%rbx
	.cfi_offset %rbx, -24
	subq	$8, %rsp
	movq	%rdi, %rbx
	leaq	15(%rdi), %rax
	andq	$-16, %rax
	subq	%rax, %rsp
	movb	$0, (%rsp)
	call	leaf
	addl	%ebx, %eax
	movq	-8(%rbp), %rbx
	leave
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	once, .-once

# An allocation per turn of a loop; rsp is reset from rbp, registers popped.
	.globl	loop_alloca
	.type	loop_alloca, @function
loop_alloca:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%r12
	pushq	%rbx
	.cfi_offset %r12, -24
	.cfi_offset %rbx, -32
	movq	%rdi, %rbx
	movl	$3, %r12d
1:
	movq	%rbx, %rax
	andq	$-16, %rax
	subq	%rax, %rsp
	movl	%r12d, %edi
	call	leaf
	decl	%r12d
	jnz	1b
	leaq	-16(%rbp), %rsp
	popq	%rbx
	popq	%r12
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	loop_alloca, .-loop_alloca

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	movl	$100, %edi
	call	once
	movl	$64, %edi
	call	loop_alloca
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
