# Offsets at the edges of what the encoding has room for, and undefined
# registers.
#
# SFrame: a CFA offset is stored as (offset - 160) / 8, so it has to be a
# multiple of 8, and 8 bits reach from -864 to 1176, 16 bits to 262,296. Slots
# of r14 and r11 are stored as they are: 8 bits reach from -128 to 127. In V2
# the lowest bit of such a word tells a register from a slot, so a slot at an odd
# address has no form, and 0 is the word that says "r14 is not saved". V3 has
# dropped the registers; there an offset of 0 needs a flexible row.

	.text

	.globl	leaf
	.type	leaf, @function
leaf:
	.cfi_startproc
	ahi	%r2, 1
	br	%r14
	.cfi_endproc
	.size	leaf, .-leaf

# CFA offsets 164, 172 and 244 are no multiples of 8; 168 and 248 are.
	.globl	unaligned
	.type	unaligned, @function
unaligned:
	.cfi_startproc
	aghi	%r15, -4
	.cfi_def_cfa_offset 164
	aghi	%r15, -4
	.cfi_def_cfa_offset 168
	aghi	%r15, -4
	.cfi_def_cfa_offset 172
	aghi	%r15, -72
	.cfi_def_cfa_offset 244
	aghi	%r15, -4
	.cfi_def_cfa_offset 248
	aghi	%r15, 88
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	unaligned, .-unaligned

# CFA offsets 1176 | 1184, 262296 | 262304, 0x12340000.
	.globl	cfa_sizes
	.type	cfa_sizes, @function
cfa_sizes:
	.cfi_startproc
	aghi	%r15, -1016
	.cfi_def_cfa_offset 1176
	aghi	%r15, -8
	.cfi_def_cfa_offset 1184
	lay	%r15, -261112(%r15)
	.cfi_def_cfa_offset 262296
	aghi	%r15, -8
	.cfi_def_cfa_offset 262304
	agfi	%r15, -0x122fff60
	.cfi_def_cfa_offset 0x12340000
	agfi	%r15, 0x1233ff60
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	cfa_sizes, .-cfa_sizes

# CFA = r11+152, r11+0, r11-864 | r11-872: r11 points above the register save
# area. Words of -1, -20, -128 and -129.
	.globl	cfa_below
	.type	cfa_below, @function
cfa_below:
	.cfi_startproc
	stmg	%r11, %r15, 88(%r15)
	.cfi_offset %r11, -72
	.cfi_offset %r12, -64
	.cfi_offset %r13, -56
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	la	%r11, 8(%r15)
	.cfi_def_cfa %r11, 152
	aghi	%r11, 152
	.cfi_def_cfa_offset 0
	aghi	%r11, 864
	.cfi_def_cfa_offset -864
	aghi	%r11, 8
	.cfi_def_cfa_offset -872
	aghi	%r15, -160
	brasl	%r14, leaf
	lmg	%r11, %r15, 248(%r15)
	.cfi_restore %r15
	.cfi_restore %r14
	.cfi_restore %r13
	.cfi_restore %r12
	.cfi_restore %r11
	.cfi_def_cfa %r15, 160
	br	%r14
	.cfi_endproc
	.size	cfa_below, .-cfa_below

# r11 and r14 copied to slots at -128 and -120 (8 bit) | -136 and -128, -32768
# and -32760 (16 bit) | -32776 and -32768 (32 bit). The CFA is r11+160.
	.globl	slot_sizes
	.type	slot_sizes, @function
slot_sizes:
	.cfi_startproc
	stg	%r11, 32(%r15)
	.cfi_offset %r11, -128
	stg	%r14, 40(%r15)
	.cfi_offset %r14, -120
	lgr	%r1, %r11
	lgr	%r11, %r15
	.cfi_def_cfa_register %r11
	lay	%r15, -33000(%r15)
	stg	%r1, 24(%r11)
	.cfi_offset %r11, -136
	stg	%r14, 32(%r11)
	.cfi_offset %r14, -128
	stg	%r1, -32608(%r11)
	.cfi_offset %r11, -32768
	stg	%r14, -32600(%r11)
	.cfi_offset %r14, -32760
	stg	%r1, -32616(%r11)
	.cfi_offset %r11, -32776
	stg	%r14, -32608(%r11)
	.cfi_offset %r14, -32768
	brasl	%r14, leaf
	lgr	%r15, %r11
	.cfi_def_cfa_register %r15
	lg	%r14, 40(%r15)
	.cfi_restore %r14
	lg	%r11, 24(%r15)
	.cfi_restore %r11
	br	%r14
	.cfi_endproc
	.size	slot_sizes, .-slot_sizes

