# Undefined registers: an entry point with .cfi_undefined rip (the outermost
# frame), a function whose return address is lost in the middle, and one
# whose rbp is undefined for a part of the body.
#
# SFrame: an undefined return address means the end of the stack; a row with
# CFA-8 as return address would point at argc or at foreign memory. An
# undefined rbp is not "unchanged": a row without an rbp slot would say that
# rbp still holds the caller's value.
# Linked as ET_EXEC (addresses are not relative to 0), against pltlib.so.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# Undefined from the first address on.
	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined %rip
	xorl	%ebp, %ebp
	popq	%rsi
	.cfi_def_cfa_offset 0
	movq	%rsp, %rdx
	# rsp is a multiple of 16 at the entry, so this subtracts 8.
	andq	$-16, %rsp
	.cfi_def_cfa_offset 8
	pushq	%rax
	.cfi_def_cfa_offset 16
	pushq	%rsp
	.cfi_def_cfa_offset 24
	movl	$1, %edi
	call	*lib_a@GOTPCREL(%rip)
	call	fp_lost
	leaq	-1024(%rsp), %rdi
	call	new_stack
	hlt
	.cfi_endproc
	.size	_start, .-_start

# Leaves its caller's stack and never returns: rip is undefined from the
# second row on.
	.type	new_stack, @function
new_stack:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rdi, %rsp
	.cfi_undefined %rip
	.cfi_undefined %rbp
	.cfi_def_cfa_offset 0
	xorl	%ebp, %ebp
	xorl	%edi, %edi
	call	leaf
	movl	$60, %eax
	syscall
	.cfi_endproc
	.size	new_stack, .-new_stack

# rbp is kept in xmm1, out of reach of the rules: undefined, and the CIE's
# rule again at the end.
	.globl	fp_lost
	.type	fp_lost, @function
fp_lost:
	.cfi_startproc
	subq	$8, %rsp
	.cfi_def_cfa_offset 16
	movq	%rbp, %xmm1
	movl	$7, %ebp
	.cfi_undefined %rbp
	movl	%ebp, %edi
	call	leaf
	movq	%xmm1, %rbp
	.cfi_restore %rbp
	addq	$8, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	fp_lost, .-fp_lost

	.section .note.GNU-stack,"",@progbits
