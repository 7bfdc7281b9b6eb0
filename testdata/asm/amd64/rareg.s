# The return address in a register: an epilogue that ends in a jump, with rcx
# as CFA base, then rsp, then the return address popped into rcx and
# CFA = rsp+0. The shape of the functions of an unwinder's run-time library
# that return into another frame.
#
# SFrame V2: on AMD64 the return address is at CFA-8 and nowhere else, so
# the row with .cfi_register rip, rcx has no SFrame form, although its CFA
# (rsp+0) has one. CFA = rcx+8 has no SFrame form either.

	.text

	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

	.globl	resume
	.type	resume, @function
resume:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%rbx
	pushq	%rax
	.cfi_offset %rbx, -24
	.cfi_offset %rax, -32
	movl	%edi, %ebx
	call	leaf
	testl	%eax, %eax
	js	1f
	.cfi_remember_state
	movq	-8(%rbp), %rbx
	leave
	.cfi_def_cfa %rsp, 8
	ret
1:
	.cfi_restore_state
	leaq	8(%rbp), %rcx
	movq	-16(%rbp), %rax
	movq	-8(%rbp), %rbx
	movq	0(%rbp), %rbp
	.cfi_restore %rbp
	.cfi_def_cfa %rcx, 8
	movq	%rcx, %rsp
	.cfi_def_cfa_register %rsp
	popq	%rcx
	.cfi_register %rip, %rcx
	.cfi_def_cfa_offset 0
	jmp	*%rcx
	.cfi_endproc
	.size	resume, .-resume

# The return address sits in r11 in the middle and goes back to the stack.
	.globl	ra_mid
	.type	ra_mid, @function
ra_mid:
	.cfi_startproc
	popq	%r11
	.cfi_def_cfa_offset 0
	.cfi_register %rip, %r11
	movl	%edi, %eax
	pushq	%r11
	.cfi_def_cfa_offset 8
	.cfi_offset %rip, -8
	ret
	.cfi_endproc
	.size	ra_mid, .-ra_mid

	.section .note.GNU-stack,"",@progbits
