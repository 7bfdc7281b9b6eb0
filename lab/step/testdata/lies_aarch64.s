// Like lies_amd64.s, for an architecture whose calls leave the return address in a register.
	.text
	.globl	_start
	.type	_start, %function
_start:
	.cfi_startproc
	.cfi_undefined x30
	mov	x29, #0x1234
	bl	honest
	bl	liar
	mov	x8, #93
	mov	x0, #0
	svc	#0
	.cfi_endproc
	.size	_start, .-_start

	.type	honest, %function
honest:
	.cfi_startproc
	stp	x29, x30, [sp, #-32]!
	.cfi_def_cfa_offset 32
	.cfi_offset 29, -32
	.cfi_offset 30, -24
	mov	x29, sp
	bl	leaf
	ldp	x29, x30, [sp], #32
	.cfi_restore 30
	.cfi_restore 29
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	honest, .-honest

	.type	leaf, %function
leaf:
	.cfi_startproc
	nop
	ret
	.cfi_endproc
	.size	leaf, .-leaf

// The CFI does not mention that the return address is saved; after the call, the register contains a different address.
	.type	liar, %function
liar:
	.cfi_startproc
	str	x30, [sp, #-16]!
	.cfi_def_cfa_offset 16
	bl	leaf
	nop
	ldr	x30, [sp], #16
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	liar, .-liar
