# The shared library the callers in plt.s and undefra.s are linked with: five
# leaves and one function with a frame that calls through the library's own
# PLT.
#
# SFrame: a shared library with dynamic symbols, and a PLT with one entry.

	.text

	.macro	stub name, value
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	movl	$\value, %eax
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
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	call	lib_a@PLT
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	lib_f, .-lib_f

	.section .note.GNU-stack,"",@progbits
