/*
 * Captures stack traces in many situations, with the functions of libsframe-backtrace and with those of libgcc and libc
 * that they replace, and compares the traces. For each situation, it prints "equal" or the first difference.
 * Arguments: plugins.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

/* On aarch64, libgcc's CFA for code that a signal has interrupted is an address in the kernel's frame. */
#ifdef __aarch64__
enum { NO_CFA = 1 };
#else
enum { NO_CFA = 0 };
#endif
enum { MAX = 2048, DEEP = 1000, STACK = 1 << 17 };

#ifdef STATIC
#define OTHERS(of) \
	of(_Unwind_Backtrace) of(_Unwind_GetIPInfo) of(_Unwind_GetCFA) of(_Unwind_GetRegionStart)
#define DECLARE(name) extern __typeof__(name) __real_##name;
OTHERS(DECLARE)
extern int __real_backtrace(void **, int);
#define OTHER(name) __real_##name
static void find_others(void) {}
#else
static struct {
	_Unwind_Reason_Code (*_Unwind_Backtrace)(_Unwind_Trace_Fn, void *);
	_Unwind_Ptr (*_Unwind_GetIPInfo)(struct _Unwind_Context *, int *);
	_Unwind_Word (*_Unwind_GetCFA)(struct _Unwind_Context *);
	_Unwind_Ptr (*_Unwind_GetRegionStart)(struct _Unwind_Context *);
	int (*backtrace)(void **, int);
} others;
#define OTHER(name) others.name

static void find(void *function, const char *file, const char *name) {
	void *found = dlsym(dlopen(file, RTLD_LAZY), name);
	if (found == NULL)
		abort();
	memcpy(function, &found, sizeof found);
}
static void find_others(void) {
	find(&others._Unwind_Backtrace, "libgcc_s.so.1", "_Unwind_Backtrace");
	find(&others._Unwind_GetIPInfo, "libgcc_s.so.1", "_Unwind_GetIPInfo");
	find(&others._Unwind_GetCFA, "libgcc_s.so.1", "_Unwind_GetCFA");
	find(&others._Unwind_GetRegionStart, "libgcc_s.so.1", "_Unwind_GetRegionStart");
	find(&others.backtrace, "libc.so.6", "backtrace");
	void *frames[1];
	others.backtrace(frames, 1);
}
#endif

struct frame {
	uint64_t pc, cfa, start;
	int before;
};
struct chain {
	int n, max;
	struct frame frames[MAX];
};
static __thread struct chain ours, theirs;
static __thread void *array[MAX], *other_array[MAX];

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *chain) {
	struct chain *all = chain;
	struct frame *f = &all->frames[all->n];
	if (all->n == all->max)
		return _URC_NORMAL_STOP;
	f->pc = _Unwind_GetIPInfo(c, &f->before);
	f->cfa = _Unwind_GetCFA(c);
	f->start = f->pc != 0 ? _Unwind_GetRegionStart(c) : 0;
	if (f->pc != _Unwind_GetIP(c))
		abort();
	all->n++;
	return _URC_NO_REASON;
}

static _Unwind_Reason_Code add_other(struct _Unwind_Context *c, void *chain) {
	struct chain *all = chain;
	struct frame *f = &all->frames[all->n];
	if (all->n == all->max)
		return _URC_NORMAL_STOP;
	f->pc = OTHER(_Unwind_GetIPInfo)(c, &f->before);
	f->cfa = OTHER(_Unwind_GetCFA)(c);
	/* For code without CFI, libgcc returns the function start of the previous frame. */
	f->start = _Unwind_FindEnclosingFunction((void *)(uintptr_t)(f->pc + (unsigned)f->before)) != NULL
		? OTHER(_Unwind_GetRegionStart)(c) : 0;
	all->n++;
	return _URC_NO_REASON;
}

/* ends_early returns whether a trace may end after n frames: at code that a signal interrupted or beyond it, if some
 * of it lacks rows (SHORT is set). */
static int ends_early(int n) {
	int interrupted = 0;
	for (int i = 0; i < n && i < theirs.n; i++)
		interrupted |= theirs.frames[i].before;
	return interrupted && getenv("SHORT") != NULL && getenv("SHORT")[0] != 0;
}

/* compare_chains returns the number of the first frame that differs, or -1. The pcs of the first frame always
 * differ, because the calls do. For the end of the stack, where the pc is 0, SFrame gives no CFA, and libgcc gives no
 * frame if the last function has no CFI. */
