// Ordinary frames: a leaf, the frame record of x29 and x30 with the CFA based
// on sp (GCC) and on x29 (LLVM), callee saves, the return address saved alone,
// x29 saved after it, an early exit, and an epilogue that keeps its rules.
//
// SFrame: on AArch64 the return address is tracked row by row: a row of one
// word (CFA) says that it is in x30, one of two (CFA, RA) that x29 is unchanged,
// one of three (CFA, RA, FP) that both are saved. The offsets are those of the
// two slots, in whichever order they are in memory. Saves of x19 to x28 add
// DWARF rules, but no SFrame rows.

	.text

// Leaf: the CIE's initial row only.
	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	add	w0, w0, w1
	ret
	.cfi_endproc
	.size	leaf, .-leaf

// GCC with a frame pointer: x29 is set, but the CFA stays based on sp.
	.globl	framed
	.type	framed, @function
framed:
	.cfi_startproc
	stp	x29, x30, [sp, -48]!
	.cfi_def_cfa_offset 48
	.cfi_offset x29, -48
	.cfi_offset x30, -40
	mov	x29, sp
	stp	x19, x20, [sp, 16]
	.cfi_offset x19, -32
	.cfi_offset x20, -24
	mov	w19, w0
	mov	w20, w1
	bl	leaf
	add	w0, w0, w19
	mov	w1, w20
	bl	leaf
	ldp	x19, x20, [sp, 16]
	ldp	x29, x30, [sp], 48
	.cfi_restore x30
	.cfi_restore x29
	.cfi_restore x19
	.cfi_restore x20
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	framed, .-framed

// LLVM: the frame record is at the top of the frame, the CFA is x29+16, and
// the epilogue goes back to sp.
	.globl	based
	.type	based, @function
based:
	.cfi_startproc
	sub	sp, sp, 64
	.cfi_def_cfa_offset 64
	stp	x20, x19, [sp, 32]
	stp	x29, x30, [sp, 48]
	add	x29, sp, 48
	.cfi_def_cfa x29, 16
	.cfi_offset x30, -8
	.cfi_offset x29, -16
	.cfi_offset x19, -24
	.cfi_offset x20, -32
	mov	w19, w0
	and	x20, x0, 0xff0
	sub	sp, sp, x20
	mov	w1, w19
	bl	leaf
	sub	sp, x29, 48
	.cfi_def_cfa sp, 64
	ldp	x29, x30, [sp, 48]
	ldp	x20, x19, [sp, 32]
	add	sp, sp, 64
	.cfi_def_cfa_offset 0
	.cfi_restore x30
	.cfi_restore x29
	.cfi_restore x19
	.cfi_restore x20
	ret
	.cfi_endproc
	.size	based, .-based

// Only the return address is saved: -fomit-frame-pointer.
	.globl	ra_only
	.type	ra_only, @function
ra_only:
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
	.size	ra_only, .-ra_only

// x30 first, together with x19; x29 later, in a slot above it, and back.
	.globl	staged
	.type	staged, @function
staged:
	.cfi_startproc
	stp	x30, x19, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x30, -32
	.cfi_offset x19, -24
	mov	w19, w0
	str	x29, [sp, 24]
	.cfi_offset x29, -8
	mov	w29, w1
	bl	leaf
	add	w0, w0, w29
	ldr	x29, [sp, 24]
	.cfi_restore x29
	add	w0, w0, w19
	ldp	x30, x19, [sp], 32
	.cfi_restore x19
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	staged, .-staged

// An early exit in the middle: a full epilogue, and the state before it again.
	.globl	early
	.type	early, @function
early:
	.cfi_startproc
	stp	x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	.cfi_offset x30, -24
	mov	x29, sp
	.cfi_def_cfa_register x29
	str	x19, [sp, 16]
	.cfi_offset x19, -16
	mov	w19, w0
	tbz	w0, 31, 1f
	.cfi_remember_state
	ldr	x19, [sp, 16]
	.cfi_restore x19
	ldp	x29, x30, [sp], 32
	.cfi_restore x30
	.cfi_restore x29
	.cfi_def_cfa sp, 0
	mov	w0, -1
	ret
1:
	.cfi_restore_state
	bl	leaf
	add	w0, w0, w19
	ldr	x19, [sp, 16]
	ldp	x29, x30, [sp], 32
	.cfi_restore x30
	.cfi_restore x29
	.cfi_restore x19
	.cfi_def_cfa sp, 0
	ret
	.cfi_endproc
	.size	early, .-early

// Two levels: the inner state is x29-based, the outer one is the CIE's.
	.globl	nested
	.type	nested, @function
nested:
	.cfi_startproc
	.cfi_remember_state
	tbnz	w0, 31, 2f
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	.cfi_def_cfa_register x29
	cmp	w0, 16
	b.hi	1f
	.cfi_remember_state
	ldp	x29, x30, [sp], 16
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	ret
1:
	.cfi_restore_state
	bl	leaf
	ldp	x29, x30, [sp], 16
	.cfi_def_cfa sp, 0
	.cfi_restore x29
	.cfi_restore x30
	ret
2:
	.cfi_restore_state
	mov	w0, -1
	ret
	.cfi_endproc
	.size	nested, .-nested

// No .cfi_restore: the slots stay in the row of the tail call.
	.type	no_restore, @function
no_restore:
	.cfi_startproc
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	bl	leaf
	ldp	x29, x30, [sp], 16
	.cfi_def_cfa_offset 0
	b	leaf
	.cfi_endproc
	.size	no_restore, .-no_restore

// Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	mov	w0, 1
	mov	w1, 2
	bl	framed
	mov	w0, 100
	bl	based
	bl	ra_only
	bl	staged
	mov	w0, 1
	bl	early
	mov	w0, -1
	bl	early
	mov	w0, 1
	bl	nested
	mov	w0, 17
	bl	nested
	mov	w0, -1
	bl	nested
	bl	no_restore
	mov	w0, 0
	mov	x8, 93
	svc	0
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
