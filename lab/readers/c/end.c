/* A program whose last function ends with a call that does not return, for last_test.go: clang keeps the order. */
extern void abort(void);

__attribute__((noinline)) void die(volatile int *p)
{
	if (++*p)
		abort();
	for (;;)
		*p = 1;
}

int main(int argc, char **argv)
{
	volatile int n = argc;
	(void)argv;
	die(&n);
}
