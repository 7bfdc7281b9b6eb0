/* Calls down(), which takes n traces in a loop at the given depth, and prints the time: "N traces, F frames, T ns". */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* down() returns the number of frames of all traces. */
static inline int measure(int argc, char **argv, long (*down)(int depth, int n)) {
	int depth = argc > 1 ? atoi(argv[1]) : 32, n = argc > 2 ? atoi(argv[2]) : 20000;
	down(depth, n / 10 + 1); /* loads what it needs */
	double begin = now();
	long frames = down(depth, n);
	printf("%d traces, %ld frames, %.0f ns\n", n, frames, now() - begin);
	return 0;
}
