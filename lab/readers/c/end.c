/* For last_test.go: main, the last function, ends with a call that does not return. clang keeps the order. */
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
