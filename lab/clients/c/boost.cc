// Boost.Stacktrace below a recursion. It stores addresses; names are another step.
#include "traces.h"
#include <boost/stacktrace.hpp>

__attribute__((noinline, noclone)) static int down(int depth) {
	int n = depth > 0 ? down(depth - 1) : int(boost::stacktrace::stacktrace(0, 256).size());
	__asm__ volatile("" : "+r"(n));
	return n;
}

int main(int argc, char **argv) { return measure(argc, argv, down); }
