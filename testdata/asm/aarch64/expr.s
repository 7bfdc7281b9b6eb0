// CFA and register rules that are DWARF expressions: some are a register plus
// a constant in other words, some are loads, and some are scaled by vg, the
// number of 64-bit words in an SVE vector (DWARF register 46), which GCC writes
// for SVE frames.
//
// SFrame: {breg31 n}, {bregx 29 n} and sums with constants are ordinary rows. A
// CFA that is loaded from the frame, and an x29 that is a value and no slot, are
// flexible rows in V3 and have no form before. What is scaled by vg has no form
// at all. GCC changes the offset of such a CFA rule by .cfi_def_cfa_offset, which
// has no effect on an expression: unwinders go on with the expression until
// a register is given, and then take the offset that came last.

	.arch	armv8-a+sve
	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	add	w0, w0, 1
	ret
	.cfi_endproc
	.size	leaf, .-leaf

// CFA rules {breg31 32}; {bregx 29 16}; {breg29 0, plus_uconst 16};
// {bregx 31 48, lit16, minus}.
	.globl	cfa_expr
	.type	cfa_expr, @function
cfa_expr:
	.cfi_startproc
	sub	sp, sp, 32
	.cfi_escape 0x0f, 0x02, 0x8f, 0x20
	stp	x29, x30, [sp, 16]
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	add	x29, sp, 16
	.cfi_escape 0x0f, 0x03, 0x92, 0x1d, 0x10
	bl	leaf
	nop
	.cfi_escape 0x0f, 0x04, 0x8d, 0x00, 0x23, 0x10
	bl	leaf
	nop
	.cfi_escape 0x0f, 0x05, 0x92, 0x1f, 0x30, 0x40, 0x1c
	ldp	x29, x30, [sp, 16]
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, 32
	.cfi_def_cfa sp, 0
	ret
	.cfi_endproc
	.size	cfa_expr, .-cfa_expr

// CFA = *(sp+8), then *(x29-8): {breg31 8, deref}, {breg29 -8, deref}.
	.globl	cfa_loaded
	.type	cfa_loaded, @function
cfa_loaded:
	.cfi_startproc
	mov	x9, sp
	stp	x29, x30, [sp, -64]!
	.cfi_def_cfa_offset 64
	.cfi_offset x29, -64
	.cfi_offset x30, -56
	str	x9, [sp, 24]
	sub	sp, sp, 32
	.cfi_def_cfa_offset 96
	str	x9, [sp, 8]
	.cfi_escape 0x0f, 0x03, 0x8f, 0x08, 0x06
	add	x29, sp, 64
	.cfi_escape 0x0f, 0x03, 0x8d, 0x78, 0x06
	bl	leaf
	ldur	x9, [x29, -8]
	ldp	x29, x30, [x9, -64]
	.cfi_escape 0x0f, 0x03, 0x8f, 0x08, 0x06
	.cfi_restore x29
	.cfi_restore x30
	mov	sp, x9
	.cfi_def_cfa sp, 0
	ret
	.cfi_endproc
	.size	cfa_loaded, .-cfa_loaded

// x30 saved at {lit8, minus}, that is CFA-8, x29 at {breg31 16} while the CFA
// is sp+32, that is CFA-16.
	.globl	slot_expr
	.type	slot_expr, @function
slot_expr:
	.cfi_startproc
	sub	sp, sp, 32
	.cfi_def_cfa_offset 32
	stp	x29, x30, [sp, 16]
	.cfi_escape 0x10, 0x1e, 0x02, 0x38, 0x1c
	.cfi_escape 0x10, 0x1d, 0x02, 0x8f, 0x10
	mov	w29, w0
	bl	leaf
	add	w0, w0, w29
	ldp	x29, x30, [sp, 16]
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, 32
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	slot_expr, .-slot_expr

// x29 saved at x19+8 and x30 at x19+0, in a block that x19 points to:
// {breg19 8}, {breg19 0}.
	.globl	slot_elsewhere
	.type	slot_elsewhere, @function
slot_elsewhere:
	.cfi_startproc
	str	x19, [sp, -48]!
	.cfi_def_cfa_offset 48
	.cfi_offset x19, -48
	add	x19, sp, 16
	stp	x30, x29, [x19]
	.cfi_escape 0x10, 0x1d, 0x02, 0x83, 0x08
	.cfi_escape 0x10, 0x1e, 0x02, 0x83, 0x00
	mov	w29, w0
	bl	leaf
	add	w0, w0, w29
	ldp	x30, x29, [x19]
	.cfi_restore x29
	.cfi_restore x30
	ldr	x19, [sp], 48
	.cfi_restore x19
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	slot_elsewhere, .-slot_elsewhere

