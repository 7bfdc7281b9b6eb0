// Functions of parts.h, with CFI by hand: one with a frame pointer, one without.
	.section .text.by_hand,"ax",@progbits
	.globl by_hand
	.type by_hand, %function
by_hand:
	.cfi_startproc
	stp x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov x29, sp
	.cfi_def_cfa_register 29
	add w0, w0, 1
	ldp x29, x30, [sp], 32
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa 31, 0
	ret
	.cfi_endproc
	.size by_hand, .-by_hand

	.text
	nop
	.globl calls_back
	.type calls_back, %function
calls_back:
	.cfi_startproc
	str x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset 30, -16
	mov x2, x0
	mov w0, w1
	blr x2
	ldr x30, [sp], 16
	.cfi_restore 30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size calls_back, .-calls_back
	.section .note.GNU-stack,"",%progbits
