/* A note with a private type, in a section of the kind that linkers collect in PT_NOTE. */
	.section .note.version, "a", @note
	.balign 4
	.long 4, 2f - 1f, 1
	.asciz "App"
1:	.asciz "version 1.2.3"
	.balign 4
2:
	.section .note.GNU-stack, "", @progbits
