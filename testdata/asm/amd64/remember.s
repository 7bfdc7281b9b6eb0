# .cfi_remember_state and .cfi_restore_state around early exits: one level,
# nested, and remembered at the function's first address; and .cfi_restore,
# which takes a register back to the CIE's rule in the middle of a function.
#
# SFrame: there is no state stack, each row stands alone, so a restored state
# has to be written out as a full row again. Restoring must bring back both
# the CFA and rbp's rule.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# One early exit with a full epilogue.
	.globl	one
	.type	one, @function
one:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx, -24
	subq	$8, %rsp
	.cfi_def_cfa_offset 32
	movl	%edi, %ebx
	testl	%edi, %edi
	jns	1f
	.cfi_remember_state
	movl	$-1, %eax
	addq	$8, %rsp
	.cfi_def_cfa_offset 24
	popq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_restore %rbx
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
1:
	.cfi_restore_state
	call	leaf
	movl	%ebx, %ebp
	addl	%ebp, %eax
	addq	$8, %rsp
	.cfi_def_cfa_offset 24
	popq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	one, .-one

# Two levels: the inner state is rbp-based, the outer rsp-based.
	.globl	nested
	.type	nested, @function
nested:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	testl	%edi, %edi
	js	2f
	.cfi_remember_state
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%rbx
	.cfi_offset %rbx, -24
	cmpl	$16, %edi
	ja	1f
	.cfi_remember_state
	movl	%edi, %eax
	popq	%rbx
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
1:
	.cfi_restore_state
	movl	%edi, %ebx
	call	leaf
	addl	%ebx, %eax
	popq	%rbx
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbx
	.cfi_restore %rbp
	ret
2:
	.cfi_restore_state
	movl	$-1, %eax
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	nested, .-nested

# The state of the very first address, restored after the epilogue of the
# first half, which leaves other rules behind.
	.globl	entry
	.type	entry, @function
entry:
	.cfi_startproc
	.cfi_remember_state
	testl	%edi, %edi
	js	1f
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	call	leaf
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
1:
	.cfi_restore_state
	xorl	%eax, %eax
	ret
	.cfi_endproc
	.size	entry, .-entry

# rbp goes back to the CIE's rule in the middle, and is saved again later at
# another offset.
	.type	restore_mid, @function
restore_mid:
	.cfi_startproc
	subq	$24, %rsp
	.cfi_def_cfa_offset 32
	movq	%rbp, 16(%rsp)
	.cfi_offset %rbp, -16
	movl	%edi, %ebp
	call	leaf
	addl	%eax, %ebp
	movl	%ebp, %eax
	movq	16(%rsp), %rbp
	.cfi_restore %rbp
	movl	%eax, %edi
	call	leaf
	movq	%rbp, (%rsp)
	.cfi_offset %rbp, -32
	movl	%eax, %ebp
	movl	%ebp, %edi
	call	leaf
	movq	(%rsp), %rbp
	.cfi_restore %rbp
	addq	$24, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	restore_mid, .-restore_mid

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	movl	$5, %edi
	call	one
	movl	$-5, %edi
	call	one
	movl	$5, %edi
	call	nested
	movl	$50, %edi
	call	nested
	movl	$-5, %edi
	call	nested
	movl	$5, %edi
	call	entry
	movl	$-5, %edi
	call	entry
	movl	$5, %edi
	call	restore_mid
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
