// Functions that return to x17, as their CIE's return address column says, between
// functions that return to x30. The second rows of the first two say the
// same of both: the return address is the caller's. At the end columns that are
// those of x29 and sp.
//
// SFrame: without a rule the return address is in x30. That it is in x17 is what
// a flexible row of V3 can say; V1 and V2 leave the code out for which that holds.

	.text

	.globl	to_x17
	.type	to_x17, @function
to_x17:
	.cfi_startproc
	.cfi_return_column x17
	sub	sp, sp, 16
	.cfi_def_cfa_offset 16
	.cfi_same_value x17
	add	sp, sp, 16
	.cfi_def_cfa_offset 0
	ret	x17
	.cfi_endproc
	.size	to_x17, .-to_x17

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	sub	sp, sp, 16
	.cfi_def_cfa_offset 16
	.cfi_same_value x30
	add	sp, sp, 16
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	leaf, .-leaf

	.globl	saved_x17
	.type	saved_x17, @function
saved_x17:
	.cfi_startproc
	.cfi_return_column x17
	str	x17, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x17, -16
	adr	x17, 1f
	b	to_x17
1:
	ldr	x17, [sp], 16
	.cfi_restore x17
	.cfi_def_cfa_offset 0
	ret	x17
	.cfi_endproc
	.size	saved_x17, .-saved_x17

	.globl	saved_x30
	.type	saved_x30, @function
saved_x30:
	.cfi_startproc
	str	x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	bl	leaf
	ldr	x30, [sp], 16
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	saved_x30, .-saved_x30

// Its column is that of x29: where the caller's x29 is, the return address is.
	.globl	fp_column
	.type	fp_column, @function
fp_column:
	.cfi_startproc
	.cfi_return_column x29
	stp	x30, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	bl	leaf
	ldp	x29, x30, [sp], 16
	.cfi_def_cfa_offset 0
	.cfi_register x29, x30
	ret
	.cfi_endproc
	.size	fp_column, .-fp_column

// Its column is that of sp, which has no rule: the return address is nowhere.
	.globl	sp_column
	.type	sp_column, @function
sp_column:
	.cfi_startproc
	.cfi_return_column sp
	ret
	.cfi_endproc
	.size	sp_column, .-sp_column

	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	adr	x17, 1f
	b	to_x17
1:
	bl	leaf
	b	_start
	.cfi_endproc
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
