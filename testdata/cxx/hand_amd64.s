# Functions of parts.h, with CFI by hand: one with a frame pointer, one without.
	.section .text.by_hand,"ax",@progbits
	.globl by_hand
	.type by_hand, @function
by_hand:
	.cfi_startproc
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	leal 1(%rdi), %eax
	popq %rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size by_hand, .-by_hand

	.text
	nop
	.globl calls_back
	.type calls_back, @function
calls_back:
	.cfi_startproc
	subq $24, %rsp
	.cfi_adjust_cfa_offset 24
	movq %rdi, %rax
	movl %esi, %edi
	call *%rax
	addq $24, %rsp
	.cfi_adjust_cfa_offset -24
	ret
	.cfi_endproc
	.size calls_back, .-calls_back
	.section .note.GNU-stack,"",@progbits
