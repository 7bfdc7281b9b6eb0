# Frame-pointer frames: saved callee registers at fixed places below rbp, and
# rows based on rbp whose offset is not 16 or changes on the way.
#
# SFrame: the CFA base is rsp or rbp, one bit per row, and the offset belongs
# to each row, so an rbp-based CFA need not be rbp+16. Pushes below an
# rbp-based CFA do not change it and add no row.
# The .note.gnu.property section marks the binary as IBT-enabled.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	endbr64
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# Callee registers are stored with mov, in one go; "leave" at the end.
	.globl	saved
	.type	saved, @function
saved:
	.cfi_startproc
	endbr64
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	subq	$48, %rsp
	movq	%rbx, -40(%rbp)
	movq	%r12, -32(%rbp)
	movq	%r13, -24(%rbp)
	.cfi_offset %rbx, -56
	.cfi_offset %r12, -48
	.cfi_offset %r13, -40
	movl	%edi, %ebx
	call	leaf
	addl	%ebx, %eax
	movq	-40(%rbp), %rbx
	movq	-32(%rbp), %r12
	movq	-24(%rbp), %r13
	leave
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	saved, .-saved

# A push before rbp: CFA = rbp+24. Then a push, which leaves the CFA alone,
# and then rbp itself moves: the offset changes to 64 and back to 24.
	.globl	moved
	.type	moved, @function
moved:
	.cfi_startproc
	endbr64
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	pushq	%rbp
	.cfi_def_cfa_offset 24
	.cfi_offset %rbp, -24
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%r12
	.cfi_offset %r12, -32
	movl	%edi, %ebx
	subq	$40, %rbp
	.cfi_def_cfa_offset 64
	call	leaf
	addq	$40, %rbp
	.cfi_def_cfa_offset 24
	addl	%ebx, %eax
	popq	%r12
	popq	%rbp
	.cfi_def_cfa %rsp, 16
	popq	%rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	moved, .-moved

# rbp is set, but rsp stays the CFA base: first pushes and a sub with
# rsp-based rows, then the switch to rbp, and back to rsp in the middle.
	.type	late, @function
late:
	.cfi_startproc
	endbr64
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx, -24
	subq	$8, %rsp
	.cfi_def_cfa_offset 32
	movl	%edi, %ebx
	.cfi_def_cfa %rbp, 16
	call	leaf
	addl	%ebx, %eax
	.cfi_def_cfa %rsp, 32
	addq	$8, %rsp
	.cfi_def_cfa_offset 24
	popq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_restore %rbx
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	late, .-late

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	endbr64
	movl	$1, %edi
	call	saved
	call	moved
	call	late
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

# GNU_PROPERTY_X86_FEATURE_1_AND with IBT.
	.section .note.gnu.property,"a",@note
	.balign	8
	.long	4, 16, 5
	.asciz	"GNU"
	.long	0xc0000002, 4, 1, 0

	.section .note.GNU-stack,"",@progbits
