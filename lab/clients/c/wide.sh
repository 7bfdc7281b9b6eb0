#!/bin/sh
# Prints a program whose stacks consist of functions chosen at random from $1 functions. With -DLIBUNWIND, libunwind
# captures the stacks; with -DFRAME_POINTERS, a loop over frame pointers.
echo "enum { FUNCTIONS = $1 };"
cat <<'END'
#include "traces.h"
#ifdef LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#define backtrace unw_backtrace
#elif defined(FRAME_POINTERS)
static __attribute__((noinline)) int backtrace(void **pcs, int size) {
	int n = 0;
	void **at = __builtin_frame_address(0);
	for (; n < size && at != NULL && at[1] != NULL && at < *(void ***)at; at = *at)
		pcs[n++] = at[1];
	return n;
}
#else
#include <execinfo.h>
#endif
typedef int function(int);
static function *const table[];
static unsigned long seed = 1;
static function *any(void) {
	seed = seed * 6364136223846793005UL + 1442695040888963407UL;
	return table[(seed >> 33) % FUNCTIONS];
}
static int take;
static int leaf(int depth) {
	void *pcs[256];
	int n = depth > 0 ? any()(depth - 1) : take ? backtrace(pcs, 256) : 0;
	__asm__ volatile("" : "+r"(n));
	return n;
}
static double run(int depth, int n, long *frames) {
	double begin = now();
	for (int i = 0; i < n; i++)
		*frames += leaf(depth);
	return now() - begin;
}
/* The time for the calls alone is subtracted. */
static int all(int depth, int n) {
	long frames = 0;
	double ns = -run(depth, n, &frames);
	take = 1;
	ns += run(depth, n, &frames);
	printf("%d traces, %ld frames, %.0f ns\n", n, frames, ns);
	return 0;
}
END
awk -v n="$1" 'BEGIN {
	for (i = 0; i < n; i++)
		printf "static int f%d(int d) { int n = d > 0 ? any()(d - 1) : leaf(0); " \
			"__asm__ volatile(\"\" : \"+r\"(n)); return n; }\n", i
	print "static function *const table[] = {"
	for (i = 0; i < n; i++)
		printf "f%d,%s", i, i % 16 == 15 ? "\n" : " "
	print "};\nint main(int argc, char **argv) { return argc == 3 ? all(atoi(argv[1]), atoi(argv[2])) : 2; }"
}'
