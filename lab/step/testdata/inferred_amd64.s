# A function without CFI: work(3) takes 12 steps, 7 of them with the CFA at SP+40.
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
