# Functions of parts.h, with CFI by hand: one with a frame pointer, one without.
	.section .text.by_hand,"ax",@progbits
	.globl by_hand
	.type by_hand, @function
by_hand:
	.cfi_startproc
	stmg %r11, %r15, 88(%r15)
	.cfi_offset %r11, -72
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	lay %r15, -160(%r15)
	.cfi_def_cfa_offset 320
	lgr %r11, %r15
	.cfi_def_cfa_register %r11
	aghi %r2, 1
	lmg %r11, %r15, 248(%r11)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r11
	.cfi_def_cfa %r15, 160
	br %r14
	.cfi_endproc
	.size by_hand, .-by_hand

	.text
	nopr
	.globl calls_back
	.type calls_back, @function
calls_back:
	.cfi_startproc
	stmg %r14, %r15, 112(%r15)
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	lay %r15, -160(%r15)
	.cfi_def_cfa_offset 320
	lgr %r1, %r2
	lgr %r2, %r3
	basr %r14, %r1
	lmg %r14, %r15, 272(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_def_cfa_offset 160
	br %r14
	.cfi_endproc
	.size calls_back, .-calls_back
	.section .note.GNU-stack,"",@progbits
