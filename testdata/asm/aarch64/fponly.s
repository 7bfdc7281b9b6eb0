// What V1 and V2 cannot say on AArch64: x29 saved and x30 not, the return
// address or x29 in another register, the CFA based on x11 or x12, an undefined
// return address, an undefined x29.
//
// SFrame: the words of a V1 or V2 row are CFA, RA, FP in this order, and none of
// them means "no rule": x29's slot cannot follow where x30 is not saved. A CFA
// has sp or x29 as its base, a slot is relative to the CFA. The flexible rows of
// V3 have all of this but the undefined x29; rules that read other registers
// than sp and x29 hold in the topmost frame only. No caller at all is not the
// same as "the return address is in x30", what a row of one word would say.
// Linked as ET_EXEC (addresses are not relative to 0), against pltlib.so.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	add	w0, w0, 1
	ret
	.cfi_endproc
	.size	leaf, .-leaf

// Undefined from the first address on: the C library's entry point.
	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined x30
	mov	x29, 0
	mov	x30, 0
	mov	w0, 1
	bl	fp_only
	bl	fp_base
	bl	fp_first
	bl	ra_x9
	bl	ra_x9_fp
	bl	cfa_x11
	bl	cfa_x12
	bl	fp_x19
	bl	fp_x9
	bl	fp_d8
	bl	fp_lost
	sub	sp, sp, 16
	.cfi_def_cfa_offset 16
	bl	ra_at_cfa
	bl	fp_at_cfa
	sub	x0, sp, 1024
	bl	new_stack
	brk	1
	.cfi_endproc
	.size	_start, .-_start

// x29 is one more callee save of a leaf.
	.globl	fp_only
	.type	fp_only, @function
fp_only:
	.cfi_startproc
	str	x29, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	add	w29, w0, 1
	mov	w0, w29
	ldr	x29, [sp], 16
	.cfi_restore x29
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fp_only, .-fp_only

// The same, and the CFA is based on it.
	.globl	fp_base
	.type	fp_base, @function
fp_base:
	.cfi_startproc
	str	x29, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	mov	x29, sp
	.cfi_def_cfa_register x29
	str	w0, [x29, 16]
	ldr	x29, [sp], 32
	.cfi_restore x29
	.cfi_def_cfa sp, 0
	ret
	.cfi_endproc
	.size	fp_base, .-fp_base

// x29's slot first and last; the rows between have both.
	.globl	fp_first
	.type	fp_first, @function
fp_first:
	.cfi_startproc
	sub	sp, sp, 32
	.cfi_def_cfa_offset 32
	str	x29, [sp, 16]
	.cfi_offset x29, -16
	str	x30, [sp, 24]
	.cfi_offset x30, -8
	bl	leaf
	ldr	x30, [sp, 24]
	.cfi_restore x30
	ldr	x29, [sp, 16]
	.cfi_restore x29
	add	sp, sp, 32
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fp_first, .-fp_first

// The return address is kept in x9, which leaf leaves alone.
	.globl	ra_x9
	.type	ra_x9, @function
ra_x9:
	.cfi_startproc
	mov	x9, x30
	.cfi_register x30, x9
	bl	leaf
	mov	x30, x9
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	ra_x9, .-ra_x9

// The return address in x9 and x29 in a slot, and the CFA in x29 for a while.
	.globl	ra_x9_fp
	.type	ra_x9_fp, @function
ra_x9_fp:
	.cfi_startproc
	mov	x9, x30
	.cfi_register x30, x9
	str	x29, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	mov	x29, sp
	.cfi_def_cfa_register x29
	bl	leaf
	ldr	x29, [sp], 16
	.cfi_restore x29
	.cfi_def_cfa sp, 0
	ret	x9
	.cfi_endproc
	.size	ra_x9_fp, .-ra_x9_fp

// The caller's sp is kept in x11 while sp moves, GCC's way into an SVE frame.
	.globl	cfa_x11
	.type	cfa_x11, @function
