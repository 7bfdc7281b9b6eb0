// The zero terminator of .eh_frame, linked last, where a compiler driver would
// put crtend.o. Binaries linked without it end with their last FDE. The BTI and
// PAC property is here because it only survives if every object has it.

	.section .eh_frame,"a",@progbits
	.balign	4
	.word	0

// GNU_PROPERTY_AARCH64_FEATURE_1_AND with BTI and PAC.
	.section .note.gnu.property,"a",@note
	.balign	8
	.word	4, 16, 5
	.asciz	"GNU"
	.word	0xc0000000, 4, 3, 0

	.section .note.GNU-stack,"",@progbits
