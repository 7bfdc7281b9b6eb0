# Ordinary frames as GCC writes them: leaves without a frame, leaves that keep
# r11 and r14 in floating-point registers, stmg to the caller's register save
# area, a dynamic frame with r11 as frame pointer, an early exit, r11 or r14
# saved alone.
#
# SFrame: the CFA is 160 above the caller's r15, the register save area, so a
# function's first row is r15+160, and CFA offsets are stored as
# (offset - 160) / 8. The return address is tracked. Where r11 is saved and r14
# is not, a word of 0 stands for the latter. The f0 and f2 of the leaves are
# register numbers 16 and 17: (number << 1) | 1 in the place of an offset in V2,
# flexible rows in V3. Rules for r15 itself add nothing: what r15 was follows
# from the CFA.

	.text

# Leaf: the CIE's initial row only.
	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	ar	%r2, %r3
	br	%r14
	.cfi_endproc
	.size	leaf, .-leaf

# r11 in f0 and r14 in f2, side by side; they come back in another order.
	.globl	leaf_fpr
	.type	leaf_fpr, @function
leaf_fpr:
	.cfi_startproc
	ldgr	%f0, %r11
	.cfi_register %r11, %f0
	ldgr	%f2, %r14
	.cfi_register %r14, %f2
	lgr	%r11, %r2
	lgr	%r14, %r3
	agr	%r11, %r14
	lgr	%r2, %r11
	lgdr	%r11, %f0
	.cfi_restore %r11
	lgdr	%r14, %f2
	.cfi_restore %r14
	br	%r14
	.cfi_endproc
	.size	leaf_fpr, .-leaf_fpr

# r11 only: the return address is in r14.
	.globl	leaf_r11
	.type	leaf_r11, @function
leaf_r11:
	.cfi_startproc
	ldgr	%f0, %r11
	.cfi_register %r11, %f0
	lgr	%r11, %r2
	agr	%r2, %r11
	lgdr	%r11, %f0
	.cfi_restore %r11
	br	%r14
	.cfi_endproc
	.size	leaf_r11, .-leaf_r11

# r14 only.
	.globl	leaf_r14
	.type	leaf_r14, @function
leaf_r14:
	.cfi_startproc
	ldgr	%f0, %r14
	.cfi_register %r14, %f0
	lgr	%r14, %r2
	agr	%r2, %r14
	lgdr	%r14, %f0
	.cfi_restore %r14
	br	%r14
	.cfi_endproc
	.size	leaf_r14, .-leaf_r14

# r11 in f0 and r15 in f4, with a frame: r15 is read back from f4.
	.globl	leaf_r15
	.type	leaf_r15, @function
leaf_r15:
	.cfi_startproc
	ldgr	%f0, %r11
	.cfi_register %r11, %f0
	ldgr	%f4, %r15
	.cfi_register %r15, %f4
	aghi	%r15, -16
	.cfi_def_cfa_offset 176
	lgr	%r11, %r15
	.cfi_def_cfa_register %r11
	stg	%r2, 160(%r11)
	lg	%r2, 160(%r11)
	lgdr	%r15, %f4
	.cfi_restore %r15
	.cfi_def_cfa %r15, 160
	lgdr	%r11, %f0
	.cfi_restore %r11
	br	%r14
	.cfi_endproc
	.size	leaf_r15, .-leaf_r15

# r14 and r15 to the register save area, a frame of 160 bytes.
	.globl	nofp
	.type	nofp, @function
