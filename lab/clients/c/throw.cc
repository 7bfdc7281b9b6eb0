// Throws an exception through a recursion. This takes no trace, and must not become slower.
#include "traces.h"

__attribute__((noinline, noclone)) static int down(int depth) {
	if (depth == 0)
		throw 1;
	int n = down(depth - 1);
	__asm__ volatile("" : "+r"(n));
	return n;
}

static long caught(int depth, int n) {
	for (int i = 0; i < n; i++)
		try {
			down(depth);
		} catch (int) {
		}
	return long(depth) * n;
}

int main(int argc, char **argv) { return measure(argc, argv, caught); }
