/*
 * Samples a program with ITIMER_PROF, and counts the stacks that reach _start or the start of their thread: with
 * SFrame, with libunwind and with frame pointers. Also prints where the other SFrame walks end.
 *
 *	gcc -O2 -shared -fPIC -Iwalker lab/walker/c/samples.c -o samples.so -lunwind
 *	LD_PRELOAD=./samples.so [SAMPLES_OUT=FILE] PROGRAM
 */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include "sframe_process.h"
#include <libunwind.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

enum { FRAMES = 256, FAILS = 1 << 16, MS = 1 };
static uint64_t thread_start, samples, nocfi, reached[3];
static struct { uint64_t top, last; uint8_t how, n; } fails[FAILS];
static uint64_t num_fails;
extern const void *_Unwind_Find_FDE(void *pc, void *bases);

/* in_start returns whether a return address is in the function in which a program or a thread starts. */
static int in_start(uint64_t pc) {
	uint64_t entry = sfw_auxval(AT_ENTRY);
	return pc - entry < 0x40 || pc == thread_start;
}

static void on_sample(int sig, siginfo_t *info, void *context) {
	int before = errno;
	(void)sig, (void)info;
	ucontext_t *u = context;
	static const struct sfw_process process = {.probe = 1};
	struct sfw_frame frames[FRAMES];
	struct sfw_regs regs;
	enum sfw_how end;
	sfw_regs_of_context(&regs, context);
	size_t n = sfw_process_walk(&process, &regs, frames, FRAMES, &end);
	uint64_t pc = u->uc_mcontext.gregs[REG_RIP], last;
	void *bases[3];
	__atomic_fetch_add(&samples, 1, __ATOMIC_RELAXED);
	if (_Unwind_Find_FDE((void *)pc, bases) == NULL)
		__atomic_fetch_add(&nocfi, 1, __ATOMIC_RELAXED);
	if (in_start(frames[n - 1].pc)) {
		__atomic_fetch_add(&reached[0], 1, __ATOMIC_RELAXED);
	} else {
		uint64_t i = __atomic_fetch_add(&num_fails, 1, __ATOMIC_RELAXED);
		if (i < FAILS) {
			fails[i].top = pc;
			fails[i].last = frames[n - 1].pc;
			fails[i].how = end;
			fails[i].n = n;
		}
	}
	unw_cursor_t c;
	unw_init_local2(&c, u, UNW_INIT_SIGNAL_FRAME);
	unw_word_t ip = 0;
	for (int i = 0; i < FRAMES; i++) {
		unw_get_reg(&c, UNW_REG_IP, &ip);
		if (in_start(ip) || unw_step(&c) <= 0)
			break;
	}
	if (in_start(ip))
		__atomic_fetch_add(&reached[1], 1, __ATOMIC_RELAXED);
	struct sfw_process memory = process;
	uint64_t fp = u->uc_mcontext.gregs[REG_RBP], record[2];
	last = pc;
	for (int i = 0; i < FRAMES && !in_start(last) && sfw_process_read(&memory, fp, (void *)&record[0]) &&
			sfw_process_read(&memory, fp + 8, (void *)&record[1]) && record[0] != fp; i++) {
		last = record[1];
		fp = record[0];
	}
	if (in_start(last))
		__atomic_fetch_add(&reached[2], 1, __ATOMIC_RELAXED);
	errno = before;
}

static void *probe(void *unused) {
	unw_context_t u;
	unw_cursor_t c;
	unw_word_t ip;
	unw_getcontext(&u);
	unw_init_local(&c, &u);
	do
		unw_get_reg(&c, UNW_REG_IP, &ip);
	while (ip != 0 && (thread_start = ip) && unw_step(&c) > 0);
	return unused;
}

static __attribute__((constructor)) void start(void) {
	pthread_t t;
	struct sigaction a = {.sa_sigaction = on_sample, .sa_flags = SA_SIGINFO | SA_RESTART};
	const struct itimerval every = {{0, 1000 * MS}, {0, 1000 * MS}};
	pthread_create(&t, NULL, probe, NULL);
	pthread_join(t, NULL);
	unsetenv("LD_PRELOAD");
	sigaction(SIGPROF, &a, NULL);
	setitimer(ITIMER_PROF, &every, NULL);
}

static __attribute__((destructor)) void stop(void) {
	const struct itimerval never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_PROF, &never, NULL);
	const char *path = getenv("SAMPLES_OUT");
	FILE *out = path ? fopen(path, "a") : stderr;
	fprintf(out, "samples %lu nocfi %lu sframe %lu libunwind %lu fp %lu\n", samples, nocfi, reached[0], reached[1],
		reached[2]);
	for (uint64_t i = 0; i < num_fails && i < FAILS; i++) {
		struct sfw_file file;
		sfw_find_file(NULL, fails[i].last, &file);
		fprintf(out, "  how %d frames %d %s+%#lx\n", fails[i].how, fails[i].n, file.name, fails[i].last - file.bias);
	}
}
