# Two functions more than 2 GiB apart, described by .debug_frame, whose addresses are
# wide enough. From an .sframe behind the second one, V1 and V2 do not reach the first.

	.cfi_sections .debug_frame
	.text
	.globl	near
	.type	near, @function
near:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	near, .-near

	.section .far, "ax", @progbits
	.globl	far
	.type	far, @function
far:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	popq	%rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	far, .-far
