/* backtrace() in FIBERS coroutines in turn. The time for switching is subtracted. */
#define _GNU_SOURCE
#include "traces.h"
#include <execinfo.h>
#include <ucontext.h>

enum { STACK = 1 << 16 };
static ucontext_t outside, fibers[FIBERS];
static int take, depth;
static long frames;

__attribute__((noinline, noclone)) static void down(int depth, int self) {
	static void *pcs[256];
	if (depth > 0)
		down(depth - 1, self);
	else
		for (;;) {
			frames += take ? backtrace(pcs, 256) : 0;
			swapcontext(&fibers[self], &outside);
		}
	__asm__ volatile("");
}

static void begin(int self) { down(depth, self); }

static double run(int n) {
	double since = now();
	frames = 0;
	for (int i = 0; i < n; i++)
		swapcontext(&outside, &fibers[i % FIBERS]);
	return now() - since;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	depth = atoi(argv[1]);
	int n = atoi(argv[2]) + FIBERS;
	for (int i = 0; i < FIBERS; i++) {
		getcontext(&fibers[i]);
		fibers[i].uc_stack.ss_sp = malloc(STACK);
		fibers[i].uc_stack.ss_size = STACK;
		makecontext(&fibers[i], (void (*)(void))begin, 1, i);
	}
	run(n);
	double without = run(n);
	take = 1;
	run(FIBERS);
	double with = run(n);
	printf("%d traces, %ld frames, %.0f ns\n", n, frames, with - without);
	return 0;
}
