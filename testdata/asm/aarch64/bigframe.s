// Large frames: CFA offsets and the slots of x29 and x30 on both sides of the
// limits of signed 8 and 16 bit numbers; 32-bit offsets.
//
// SFrame: a row's offsets all have one size, 1, 2 or 4 bytes, signed. An 8-bit
// offset reaches from -128 to 127, a 16-bit one from -32768 to 32767; the
// largest of a row's two or three offsets decides. sp moves in steps of 16, so
// x29 is needed to come to the limits themselves.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	add	w0, w0, 1
	ret
	.cfi_endproc
	.size	leaf, .-leaf

// CFA offsets 112 | 128, 4224, 32752 | 32768, 0x12340000, and back.
	.globl	cfa_sizes
	.type	cfa_sizes, @function
cfa_sizes:
	.cfi_startproc
	sub	sp, sp, 112
	.cfi_def_cfa_offset 112
	sub	sp, sp, 16
	.cfi_def_cfa_offset 128
	sub	sp, sp, 4096
	.cfi_def_cfa_offset 4224
	mov	x9, 28528
	sub	sp, sp, x9
	.cfi_def_cfa_offset 32752
	sub	sp, sp, 16
	.cfi_def_cfa_offset 32768
	mov	x9, 0x8000
	movk	x9, 0x1233, lsl 16
	sub	sp, sp, x9
	.cfi_def_cfa_offset 0x12340000
	add	sp, sp, x9
	.cfi_def_cfa_offset 32768
	add	sp, sp, 0x8000
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	cfa_sizes, .-cfa_sizes

// CFA = x29+120, +127 | +128, +32767 | +32768: x29 is no frame pointer here, but
// a pointer into the frame. x30 and x29 are saved above it.
	.globl	x29_limits
	.type	x29_limits, @function
x29_limits:
	.cfi_startproc
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	sub	x29, sp, 104
	.cfi_def_cfa x29, 120
	sub	x29, x29, 7
	.cfi_def_cfa_offset 127
	sub	x29, x29, 1
	.cfi_def_cfa_offset 128
	mov	x9, 32639
	sub	x29, x29, x9
	.cfi_def_cfa_offset 32767
	sub	x29, x29, 1
	.cfi_def_cfa_offset 32768
	bl	leaf
	ldp	x29, x30, [sp], 16
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	x29_limits, .-x29_limits

// x29 and x30 saved at -128 and -120 (8 bit) | -136 and -128, -32768 and -32760
// (16 bit) | -32776 and -32768 (32 bit). The CFA is x29+16 meanwhile.
	.globl	slot_sizes
	.type	slot_sizes, @function
slot_sizes:
	.cfi_startproc
	stp	x29, x30, [sp, -128]!
	.cfi_def_cfa_offset 128
	.cfi_offset x29, -128
	.cfi_offset x30, -120
	add	x29, sp, 112
	.cfi_def_cfa x29, 16
	sub	sp, sp, 0x10000
	ldp	x9, x10, [x29, -112]
	stp	x9, x10, [x29, -120]
	.cfi_offset x29, -136
	.cfi_offset x30, -128
	mov	x11, 32752
	sub	x11, x29, x11
	stp	x9, x10, [x11]
	.cfi_offset x29, -32768
	.cfi_offset x30, -32760
	stp	x9, x10, [x11, -8]
	.cfi_offset x29, -32776
	.cfi_offset x30, -32768
	bl	leaf
	add	sp, x29, 16
	.cfi_def_cfa sp, 0
	ldp	x29, x30, [sp, -136]
	.cfi_restore x29
	.cfi_restore x30
	ret
	.cfi_endproc
	.size	slot_sizes, .-slot_sizes

// A frame of 200,016 bytes with x30 alone at its low end.
	.globl	ra_low
	.type	ra_low, @function
ra_low:
	.cfi_startproc
	sub	sp, sp, 0x30000
	.cfi_def_cfa_offset 196608
	sub	sp, sp, 3408
	.cfi_def_cfa_offset 200016
	str	x30, [sp]
	.cfi_offset x30, -200016
	bl	leaf
	ldr	x30, [sp]
	.cfi_restore x30
	add	sp, sp, 3408
	.cfi_def_cfa_offset 196608
	add	sp, sp, 0x30000
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	ra_low, .-ra_low

// The same with the frame record at the low end and x29 as the CFA's base.
	.globl	fp_low
	.type	fp_low, @function
fp_low:
	.cfi_startproc
	sub	sp, sp, 0x12000
	.cfi_def_cfa_offset 0x12000
	stp	x29, x30, [sp]
	.cfi_offset x29, -0x12000
	.cfi_offset x30, -0x11ff8
	mov	x29, sp
	.cfi_def_cfa_register x29
	sub	sp, sp, 0x1000
	bl	leaf
	mov	sp, x29
	.cfi_def_cfa_register sp
	ldp	x29, x30, [sp]
	.cfi_restore x29
	.cfi_restore x30
	add	sp, sp, 0x12000
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	fp_low, .-fp_low

// Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	mov	w0, 1
	bl	cfa_sizes
	bl	x29_limits
	bl	slot_sizes
	bl	ra_low
	bl	fp_low
	mov	w0, 0
	mov	x8, 93
	svc	0
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
