# The zero terminator of .eh_frame, linked last, where a compiler driver would
# put crtend.o. Binaries linked without it end with their last FDE. The IBT
# property is here because it only survives if every object has it.

	.section .eh_frame,"a",@progbits
	.balign	4
	.long	0

# GNU_PROPERTY_X86_FEATURE_1_AND with IBT.
	.section .note.gnu.property,"a",@note
	.balign	8
	.long	4, 16, 5
	.asciz	"GNU"
	.long	0xc0000002, 4, 1, 0

	.section .note.GNU-stack,"",@progbits
