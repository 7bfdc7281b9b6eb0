# s390x: as --gsframe (2.47). The second row has the CFA r15+160, but the CFI says r15+164: the offset is
# rounded to a multiple of 8.
f:	.cfi_startproc
	nopr
	.cfi_def_cfa_offset 164
	br	%r14
	.cfi_endproc
