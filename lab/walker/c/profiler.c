/*
 * Uses sframe_process.h as a profiler does, with a list of files that changes while handlers read it. Arguments:
 * plugins (lab/backtrace/c/plugin.c): the first one stays loaded, the others are loaded and unloaded by another thread.
 * Frame pointers give the callers of each trap; the handler compares its walk. Prints for each place whether a walk was
 * wrong, or found all frames, or all ended early, as while the list is empty. Build everything with frame pointers.
 */
#define _GNU_SOURCE
#include "sframe_process.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 1 << 16, ROUNDS = 2000, FRAMES = 12 };
static struct sfw_files files;
static struct sfw_separates separates;
static const struct sfw_process process = {.files = &files, .separates = &separates, .probe = 1};
typedef void call(void (*function)(const char *), const char *place);

static _Thread_local sigjmp_buf after;
static _Thread_local uint64_t callers[FRAMES];
static unsigned whole, early, wrong; /* walks */

static void on_trap(int signal, siginfo_t *info, void *context) {
	struct sfw_frame frames[FRAMES];
	struct sfw_regs regs;
	enum sfw_how end;
	size_t same = 0;
	(void)signal, (void)info;
	sfw_regs_of_context(&regs, context);
	size_t n = sfw_process_walk(&process, &regs, frames, FRAMES, &end) - 1;
	while (same < n && frames[same + 1].pc == callers[same])
		same++;
	int ended = end == SFW_NO_SECTION || end == SFW_BAD_MEMORY;
	unsigned *of = same < n ? &wrong : n == FRAMES - 1 ? &whole : ended ? &early : &wrong;
	__atomic_add_fetch(of, 1, __ATOMIC_RELAXED);
	siglongjmp(after, 1);
}

static __attribute__((noinline)) void trap(const char *unused) {
	void **frame = __builtin_frame_address(0);
	(void)unused;
	for (unsigned i = 0; i < FRAMES - 1; i++, frame = *frame)
		callers[i] = (uint64_t)(uintptr_t)frame[1];
	__asm__ volatile("ud2" ::: "memory");
}

/* below calls itself, then a plugin's function, which calls trap. */
static __attribute__((noinline)) void below(call *plugin, int depth) {
	volatile char bytes[40] = {1};
	if (depth > 0)
		below(plugin, depth - 1);
	else
		plugin(trap, "");
	(void)bytes[0];
}

static void sample(call *plugin) {
	if (sigsetjmp(after, 1) == 0)
		below(plugin, FRAMES - 5); /* and trap, the plugin, this function, and its caller */
}

static void print(const char *place) {
	printf("%s: %s\n", place, wrong > 0 ? "wrong" : whole > 0 ? "whole" : "early");
	fflush(stdout);
	whole = early = wrong = 0;
}

static void check(int done, const char *what) {
	if (done)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static call *load(const char *path, void **file) {
	call *function = NULL;
	check((*file = dlopen(path, RTLD_NOW)) != NULL && sfw_update_files(&files, &separates), path);
	*(void **)&function = dlsym(*file, "call");
	return function;
}

static call *first;
static int stop;
static void *sample_on(void *unused) {
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		sample(first);
	return unused;
}

/* Lookups find this program although the list changes all the time; one in many gives up. */
static void *look_up(void *unused) {
	const uint64_t address = (uint64_t)(uintptr_t)&look_up;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct sfw_file f;
		int found = sfw_find_file(&files, address, &f) && address - f.begin < f.end - f.begin && f.h != NULL;
		__atomic_add_fetch(found ? &whole : &early, 1, __ATOMIC_RELAXED);
	}
	return unused;
}

/* Lookups find a file that another thread has loaded. ThreadSanitizer does not see what the dynamic linker locks, so
 * nothing orders the linker's writes before these reads. */
static uint64_t loaded;
static void *look_up_loaded(void *unused) {
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		const uint64_t address = __atomic_load_n(&loaded, __ATOMIC_RELAXED);
		struct sfw_file f;
		int found = sfw_find_file(NULL, address, &f) && address - f.begin < f.end - f.begin && f.h != NULL;
		if (address != 0)
			__atomic_add_fetch(found ? &whole : &wrong, 1, __ATOMIC_RELAXED);
	}
	return unused;
}

static pthread_t start(void *(*function)(void *)) {
	pthread_t thread;
	__atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
	check(pthread_create(&thread, NULL, function, NULL) == 0, "thread");
	return thread;
}

static void end(pthread_t thread) {
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}

/* Code with a frame pointer that points into an unmapped page. */
static void *unmapped;
static void stray(const char *unused) {
	(void)unused;
	__asm__ volatile("mov %0, %%rbp\n\tud2" ::"r"(unmapped) : "memory");
}

int main(int argc, char **argv) {
	struct sigaction action;
	static char other[SIZE];
	const stack_t alternate = {other, 0, sizeof other};
	void *file;
	char longer[SFW_MAX_PATH + 1] = {0};
	memset(longer, 'x', SFW_MAX_PATH); /* is replaced */
	check(argc > 2 && sfw_set_directories(&separates, longer) &&
		sfw_set_directories(&separates, getenv("SFRAME_PATH")), "arguments");
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_trap;
	action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	sigaction(SIGILL, &action, NULL);
	check(sigaltstack(&alternate, NULL) == 0, "sigaltstack");

	first = load(argv[1], &file);
	sample(first);
	print("main");

	pthread_t thread = start(sample_on);
	for (int i = 0; i < ROUNDS; i++) {
		call *function = load(argv[2 + i % (argc - 2)], &file);
		sample(function);
		sample(first);
		sfw_forget_files(&files);
		dlclose(file);
		sfw_update_files(&files, &separates);
	}
	end(thread);
	print("threads");

	thread = start(look_up);
	for (int i = 0; i < 100 * ROUNDS; i++)
		sfw_update_files(&files, NULL);
	end(thread);
	wrong = 1000 * early > whole;
	print("lookups");

#ifdef DLFO_STRUCT_HAS_EH_DBASE
	thread = start(look_up_loaded);
	__atomic_store_n(&loaded, (uint64_t)(uintptr_t)load(argv[2], &file), __ATOMIC_RELAXED);
	usleep(10000);
	end(thread);
	print("loaded");
#else
	(void)look_up_loaded;
#endif

	check((unmapped = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED, "mmap");
	if (sigsetjmp(after, 1) == 0)
		stray("");
	print("unmapped");
	return 0;
}
