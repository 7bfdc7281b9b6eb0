# amd64: as --gsframe, ld -shared, objdump --sframe (2.47). Nothing is described; the .sframe that ld makes is "corrupt" for objdump.
	.text
f:	.cfi_startproc
	.cfi_val_offset 7, 8
	ret
	.cfi_endproc
