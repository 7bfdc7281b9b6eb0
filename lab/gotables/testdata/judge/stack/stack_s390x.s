#include "textflag.h"

TEXT ·Copy(SB),NOSPLIT|NOFRAME,$0-64
	MOVD	R14, pc+24(FP)
	MOVD	R15, R1
	MOVD	R1, sp+32(FP)
	MOVD	R11, fp+40(FP)
	MOVD	g, R2
	MOVD	R2, gp+48(FP)
	MOVD	8(R2), R3
	SUB	R1, R3
	MOVD	b_len+8(FP), R4
	CMPBLE	R3, R4, fits
	MOVD	R4, R3
fits:
	MOVD	R3, n+56(FP)
	MOVD	b_base+0(FP), R4
loop:
	CMPBEQ	R3, $0, done
	MOVD	0(R1), R5
	MOVD	R5, 0(R4)
	ADD	$8, R1
	ADD	$8, R4
	ADD	$-8, R3
	BR	loop
done:
	RET

TEXT ·G(SB),NOSPLIT|NOFRAME,$0-8
	MOVD	g, R2
	MOVD	R2, ret+0(FP)
	RET
