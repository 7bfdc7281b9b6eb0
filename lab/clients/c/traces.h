/* Calls a client's function at a depth, and prints the time of a trace: "N traces, F frames, T ns". */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int measure(int argc, char **argv, int (*trace)(int)) {
	int depth = argc > 1 ? atoi(argv[1]) : 32, n = argc > 2 ? atoi(argv[2]) : 20000;
	long frames = trace(depth); /* loads what it needs */
	double begin;
	for (int i = 0; i < n / 10; i++)
		trace(depth);
	begin = now();
	frames = 0;
	for (int i = 0; i < n; i++)
		frames += trace(depth);
	begin = now() - begin;
	printf("%d traces, %ld frames, %.0f ns\n", n, frames, begin);
	return 0;
}
