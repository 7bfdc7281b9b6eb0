/*
 * Uses sframe_process.h as a profiler does: a list of files that changes while handlers read it, separate sections, and
 * recorded stacks. Functions record their return addresses; a handler compares them with its walk. Prints a line for
 * each place. The arguments are two plugins with sections: the second one is loaded and unloaded all the time.
 */
#define _GNU_SOURCE
#include "sframe_process.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX = 32, SIZE = 1 << 16, ROUNDS = 3000 };
static struct sfw_files files;
static struct sfw_separates separates;
static struct sfw_stacks stacks;
static const struct sfw_process process = {.known = &stacks, .files = &files, .separates = &separates};

/* The frames that a walk must find, outermost first, and what it found. */
struct expected {
	unsigned num, whole, shorter, wrong;
	uint64_t pc[MAX];
	sigjmp_buf after;
};
static _Thread_local struct expected own;

static void enter(void) { own.pc[own.num++] = (uint64_t)(uintptr_t)__builtin_return_address(0); }
#define ENTER enter(), (void)own.pc[own.num - 1]

static void on_trap(int signal, siginfo_t *info, void *context) {
	struct sfw_frame frames[MAX];
	struct sfw_regs regs;
	enum sfw_how end;
	(void)signal, (void)info;
	sfw_regs_of_context(&regs, context);
	size_t n = sfw_process_walk(&process, &regs, frames, MAX, &end), i = 0, k = own.num;
	while (k > 0 && i < n) /* frames of the handler's own path are not recorded */
		if (frames[i].pc == own.pc[k - 1])
			i++, k--;
		else if (i++ > 0 && frames[i - 1].how != SFW_SIGNAL && !frames[i - 1].interrupted && k < own.num)
			break;
	if (k == 0)
		own.whole++;
	else if (end == SFW_NO_SECTION || end == SFW_BAD_MEMORY)
		own.shorter++;
	else
		own.wrong++;
	siglongjmp(own.after, 1);
}

static __attribute__((noinline)) int leaf(int n) {
	own.pc[own.num++] = (uint64_t)(uintptr_t)__builtin_return_address(0);
	__asm__ volatile("ud2" ::: "memory");
	return n + 1;
}
