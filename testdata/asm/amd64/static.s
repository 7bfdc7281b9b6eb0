# A static executable: no dynamic section, and .rela.plt, which only linker
# symbols lead to, right behind the notes at the head of the file. Nothing there
# can make room for more program headers.
#
# SFrame: ordinary rows, and a PLT for the indirect function.

	.text

	.globl	work
	.type	work, @gnu_indirect_function
work:
	.cfi_startproc
	leaq	plain(%rip), %rax
	ret
	.cfi_endproc
	.size	work, .-work

	.type	plain, @function
plain:
	.cfi_startproc
	leal	(%rdi,%rdi), %eax
	ret
	.cfi_endproc
	.size	plain, .-plain

# Calls through the PLT, once the relocations are applied.
	.globl	twice
	.type	twice, @function
twice:
	.cfi_startproc
	pushq	%rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	movl	%edi, %ebx
	call	work
	addl	%ebx, %eax
	popq	%rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size	twice, .-twice

# Entry point, not covered by CFI: applies the relocations as libc's startup code
# does, and exits with 0 if twice(2) is 6.
	.globl	_start
	.type	_start, @function
_start:
	leaq	__rela_iplt_start(%rip), %r12
1:	leaq	__rela_iplt_end(%rip), %rax
	cmpq	%rax, %r12
	jae	2f
	call	*16(%r12)
	movq	(%r12), %rcx
	movq	%rax, (%rcx)
	addq	$24, %r12
	jmp	1b
2:	movl	$2, %edi
	call	twice
	leal	-6(%rax), %edi
	movl	$60, %eax
	syscall
	.size	_start, .-_start

	.section .note.GNU-stack,"",@progbits
