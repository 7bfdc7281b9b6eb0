// Boost.Stacktrace below a recursion. It stores addresses and does not look up names.
#include "traces.h"
#include <boost/stacktrace.hpp>

__attribute__((noinline, noclone)) static long down(int depth, int n) {
	long frames = 0;
	if (depth > 0)
		frames = down(depth - 1, n);
	else
		for (int i = 0; i < n; i++)
			frames += long(boost::stacktrace::stacktrace(0, 256).size());
	__asm__ volatile("" : "+r"(frames));
	return frames;
}

int main(int argc, char **argv) { return measure(argc, argv, down); }