cfa_x11:
	.cfi_startproc
	mov	x11, sp
	.cfi_def_cfa_register x11
	sub	sp, sp, 4096
	str	xzr, [sp]
	sub	sp, sp, 16
	stp	x29, x30, [sp]
	.cfi_offset x29, -4112
	.cfi_offset x30, -4104
	.cfi_def_cfa sp, 4112
	bl	leaf
	ldp	x29, x30, [sp]
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, 16
	.cfi_def_cfa_offset 4096
	add	sp, sp, 4096
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	cfa_x11, .-cfa_x11

// x12 is where sp will be: GCC's loop of -fstack-clash-protection.
	.globl	cfa_x12
	.type	cfa_x12, @function
cfa_x12:
	.cfi_startproc
	sub	x12, sp, 0x14000
	.cfi_def_cfa x12, 0x14000
1:
	sub	sp, sp, 4096
	str	xzr, [sp, 1024]
	cmp	sp, x12
	b.ne	1b
	.cfi_def_cfa_register sp
	str	x30, [sp]
	.cfi_offset x30, -0x14000
	bl	leaf
	ldr	x30, [sp]
	.cfi_restore x30
	add	sp, sp, 0x14000
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	cfa_x12, .-cfa_x12

// x29 is kept in x19, with x30 saved.
	.globl	fp_x19
	.type	fp_x19, @function
fp_x19:
	.cfi_startproc
	stp	x30, x19, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	.cfi_offset x19, -8
	mov	x19, x29
	.cfi_register x29, x19
	mov	w29, w0
	bl	leaf
	add	w0, w0, w29
	mov	x29, x19
	.cfi_restore x29
	ldp	x30, x19, [sp], 16
	.cfi_restore x19
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fp_x19, .-fp_x19

// x29 is kept in x9, with x30 unchanged.
	.globl	fp_x9
	.type	fp_x9, @function
fp_x9:
	.cfi_startproc
	mov	x9, x29
	.cfi_register x29, x9
	add	w29, w0, 1
	mov	w0, w29
	mov	x29, x9
	.cfi_restore x29
	ret
	.cfi_endproc
	.size	fp_x9, .-fp_x9

// x29 is kept in d8: register number 72 is too big for a control word of 8 bits.
	.globl	fp_d8
	.type	fp_d8, @function
fp_d8:
	.cfi_startproc
	str	d8, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset d8, -16
	fmov	d8, x29
	.cfi_register x29, d8
	add	w29, w0, 1
	mov	w0, w29
	fmov	x29, d8
	.cfi_restore x29
	ldr	d8, [sp], 16
	.cfi_restore d8
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fp_d8, .-fp_d8

// x29 is kept out of reach of the rules: undefined, and the CIE's rule again.
	.globl	fp_lost
	.type	fp_lost, @function
fp_lost:
	.cfi_startproc
	fmov	d0, x29
	.cfi_undefined x29
	add	w29, w0, 1
	mov	w0, w29
	fmov	x29, d0
	.cfi_restore x29
	ret
	.cfi_endproc
	.size	fp_lost, .-fp_lost

// The return address is saved at the CFA itself, in the caller's frame: an
// offset of 0, which may also stand for "no rule".
	.globl	ra_at_cfa
	.type	ra_at_cfa, @function
ra_at_cfa:
	.cfi_startproc
	str	x30, [sp]
	.cfi_offset x30, 0
	bl	leaf
	ldr	x30, [sp]
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	ra_at_cfa, .-ra_at_cfa

// And so is x29, with the return address above it.
	.globl	fp_at_cfa
	.type	fp_at_cfa, @function
fp_at_cfa:
	.cfi_startproc
	stp	x29, x30, [sp]
	.cfi_offset x29, 0
	.cfi_offset x30, 8
	bl	leaf
	ldp	x29, x30, [sp]
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	fp_at_cfa, .-fp_at_cfa

// Leaves its caller's stack and never returns: x30 is undefined from the third
// row on.
	.type	new_stack, @function
new_stack:
	.cfi_startproc
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	sp, x0
	.cfi_undefined x30
	.cfi_undefined x29
	.cfi_def_cfa_offset 0
	mov	x29, 0
	mov	w0, 0
	bl	leaf
	mov	w0, 0
	mov	x8, 93
	svc	0
	.cfi_endproc
	.size	new_stack, .-new_stack

	.section .note.GNU-stack,"",@progbits
