# Calls of external functions through the PLT, linked twice: with the plain
# lazy PLT, and with the IBT PLT (-z ibtplt: .plt and .plt.sec). lib_e is
# also loaded from the GOT, which gives it an entry in .plt.got.
#
# SFrame: the linker writes the CFI of the PLT: one FDE for the whole of
# .plt, with a CFA expression that depends on "rip & 15" after the first
# entry, and one each for .plt.sec and .plt.got. The expression is no row by
# itself; SFrame has FDEs of type PCMASK with a repetition size (16) for it.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

	.globl	calls
	.type	calls, @function
calls:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%rbx
	pushq	%rax
	.cfi_offset %rbx, -24
	call	lib_a@PLT
	movl	%eax, %ebx
	call	lib_b@PLT
	addl	%eax, %ebx
	call	lib_c@PLT
	addl	%eax, %ebx
	call	lib_d@PLT
	addl	%eax, %ebx
	call	lib_f@PLT
	addl	%ebx, %eax
	movq	-8(%rbp), %rbx
	leave
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	calls, .-calls

	.globl	via_got
	.type	via_got, @function
via_got:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	movq	lib_e@GOTPCREL(%rip), %rbx
	call	lib_e@PLT
	call	*%rbx
	popq	%rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	via_got, .-via_got

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	call	calls
	call	via_got
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
