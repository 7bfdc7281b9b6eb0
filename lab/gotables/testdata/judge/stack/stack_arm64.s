#include "textflag.h"

TEXT ·Copy(SB),NOSPLIT|NOFRAME,$0-64
	MOVD	LR, pc+24(FP)
	MOVD	RSP, R0
	MOVD	R0, sp+32(FP)
	MOVD	R29, fp+40(FP)
	MOVD	g, R1
	MOVD	R1, gp+48(FP)
	MOVD	8(R1), R2
	SUB	R0, R2, R2
	MOVD	b_len+8(FP), R3
	CMP	R3, R2
	BLS	fits
	MOVD	R3, R2
fits:
	MOVD	R2, n+56(FP)
	MOVD	b_base+0(FP), R4
loop:
	CBZ	R2, done
	MOVD.P	8(R0), R5
	MOVD.P	R5, 8(R4)
	SUB	$8, R2, R2
	B	loop
done:
	RET

TEXT ·G(SB),NOSPLIT|NOFRAME,$0-8
	MOVD	g, R1
	MOVD	R1, ret+0(FP)
	RET