nofp:
	.cfi_startproc
	stmg	%r14, %r15, 112(%r15)
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	brasl	%r14, leaf
	lmg	%r14, %r15, 272(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	nofp, .-nofp

# r11 to r15: r11 is one more callee save, the CFA stays r15-based.
	.globl	saves
	.type	saves, @function
saves:
	.cfi_startproc
	stmg	%r11, %r15, 88(%r15)
	.cfi_offset %r11, -72
	.cfi_offset %r12, -64
	.cfi_offset %r13, -56
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	lay	%r15, -168(%r15)
	.cfi_def_cfa_offset 328
	lgr	%r11, %r2
	lgr	%r12, %r3
	brasl	%r14, leaf
	agr	%r2, %r11
	agr	%r2, %r12
	lmg	%r11, %r15, 256(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_restore %r12
	.cfi_restore %r11
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	saves, .-saves

# r11 is the frame pointer of a dynamic frame, with an early exit.
	.globl	full
	.type	full, @function
full:
	.cfi_startproc
	stmg	%r11, %r15, 88(%r15)
	.cfi_offset %r11, -72
	.cfi_offset %r12, -64
	.cfi_offset %r13, -56
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	lay	%r15, -160(%r15)
	.cfi_def_cfa_offset 320
	lgr	%r11, %r15
	.cfi_def_cfa_register %r11
	cgije	%r2, 0, 1f
	sgr	%r15, %r2
	brasl	%r14, leaf
	lmg	%r11, %r15, 248(%r11)
	.cfi_remember_state
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_restore %r12
	.cfi_restore %r11
	.cfi_def_cfa %r15, 160
	br	%r14
1:
	.cfi_restore_state
	lghi	%r2, -1
	lmg	%r11, %r15, 248(%r11)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_restore %r12
	.cfi_restore %r11
	.cfi_def_cfa %r15, 160
	br	%r14
	.cfi_endproc
	.size	full, .-full

# Two levels of remembered states, the outer one the CIE's.
	.globl	nested
	.type	nested, @function
nested:
	.cfi_startproc
	.cfi_remember_state
	cgijl	%r2, 0, 2f
	stmg	%r14, %r15, 112(%r15)
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	.cfi_remember_state
	cgijh	%r2, 16, 1f
	lmg	%r14, %r15, 272(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_def_cfa_offset 160
	br	%r14
1:
	.cfi_restore_state
	brasl	%r14, leaf
	lmg	%r14, %r15, 272(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_def_cfa_offset 160
	br	%r14
2:
	.cfi_restore_state
	lghi	%r2, -1
	br	%r14
	.cfi_endproc
	.size	nested, .-nested

# Only r11 is saved, in a leaf; then it is the CFA's base.
	.globl	only_r11
	.type	only_r11, @function
only_r11:
	.cfi_startproc
	stg	%r11, 88(%r15)
	.cfi_offset %r11, -72
	aghi	%r15, -16
	.cfi_def_cfa_offset 176
	lgr	%r11, %r15
	.cfi_def_cfa_register %r11
	stg	%r2, 160(%r11)
	lg	%r11, 104(%r15)
	.cfi_restore %r11
	.cfi_def_cfa_register %r15
	aghi	%r15, 16
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	only_r11, .-only_r11

# Only r14 is saved, and r15 changed by constants.
	.globl	only_r14
	.type	only_r14, @function
only_r14:
	.cfi_startproc
	stg	%r14, 112(%r15)
	.cfi_offset %r14, -48
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	brasl	%r14, leaf
	aghi	%r15, 160
	.cfi_def_cfa_offset 160
	lg	%r14, 112(%r15)
	.cfi_restore %r14
	br	%r14
	.cfi_endproc
	.size	only_r14, .-only_r14

# r11 in a slot and r14 in f0, and the other way round.
	.globl	mixed
	.type	mixed, @function
mixed:
	.cfi_startproc
	stg	%r11, 88(%r15)
	.cfi_offset %r11, -72
	ldgr	%f0, %r14
	.cfi_register %r14, %f0
	lgr	%r11, %r2
	lgr	%r14, %r3
	agr	%r11, %r14
	lgdr	%r14, %f0
	.cfi_restore %r14
	lg	%r11, 88(%r15)
	.cfi_restore %r11
	stg	%r14, 112(%r15)
	.cfi_offset %r14, -48
	ldgr	%f0, %r11
	.cfi_register %r11, %f0
	lgr	%r11, %r2
	lgr	%r14, %r3
	agr	%r11, %r14
	lgdr	%r11, %f0
	.cfi_restore %r11
	lg	%r14, 112(%r15)
	.cfi_restore %r14
	br	%r14
	.cfi_endproc
	.size	mixed, .-mixed

# r14 and r11 in general registers, r0 and r1.
	.globl	gpr
	.type	gpr, @function
gpr:
	.cfi_startproc
	lgr	%r0, %r14
	.cfi_register %r14, %r0
	lgr	%r1, %r11
	.cfi_register %r11, %r1
	brasl	%r14, leaf
	lgr	%r11, %r1
	.cfi_restore %r11
	lgr	%r14, %r0
	.cfi_restore %r14
	br	%r14
	.cfi_endproc
	.size	gpr, .-gpr

# Entry point, not covered by CFI.
	.globl	_start
	.type	_start, @function
_start:
	aghi	%r15, -160
	lghi	%r2, 1
	lghi	%r3, 2
	brasl	%r14, leaf_fpr
	brasl	%r14, leaf_r11
	brasl	%r14, leaf_r14
	brasl	%r14, leaf_r15
	brasl	%r14, nofp
	brasl	%r14, saves
	lghi	%r2, 64
	brasl	%r14, full
	lghi	%r2, 0
	brasl	%r14, full
	lghi	%r2, 1
	brasl	%r14, nested
	lghi	%r2, 17
	brasl	%r14, nested
	lghi	%r2, -1
	brasl	%r14, nested
	brasl	%r14, only_r11
	brasl	%r14, only_r14
	brasl	%r14, mixed
	brasl	%r14, gpr
	lghi	%r2, 0
	svc	1
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
