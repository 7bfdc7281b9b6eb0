# amd64: as --gsframe. 2.40 and 2.44 fail with "Internal error in sframe_xlate_do_restore"; 2.47 does not.
f:	.cfi_startproc
	.cfi_restore 6
	ret
	.cfi_endproc
