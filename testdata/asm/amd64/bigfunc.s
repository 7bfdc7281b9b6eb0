# Long functions: rows around the offsets 255 and 65535, and functions that
# are long, but have only early rows.
#
# SFrame: the start offsets of a function's rows all have one size, 1, 2 or 4
# bytes, unsigned: up to 255, up to 65535, or more. Size of the function and
# offset of the last row do not always call for the same choice.
# Too big to be committed as a binary; built on request only.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# Eight rows one byte apart, the first at the given offset: four pushes and
# four pops of one byte each.
	.macro	rows_at func, offset
	.org	\func + \offset - 1, 0x90
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rbx, -24
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	pushq	%rbx
	.cfi_adjust_cfa_offset 8
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	popq	%rbx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbx
	.endm

# Begins a function that saves rbp: rows at 0 and 1.
	.macro	enter func
	.globl	\func
	.type	\func, @function
\func:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	.endm

# Ends it, with the last row at the given offset and "ret" there.
	.macro	leave_at func, offset
	.org	\func + \offset - 1, 0x90
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	\func, .-\func
	.endm

# 255 bytes; the last row at 254.
	enter	size_255
	leave_at size_255, 254

# 256 bytes; the last row at 255.
	enter	size_256
	leave_at size_256, 255

# 257 bytes; the last row at 256.
	enter	size_257
	leave_at size_257, 256

# 600 bytes; rows at 0, 1, 254..261, 599.
	enter	rows_255
	rows_at	rows_255, 254
	leave_at rows_255, 599

# 65551 bytes; rows at 0, 1, 254..261, 65534..65541, 65550.
	enter	rows_65535
	rows_at	rows_65535, 254
	rows_at	rows_65535, 65534
	leave_at rows_65535, 65550

# 65601 bytes, but the last row is at 200.
	enter	early_rows
	.org	early_rows + 199, 0x90
	popq	%rbp
	.cfi_def_cfa_offset 8
	.cfi_restore %rbp
	.fill	65400, 1, 0x90
	ret
	.cfi_endproc
	.size	early_rows, .-early_rows

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	call	size_255
	call	size_256
	call	size_257
	call	rows_255
	call	rows_65535
	call	early_rows
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
