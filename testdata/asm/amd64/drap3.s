# Rarer DRAP shapes: r13 instead of r10 (used where r10 carries the static
# chain), rbp saved at a plain CFA offset while the CFA is *(rbp-16), and
# early exits, once inside the realigned part with remember/restore and once
# before it.
#
# SFrame V2: the r13 functions have rsp-based rows (rsp+8, rsp+16, rsp+24)
# before and after the DRAP part. In realign_r13 the rows without an SFrame
# form are the last of the function, in realign_plainfp they are in two
# pieces, and realign_late ends with a plain row.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	(%rdi), %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# r13 is pushed first, so its save has a plain rule; the rest is relative to
# rbp. The early exit shares the epilogue and comes after it.
	.globl	realign_r13
	.type	realign_r13, @function
realign_r13:
	.cfi_startproc
	pushq	%r13
	.cfi_def_cfa_offset 16
	.cfi_offset %r13, -16
	leaq	16(%rsp), %r13
	.cfi_def_cfa %r13, 0
	andq	$-32, %rsp
	pushq	-8(%r13)
	pushq	%rbp
	movq	%rsp, %rbp
	# rbp saved at rbp+0
	.cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
	pushq	%r12
	pushq	%r13
	# CFA = *(rbp-16), r12 saved at rbp-8
	.cfi_escape 0x0f, 0x03, 0x76, 0x70, 0x06
	.cfi_escape 0x10, 0x0c, 0x02, 0x76, 0x78
	subq	$48, %rsp
	testl	%edi, %edi
	js	2f
	movl	%edi, %r12d
	leaq	-64(%rbp), %rdi
	movl	$1, (%rdi)
	call	leaf
	addl	%r12d, %eax
1:
	leaq	-16(%rbp), %rsp
	popq	%r13
	.cfi_remember_state
	.cfi_def_cfa %r13, 0
	popq	%r12
	popq	%rbp
	leaq	-16(%r13), %rsp
	.cfi_def_cfa %rsp, 16
	popq	%r13
	.cfi_def_cfa_offset 8
	ret
2:
	.cfi_restore_state
	movl	$-1, %eax
	jmp	1b
	.cfi_endproc
	.size	realign_r13, .-realign_r13

# rbp is pushed before the realignment: its rule is the plain CFA-24, and
# there is no expression for it although the CFA is *(rbp-16).
	.globl	realign_plainfp
	.type	realign_plainfp, @function
realign_plainfp:
	.cfi_startproc
	pushq	%r13
	.cfi_def_cfa_offset 16
	.cfi_offset %r13, -16
	pushq	%rbp
	.cfi_def_cfa_offset 24
	.cfi_offset %rbp, -24
	leaq	24(%rsp), %r13
	.cfi_def_cfa %r13, 0
	andq	$-32, %rsp
	movq	%rsp, %rbp
	pushq	%rbx
	pushq	%r13
	# CFA = *(rbp-16), rbx saved at rbp-8
	.cfi_escape 0x0f, 0x03, 0x76, 0x70, 0x06
	.cfi_escape 0x10, 0x03, 0x02, 0x76, 0x78
	subq	$48, %rsp
	movl	%edi, %ebx
	leaq	-64(%rbp), %rdi
	movl	$2, (%rdi)
	testl	%ebx, %ebx
	js	1f
	call	leaf
	addl	%ebx, %eax
	movq	-8(%rbp), %rbx
	movq	-16(%rbp), %r13
	.cfi_remember_state
	.cfi_def_cfa %r13, 0
	leaq	-24(%r13), %rsp
	.cfi_def_cfa %rsp, 24
	popq	%rbp
	.cfi_def_cfa_offset 16
	popq	%r13
	.cfi_def_cfa_offset 8
	ret
1:
	.cfi_restore_state
	movl	$-1, %eax
	movq	-8(%rbp), %rbx
	movq	-16(%rbp), %r13
	.cfi_def_cfa %r13, 0
	leaq	-24(%r13), %rsp
	.cfi_def_cfa %rsp, 24
	popq	%rbp
	.cfi_def_cfa_offset 16
	popq	%r13
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	realign_plainfp, .-realign_plainfp

# The test comes before the realignment; the exit without a frame is last,
# with .cfi_restore for what the epilogue left behind.
	.globl	realign_late
	.type	realign_late, @function
realign_late:
	.cfi_startproc
	testl	%edi, %edi
	js	1f
	leaq	8(%rsp), %r10
	.cfi_def_cfa %r10, 0
	andq	$-32, %rsp
	pushq	-8(%r10)
	pushq	%rbp
	movq	%rsp, %rbp
	.cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
	pushq	%r10
	.cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06
	subq	$40, %rsp
	leaq	-48(%rbp), %rdi
	movl	$3, (%rdi)
	call	leaf
	addq	$40, %rsp
	popq	%r10
	.cfi_def_cfa %r10, 0
	popq	%rbp
	leaq	-8(%r10), %rsp
	.cfi_def_cfa %rsp, 8
	ret
1:
	.cfi_restore %rbp
	movl	$-1, %eax
	ret
	.cfi_endproc
	.size	realign_late, .-realign_late

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	movl	$1, %edi
	call	realign_r13
	movl	$-1, %edi
	call	realign_r13
	movl	$1, %edi
	call	realign_plainfp
	movl	$-1, %edi
	call	realign_plainfp
	movl	$1, %edi
	call	realign_late
	movl	$-1, %edi
	call	realign_late
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
