# A call that does not return ends a function, and the next function follows it directly.

	.globl	_start
_start:
	.cfi_startproc
	.cfi_undefined rip
	call	outer		# not counted: _start has no caller
	nop
	.cfi_endproc

outer:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	call	inner
	call	last
	nop
	.cfi_endproc

inner:
	.cfi_startproc
	ret
	.cfi_endproc

last:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	call	quit
	.cfi_endproc

next:
	.cfi_startproc
	nop
	.cfi_endproc

quit:
	.cfi_startproc
	movl	$60, %eax
	xorl	%edi, %edi
	syscall
	.cfi_endproc
