# The shared library that plt.s is linked with: five leaves and one function
# with a frame that calls through the library's own PLT.
#
# SFrame: a shared library with dynamic symbols, and a PLT with one entry.

	.text

	.macro	stub name, value
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	lghi	%r2, \value
	br	%r14
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
	stmg	%r14, %r15, 112(%r15)
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	brasl	%r14, lib_a@PLT
	lmg	%r14, %r15, 272(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	lib_f, .-lib_f

	.section .note.GNU-stack,"",@progbits
