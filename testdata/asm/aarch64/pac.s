// Signed return addresses: -mbranch-protection=standard (bti, paciasp,
// autiasp) with key A, and functions with key B in the same file; shrink-wrapped
// code, an early exit, a tail call, retaa without an authentication of its own,
// a return address signed with sp and pc, and a tagged frame.
//
// SFrame: whether the return address is signed is a bit of each row, the key is
// one of the function (V1 and V2: of its FDE; V3: of its attribute). The bit is
// set from paciasp on, when x30 is signed and not yet saved, and comes back with
// a remembered state. In CFI the key is a letter of the CIE's augmentation, and
// so is the mark of a tagged frame, for which SFrame has nothing and needs
// nothing. Signing with sp and pc has no form: the row would say "with sp".

	.arch	armv8.3-a
	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	bti	c
	add	w0, w0, 1
	ret
	.cfi_endproc
	.size	leaf, .-leaf

// Signed from the first instruction to the last but one.
	.globl	framed
	.type	framed, @function
framed:
	.cfi_startproc
	paciasp
	.cfi_negate_ra_state
	stp	x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	.cfi_offset x30, -24
	mov	x29, sp
	str	x19, [sp, 16]
	.cfi_offset x19, -16
	mov	w19, w0
	bl	leaf
	add	w0, w0, w19
	ldr	x19, [sp, 16]
	ldp	x29, x30, [sp], 32
	.cfi_restore x30
	.cfi_restore x29
	.cfi_restore x19
	.cfi_def_cfa_offset 0
	autiasp
	.cfi_negate_ra_state
	ret
	.cfi_endproc
	.size	framed, .-framed

// Shrink-wrapped: one way through the function has no frame and no signature.
	.globl	wrapped
	.type	wrapped, @function
wrapped:
	.cfi_startproc
	bti	c
	cbz	w0, 1f
	paciasp
	.cfi_negate_ra_state
	str	x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	bl	leaf
	ldr	x30, [sp], 16
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	autiasp
	.cfi_negate_ra_state
	ret
1:
	mov	w0, 3
	ret
	.cfi_endproc
	.size	wrapped, .-wrapped

// The state that is remembered is signed, what comes before it is not.
	.globl	early
	.type	early, @function
early:
	.cfi_startproc
	paciasp
	.cfi_negate_ra_state
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	.cfi_def_cfa_register x29
	tbz	w0, 31, 1f
	.cfi_remember_state
	ldp	x29, x30, [sp], 16
	.cfi_restore x30
	.cfi_restore x29
	.cfi_def_cfa sp, 0
	autiasp
	.cfi_negate_ra_state
	mov	w0, -1
	ret
1:
	.cfi_restore_state
	bl	leaf
	ldp	x29, x30, [sp], 16
	.cfi_restore x30
	.cfi_restore x29
	.cfi_def_cfa sp, 0
	autiasp
	.cfi_negate_ra_state
	b	leaf
	.cfi_endproc
	.size	early, .-early

// Ends in retaa, still signed; the unsigned early exit comes after it.
	.globl	combined
	.type	combined, @function
combined:
	.cfi_startproc
	bti	c
	.cfi_remember_state
	cbz	w0, 1f
	paciasp
	.cfi_negate_ra_state
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	bl	leaf
	ldp	x29, x30, [sp], 16
	.cfi_restore x30
	.cfi_restore x29
	.cfi_def_cfa_offset 0
	retaa
1:
	.cfi_restore_state
	mov	w0, 3
	ret
	.cfi_endproc
	.size	combined, .-combined

// Key B, never signed: the CIE of key B has no rules of its own.
	.globl	leaf_b
	.type	leaf_b, @function
leaf_b:
	.cfi_startproc
	.cfi_b_key_frame
	bti	c
	add	w0, w0, 2
	ret
	.cfi_endproc
	.size	leaf_b, .-leaf_b

	.globl	framed_b
	.type	framed_b, @function
framed_b:
	.cfi_startproc
	.cfi_b_key_frame
	pacibsp
	.cfi_negate_ra_state
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	bl	leaf_b
	ldp	x29, x30, [sp], 16
	.cfi_restore x30
	.cfi_restore x29
	.cfi_def_cfa_offset 0
	autibsp
	.cfi_negate_ra_state
	ret
	.cfi_endproc
	.size	framed_b, .-framed_b

	.globl	early_b
	.type	early_b, @function
early_b:
	.cfi_startproc
	.cfi_b_key_frame
	pacibsp
	.cfi_negate_ra_state
	str	x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x30, -32
	.cfi_remember_state
	cbz	w0, 1f
	bl	leaf_b
	ldr	x30, [sp], 32
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	retab
1:
	.cfi_restore_state
	ldr	x30, [sp], 32
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	autibsp
	.cfi_negate_ra_state
	ret
	.cfi_endproc
	.size	early_b, .-early_b

// A tagged frame (MTE): another CIE, the same rows.
	.globl	tagged
	.type	tagged, @function
tagged:
	.cfi_startproc
	.cfi_mte_tagged_frame
	paciasp
	.cfi_negate_ra_state
	stp	x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	.cfi_offset x30, -24
	mov	x29, sp
	bl	leaf
	ldp	x29, x30, [sp], 32
	.cfi_restore x30
	.cfi_restore x29
	.cfi_def_cfa_offset 0
	autiasp
	.cfi_negate_ra_state
	ret
	.cfi_endproc
	.size	tagged, .-tagged

// Signed with sp and pc (-mbranch-protection=pac-ret+pc), in code that would
// need Armv9.5: not called. The last row is unsigned again.
	.globl	signed_pc
	.type	signed_pc, @function
signed_pc:
	.cfi_startproc
	bti	c
	.arch_extension pauth-lr
	paciasppc
	.cfi_negate_ra_state_with_pc
	str	x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	bl	leaf
	ldr	x30, [sp], 16
	.cfi_restore x30
	.cfi_def_cfa_offset 0
	autiasppc signed_pc + 4
	.cfi_negate_ra_state_with_pc
	ret
	.cfi_endproc
	.size	signed_pc, .-signed_pc

// Entry point, not covered by CFI. Calls the functions that have more than hints
// only where paciasp does something.
	.globl	_start
	.type	_start, @function
_start:
	bti	c
	mov	w0, 1
	bl	framed
	bl	wrapped
	mov	w0, 0
	bl	wrapped
	bl	early
	mov	w0, -1
	bl	early
	mov	w0, 0
	bl	combined
	bl	framed_b
	mov	w0, 0
	bl	early_b
	bl	tagged
	adr	x19, _start
	mov	x30, x19
	paciasp
	cmp	x30, x19
	b.eq	1f
	mov	w0, 1
	bl	combined
	mov	w0, 1
	bl	early_b
1:
	mov	w0, 0
	mov	x8, 93
	svc	0
	.size	_start, .-_start

// GNU_PROPERTY_AARCH64_FEATURE_1_AND with BTI and PAC.
	.section .note.gnu.property,"a",@note
	.balign	8
	.word	4, 16, 5
	.asciz	"GNU"
	.word	0xc0000000, 4, 3, 0

	.section .note.GNU-stack,"",@progbits
