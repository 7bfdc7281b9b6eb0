#include "textflag.h"

TEXT ·Copy(SB),NOSPLIT,$0-64
	MOVQ	0(SP), AX
	MOVQ	AX, pc+24(FP)
	LEAQ	8(SP), SI
	MOVQ	SI, sp+32(FP)
	MOVQ	BP, fp+40(FP)
	MOVQ	(TLS), DX
	MOVQ	DX, gp+48(FP)
	MOVQ	8(DX), CX
	SUBQ	SI, CX
	MOVQ	b_len+8(FP), BX
	CMPQ	CX, BX
	JLS	fits
	MOVQ	BX, CX
fits:
	MOVQ	CX, n+56(FP)
	MOVQ	b_base+0(FP), DI
	CLD
	REP; MOVSB
	RET

TEXT ·G(SB),NOSPLIT,$0-8
	MOVQ	(TLS), DX
	MOVQ	DX, ret+0(FP)
	RET
