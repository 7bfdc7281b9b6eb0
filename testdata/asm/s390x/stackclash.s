# GCC's prologue of -fstack-clash-protection: r14, saved already, holds the
# address at which a loop that moves r15 will stop, and is the base of the CFA
# meanwhile; then the CFA is r15-based again and the rest is allocated.
#
# SFrame V2: CFA = r14+n has no row, as the base is r15 or r11, and r15 itself
# moves from turn to turn. V3: flexible rows, which hold in the topmost frame
# only. The rows before and after are ordinary ones.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	ahi	%r2, 1
	br	%r14
	.cfi_endproc
	.size	leaf, .-leaf

# GCC 16 for a frame of 20,160 bytes.
	.globl	clash
	.type	clash, @function
clash:
	.cfi_startproc
	stmg	%r14, %r15, 112(%r15)
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	lay	%r14, -16384(%r15)
	.cfi_def_cfa %r14, 16544
1:
	lay	%r15, -4096(%r15)
	cg	%r0, 4088(%r15)
	clgr	%r15, %r14
	jh	1b
	lgr	%r15, %r14
	.cfi_def_cfa_register %r15
	lay	%r15, -3776(%r15)
	.cfi_def_cfa_offset 20320
	cg	%r0, 3768(%r15)
	brasl	%r14, leaf
	lmg	%r14, %r15, 20272(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	clash, .-clash

# The same with r11 saved and as the CFA's base afterwards.
	.globl	clash_fp
	.type	clash_fp, @function
clash_fp:
	.cfi_startproc
	stmg	%r11, %r15, 88(%r15)
	.cfi_offset %r11, -72
	.cfi_offset %r12, -64
	.cfi_offset %r13, -56
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	lay	%r14, -16384(%r15)
	.cfi_def_cfa %r14, 16544
1:
	lay	%r15, -4096(%r15)
	cg	%r0, 4088(%r15)
	clgr	%r15, %r14
	jh	1b
	lgr	%r15, %r14
	.cfi_def_cfa_register %r15
	aghi	%r15, -160
	.cfi_def_cfa_offset 16704
	lgr	%r11, %r15
	.cfi_def_cfa_register %r11
	brasl	%r14, leaf
	lay	%r11, 16384(%r11)
	.cfi_def_cfa_offset 320
	lmg	%r11, %r15, 248(%r11)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_restore %r12
	.cfi_restore %r11
	.cfi_def_cfa %r15, 160
	br	%r14
	.cfi_endproc
	.size	clash_fp, .-clash_fp

# The base is r1, and nothing is saved.
	.globl	clash_leaf
	.type	clash_leaf, @function
clash_leaf:
	.cfi_startproc
	lay	%r1, -16384(%r15)
	.cfi_def_cfa %r1, 16544
1:
	lay	%r15, -4096(%r15)
	cg	%r0, 4088(%r15)
	clgr	%r15, %r1
	jh	1b
	lgr	%r15, %r1
	.cfi_def_cfa_register %r15
	lay	%r15, 16384(%r15)
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	clash_leaf, .-clash_leaf

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	aghi	%r15, -160
	brasl	%r14, clash
	brasl	%r14, clash_fp
	brasl	%r14, clash_leaf
	lghi	%r2, 0
	svc	1
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
