# This program uses no C library, so that all its instructions are here. With LIES=0, the CFI of all functions is correct.
	.text
	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined rip
	mov	$0x1234, %rbp
	call	honest
	call	liar
	call	keeper
	call	epilogue
	mov	$60, %eax
	xor	%edi, %edi
	syscall
	.cfi_endproc
	.size	_start, .-_start

	.type	honest, @function
honest:
	.cfi_startproc
	push	%rbx
	.cfi_adjust_cfa_offset 8
	mov	$3, %ebx
1:	dec	%ebx
	jnz	1b
	pop	%rbx
	.cfi_adjust_cfa_offset -8
	ret
	.cfi_endproc
	.size	honest, .-honest

# Moves the stack pointer by 24; the CFI does not mention it.
	.type	liar, @function
liar:
	.cfi_startproc
	sub	$24, %rsp
.if !LIES
	.cfi_adjust_cfa_offset 24
.endif
	nop
	call	honest
	add	$24, %rsp
.if !LIES
	.cfi_adjust_cfa_offset -24
.endif
	ret
	.cfi_endproc
	.size	liar, .-liar

# Saves the frame pointer and uses it for something else; the CFI does not mention it.
	.type	keeper, @function
keeper:
	.cfi_startproc
	push	%rbp
	.cfi_adjust_cfa_offset 8
.if !LIES
	.cfi_rel_offset %rbp, 0
.endif
	mov	$7, %ebp
	nop
	pop	%rbp
	.cfi_adjust_cfa_offset -8
.if !LIES
	.cfi_restore %rbp
.endif
	ret
	.cfi_endproc
	.size	keeper, .-keeper

# The CFI does not mention that the frame is popped.
	.type	epilogue, @function
epilogue:
	.cfi_startproc
	push	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	mov	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	leave
.if !LIES
	.cfi_def_cfa %rsp, 8
	.cfi_restore %rbp
.endif
	ret
	.cfi_endproc
	.size	epilogue, .-epilogue
	.section .note.GNU-stack,"",@progbits
