/* glibc's backtrace() below a recursion. */
#include "traces.h"
#include <execinfo.h>

__attribute__((noinline, noclone)) static int down(int depth) {
	void *pcs[256];
	int n = depth > 0 ? down(depth - 1) : backtrace(pcs, 256);
	__asm__ volatile("" : "+r"(n));
	return n;
}

int main(int argc, char **argv) { return measure(argc, argv, down); }
