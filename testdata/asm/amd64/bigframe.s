# Large frames: CFA offsets and rbp save offsets on both sides of the limits
# of signed 8, 16 and 32 bit numbers.
#
# SFrame: a row's offsets all have one size, 1, 2 or 4 bytes, signed. An 8-bit
# offset reaches from -128 to 127, a 16-bit one from -32768 to 32767; the
# larger of a row's offsets decides. A CFA offset of 2^31 does not fit at all.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	leaf, .-leaf

# CFA offsets: 8, 32, 120 | 128, 1152, 32760 | 32768, 0x12340000, 2^31-8.
	.globl	cfa_sizes
	.type	cfa_sizes, @function
cfa_sizes:
	.cfi_startproc
	subq	$24, %rsp
	.cfi_def_cfa_offset 32
	subq	$88, %rsp
	.cfi_def_cfa_offset 120
	subq	$8, %rsp
	.cfi_def_cfa_offset 128
	subq	$0x400, %rsp
	.cfi_def_cfa_offset 1152
	subq	$31608, %rsp
	.cfi_def_cfa_offset 32760
	subq	$8, %rsp
	.cfi_def_cfa_offset 32768
	subq	$0x12338000, %rsp
	.cfi_def_cfa_offset 0x12340000
	subq	$0x6dcbfff8, %rsp
	.cfi_def_cfa_offset 0x7ffffff8
	addq	$0x7ffffff0, %rsp
	.cfi_def_cfa_offset 8
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	cfa_sizes, .-cfa_sizes

# One row beyond 32 bits, between two that fit.
	.globl	cfa_too_big
	.type	cfa_too_big, @function
cfa_too_big:
	.cfi_startproc
	subq	$0x7ffffff0, %rsp
	.cfi_def_cfa_offset 0x7ffffff8
	subq	$8, %rsp
	.cfi_def_cfa_offset 0x80000000
	nop
	addq	$8, %rsp
	.cfi_def_cfa_offset 0x7ffffff8
	addq	$0x7ffffff0, %rsp
	.cfi_def_cfa_offset 8
	movl	%edi, %eax
	ret
	.cfi_endproc
	.size	cfa_too_big, .-cfa_too_big

# rbp saved at CFA-128 (8 bit), then -136 and -32768 (16 bit), then -32776
# (32 bit). The CFA is rbp-based with a small offset meanwhile.
	.globl	fp_sizes
	.type	fp_sizes, @function
fp_sizes:
	.cfi_startproc
	movq	%rbp, -120(%rsp)
	.cfi_offset %rbp, -128
	leaq	-8(%rsp), %rbp
	.cfi_def_cfa %rbp, 16
	subq	$65528, %rsp
	movq	-112(%rbp), %rax
	movq	%rax, -120(%rbp)
	.cfi_offset %rbp, -136
	movq	%rax, -32752(%rbp)
	.cfi_offset %rbp, -32768
	movq	%rax, -32760(%rbp)
	.cfi_offset %rbp, -32776
	call	leaf
	leaq	8(%rbp), %rsp
	.cfi_def_cfa %rsp, 8
	movq	-32768(%rsp), %rbp
	.cfi_restore %rbp
	ret
	.cfi_endproc
	.size	fp_sizes, .-fp_sizes

# rbp-based CFA with 16 and 32 bit offsets: rbp points into the frame.
	.globl	fp_low
	.type	fp_low, @function
fp_low:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	subq	$0x12000, %rsp
	.cfi_def_cfa_offset 0x12010
	leaq	0x11000(%rsp), %rbp
	.cfi_def_cfa %rbp, 0x1010
	call	leaf
	movq	%rsp, %rbp
	.cfi_def_cfa_offset 0x12010
	call	leaf
	leaq	0x12000(%rbp), %rsp
	popq	%rbp
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size	fp_low, .-fp_low

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	movl	$1, %edi
	call	cfa_sizes
	call	cfa_too_big
	call	fp_sizes
	call	fp_low
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
