# The zero terminator of .eh_frame, linked last, where a compiler driver would
# put crtend.o. Binaries linked without it end with their last FDE.

	.section .eh_frame,"a",@progbits
	.balign	4
	.long	0

	.section .note.GNU-stack,"",@progbits