static int compare_chains(int end) {
	if (ours.n == theirs.n + 1 && ours.frames[theirs.n].pc == 0 && theirs.n > 0 &&
		theirs.frames[theirs.n - 1].start == 0)
		ours.n--;
	for (int i = 0; i < ours.n && i < theirs.n; i++) {
		const struct frame *a = &ours.frames[i], *b = &theirs.frames[i];
		if ((i > 0 && a->pc != b->pc) || (a->pc != 0 && a->cfa != b->cfa && !(NO_CFA && b->before)) ||
			a->before != b->before || a->start != b->start)
			return i;
	}
	if (ours.n < theirs.n && ends_early(ours.n))
		return -1;
	return ours.n != theirs.n ? (ours.n < theirs.n ? ours.n : theirs.n) : end != 0 ? MAX : -1;
}

static __attribute__((noinline)) int same_traces(int quiet, const char *place) {
	static const int lengths[] = {MAX, 0, 1, 3, 33};
	for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		ours.n = theirs.n = 0;
		ours.max = theirs.max = lengths[i];
		int code = _Unwind_Backtrace(add, &ours), other = OTHER(_Unwind_Backtrace)(add_other, &theirs);
		int differs = compare_chains(code - other);
		if (differs >= 0) {
			if (!quiet)
				printf("%s: frame %d of %d and %d: %#llx, %#llx, %d; expected %#llx, %#llx, %d; codes %d, %d\n", place,
					differs, ours.n, theirs.n, (unsigned long long)ours.frames[differs % MAX].pc,
					(unsigned long long)ours.frames[differs % MAX].cfa, ours.frames[differs % MAX].before,
					(unsigned long long)theirs.frames[differs % MAX].pc,
					(unsigned long long)theirs.frames[differs % MAX].cfa, theirs.frames[differs % MAX].before, code,
					other);
			return 0;
		}
		int n = backtrace(array, lengths[i]), other_n = lengths[i] > 0 ? OTHER(backtrace)(other_array, lengths[i]) : 0;
		for (int k = 0; k < n || (k < other_n && !ends_early(n)); k++)
			if (k >= n || k >= other_n || (k > 0 && array[k] != other_array[k])) {
				if (!quiet)
					printf("%s: backtrace: frame %d of %d and %d: %p; expected %p\n", place, k, n, other_n, array[k],
						other_array[k]);
				return 0;
			}
	}
	return ours.n;
}

static void check(const char *place) {
	if (same_traces(0, place) > 0)
		printf("%s: equal\n", place);
	fflush(stdout);
}

/* Two calls at the same stack pointer differ only in the return address. */
static __attribute__((noinline)) void call_twice(void) {
	check("a call");
	check("another call");
}

static int on_compare(const void *a, const void *b) {
	static int once;
	if (once++ == 0)
		check("qsort");
	return *(const int *)a - *(const int *)b;
}

static __attribute__((noinline)) int descend(int depth, const char *place) {
	volatile int kept = depth;
	if (depth == 0)
		check(place);
	else
		kept += descend(depth - 1, place);
	return kept;
}

static __attribute__((noinline)) int take_space(size_t size) {
	char *volatile space = alloca(size);
	space[0] = 1;
	check("alloca");
	return space[0];
}

static __attribute__((noinline)) int align(void) {
	volatile char bytes[256] __attribute__((aligned(256)));
	bytes[0] = 1;
	check("aligned");
	return bytes[0];
}

static const char *volatile place_of_handler; /* compilers treat raise as a leaf function */
static void on_signal(int number, siginfo_t *info, void *context) {
	(void)info;
	(void)context;
	check(place_of_handler);
	if (number == SIGUSR1 && place_of_handler[0] == 'n') {
		place_of_handler = "in a handler in a handler";
		raise(SIGUSR2);
	}
}

static void handle(int number, int flags) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = on_signal;
	action.sa_flags = SA_SIGINFO | flags;
	sigaction(number, &action, NULL);
}

static void use_alternate_stack(void) {
	stack_t alternate = {0};
	alternate.ss_sp = malloc(STACK);
	alternate.ss_size = STACK;
	if (sigaltstack(&alternate, NULL) != 0)
		abort();
}

static void *run_thread(void *argument) {
	(void)argument;
	use_alternate_stack();
	place_of_handler = "first in a thread, on an alternate stack";
	raise(SIGUSR2);
	check("thread");
	return NULL;
}

