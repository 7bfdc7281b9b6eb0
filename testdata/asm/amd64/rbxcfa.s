# rbx as CFA base: a function that runs a callback on another stack keeps its
# own stack pointer in rbx meanwhile. Rows: rsp+24, rsp+56, rbx+56, and back.
#
# SFrame: the base is rsp or rbp, so the rbx rows have no SFrame form, while
# the rows before and after do. In the rbx rows rsp points into another stack
# and rbp is not a frame pointer: neither is a substitute.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# rdi: top of the other stack, rsi: callback.
	.globl	on_stack
	.type	on_stack, @function
on_stack:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx, -24
	subq	$32, %rsp
	.cfi_def_cfa_offset 56
	xorl	%ebp, %ebp
	movq	%rsp, %rbx
	.cfi_def_cfa_register %rbx
	movq	%rdi, %rsp
	call	*%rsi
	movq	%rbx, %rsp
	.cfi_def_cfa_register %rsp
	addq	$32, %rsp
	.cfi_def_cfa_offset 24
	popq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	on_stack, .-on_stack

# The same with the rbx rows last in the function's address order.
	.globl	on_stack_last
	.type	on_stack_last, @function
on_stack_last:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	testq	%rdi, %rdi
	jnz	2f
1:
	.cfi_remember_state
	popq	%rbx
	.cfi_def_cfa_offset 8
	ret
2:
	.cfi_restore_state
	movq	%rsp, %rbx
	.cfi_def_cfa_register %rbx
	movq	%rdi, %rsp
	call	*%rsi
	movq	%rbx, %rsp
	jmp	1b
	.cfi_endproc
	.size	on_stack_last, .-on_stack_last

	.section .note.GNU-stack,"",@progbits
