# A function without CFI: 12 steps for work(3), 7 of them with 40 bytes up to its caller's frame.
	.globl	work
	.type	work, @function
work:
	push	%rbp
	mov	%rdi, %rbp
	sub	$24, %rsp
1:	dec	%ebp
	jnz	1b
	add	$24, %rsp
	pop	%rbp
	ret
	.size	work, .-work
	.section .note.GNU-stack,"",@progbits