static ucontext_t outside, inside;
static void run_coroutine(void) {
	check("coroutine");
	swapcontext(&inside, &outside);
	place_of_handler = "handler in a coroutine";
	raise(SIGUSR1);
	place_of_handler = "alternate stack in a coroutine";
	raise(SIGUSR2);
}

static void use_coroutine(void) {
	char *stack = malloc(STACK);
	getcontext(&inside);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = STACK;
	inside.uc_link = &outside;
	makecontext(&inside, run_coroutine, 0);
	swapcontext(&outside, &inside);
	check("between coroutines");
	swapcontext(&outside, &inside);
	free(stack);
}

/*
 * call_on calls a function on a different stack; the parameter end is the end of that stack. Only the saved frame
 * pointer leads from the other stack back to this one.
 */
void call_on(void *end, void (*call)(void));
#if defined(__x86_64__)
__asm__(".text\n.type call_on, @function\ncall_on:\n\t.cfi_startproc\n\tpush %rbp\n\t.cfi_def_cfa_offset 16\n"
	"\t.cfi_offset rbp, -16\n\tmov %rsp, %rbp\n\t.cfi_def_cfa_register rbp\n\tmov %rdi, %rsp\n\tcall *%rsi\n"
	"\tleave\n\t.cfi_def_cfa rsp, 8\n\tret\n\t.cfi_endproc\n.size call_on, . - call_on\n");
#elif defined(__aarch64__)
__asm__(".text\n.type call_on, %function\ncall_on:\n"
	"\t.cfi_startproc\n\tstp x29, x30, [sp, -16]!\n\t.cfi_def_cfa_offset 16\n"
	"\t.cfi_offset x29, -16\n\t.cfi_offset x30, -8\n"
	"\tmov x29, sp\n\t.cfi_def_cfa_register x29\n\tmov sp, x0\n\tblr x1\n"
	"\tmov sp, x29\n\t.cfi_def_cfa_register sp\n\tldp x29, x30, [sp], 16\n\t.cfi_restore x29\n\t.cfi_restore x30\n"
	"\t.cfi_def_cfa_offset 0\n\tret\n\t.cfi_endproc\n.size call_on, . - call_on\n");
#else
void call_on(void *end, void (*call)(void)) {
	(void)end;
	call();
}
#endif

static char *lower, *upper;
static void on_upper(void) { check("on two stacks"); }
static void on_lower(void) { call_on(upper + STACK, on_upper); }

/* use_stacks switches to a stack at lower addresses, and from there to one above: frames are not in address order. */
static void use_stacks(void) {
	char *a = malloc(STACK), *b = malloc(STACK);
	lower = a < b ? a : b;
	upper = a < b ? b : a;
	call_on(lower + STACK, on_lower);
	free(a);
	free(b);
}

/* use_plugins loads files, each possibly at the addresses of the previous one, but with frames of a different size. */
static void use_plugins(char **paths, int n) {
	void *before = NULL;
	for (int i = 0; i < n; i++) {
		void *file = dlopen(paths[i], RTLD_NOW);
		void (*call)(void (*)(const char *), const char *) = NULL;
		void *found = file != NULL ? dlsym(file, "call") : NULL;
		memcpy(&call, &found, sizeof found);
		if (call == NULL) {
			printf("%s\n", dlerror());
			return;
		}
		char place[64];
		snprintf(place, sizeof place, "plugin %d, %s", i, i > 0 && found == before ? "at the same address" : "first");
		call(check, place);
		before = found;
		dlclose(file);
	}
}

int main(int n, char **arguments) {
	find_others();
	check("first");
	call_twice();
	int numbers[] = {2, 3, 1};
	qsort(numbers, 3, sizeof *numbers, on_compare);
	descend(DEEP, "deep");
	take_space((size_t)(n > 100 ? 1 : 1000));
	align();
	handle(SIGUSR1, 0);
	handle(SIGUSR2, SA_ONSTACK);
	place_of_handler = "n: handler";
	raise(SIGUSR1);
	use_alternate_stack();
	place_of_handler = "alternate stack";
	raise(SIGUSR2);
	pthread_t thread;
	pthread_create(&thread, NULL, run_thread, NULL);
	pthread_join(thread, NULL);
	use_coroutine();
	use_stacks();
	pid_t child = fork();
	if (child == 0) {
		check("after fork");
		_exit(0);
	}
	waitpid(child, NULL, 0);
	use_plugins(arguments + 1, n - 1);
	check("last");
	return 0;
}