// x29 is a value: {breg19 -16} as DW_CFA_val_expression, that is x19-16.
	.globl	fp_value
	.type	fp_value, @function
fp_value:
	.cfi_startproc
	stp	x30, x19, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	.cfi_offset x19, -8
	add	x19, x29, 16
	.cfi_escape 0x16, 0x1d, 0x02, 0x83, 0x70
	mov	w29, w0
	bl	leaf
	add	w0, w0, w29
	sub	x29, x19, 16
	.cfi_restore x29
	ldp	x30, x19, [sp], 16
	.cfi_restore x19
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fp_value, .-fp_value

// x29's value is CFA+16, which holds for its only caller, _start.
	.type	fp_val_offset, @function
fp_val_offset:
	.cfi_startproc
	str	x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	.cfi_val_offset x29, 16
	mov	w29, w0
	bl	leaf
	add	x29, sp, 32
	.cfi_restore x29
	ldr	x30, [sp], 16
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fp_val_offset, .-fp_val_offset

// A new offset while {breg31 48} is in force, without effect; then the register.
	.globl	offset_later
	.type	offset_later, @function
offset_later:
	.cfi_startproc
	str	x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	sub	sp, sp, 32
	.cfi_escape 0x0f, 0x02, 0x8f, 0x30
	bl	leaf
	nop
	.cfi_def_cfa_offset 16
	bl	leaf
	add	sp, sp, 32
	.cfi_def_cfa_register sp
	ldr	x30, [sp], 16
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	offset_later, .-offset_later

// An SVE frame: a slot of 16 bytes above 3 vectors. CFA = sp + 16 + 24 * vg,
// {breg31 0, bregx 46 0, lit24, mul, plus_uconst 16, plus}.
	.globl	sve
	.type	sve, @function
sve:
	.cfi_startproc
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	addvl	sp, sp, -3
	.cfi_escape 0x0f, 0x0a, 0x8f, 0x00, 0x92, 0x2e, 0x00, 0x48, 0x1e, 0x23, 0x10, 0x22
	str	z8, [sp]
	bl	leaf
	ldr	z8, [sp]
	addvl	sp, sp, 3
	.cfi_def_cfa sp, 16
	ldp	x29, x30, [sp], 16
	.cfi_restore x29
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	sve, .-sve

// GCC 16's shape with -fstack-clash-protection: CFA in x11, then
// CFA = sp + 16 + 152 * vg with x30 saved at sp + 144 * vg, then
// CFA = sp + 16 + 8 * vg, and in the epilogue offsets without effect.
	.globl	sve_gcc
	.type	sve_gcc, @function
sve_gcc:
	.cfi_startproc
	mov	x11, sp
	.cfi_def_cfa_register x11
	rdvl	x12, 19
	add	x12, x12, 16
	sub	sp, sp, x12
	.cfi_escape 0x0f, 0x0b, 0x8f, 0x00, 0x92, 0x2e, 0x00, 0x08, 0x98, 0x1e, 0x23, 0x10, 0x22
	addvl	x11, sp, 18
	str	x30, [x11]
	.cfi_escape 0x10, 0x1e, 0x09, 0x8f, 0x00, 0x92, 0x2e, 0x00, 0x08, 0x90, 0x1e, 0x22
	bl	leaf
	addvl	sp, sp, 18
	.cfi_escape 0x0f, 0x0a, 0x8f, 0x00, 0x92, 0x2e, 0x00, 0x38, 0x1e, 0x23, 0x10, 0x22
	ldr	x30, [sp]
	.cfi_restore x30
	addvl	sp, sp, 1
	.cfi_def_cfa_offset 16
	add	sp, sp, 16
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	sve_gcc, .-sve_gcc

// Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	mov	w0, 1
	bl	cfa_expr
	bl	cfa_loaded
	bl	slot_expr
	bl	slot_elsewhere
	bl	fp_value
	add	x29, sp, 16
	bl	fp_val_offset
	bl	offset_later
	bl	sve
	bl	sve_gcc
	mov	w0, 0
	mov	x8, 93
	svc	0
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
