# Plain prologues and epilogues: push rbp / mov rsp,rbp / further pushes /
# sub rsp and the way back, a function that never uses rbp as CFA base, and
# leaves without a frame.
#
# SFrame: the ordinary case. Every row is "CFA = rsp + n" or "CFA = rbp + n"
# with the return address at CFA-8, and every row can be represented. Three
# spellings of the epilogue show when rbp's save slot stays in the rows: a
# saved rbp stays at its CFA offset until .cfi_restore, also after the pop.
# Saves of rbx and r12..r15 add DWARF rules, but no SFrame rows.
# The .note.gnu.property section marks the binary as IBT-enabled.

	.text

# Leaf: the CIE's initial row only.
	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	endbr64
	leal	(%rdi,%rsi), %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# rbp becomes the CFA base; five more pushes below it.
	.globl	full
	.type	full, @function
full:
	.cfi_startproc
	endbr64
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%r15
	.cfi_offset %r15, -24
	pushq	%r14
	.cfi_offset %r14, -32
	pushq	%r13
	.cfi_offset %r13, -40
	pushq	%r12
	.cfi_offset %r12, -48
	pushq	%rbx
	.cfi_offset %rbx, -56
	subq	$24, %rsp
	movl	%edi, %ebx
	movl	%ebx, %esi
	call	leaf
	addq	$24, %rsp
	popq	%rbx
	popq	%r12
	popq	%r13
	popq	%r14
	popq	%r15
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	full, .-full

# CFA stays rsp-based; rbp is saved, but is an ordinary register.
	.globl	nofp
	.type	nofp, @function
nofp:
	.cfi_startproc
	endbr64
	pushq	%r12
	.cfi_def_cfa_offset 16
	.cfi_offset %r12, -16
	pushq	%rbp
	.cfi_def_cfa_offset 24
	.cfi_offset %rbp, -24
	pushq	%rbx
	.cfi_def_cfa_offset 32
	.cfi_offset %rbx, -32
	subq	$32, %rsp
	.cfi_def_cfa_offset 64
	movl	%edi, %ebp
	movl	%esi, %ebx
	call	leaf
	addl	%ebp, %eax
	addq	$32, %rsp
	.cfi_def_cfa_offset 32
	popq	%rbx
	.cfi_def_cfa_offset 24
	popq	%rbp
	.cfi_def_cfa_offset 16
	popq	%r12
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	nofp, .-nofp

# As nofp, with .cfi_restore after each pop: the last rows lose rbp's slot.
	.type	nofp_restore, @function
nofp_restore:
	.cfi_startproc
	endbr64
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx, -24
	movl	%edi, %ebp
	movl	%esi, %ebx
	call	leaf
	addl	%ebp, %eax
	addl	%ebx, %eax
	popq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_restore %rbx
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	nofp_restore, .-nofp_restore

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	endbr64
	movl	$1, %edi
	movl	$2, %esi
	call	full
	call	nofp
	call	nofp_restore
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
