// std::stacktrace below a recursion.
#include "traces.h"
#include <stacktrace>

__attribute__((noinline, noclone)) static int down(int depth) {
	int n = depth > 0 ? down(depth - 1) : int(std::stacktrace::current().size());
	__asm__ volatile("" : "+r"(n));
	return n;
}

int main(int argc, char **argv) { return measure(argc, argv, down); }
