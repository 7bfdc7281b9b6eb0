/* Functions that end with a call that does not return, for chain.c, chainxx.cc and last_test.go. All are aligned, so
   they are followed by padding, which contains the return address. */
#define LAST __attribute__((noinline, section(".text.hot.last"), aligned(64)))

#ifdef __cplusplus
LAST void last_throw(int n)
{
	volatile char b[40];
	b[n % 40] = n;
	throw n;
}
#else
extern void abort(void);
LAST void last_abort(int n)
{
	volatile char b[40] __attribute__((unused));
	b[n % 40] = n;
	abort();
}

/* last_stack_chk_fail needs -fstack-protector-all, or -fstack-protector-explicit and the attribute. */
LAST
#if defined __x86_64__ && !defined __clang__
__attribute__((stack_protect, optimize("O2")))
#endif
int last_stack_chk_fail(int n)
{
	volatile char b[40];
	b[n % 40] = n;
#ifdef __x86_64__
	__asm__ volatile("notq %%fs:40" ::: "memory", "cc"); /* what the canary is compared with */
#endif
	return b[n / 2 % 40];
}
#endif
LAST int last_other(int n) { return n + 1; }
