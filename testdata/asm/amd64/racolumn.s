# Functions whose return address column is that of rbp or rsp, as
# .cfi_return_column says. A column has one rule: where an unwinder finds the
# caller's rbp, it finds the return address.
#
# SFrame: rbp and the return address have the same rule. The caller's rsp is the
# CFA itself, so that functions which return to it are left out.

	.text

# Returns with the return address in rbp.
	.globl	fp_column
	.type	fp_column, @function
fp_column:
	.cfi_startproc
	.cfi_return_column %rbp
	.cfi_offset %rbp, -8
	subq	$8, %rsp
	.cfi_def_cfa_offset 16
	call	leaf
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	movq	(%rsp), %rbp
	ret
	.cfi_endproc
	.size	fp_column, .-fp_column

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# Saves the return address a second time, and has it there.
	.globl	fp_pushed
	.type	fp_pushed, @function
fp_pushed:
	.cfi_startproc
	.cfi_return_column %rbp
	.cfi_offset %rbp, -8
	pushq	(%rsp)
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	call	leaf
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	fp_pushed, .-fp_pushed

# Returns on the stack that it has the return address of. Nothing calls it.
	.globl	sp_column
	.type	sp_column, @function
sp_column:
	.cfi_startproc
	.cfi_return_column %rsp
	.cfi_offset %rsp, -8
	movq	(%rsp), %rsp
	jmp	*%rsp
	.cfi_endproc
	.size	sp_column, .-sp_column

	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined %rip
	call	fp_column
	call	fp_pushed
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.cfi_endproc
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
