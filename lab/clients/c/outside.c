/*
 * Preloaded into any program: captures stacks at calls to malloc and posix_memalign, from before the first constructor
 * to after the last destructor, with backtrace and with a copy of libgcc's unwinder that is linked into this file, and
 * compares them. With OUTSIDE_SIGNALS=NAME, handlers of a profiling timer also capture stacks in programs of this name,
 * which must not call exec: it keeps the timer, but not the handler.
 *
 * The file that OUTSIDE names is a struct report, which all processes of a program map: counts, and the first stacks
 * that differ. Linked with -static-libgcc.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>
#include <unwind.h>

enum { MAX = 200, CASES = 64, NAME = 100 };
enum { DIFFER, SHORTER, LONGER, KINDS };
struct report {
	unsigned long stacks, frames, kinds[KINDS], faults, cases_used;
	struct {
		unsigned long kind, offset, theirs;
		char file[NAME];
	} cases[CASES];
};
static struct report *report;
static unsigned long every = 1;
static _Thread_local __attribute__((tls_model("initial-exec"))) int inside;
static _Thread_local __attribute__((tls_model("initial-exec"))) sigjmp_buf *guard;

struct chain {
	int n;
	void *pc[MAX];
};

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *argument) {
	struct chain *chain = argument;
	void *pc = (void *)_Unwind_GetIP(c);
	if (chain->n == MAX || pc == NULL)
		return _URC_END_OF_STACK;
	chain->pc[chain->n++] = pc;
	return _URC_NO_REASON;
}

static int mine(const void *pc) {
	extern const char __ehdr_start[] __attribute__((visibility("hidden")));
	extern const char _end[] __attribute__((visibility("hidden")));
	return (const char *)pc >= __ehdr_start && (const char *)pc < _end;
}

static void note(unsigned kind, const void *at, const void *theirs) {
	struct dl_find_object o;
	__atomic_add_fetch(&report->kinds[kind], 1, __ATOMIC_RELAXED);
	unsigned long i = __atomic_fetch_add(&report->cases_used, 1, __ATOMIC_RELAXED);
	if (i >= CASES || at == NULL || _dl_find_object((char *)(uintptr_t)at - 1, &o) != 0)
		return;
	report->cases[i].offset = (unsigned long)((const char *)at - (const char *)o.dlfo_map_start);
	report->cases[i].theirs = (unsigned long)(uintptr_t)theirs;
	report->cases[i].kind = kind;
	strncpy(report->cases[i].file, o.dlfo_link_map->l_name, NAME - 1);
}

/* compare ignores the frames of this file, whose calls differ. */
static __attribute__((noinline)) void compare(void) {
	struct chain ours, theirs = {0, {NULL}};
	int a = 0, b = 0;
	const void *at = NULL;
	ours.n = backtrace(ours.pc, MAX);
	_Unwind_Backtrace(add, &theirs);
	while (a < ours.n && mine(ours.pc[a]))
		a++;
	while (b < theirs.n && mine(theirs.pc[b]))
		b++;
	__atomic_add_fetch(&report->stacks, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&report->frames, (unsigned long)(ours.n - a), __ATOMIC_RELAXED);
	for (; a < ours.n && b < theirs.n && ours.pc[a] == theirs.pc[b]; a++, b++)
		at = ours.pc[a];
	if (a < ours.n && b < theirs.n)
		note(DIFFER, at, theirs.pc[b]);
	else if (b < theirs.n && ours.n < MAX)
		note(SHORTER, at, theirs.pc[b]);
	else if (a < ours.n && theirs.n < MAX)
		note(LONGER, at, ours.pc[a]);
}

static void open_report(void) {
	static int opened;
	extern char **environ;
	if (report != NULL || environ == NULL || opened++)
		return;
	const char *name = getenv("OUTSIDE"), *number = getenv("OUTSIDE_EVERY");
	int fd = name != NULL ? open(name, O_RDWR | O_CLOEXEC) : -1;
	void *map = fd >= 0 ? mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (fd >= 0)
		close(fd);
	every = number != NULL ? strtoul(number, NULL, 10) : 1;
	if (map != MAP_FAILED)
		report = map;
}

static void on_call(void) {
	static unsigned long calls;
	if (inside)
		return;
	inside = 1;
	open_report();
	if (report != NULL && __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % every == 0)
		compare();
	inside = 0;
}

/* The program may have its own allocator. */
static void *find(const char *name) {
	inside = 1;
	void *function = dlsym(RTLD_NEXT, name);
	inside = 0;
	return function;
}

extern void *__libc_malloc(size_t size);
void *malloc(size_t size) {
	static void *(*next)(size_t);
	if (next == NULL) {
		if (inside)
			return __libc_malloc(size);
		*(void **)&next = find("malloc");
	}
	on_call();
	return next(size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
	static int (*next)(void **, size_t, size_t);
	if (next == NULL)
		*(void **)&next = find("posix_memalign");
	on_call();
	return next(memory, alignment, size);
}

static void on_fault(int number) {
	if (guard == NULL) {
		signal(number, SIG_DFL);
		return;
	}
	__atomic_add_fetch(&report->faults, 1, __ATOMIC_RELAXED);
	siglongjmp(*guard, 1);
}

/* libgcc's unwinder reads memory unchecked: its faults are counted. The library's first trace is not guarded. Programs
 * may have replaced the handler of faults. */
static void on_timer(int number) {
	struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
	sigjmp_buf here;
	void *pc[MAX];
	(void)number;
	if (inside)
		return;
	inside = 1;
	sigaction(SIGSEGV, &action, NULL);
	backtrace(pc, MAX);
	guard = &here;
	if (sigsetjmp(here, 1) == 0)
		compare();
	guard = NULL;
	inside = 0;
}

__attribute__((constructor)) static void start(void) {
	open_report();
	const char *name = getenv("OUTSIDE_SIGNALS");
	if (report == NULL || name == NULL || strcmp(name, program_invocation_short_name) != 0)
		return;
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_timer;
	action.sa_flags = SA_RESTART;
	sigaction(SIGPROF, &action, NULL);
	setitimer(ITIMER_PROF, &(struct itimerval){{0, 250}, {0, 250}}, NULL);
}
