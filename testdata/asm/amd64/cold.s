# Functions with a cold part in .text.unlikely that has its own FDE. The cold
# part is jumped to with the frame already set up, so its first row is not
# the CIE's: once rsp+32 with rbp saved, once rbp+16.
#
# SFrame: the cold part is a function of its own there too, and its row at
# offset 0 must have the FDE's rules, not the default rsp+8. The linker puts
# .text.unlikely before .text, so the order of the FDEs in .eh_frame is not
# the order of the addresses.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

	.globl	work
	.type	work, @function
work:
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
	movl	%esi, %ebp
	testl	%edi, %edi
	js	.Lwork_cold
	call	leaf
	addl	%ebp, %eax
.Lwork_end:
	addq	$8, %rsp
	.cfi_def_cfa_offset 24
	popq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	work, .-work

	.section .text.unlikely,"ax",@progbits
	.type	work.cold, @function
work.cold:
	.cfi_startproc
	.cfi_def_cfa_offset 32
	.cfi_offset %rbx, -24
	.cfi_offset %rbp, -16
.Lwork_cold:
	negl	%edi
	call	leaf
	subl	%ebx, %eax
	jmp	.Lwork_end
	.cfi_endproc
	.size	work.cold, .-work.cold

	.text
	.globl	framed
	.type	framed, @function
framed:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	pushq	%rbx
	pushq	%r12
	.cfi_offset %rbx, -24
	.cfi_offset %r12, -32
	movl	%edi, %ebx
	testl	%edi, %edi
	js	.Lframed_cold
	call	leaf
	popq	%r12
	popq	%rbx
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	framed, .-framed

# This cold part has an epilogue of its own.
	.section .text.unlikely
	.type	framed.cold, @function
framed.cold:
	.cfi_startproc
	.cfi_def_cfa %rbp, 16
	.cfi_offset %rbp, -16
	.cfi_offset %rbx, -24
	.cfi_offset %r12, -32
.Lframed_cold:
	xorl	%edi, %edi
	call	leaf
	popq	%r12
	popq	%rbx
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	framed.cold, .-framed.cold

# Entry point, not covered by CFI.
	.text
	.globl	_start
	.type	_start, @function
_start:
	movl	$1, %edi
	call	work
	movl	$-1, %edi
	call	work
	movl	$1, %edi
	call	framed
	movl	$-1, %edi
	call	framed
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
