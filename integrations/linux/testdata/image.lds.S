/* Linker script of a small kernel. SFRAME is the content between __start_sframe and __end_sframe. */
ENTRY(_start)
PHDRS { text PT_LOAD FLAGS(5); data PT_LOAD FLAGS(6); }
SECTIONS
{
	. = 0x10000000;
	.text : { _stext = .; *(.text .text.*) _etext = .; } :text
	.init.text : ALIGN(4096) { _sinittext = .; *(.init.text) _einittext = .; } :text
	.rodata : ALIGN(4096) { *(.rodata .rodata.*) } :text
	.sframe : ALIGN(8) { __start_sframe = .; SFRAME __end_sframe = .; } :text
	.data : ALIGN(4096) { *(.data .data.*) } :data
	.bss : { *(.bss .bss.*) } :data
	/DISCARD/ : { *(.eh_frame .eh_frame_hdr .note* .comment .interp) }
}
