# amd64: as --gsframe, ld -shared, objdump --sframe (2.47). No function can be described; objdump
# reports the .sframe that ld writes as corrupt.
	.text
f:	.cfi_startproc
	.cfi_val_offset 7, 8
	ret
	.cfi_endproc
