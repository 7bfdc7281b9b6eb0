/* Steps through a stack with cursors of libunwind, and prints the number of steps from frames of this program. */
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#include <stdio.h>

extern char __executable_start[], etext[];

__attribute__((noinline)) static int walk(int depth) {
	int steps = 0;
	if (depth > 0) {
		steps = walk(depth - 1);
		__asm__ volatile("" : "+r"(steps));
		return steps;
	}
	unw_context_t context;
	unw_cursor_t c;
	unw_word_t ip;
	unw_getcontext(&context);
	unw_init_local(&c, &context);
	do {
		unw_get_reg(&c, UNW_REG_IP, &ip);
		steps += ip >= (unw_word_t)__executable_start && ip < (unw_word_t)etext;
	} while (unw_step(&c) > 0);
	return steps;
}

int main(void) { return printf("%d\n", walk(40)) < 0; }
