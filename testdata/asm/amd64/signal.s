# A signal trampoline: .cfi_signal_frame with expressions over the saved
# context at rsp. CFA = *(rsp+160), rip at rsp+168, rbp at rsp+120. The FDE
# begins one byte before the symbol, at a nop, because an unwinder looks up
# "return address - 1".
#
# SFrame V2: a CFA that is loaded from memory and a return address that is
# not at CFA-8 have no SFrame form, and V2 has no mark for signal frames. The
# nop is covered by the FDE, but by no symbol. The CIE of the trampoline is
# another one ("zRS") than that of the plain functions ("zR").

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# A signal handler with a frame.
	.type	handler, @function
handler:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	call	leaf
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	handler, .-handler

# Signal frame whose rows would be fine without the mark: CFA = rsp+8.
	.type	marked, @function
marked:
	.cfi_startproc
	.cfi_signal_frame
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	marked, .-marked

	.balign	16, 0x90
	.cfi_startproc
	.cfi_signal_frame
	# CFA = *(rsp+160)
	.cfi_escape 0x0f, 0x04, 0x77, 0xa0, 0x01, 0x06
	# saved: rbp at rsp+120, rbx at rsp+128, rsp at rsp+160
	.cfi_escape 0x10, 0x06, 0x03, 0x77, 0xf8, 0x00
	.cfi_escape 0x10, 0x03, 0x03, 0x77, 0x80, 0x01
	.cfi_escape 0x10, 0x07, 0x03, 0x77, 0xa0, 0x01
	# rip saved at rsp+168
	.cfi_escape 0x10, 0x10, 0x03, 0x77, 0xa8, 0x01
	nop
	.globl	restore_rt
	.type	restore_rt, @function
restore_rt:
	movq	$15, %rax
	syscall
	.cfi_endproc
	.size	restore_rt, .-restore_rt

# Entry point, not covered by CFI. rt_sigaction(SIGUSR1) with the trampoline
# as restorer, and the signal sent to the process itself.
	.globl	_start
	.type	_start, @function
_start:
	call	marked
	subq	$32, %rsp
	leaq	handler(%rip), %rax
	movq	%rax, (%rsp)
	movq	$0x04000000, 8(%rsp)
	leaq	restore_rt(%rip), %rax
	movq	%rax, 16(%rsp)
	movq	$0, 24(%rsp)
	movl	$10, %edi
	movq	%rsp, %rsi
	xorl	%edx, %edx
	movl	$8, %r10d
	movl	$13, %eax
	syscall
	movl	$39, %eax
	syscall
	movl	%eax, %edi
	movl	$10, %esi
	movl	$62, %eax
	syscall
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
