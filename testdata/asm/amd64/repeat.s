# Functions with the same CFI instructions: of the same size, larger and smaller,
# so small that not all of their rows are left, with a gap between their rows, and
# with rows that depend on the address.
#
# SFrame: the ones that are wholly expressible share their rows; the others have
# to be looked at one by one.

	.text

# Two rows, of which the second starts at 1.
.macro two name, skip
	.type	\name, @function
\name:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	.skip	\skip, 0x90
	popq	%rbx
	ret
	.cfi_endproc
	.size	\name, .-\name
.endm

	two	two_a, 5
	two	two_b, 5
	two	two_larger, 300
	two	two_smaller, 1
	two	two_again, 5

# Four rows, with the frame pointer.
.macro four name, skip
	.type	\name, @function
\name:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rbp
	.cfi_def_cfa_register %rbp
	nop
	leave
	.cfi_def_cfa %rsp, 8
	ret
	.skip	\skip, 0x90
	.cfi_endproc
	.size	\name, .-\name
.endm

	four	four_a, 1
	four	four_larger, 7
	four	four_b, 1

# Their FDEs are at the end, written by hand: the instructions of four_a, in the
# second and the third function more than they have code for.
	.type	small, @function
small:
	.skip	6, 0x90
	.size	small, .-small
	.type	smaller, @function
smaller:
	.skip	3, 0x90
	.size	smaller, .-smaller
	.type	full, @function
full:
	.skip	9, 0x90
	.size	full, .-full

# The first three rows of a function, the last one with a CFA based on rcx.
.macro onto_rcx name, skip
	.type	\name, @function
\name:
	.cfi_startproc
	pushq	%rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq	%rsp, %rcx
	.cfi_def_cfa_register %rcx
	.skip	\skip, 0x90
.endm

# That in the middle.
.macro gap name, skip
	onto_rcx \name, \skip
	movq	%rcx, %rsp
	.cfi_def_cfa_register %rsp
	popq	%rbp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	\name, .-\name
.endm

	gap	gap_a, 4
	gap	gap_b, 4
	gap	gap_larger, 40

# That up to the end, which is at another place in a larger function.
.macro endless name, skip
	onto_rcx \name, \skip
	jmp	\name
	.cfi_endproc
	.size	\name, .-\name
.endm

	endless	endless_a, 4
	endless	endless_b, 4
	endless	endless_larger, 40

# The CFA of a PLT, which depends on the address. At another distance from a
# multiple of 16 it is another one.
.macro plt name
	.type	\name, @function
\name:
	.cfi_startproc
	.cfi_escape 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22
	.skip	32, 0x90
	.cfi_endproc
	.size	\name, .-\name
.endm

	.balign	16
	plt	plt_a
	.skip	5, 0x90
	plt	plt_b

	.globl	_start
	.type	_start, @function
_start:
	call	two_a
	call	two_larger
	call	two_smaller
	call	four_a
	call	four_larger
	call	gap_a
	call	gap_larger
	xorl	%edi, %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .eh_frame,"a",@unwind
.Lcie:
	.long	.Lcie_end - .Lcie_id
.Lcie_id:
	.long	0
	.byte	1
	.string	"zR"
	.uleb128 1
	.sleb128 -8
	.byte	16
	.uleb128 1
	.byte	0x1b			# pc-relative, 4 bytes, signed
	.byte	0x0c, 7, 8		# CFA = rsp+8
	.byte	0x90, 1			# rip at CFA-8
	.balign	8
.Lcie_end:
.macro fde name
1:	.long	3f - 2f
2:	.long	2b - .Lcie
	.long	\name - .
	.long	.Lsize_\name
	.uleb128 0
	.byte	0x41, 0x0e, 16, 0x86, 2	# at 1: CFA = rsp+16, rbp at CFA-16
	.byte	0x43, 0x0d, 6		# at 4: CFA = rbp+16
	.byte	0x42, 0x0c, 7, 8	# at 6: CFA = rsp+8
	.balign	4
3:
.endm
	.set	.Lsize_full, 9
	.set	.Lsize_small, 6
	.set	.Lsize_smaller, 3
	fde	full
	fde	smaller
	fde	small

	.section .note.GNU-stack,"",@progbits
