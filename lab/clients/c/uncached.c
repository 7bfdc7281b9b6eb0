/* Calls backtrace() at the deepest level of a recursion, after a dlclose: since that may have unloaded code, no row of
 * an earlier trace is valid. */
#define _GNU_SOURCE
#include "traces.h"
#include <dlfcn.h>
#include <execinfo.h>

static int take;

__attribute__((noinline, noclone)) static long down(int depth, int n) {
	void *pcs[256];
	long frames = 0;
	if (depth > 0)
		frames = down(depth - 1, n);
	else
		for (int i = 0; i < n; i++) {
			dlclose(dlopen(NULL, RTLD_LAZY));
			frames += take ? backtrace(pcs, 256) : 0;
		}
	__asm__ volatile("" : "+r"(frames));
	return frames;
}

/* The time for dlopen and dlclose is subtracted. */
int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	int depth = atoi(argv[1]), n = atoi(argv[2]);
	double begin = now();
	down(depth, n);
	double without = now() - begin;
	take = 1;
	down(depth, 1);
	begin = now();
	long frames = down(depth, n);
	printf("%d traces, %ld frames, %.0f ns\n", n, frames, now() - begin - without);
	return 0;
}
