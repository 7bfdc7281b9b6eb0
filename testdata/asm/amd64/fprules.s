# The less common rules for rbp, rsp and the CFA: some have an SFrame form
# under another spelling, some have none.
#
# SFrame: rbp is either unchanged or saved at CFA+n. Rules that say the same
# in other words (same_value; an expression CFA-16; one of rbp+0 while the CFA
# is rbp+16) can become such a row; rbp in a register or computed cannot. The
# caller's rsp is the CFA itself: val_offset 0 says just that, val_offset 8
# does not. A CFA expression that is rsp+n or rbp+n is the same as def_cfa.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# rbp's value is kept in rbx: no SFrame form in the middle.
	.globl	fp_register
	.type	fp_register, @function
fp_register:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	movq	%rbp, %rbx
	.cfi_register %rbp, %rbx
	movl	%edi, %ebp
	call	leaf
	addl	%ebp, %eax
	movq	%rbx, %rbp
	.cfi_restore %rbp
	popq	%rbx
	.cfi_def_cfa_offset 8
	.cfi_restore %rbx
	ret
	.cfi_endproc
	.size	fp_register, .-fp_register

# same_value after a save: unchanged again.
	.globl	fp_same
	.type	fp_same, @function
fp_same:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movl	%edi, %ebp
	call	leaf
	addl	%ebp, %eax
	movq	(%rsp), %rbp
	.cfi_same_value %rbp
	movl	%eax, %edi
	call	leaf
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	fp_same, .-fp_same

# rbp saved at CFA-16, as DW_CFA_expression {DW_OP_lit16, DW_OP_minus}.
	.globl	fp_cfa_expr
	.type	fp_cfa_expr, @function
fp_cfa_expr:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_escape 0x10, 0x06, 0x02, 0x40, 0x1c
	movl	%edi, %ebp
	call	leaf
	addl	%ebp, %eax
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	fp_cfa_expr, .-fp_cfa_expr

# rbp saved at rbp+0, as DW_CFA_expression {DW_OP_breg6 0}, with CFA = rbp+16:
# the same as CFA-16. In the epilogue the CFA is rsp-based again while the
# expression stays, until .cfi_restore.
	.globl	fp_rbp_expr
	.type	fp_rbp_expr, @function
fp_rbp_expr:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	.cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
	call	leaf
	movq	%rbp, %rsp
	.cfi_def_cfa_register %rsp
	nop
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	fp_rbp_expr, .-fp_rbp_expr

# rbp is a value, not a place: DW_CFA_val_expression {DW_OP_breg3 8}, that is
# rbx+8.
	.globl	fp_value
	.type	fp_value, @function
fp_value:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx, -24
	leaq	-8(%rbp), %rbx
	.cfi_escape 0x16, 0x06, 0x02, 0x73, 0x08
	movl	%edi, %ebp
	call	leaf
	leaq	8(%rbx), %rbp
	.cfi_offset %rbp, -16
	popq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_restore %rbx
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	fp_value, .-fp_value

# rbp's value is CFA+16, which holds for its only caller, _start.
	.type	fp_val_offset, @function
fp_val_offset:
	.cfi_startproc
	subq	$8, %rsp
	.cfi_def_cfa_offset 16
	.cfi_val_offset %rbp, 16
	movl	$3, %ebp
	call	leaf
	leaq	32(%rsp), %rbp
	.cfi_restore %rbp
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	fp_val_offset, .-fp_val_offset

# The caller's rsp is the CFA: says what holds anyway.
	.globl	sp_same
	.type	sp_same, @function
sp_same:
	.cfi_startproc
	subq	$8, %rsp
	.cfi_def_cfa_offset 16
	.cfi_val_offset %rsp, 0
	call	leaf
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	sp_same, .-sp_same

# Pops one argument of its caller ("ret $8"): the caller's rsp is CFA+8.
	.globl	sp_popped
	.type	sp_popped, @function
sp_popped:
	.cfi_startproc
	subq	$8, %rsp
	.cfi_def_cfa_offset 16
	.cfi_val_offset %rsp, 8
	movq	16(%rsp), %rdi
	call	leaf
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	ret	$8
	.cfi_endproc
	.size	sp_popped, .-sp_popped

# CFA expressions that are a register plus a constant:
# {breg7 24}; {breg7 0, plus_uconst 200}; {breg7 208, constu 8, minus};
# {breg6 16}.
	.globl	cfa_expr
	.type	cfa_expr, @function
cfa_expr:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	pushq	%rbx
	.cfi_escape 0x0f, 0x02, 0x77, 0x18
	.cfi_offset %rbx, -24
	subq	$176, %rsp
	.cfi_escape 0x0f, 0x05, 0x77, 0x00, 0x23, 0xc8, 0x01
	call	leaf
	nop
	.cfi_escape 0x0f, 0x06, 0x77, 0xd0, 0x01, 0x10, 0x08, 0x1c
	leaq	184(%rsp), %rbp
	.cfi_escape 0x0f, 0x02, 0x76, 0x10
	call	leaf
	addq	$176, %rsp
	popq	%rbx
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	cfa_expr, .-cfa_expr

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	movl	$1, %edi
	call	fp_register
	call	fp_same
	call	fp_cfa_expr
	call	fp_rbp_expr
	call	fp_value
	call	sp_same
	pushq	$1
	call	sp_popped
	call	cfa_expr
	leaq	16(%rsp), %rbp
	call	fp_val_offset
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
