/*
 * Samples the stacks of a program every 10 ms of processor time, in all threads. At exit, it writes them as folded
 * stacks ("main;outer;inner 42"), which flamegraph.pl reads, to stderr, or appends them to the file $SAMPLER_OUT. For
 * glibc and musl. Preload it, or compile it into a program:
 *
 *	cc -O2 -shared -fPIC walker/examples/sampler.c -o sampler.so
 *
 * A stack whose outermost frame was not reached starts with the reason, a number of enum sfw_how: "[end 6]". Limits:
 * only files with .sframe that are loaded at start, and never closed; only names of exported functions (dladdr; link
 * with -rdynamic), and with musl also those of the function before, for assembly; innermost 64 frames; 65,536 samples.
 * exec keeps the timer, but not the handler: SIGPROF may kill the new program.
 */
#define _GNU_SOURCE
#include "../sframe_walker.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MODULES = 256, FRAMES = 64, SAMPLES = 1 << 16, LINE = 1 << 14, SEGMENT = 0x6474e554 };
static struct { struct sfw_range range; struct sfw_section section; } modules[MODULES];
static struct { atomic_size_t num; enum sfw_how end; uint64_t pcs[FRAMES]; } samples[SAMPLES];
static size_t num_modules;
static atomic_size_t num_samples;
static pid_t process;

static int add_module(struct dl_phdr_info *info, size_t size, void *unused) {
	struct sfw_range range = {0, 0};
	struct sfw_section section = {.num_fdes = 0};
	(void)size, (void)unused;
	for (const ElfW(Phdr) *h = info->dlpi_phdr; h < info->dlpi_phdr + info->dlpi_phnum; h++) {
		uint64_t start = info->dlpi_addr + h->p_vaddr;
		if (h->p_type == SEGMENT)
			sfw_open(&section, (const void *)(uintptr_t)start, h->p_memsz, start);
		if (h->p_type == PT_LOAD) /* in ascending order */
			range = (struct sfw_range){range.high == 0 ? start : range.low, start + h->p_memsz};
	}
	if (section.num_fdes > 0 && num_modules < MODULES) {
		modules[num_modules].range = range;
		modules[num_modules++].section = section;
	}
	return 0;
}

static enum sfw_how find_section(void *unused, uint64_t pc, struct sfw_section *s) {
	(void)unused;
	for (size_t i = 0; i < num_modules; i++)
		if (pc >= modules[i].range.low && pc < modules[i].range.high) {
			*s = modules[i].section;
			return SFW_OK;
		}
	return SFW_NO_SECTION;
}

/* The kernel copies the word (1 microsecond), so no address causes a fault, and any thread and stack may be read. */
static int read_word(void *unused, uint64_t address, unsigned char bytes[8]) {
	struct iovec to = {bytes, 8}, from = {(void *)(uintptr_t)address, 8};
	(void)unused;
	return process_vm_readv(process, &to, 1, &from, 1, 0) == 8;
}

static void on_sample(int signal, siginfo_t *info, void *context) {
	const struct sfw_space space = {.read = read_word, .section = find_section, .abi = modules[0].section.abi};
	const struct sfw_abi *abi = sfw_abi_of(space.abi);
	const uint64_t *words = context;
	struct sfw_frame frames[FRAMES];
	size_t i = atomic_fetch_add(&num_samples, 1);
	int before = errno; /* which is the interrupted code's */
	(void)signal, (void)info;
	if (i >= SAMPLES || abi == NULL)
		return;
	struct sfw_regs regs = {.pc = words[abi->saved_pc], .interrupted = 1};
	for (unsigned reg = 0; reg < abi->num_saved; reg++)
		sfw_set(&regs, reg, words[abi->saved[reg]]);
	size_t num = sfw_walk(&space, &regs, frames, FRAMES, &samples[i].end);
	for (size_t k = 0; k < num; k++) /* a return address may be in the next function, the call before it is not */
		samples[i].pcs[k] = frames[k].pc - !frames[k].interrupted;
	samples[i].num = num;
	errno = before;
}

__attribute__((constructor)) static void start(void) {
	struct sigaction action = {.sa_sigaction = on_sample, .sa_flags = SA_SIGINFO | SA_RESTART};
	const struct itimerval often = {{0, 10000}, {0, 10000}};
	dl_iterate_phdr(add_module, NULL);
	process = getpid();
	sigaction(SIGPROF, &action, NULL);
	raise(SIGPROF); /* so that the dynamic linker binds what the handler calls */
	if (num_modules == 0 || samples[0].end == SFW_BAD_MEMORY)
		fprintf(stderr, "sampler: %s\n", num_modules == 0 ? "no file has .sframe" : "process_vm_readv fails");
	else
		setitimer(ITIMER_PROF, &often, NULL);
	samples[0].num = num_samples = 0;
}

/* fold returns the line of a sample, outermost function first. */
static char *fold(size_t sample) {
	char line[LINE];
	int at = 0;
	if (samples[sample].end != SFW_OUTERMOST && samples[sample].end != SFW_ZERO)
		at = sprintf(line, "[end %d];", samples[sample].end);
	for (size_t k = samples[sample].num; k-- > 0;) {
		uintptr_t pc = (uintptr_t)samples[sample].pcs[k];
		Dl_info d = {.dli_fname = ""};
		dladdr((void *)pc, &d);
		const char *slash = strrchr(d.dli_fname, '/');
		if (d.dli_sname != NULL)
			at += sprintf(line + at, "%.200s", d.dli_sname);
		else
			at += sprintf(line + at, "%.200s+%#lx", slash != NULL ? slash + 1 : d.dli_fname,
				(unsigned long)(pc - (uintptr_t)d.dli_fbase));
		line[at++] = ';';
	}
	line[at - 1] = 0;
	return strdup(line);
}

static int by_text(const void *a, const void *b) {
	return strcmp(*(char *const *)a, *(char *const *)b);
}

__attribute__((destructor)) static void report(void) {
	static char *lines[SAMPLES];
	const struct itimerval never = {{0, 0}, {0, 0}};
	const char *path = getenv("SAMPLER_OUT");
	size_t num = 0, same;
	if (getpid() != process) /* a child has the samples, but no timer */
		return;
	setitimer(ITIMER_PROF, &never, NULL);
	FILE *file = path != NULL ? fopen(path, "a") : NULL, *out = file != NULL ? file : stderr;
	for (size_t i = 0; i < SAMPLES; i++)
		if (samples[i].num > 0 && (lines[num] = fold(i)) != NULL)
			num++;
	qsort(lines, num, sizeof *lines, by_text);
	for (size_t i = 0; i < num; i += same) {
		for (same = 1; i + same < num && strcmp(lines[i], lines[i + same]) == 0;)
			same++;
		fprintf(out, "%s %zu\n", lines[i], same);
	}
	fflush(out);
}
