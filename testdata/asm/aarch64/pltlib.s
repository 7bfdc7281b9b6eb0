// The shared library that plt.s and fponly.s are linked with: five leaves and
// one function with a frame that calls through the library's own PLT.
//
// SFrame: a shared library with dynamic symbols, and a PLT with one entry.

	.text

	.macro	stub name, value
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	mov	w0, \value
	ret
	.cfi_endproc
	.size	\name, .-\name
	.endm

	stub	lib_a, 1
	stub	lib_b, 2
	stub	lib_c, 3
	stub	lib_d, 4
	stub	lib_e, 5

	.globl	lib_f
	.type	lib_f, @function
lib_f:
	.cfi_startproc
	stp	x29, x30, [sp, -16]!
	.cfi_def_cfa_offset 16
	.cfi_offset x29, -16
	.cfi_offset x30, -8
	mov	x29, sp
	bl	lib_a
	ldp	x29, x30, [sp], 16
	.cfi_restore x30
	.cfi_restore x29
	.cfi_def_cfa_offset 0
	ret
	.cfi_endproc
	.size	lib_f, .-lib_f

	.section .note.GNU-stack,"",@progbits
