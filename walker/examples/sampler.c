/*
 * Samples the stacks of a program every 10 ms of processor time, in all threads. At exit, it writes them as folded
 * stacks ("main;outer;inner 1"), which flamegraph.pl reads, to stderr or to the file $SAMPLER_OUT. For glibc and musl:
 *
 *	cc -O2 -shared -fPIC walker/examples/sampler.c -o sampler.so
 *	LD_PRELOAD=./sampler.so SFRAME_PATH=DIR PROGRAM
 *
 * "[end 6]" is the reason (enum sfw_how) if the outermost frame was not reached. Limits: files loaded at start, and not
 * closed; names that dladdr finds (link with -rdynamic); innermost 64 frames; 65,536 samples. exec keeps the timer, but
 * not the handler: SIGPROF may kill the new program.
 */
#define _GNU_SOURCE
#include "../sframe_process.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

enum { FRAMES = 64, SAMPLES = 1 << 16 };
static struct { size_t num; enum sfw_how end; struct sfw_frame frames[FRAMES]; } samples[SAMPLES];
static size_t num_samples;
static pid_t sampled;
static struct sfw_files files;
static struct sfw_separates separates;
static const struct sfw_process process = {.files = &files, .separates = &separates, .probe = 1};

static void on_sample(int signal, siginfo_t *info, void *context) {
	struct sfw_regs regs;
	size_t i = __atomic_fetch_add(&num_samples, 1, __ATOMIC_RELAXED);
	(void)signal, (void)info;
	if (i >= SAMPLES)
		return;
	sfw_regs_of_context(&regs, context);
	samples[i].num = sfw_process_walk(&process, &regs, samples[i].frames, FRAMES, &samples[i].end);
}

__attribute__((constructor)) static void start(void) {
	const struct sigaction action = {.sa_sigaction = on_sample, .sa_flags = SA_SIGINFO | SA_RESTART};
	const struct itimerval often = {{0, 10000}, {0, 10000}};
	sfw_set_directories(&separates, getenv("SFRAME_PATH"));
	if (!sfw_update_files(&files, &separates))
		return;
	sampled = getpid();
	sigaction(SIGPROF, &action, NULL);
	setitimer(ITIMER_PROF, &often, NULL);
}

__attribute__((destructor)) static void report(void) {
	const struct itimerval never = {{0, 0}, {0, 0}};
	const char *path = getenv("SAMPLER_OUT");
	if (getpid() != sampled) /* a child has the samples, but no timer */
		return;
	setitimer(ITIMER_PROF, &never, NULL);
	FILE *out = path != NULL ? fopen(path, "a") : stderr;
	for (size_t i = 0; out != NULL && i < num_samples && i < SAMPLES; i++) {
		if (samples[i].end != SFW_OUTERMOST && samples[i].end != SFW_ZERO)
			fprintf(out, "[end %d];", samples[i].end);
		for (size_t k = samples[i].num; k-- > 0;) { /* the call, not the instruction after it */
			void *pc = (void *)(uintptr_t)(samples[i].frames[k].pc - !samples[i].frames[k].interrupted);
			Dl_info d = {.dli_fname = "?"};
			dladdr(pc, &d);
			fprintf(out, "%s%s", d.dli_sname != NULL ? d.dli_sname : d.dli_fname, k > 0 ? ";" : " 1\n");
		}
	}
}
