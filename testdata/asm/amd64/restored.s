# Functions that begin with .cfi_restore, as parts that a compiler moved away from
# their function do (.cold). GNU as moves what stands in front of the first
# advance into the CIE, where there is nothing to go back to (PR gas/33170): the
# registers have no rule. The cold part comes first, before there is another CIE
# that the function could have.

	.section .text.unlikely,"ax",@progbits
	.type	hot.cold, @function
hot.cold:
	.cfi_startproc
	.cfi_def_cfa_offset 24
	.cfi_restore %rbp
	.cfi_restore %rbx
	pushq	%rbp
	.cfi_def_cfa_offset 32
	.cfi_offset %rbp, -32
	call	leaf
	popq	%rbp
	.cfi_def_cfa_offset 24
	.cfi_restore %rbp
	addq	$16, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	hot.cold, .-hot.cold

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# Jumps to its cold part, where the frame is there, and rbp and rbx have their
# callers' values again.
	.globl	hot
	.type	hot, @function
hot:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	pushq	%rbx
	.cfi_def_cfa_offset 24
	.cfi_offset %rbx, -24
	movl	%edi, %ebx
	movl	%edi, %ebp
	call	leaf
	movq	(%rsp), %rbx
	movq	8(%rsp), %rbp
	jmp	hot.cold
	.cfi_endproc
	.size	hot, .-hot

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	movl	$1, %edi
	call	hot
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
