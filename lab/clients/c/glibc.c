/* Calls glibc's backtrace() at the deepest level of a recursion. */
#include "traces.h"
#include <execinfo.h>

static int take(void) {
	void *pcs[256];
	return backtrace(pcs, 256);
}

__attribute__((noinline, noclone)) static long down(int depth, int n) {
	long frames = 0;
	if (depth > 0)
		frames = down(depth - 1, n);
	else
		for (int i = 0; i < n; i++)
			frames += take();
	__asm__ volatile("" : "+r"(frames));
	return frames;
}

int main(int argc, char **argv) { return measure(argc, argv, down); }
