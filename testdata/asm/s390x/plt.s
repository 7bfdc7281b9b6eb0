# Calls of external functions through the PLT. The address of lib_e is also
# loaded from the GOT.
#
# SFrame: the linker writes one FDE for the whole of .plt, without instructions:
# r15+160 and r14 everywhere, as neither PLT0 nor the entries of 32 bytes move
# r15 or save r14. There is no .plt.got or .plt.sec.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	ahi	%r2, 1
	br	%r14
	.cfi_endproc
	.size	leaf, .-leaf

	.globl	calls
	.type	calls, @function
calls:
	.cfi_startproc
	stmg	%r11, %r15, 88(%r15)
	.cfi_offset %r11, -72
	.cfi_offset %r12, -64
	.cfi_offset %r13, -56
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	brasl	%r14, lib_a@PLT
	lgr	%r11, %r2
	brasl	%r14, lib_b@PLT
	agr	%r11, %r2
	brasl	%r14, lib_c@PLT
	agr	%r11, %r2
	brasl	%r14, lib_d@PLT
	agr	%r11, %r2
	brasl	%r14, lib_f@PLT
	agr	%r2, %r11
	lmg	%r11, %r15, 248(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_restore %r12
	.cfi_restore %r11
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	calls, .-calls

	.globl	via_got
	.type	via_got, @function
via_got:
	.cfi_startproc
	stmg	%r13, %r15, 104(%r15)
	.cfi_offset %r13, -56
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	lgrl	%r13, lib_e@GOTENT
	brasl	%r14, lib_e@PLT
	basr	%r14, %r13
	lmg	%r13, %r15, 264(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	via_got, .-via_got

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	aghi	%r15, -160
	brasl	%r14, calls
	brasl	%r14, via_got
	lghi	%r2, 0
	svc	1
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
