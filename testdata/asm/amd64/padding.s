# Padding after functions, and what only looks like it. Each function is named after what follows it.

	.macro	begin name
	.p2align 4
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	.endm

	.macro	end name
	.cfi_endproc
	.size	\name, .-\name
	.endm

# A frame of 16 bytes, so that the row at the end is another one than where the next function begins.
	.macro	pushed name
	begin	\name
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset 3, -16
	.endm

	.text
	.globl	_start
_start:
	jmp	same

	begin	same
	ret
	end	same

	pushed	call
	call	same
	end	call

	pushed	jump
	jmp	*8(%rax)
	end	jump

# Two fills, as GCC writes them for methods of C++.
	pushed	method
	movl	%eax, %eax
	ud2
	.byte	0xf4
	end	method
	.align	2

# Control runs into the padding.
	pushed	runs
	movl	$1, %eax
	end	runs

	pushed	jumped
	testl	%eax, %eax
	jz	1f
	call	same
	end	jumped
1:

	pushed	jumped_far
	jz	1f
	.fill	300, 1, 0x50
	call	same
	end	jumped_far
1:

	pushed	inside
	jmp	1f
	call	same
	end	inside
	nop
	nop
1:	nop
	nop

	pushed	jumped_back
	call	same
	end	jumped_back
1:

	begin	back
	loop	1b
	ret
	end	back

	begin	labelled
	ret
	end	labelled
	.globl	label
label:

# Code without CFI that begins with no-ops.
	begin	code
	ret
	end	code
	nopl	0(%rax)
	xorl	%eax, %eax
	ret

# As -fpatchable-function-entry=16,8 has it.
	begin	patchable
	ret
	end	patchable
	.section __patchable_function_entries, "awo", @progbits, .text
	.balign	8
	.quad	1f
	.text
	.p2align 4
1:
	.fill	8, 1, 0x90
	.p2align 4

	begin	data
	ret
	end	data
	.quad	0x123456789

# A thunk, as this is adjusted.
	begin	thunk
	ret
	end	thunk
	.p2align 2
	addq	$8, %rdi
	jmp	same

	begin	pause
	ret
	end	pause
	pause
	endbr64

	pushed	zeros
	movl	$1, %eax
	end	zeros
	.balign	16, 0

	pushed	int3
	movl	$1, %eax
	end	int3
	.balign	16, 0xcc

	begin	most
	ret
	end	most
	.nops	63, 9

	begin	large
	ret
	end	large
	.nops	79, 9

	begin	pointer
	ret
	end	pointer
	.data
	.quad	1f
	.text
1:

	begin	array
	ret
	end	array
	.section .init_array, "aw"
	.quad	1f
	.text
1:

	.p2align 4
	.cfi_startproc
	.cfi_signal_frame
	.globl	signal
	.type	signal, @function
signal:
	movl	$15, %eax
	end	signal

	pushed	last
	call	same
	end	last
	.p2align 4

	.section .text.other, "ax", @progbits
	begin	other
	ret
	end	other

	.section .note.GNU-stack, "", @progbits