# r14 saved at CFA-47 and r11 at CFA-71, with expressions {const1u n, minus}, as
# an offset has to be a multiple of 8: words of 0xd1 and 0xb9.
	.globl	odd_slots
	.type	odd_slots, @function
odd_slots:
	.cfi_startproc
	stg	%r14, 113(%r15)
	.cfi_escape 0x10, 0x0e, 0x03, 0x08, 0x2f, 0x1c
	stg	%r11, 89(%r15)
	.cfi_escape 0x10, 0x0b, 0x03, 0x08, 0x47, 0x1c
	lgr	%r11, %r2
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	brasl	%r14, leaf
	agr	%r2, %r11
	aghi	%r15, 160
	.cfi_def_cfa_offset 160
	lg	%r14, 113(%r15)
	.cfi_restore %r14
	lg	%r11, 89(%r15)
	.cfi_restore %r11
	br	%r14
	.cfi_endproc
	.size	odd_slots, .-odd_slots

# r14 saved at the CFA itself, in the caller's frame; r11 at CFA-72, then at the
# CFA, and r14 above it.
	.globl	at_cfa
	.type	at_cfa, @function
at_cfa:
	.cfi_startproc
	stg	%r14, 160(%r15)
	.cfi_offset %r14, 0
	stg	%r11, 88(%r15)
	.cfi_offset %r11, -72
	lgr	%r11, %r14
	stg	%r14, 168(%r15)
	.cfi_offset %r14, 8
	lg	%r1, 88(%r15)
	stg	%r1, 160(%r15)
	.cfi_offset %r11, 0
	aghi	%r15, -160
	.cfi_def_cfa_offset 320
	brasl	%r14, leaf
	aghi	%r15, 160
	.cfi_def_cfa_offset 160
	lg	%r11, 160(%r15)
	.cfi_restore %r11
	lg	%r14, 168(%r15)
	.cfi_restore %r14
	br	%r14
	.cfi_endproc
	.size	at_cfa, .-at_cfa

# r11 is kept out of reach of the rules: undefined, and the CIE's rule again.
	.globl	fp_lost
	.type	fp_lost, @function
fp_lost:
	.cfi_startproc
	ldgr	%f0, %r11
	.cfi_undefined %r11
	lgr	%r11, %r2
	agr	%r2, %r11
	lgdr	%r11, %f0
	.cfi_restore %r11
	br	%r14
	.cfi_endproc
	.size	fp_lost, .-fp_lost

# The caller's r15 is CFA-160: says what holds anyway.
	.globl	sp_same
	.type	sp_same, @function
sp_same:
	.cfi_startproc
	aghi	%r15, -8
	.cfi_def_cfa_offset 168
	.cfi_val_offset %r15, -160
	ahi	%r2, 1
	aghi	%r15, 8
	.cfi_def_cfa_offset 160
	br	%r14
	.cfi_endproc
	.size	sp_same, .-sp_same

# Pops 8 bytes of its caller's stack: the caller's r15 is CFA-152.
	.globl	sp_popped
	.type	sp_popped, @function
sp_popped:
	.cfi_startproc
	aghi	%r15, -8
	.cfi_def_cfa_offset 168
	.cfi_val_offset %r15, -152
	ahi	%r2, 1
	aghi	%r15, 16
	.cfi_def_cfa_offset 152
	br	%r14
	.cfi_endproc
	.size	sp_popped, .-sp_popped

# Leaves its caller's stack and never returns: r14 is undefined from the third
# row on.
	.type	new_stack, @function
new_stack:
	.cfi_startproc
	stmg	%r14, %r15, 112(%r15)
	.cfi_offset %r14, -48
	.cfi_offset %r15, -40
	lgr	%r15, %r2
	.cfi_undefined %r14
	lghi	%r2, 0
	brasl	%r14, leaf
	lghi	%r2, 0
	svc	1
	.cfi_endproc
	.size	new_stack, .-new_stack

# Entry point, undefined from the first address on.
	.globl	_start
	.type	_start, @function
_start:
	.cfi_startproc
	.cfi_undefined %r14
	aghi	%r15, -176
	.cfi_def_cfa_offset 336
	lghi	%r2, 1
	brasl	%r14, unaligned
	brasl	%r14, cfa_sizes
	brasl	%r14, cfa_below
	brasl	%r14, slot_sizes
	brasl	%r14, odd_slots
	brasl	%r14, at_cfa
	brasl	%r14, fp_lost
	brasl	%r14, sp_same
	aghi	%r15, -8
	.cfi_def_cfa_offset 344
	brasl	%r14, sp_popped
	.cfi_def_cfa_offset 336
	lay	%r2, -1024(%r15)
	brasl	%r14, new_stack
	lghi	%r2, 1
	svc	1
	.cfi_endproc
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
