// Calls of external functions through the PLT, linked with the plain PLT, with
// the BTI one (-z force-bti), the PAC one (-z pac-plt), and with both. The
// address of lib_e is also loaded from the GOT.
//
// SFrame: on AArch64 the linker writes no CFI for the PLT, so there is nothing
// to translate for it. Its shape is known, however: PLT0 has 32 bytes and saves
// x16 and x30 in its first or (BTI) second instruction; the entries, of 16 or 24
// bytes, leave sp and x30 as they are. -z pac-plt authenticates what is in the
// GOT, which glibc does not sign: those two run only where that is a hint.

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

	.globl	calls
	.type	calls, @function
calls:
	.cfi_startproc
	bti	c
	stp	x29, x30, [sp, -32]!
	.cfi_def_cfa_offset 32
	.cfi_offset x29, -32
	.cfi_offset x30, -24
	mov	x29, sp
	str	x19, [sp, 16]
	.cfi_offset x19, -16
	bl	lib_a
	mov	w19, w0
	bl	lib_b
	add	w19, w19, w0
	bl	lib_c
	add	w19, w19, w0
	bl	lib_d
	add	w19, w19, w0
	bl	lib_f
	add	w0, w0, w19
	ldr	x19, [sp, 16]
	ldp	x29, x30, [sp], 32
	.cfi_restore x30
	.cfi_restore x29
	.cfi_restore x19
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	calls, .-calls

	.globl	via_got
	.type	via_got, @function
via_got:
	.cfi_startproc
	bti	c
	stp	x30, x19, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x30, -16
	.cfi_offset x19, -8
	adrp	x19, :got:lib_e
	ldr	x19, [x19, :got_lo12:lib_e]
	bl	lib_e
	blr	x19
	ldp	x30, x19, [sp], 16
	.cfi_restore x30
	.cfi_restore x19
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	via_got, .-via_got

// Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	bti	c
	bl	calls
	bl	via_got
	mov	w0, 0
	mov	x8, 93
	svc	0
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
