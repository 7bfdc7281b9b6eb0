/*
 * Edge cases of stack traces: the first argument names a case. Prints "ok" or what is wrong. Traces are compared with
 * libgcc's.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

enum { MAX = 512, STACK = 1 << 16 };
static _Unwind_Reason_Code (*other_trace)(_Unwind_Trace_Fn, void *);
static _Unwind_Ptr (*other_ip)(struct _Unwind_Context *);
struct chain {
	int n;
	void *pc[MAX];
};

static void find_libgcc(void) {
	void *file = dlopen("libgcc_s.so.1", RTLD_LAZY);
	*(void **)&other_trace = dlsym(file, "_Unwind_Backtrace");
	*(void **)&other_ip = dlsym(file, "_Unwind_GetIP");
}

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *argument) {
	struct chain *chain = argument;
	if (chain->n < MAX && other_ip(c) != 0)
		chain->pc[chain->n++] = (void *)other_ip(c);
	return _URC_NO_REASON;
}

/* equal_traces returns whether the library and libgcc find the same callers of this function. */
static __attribute__((noinline)) int equal_traces(void) {
	struct chain ours, theirs = {0, {NULL}};
	ours.n = backtrace(ours.pc, MAX);
	other_trace(add, &theirs);
	if (ours.n == theirs.n && memcmp(ours.pc + 1, theirs.pc + 1, (size_t)(ours.n - 1) * sizeof *ours.pc) == 0)
		return 1;
	printf("%d frames; libgcc has %d\n", ours.n, theirs.n);
	for (int i = 0; i < ours.n || i < theirs.n; i++)
		printf("\t%p %p\n", i < ours.n ? ours.pc[i] : NULL, i < theirs.n ? theirs.pc[i] : NULL);
	return 0;
}

static int result = 1;

/* Callbacks that stop a trace at each frame are not called again, and both unwinders return the same. */
static _Unwind_Reason_Code stop_at(struct _Unwind_Context *c, void *left) {
	(void)c;
	return --*(int *)left == 0 ? _URC_END_OF_STACK : _URC_NO_REASON;
}

static int stopped(void) {
	for (int i = 0; i < 200; i++) {
		int left = 1 + i / 10, also = left;
		_Unwind_Reason_Code one = _Unwind_Backtrace(stop_at, &left), other = other_trace(stop_at, &also);
		if (left != also || one != other)
			return !printf("stop at %d: %d left, result %d; libgcc: %d, %d\n", 1 + i / 10, left, one, also, other);
	}
	return 1;
}

/* Before the first constructor. */
static int in_preinit;
static void at_preinit(void) {
	void *pc[MAX];
	in_preinit = backtrace(pc, MAX);
}
#ifndef __SANITIZE_ADDRESS__ /* with it, the library is in the program, and environ is not set yet */
__attribute__((section(".preinit_array"), used))
#else
__attribute__((unused))
#endif
static void (*const preinit)(void) = at_preinit;

static int in_constructor;
__attribute__((constructor(101))) static void at_constructor(void) {
	find_libgcc();
	in_constructor = equal_traces();
}

static int begin(void) {
	if (in_preinit < 3)
		printf("%d frames in a preinit function\n", in_preinit);
	return in_constructor && in_preinit >= 3;
}

static sigjmp_buf back;
static struct chain seen;
static volatile int errno_changed;
static void on_fault(int number) {
	(void)number;
	errno = EDOM;
	seen.n = backtrace(seen.pc, MAX);
	errno_changed |= errno != EDOM;
	siglongjmp(back, 1);
}

static void handle(void (*handler)(int), int flags) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = handler;
	action.sa_flags = SA_SIGINFO | flags;
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGILL, &action, NULL);
}

/* wrong() faults, and according to its CFI, its return address is 0x29. */
void wrong(void);
__asm__(".text\n.type wrong, %function\nwrong:\n\t.cfi_startproc\n"
#if defined(__x86_64__)
	"\tpush $0x29\n\tmovl $0, 0\n"
#elif defined(__aarch64__)
	"\tmov x30, #0x29\n\tmov x1, #0\n\tstr x1, [x1]\n"
#elif defined(__s390x__)
	"\tlghi %r14, 0x29\n\tlghi %r1, 0\n\tstg %r1, 0(%r1)\n"
#endif
	"\t.cfi_endproc\n.size wrong, . - wrong\n");

/* The trace in the handler ends in wrong(), or at its return address. */
static int interrupted(void) {
	handle(on_fault, 0);
	if (sigsetjmp(back, 1) == 0)
		wrong();
	if (seen.n < 3)
		printf("%d frames\n", seen.n);
	return seen.n >= 3;
}

static char not_code[64] __attribute__((aligned(64)));
static void (*volatile nowhere)(void);
static struct chain before;
static __attribute__((noinline)) int call_nowhere(void) {
	volatile int kept = 1;
	before.n = backtrace(before.pc, MAX);
	nowhere();
	return kept;
}

/* After the signal frame come the frame of the call and the frames of the previous trace. */
static int calls_nowhere(void *to) {
	*(void **)&nowhere = to;
	handle(on_fault, 0);
	if (sigsetjmp(back, 1) == 0)
		call_nowhere();
	int from = 0;
	while (from < seen.n && seen.pc[from] != before.pc[1])
		from++;
	uint64_t at = from > 0 ? (uint64_t)(uintptr_t)seen.pc[from - 1] - (uint64_t)(uintptr_t)before.pc[0] : 0;
	if (at > 0 && at < 64 && seen.n - from == before.n - 1 &&
		memcmp(seen.pc + from, before.pc + 1, (size_t)(before.n - 1) * sizeof *seen.pc) == 0 && from == 3)
		return 1;
	for (int i = 0; i < seen.n; i++)
		printf("\t%p\n", seen.pc[i]);
	printf("expected a return address after %p, and %p\n", before.pc[0], before.pc[1]);
	return 0;
}

static int calls(void) { return calls_nowhere(NULL) & calls_nowhere((void *)0x28) & calls_nowhere(not_code); }

static int keeps_errno(void) {
	void *pc[MAX];
	errno = EDOM;
	backtrace(pc, MAX);
	errno_changed |= errno != EDOM;
	handle(on_fault, 0);
	if (sigsetjmp(back, 1) == 0)
		*(volatile int *)NULL = 1;
	return !errno_changed;
}

/* Stack used by a trace, in a handler on an alternate stack. */
static volatile uintptr_t handler_sp;
static void on_alternate(int number) {
	(void)number;
	handler_sp = (uintptr_t)__builtin_frame_address(0);
	seen.n = backtrace(seen.pc, MAX);
	siglongjmp(back, 1);
}

static int stack_use(void) {
	enum { MOST = 1536 };
	static unsigned char stack[STACK];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
	sigaltstack(&alternate, NULL);
	handle(on_alternate, SA_ONSTACK);
	for (int i = 0; i < 2; i++) {
		memset(stack, 0xa5, sizeof stack);
		if (sigsetjmp(back, 1) == 0)
			*(volatile int *)NULL = 1;
	}
	size_t lowest = 0;
	while (stack[lowest] == 0xa5)
		lowest++;
	long used = (long)(handler_sp - (uintptr_t)(stack + lowest));
	if (used > MOST || seen.n < 4)
		printf("%ld bytes of stack, %d frames\n", used, seen.n);
	return used <= MOST && seen.n >= 4;
}

/* ASan does not see that a handler leaves these frames by longjmp. */
#define UNCHECKED __attribute__((noinline, no_sanitize("address")))

/* popped() faults in its epilogue. Its CFI still finds the frame pointer where it was saved: below the stack
 * pointer. */
void popped(void);
__asm__(".text\n.type popped, %function\npopped:\n\t.cfi_startproc\n"
#if defined(__x86_64__)
	"\tpush %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 6, -16\n\tpop %rbp\n\t.cfi_def_cfa_offset 8\n"
	"\tmovl $0, 0\n"
#elif defined(__aarch64__)
	"\tstp x29, x30, [sp, #-16]!\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset 29, -16\n\t.cfi_offset 30, -8\n"
	"\tldp x29, x30, [sp], #16\n\t.cfi_def_cfa_offset 0\n\tmov x1, #0\n\tstr x1, [x1]\n"
#elif defined(__s390x__)
	"\tstmg %r11, %r15, 88(%r15)\n\t.cfi_offset 11, -72\n\t.cfi_offset 14, -48\n\t.cfi_offset 15, -40\n"
	"\tlmg %r11, %r15, 88(%r15)\n\tlghi %r1, 0\n\tstg %r1, 0(%r1)\n"
#endif
	"\t.cfi_endproc\n.size popped, . - popped\n");

/* After the handler, the trampoline, popped() and this function come the frames of the previous trace. */
static UNCHECKED int epilogue(void) {
	static unsigned char stack[STACK];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
	sigaltstack(&alternate, NULL);
	handle(on_alternate, SA_ONSTACK);
	before.n = backtrace(before.pc, MAX);
	if (sigsetjmp(back, 1) == 0)
		popped();
	if (seen.n == before.n + 3 && memcmp(seen.pc + 4, before.pc + 1, (size_t)(before.n - 1) * sizeof *before.pc) == 0)
		return 1;
	printf("%d frames in the handler, %d before\n", seen.n, before.n);
	return 0;
}

/* Recursion with frames of various sizes overflows the stack. The trace in the handler must have all frames. */
enum { MAX_DEEP = 1 << 19, THREAD_STACK = 1 << 20 };
static void *deep[MAX_DEEP];
static int num_deep, depth_reached;
static unsigned char overflow_stack[STACK];
static void on_overflow(int number) {
	(void)number;
	num_deep = backtrace(deep, MAX_DEEP);
	siglongjmp(back, 1);
}

#define RECURSE(size) \
	static UNCHECKED int recurse_##size(int depth) { \
		volatile char space[size]; \
		depth_reached = depth; \
		space[0] = space[size - 1] = (char)depth; \
		return (depth < MAX_DEEP ? recurse_##size(depth + 1) : 0) + space[0]; \
	}
RECURSE(16)
RECURSE(256)
#if defined(__x86_64__)
RECURSE(8192)
RECURSE(300000)
#endif
static UNCHECKED int recurse_alloca(int depth) {
	volatile char *space = alloca(16 + (size_t)(depth % 8) * 512);
	depth_reached = depth;
	space[0] = (char)depth;
	return (depth < MAX_DEEP ? recurse_alloca(depth + 1) : 0) + space[0];
}

/* The innermost call may not have reached the assignment of its depth. */
static UNCHECKED int overflow_in(int (*recurse)(int)) {
	volatile int kept = 1;
	before.n = backtrace(before.pc, MAX);
	num_deep = 0;
	if (sigsetjmp(back, 1) == 0)
		kept += recurse(1);
	int rest = num_deep - 2 - depth_reached - before.n;
	if ((rest == 0 || rest == 1) &&
		memcmp(deep + num_deep - before.n + 1, before.pc + 1, (size_t)(before.n - 1) * sizeof *deep) == 0)
		return kept;
	printf("%d frames in a handler, at a depth of %d above %d\n", num_deep, depth_reached, before.n);
	return 0;
}

static void *overflow_all(void *good) {
	static int (*const forms[])(int) = {recurse_16, recurse_256, recurse_alloca,
#if defined(__x86_64__) /* QEMU has small guard pages, which these frames would skip */
		recurse_8192, recurse_300000
#endif
	};
	stack_t alternate = {.ss_sp = overflow_stack, .ss_size = sizeof overflow_stack};
	sigaltstack(&alternate, NULL);
	for (unsigned i = 0; i < sizeof forms / sizeof *forms; i++)
		if (!overflow_in(forms[i]))
			*(int *)good = 0;
	alternate.ss_flags = SS_DISABLE;
	sigaltstack(&alternate, NULL);
	return NULL;
}

static ucontext_t outside;
static void in_coroutine(void) { overflow_all(&result); }

static int overflow(void) {
	handle(on_overflow, SA_ONSTACK);
	overflow_all(&result);
	pthread_t thread;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 2 * THREAD_STACK);
	pthread_attr_setguardsize(&a, THREAD_STACK); /* larger than all frames */
	pthread_create(&thread, &a, overflow_all, &result);
	pthread_join(thread, NULL);
	char *stack = mmap(NULL, 2 * THREAD_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(stack, THREAD_STACK, PROT_NONE);
	ucontext_t inside;
	getcontext(&inside);
	inside.uc_stack = (stack_t){.ss_sp = stack + THREAD_STACK, .ss_size = THREAD_STACK};
	inside.uc_link = &outside;
	makecontext(&inside, in_coroutine, 0);
	swapcontext(&outside, &inside);
	return result;
}

/* stale(fp, sp) faults with these values in its registers. Its caller is found by the frame pointer. */
void stale(void *fp, void *sp);
__asm__(".text\n.type stale, %function\nstale:\n\t.cfi_startproc\n"
#if defined(__x86_64__)
	"\t.cfi_def_cfa 6, 16\n\tmov %rdi, %rbp\n\tmov %rsi, %rsp\n\tmovl $0, 0\n"
#elif defined(__aarch64__)
	"\t.cfi_def_cfa 29, 16\n\t.cfi_offset 30, -8\n\tmov x29, x0\n\tmov sp, x1\n\tmov x1, #0\n\tstr x1, [x1]\n"
#elif defined(__s390x__)
	"\t.cfi_def_cfa 11, 160\n\t.cfi_offset 14, -48\n\tlgr %r11, %r2\n\tlgr %r15, %r3\n\tlghi %r1, 0\n"
	"\tstg %r1, 0(%r1)\n"
#endif
	"\t.cfi_endproc\n.size stale, . - stale\n");

/* The stacks of a coroutine and of handlers are unmapped, and registers point into them. The trace in the handler must
 * read neither. */
static UNCHECKED int stale_trace(void *fp, void *sp) {
	seen.n = 0;
	if (sigsetjmp(back, 1) == 0)
		stale(fp, sp != NULL ? sp : __builtin_frame_address(0));
	if (seen.n < 3)
		printf("%d frames\n", seen.n);
	return seen.n >= 3;
}

static void in_unmapped(void) {}
static int freed(void) {
	enum { SIZE = 16 * STACK };
	static unsigned char stack[STACK];
	char *stacks = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ucontext_t inside;
	getcontext(&inside);
	inside.uc_stack = (stack_t){.ss_sp = stacks, .ss_size = SIZE};
	inside.uc_link = &outside;
	makecontext(&inside, in_unmapped, 0);
	swapcontext(&outside, &inside);
	stack_t alternate = {.ss_sp = stacks + SIZE, .ss_size = SIZE};
	sigaltstack(&alternate, NULL);
	munmap(stacks, 2 * SIZE);
	handle(on_fault, 0);
	if (!stale_trace(stacks + SIZE / 2, NULL) || !stale_trace(stacks + SIZE + SIZE / 2, NULL))
		return 0;
	alternate = (stack_t){.ss_sp = stack, .ss_size = sizeof stack};
	sigaltstack(&alternate, NULL);
	handle(on_fault, SA_ONSTACK);
	return stale_trace(stacks + SIZE / 2, stacks + SIZE / 2);
}

/* long_function is 0x1007 bytes long. Its FDE contains this length, whose bytes also encode the CFI instruction
 * "undefined return address". It is called twice: in a coroutine, where its return address is 0, and then with a
 * caller. The library must not remember it as outermost. */
int long_function(void *pcs, int size, int (*take)(void **, int));
void call_without_caller(void *end, int unused, int (*take)(void **, int));
#if defined(__x86_64__)
__asm__(".text\n.type long_function, @function\nlong_function:\n\t.cfi_startproc\n\tsub $8, %rsp\n"
	"\t.cfi_adjust_cfa_offset 8\n\tcall *%rdx\n\tadd $8, %rsp\n\t.cfi_adjust_cfa_offset -8\n\tret\n"
	"\t.skip 0x1007 - (. - long_function), 0xcc\n\t.cfi_endproc\n.size long_function, . - long_function\n"
	".type call_without_caller, @function\ncall_without_caller:\n\tmov %rdi, %rsp\n\tpush $0\n"
	"\tjmp long_function\n.size call_without_caller, . - call_without_caller\n");
static int leave(void **pcs, int size) {
	void *pc[MAX];
	(void)pcs;
	(void)size;
	seen.n = backtrace(pc, MAX);
	siglongjmp(back, 1);
}
static int outermost(void) {
	static char stack[STACK] __attribute__((aligned(16)));
	struct chain ours, theirs = {0, {NULL}};
	if (sigsetjmp(back, 0) == 0)
		call_without_caller(stack + STACK, 0, leave);
	ours.n = long_function(ours.pc, MAX, backtrace);
	other_trace(add, &theirs);
	if (seen.n == 2 && ours.n == theirs.n + 1 &&
		memcmp(ours.pc + 2, theirs.pc + 1, (size_t)(theirs.n - 1) * sizeof *ours.pc) == 0)
		return 1;
	printf("%d frames in the coroutine; %d frames; libgcc has %d without the first\n", seen.n, ours.n, theirs.n);
	return 0;
}

/* A seccomp filter that allows only read, write, futex, exit, rt_sigprocmask, and returning from handlers. */
static void forbid_calls(void) {
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)), ALLOW(read), ALLOW(write), ALLOW(futex),
		ALLOW(exit), ALLOW(exit_group), ALLOW(rt_sigreturn), ALLOW(rt_sigprocmask),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
	struct sock_fprog program = {sizeof code / sizeof *code, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		abort();
}

static void say(int good, const char *place) {
	char line[80];
	int n = snprintf(line, sizeof line, "%s: %d frames\n", place, seen.n);
	if (!good && write(1, line, (size_t)n) != n)
		_exit(1);
	result &= good;
}

static ucontext_t fibers[3];
static void on_fiber(void) {
	seen.n = backtrace(seen.pc, MAX);
	say(seen.n >= 2, "fiber");
}

static void on_crash(int number) {
	(void)number;
	seen.n = backtrace(seen.pc, MAX);
	say(seen.n >= 5, "handler in a new thread");
	if (result && write(1, "ok\n", 3) != 3)
		_exit(1);
	_exit(0);
}

/* The thread's first trace is in the handler, on an alternate stack. */
static void *crash(void *argument) {
	stack_t alternate = {.ss_sp = malloc(STACK), .ss_size = STACK};
	sigaltstack(&alternate, NULL);
	handle(on_crash, SA_ONSTACK);
	forbid_calls();
	*(volatile int *)argument = 1;
	return NULL;
}

static int in_sandbox(void) {
	static char stacks[3][STACK];
	if (fork() == 0) {
		/* setcontext makes a system call, so contexts are entered before system calls are forbidden. */
		for (int i = 0; i < 3; i++) {
			getcontext(&fibers[i]);
			fibers[i].uc_stack = (stack_t){.ss_sp = stacks[i], .ss_size = STACK};
			fibers[i].uc_link = &outside;
			makecontext(&fibers[i], on_fiber, 0);
			swapcontext(&outside, &fibers[i]);
		}
		forbid_calls();
		seen.n = backtrace(seen.pc, MAX);
		say(seen.n >= 4, "main");
		_exit(!result);
	}
	int status = 1;
	if (wait(&status) < 0 || status != 0) {
		printf("the first trace: status %#x\n", status);
		return 0;
	}
	pthread_t thread;
	pthread_create(&thread, NULL, crash, NULL);
	pthread_join(thread, NULL);
	return 0;
}
#else
static int outermost(void) { return 1; }
static int in_sandbox(void) { return 1; }
#endif

/* Files in the store are truncated while their sections are in use. */
static int truncated(char **paths) {
	for (; *paths != NULL; paths++)
		if (truncate(*paths, 0) != 0)
			return 0;
	return equal_traces();
}

/* Traces in handlers, where only known stacks are read. */
static ucontext_t caller;
static void on_context_signal(int number) { result = equal_traces() && result && number == SIGUSR1; }
static void in_context(void) { raise(SIGUSR1); }

static ucontext_t *make_context(char *stack, size_t size) {
	ucontext_t *c = malloc(sizeof *c);
	getcontext(c);
	c->uc_stack = (stack_t){.ss_sp = stack, .ss_size = size};
	c->uc_link = &caller;
	makecontext(c, in_context, 0);
	return c;
}

/* Many contexts, some of which are entered, and contexts whose stacks overlap those of freed contexts. */
static int contexts(void) {
	enum { NUM = 6000, SIZE = 1 << 15, EVERY = 5 };
	static ucontext_t *list[NUM];
	char *stacks = malloc((size_t)NUM * SIZE);
	signal(SIGUSR1, on_context_signal);
	for (int i = 0; i < NUM; i++)
		list[i] = make_context(stacks + (size_t)i * SIZE, SIZE);
	for (int i = 0; i < NUM && result; i += EVERY)
		swapcontext(&caller, list[i]);
	for (int i = 1; i < 100 && result; i++) {
		char *stack = stacks + i * SIZE / 2;
		swapcontext(&caller, make_context(stack, SIZE + i * 4096 % (7 * SIZE)));
	}
	pid_t child = fork();
	if (child == 0) {
		swapcontext(&caller, make_context(stacks + 64, SIZE));
		_exit(!result);
	}
	int status = 1;
	return wait(&status) == child && status == 0 && result;
}

/* on_plugin is called by plugins. */
static void on_plugin(const char *place) { result = equal_traces() && result && place != NULL; }

/* Plugins with separate files, which are mapped. */
static int many(char **paths) {
	char line[512];
	int left = 0;
	for (; *paths != NULL; paths++, left++) {
		void *file = dlopen(*paths, RTLD_NOW);
		void (*call)(void (*)(const char *), const char *);
		*(void **)&call = file != NULL ? dlsym(file, "call") : NULL;
		if (call == NULL) {
			printf("%s\n", dlerror());
			return 0;
		}
		call(on_plugin, *paths);
	}
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
		left -= strstr(line, ".sframe\n") != NULL;
	if (left > 0)
		printf("%d files are not mapped\n", left);
	return result && left <= 0;
}

/* Random stacks of functions with three kinds of frames. Each stack shares some frames with the one before it. */
static unsigned any(unsigned n) {
	static uint64_t seed = 1;
	seed = seed * 6364136223846793005U + 1442695040888963407U;
	return (unsigned)(seed >> 33) % n;
}

static int traces_left;
static void call_any(int depth);

static __attribute__((noinline)) int plain(int depth) {
	volatile int kept = depth;
	call_any(depth);
	return kept;
}

static __attribute__((noinline)) int with_frame_pointer(int depth) {
	volatile char *space = alloca(16 + 16 * any(4));
	space[0] = (char)depth;
	call_any(depth);
	return space[0];
}

static __attribute__((noinline)) int aligned(int depth) {
	_Alignas(64) volatile char space[64];
	space[0] = (char)depth;
	call_any(depth);
	return space[0];
}

/* Captures a trace in a short array and one in a long array, compares them, and compares two more with libgcc's. */
static __attribute__((noinline)) int same_in_parts(void) {
	void *some[8], *all[MAX];
	int n = backtrace(some, 8);
	return backtrace(all, MAX) >= n && memcmp(some + 1, all + 1, (size_t)(n - 1) * sizeof *all) == 0 &&
		equal_traces() && equal_traces();
}

static __attribute__((noinline)) void call_any(int depth) {
	static int (*const forms[])(int) = {plain, plain, with_frame_pointer, aligned};
	if (depth == 0) {
		result &= same_in_parts();
		traces_left--;
		return;
	}
	do
		forms[any(sizeof forms / sizeof *forms)](depth - 1);
	while (traces_left > 0 && result && any(4) == 0);
}

static int changing(void) {
	for (int i = 0; i < 200 && result; i++) {
		traces_left = 16;
		call_any(i % 40 == 0 ? 200 : (int)any(40));
	}
	return result;
}

/* A plugin takes the place of one that libc's dlclose has unloaded, as in libraries loaded with RTLD_DEEPBIND. */
static void compare(const char *unused) {
	(void)unused;
	result &= equal_traces() && equal_traces();
}

static int replaced(char **paths) {
	int (*close)(void *);
	*(void **)&close = dlsym(dlopen("libc.so.6", RTLD_LAZY), "dlclose");
	void *first = NULL;
	for (; *paths != NULL; paths++) {
		void *file = dlopen(*paths, RTLD_NOW);
		void (*call)(void (*)(const char *), const char *);
		*(void **)&call = dlsym(file, "call");
		first = first == NULL ? *(void **)&call : first;
		call(compare, "");
		if (first != *(void **)&call)
			result = !printf("%s is at another address\n", *paths);
		close(file);
	}
	return result;
}

/* A function generated at run time, whose CFI is registered with libgcc, calls its argument. */
#if defined(__x86_64__)
void __register_frame(const void *eh_frame);
static const unsigned char generated[] = { /* push %rdi, 7 times; call *%rdi; add $56, %rsp; ret */
	0x57, 0x57, 0x57, 0x57, 0x57, 0x57, 0x57, 0xff, 0xd7, 0x48, 0x83, 0xc4, 56, 0xc3};
static struct __attribute__((packed)) {
	uint32_t cie_size, cie_id;
	unsigned char cie[16]; /* version 1, no augmentation, factors 1 and -8, RA 16; CFA rsp+8, RA at CFA-8 */
	uint32_t size, cie_at;
	void *begin;
	uint64_t length;
	unsigned char rules[8]; /* after 7 bytes, CFA rsp+64; after 6 more, rsp+8 */
	uint32_t end;
} cfi_of_data, cfi = {20, 0, {1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1}, 28, 28, NULL, sizeof generated,
	{0x47, 0x0e, 64, 0x46, 0x0e, 8}, 0};

static int call_generated(void *code, int (*function)(void)) {
	int (*call)(int (*)(void));
	memcpy(code, generated, sizeof generated);
	memcpy(&call, &code, sizeof call);
	return call(function);
}

static void register_generated(void *code) {
	cfi.begin = code;
	__register_frame(&cfi);
}

/* In a new mapping, and in the program's data, where traces ended before it was registered. */
static int registered(void) {
	static unsigned char data[4096] __attribute__((aligned(4096))) = {1};
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(data, sizeof data, PROT_READ | PROT_WRITE | PROT_EXEC);
	int good = call_generated(data, equal_traces) && call_generated(data, equal_traces);
	register_generated(code);
	good = good && call_generated(code, equal_traces) && call_generated(code, equal_traces);
	cfi_of_data = cfi;
	cfi_of_data.begin = data;
	__register_frame(&cfi_of_data);
	return good && call_generated(data, equal_traces) && call_generated(data, equal_traces);
}

/* Generated code at the address of a file that libc's dlclose has unloaded: the same return address, another frame. */
static unsigned char *in_plugin;
static void note_caller(const char *unused) {
	(void)unused;
	in_plugin = __builtin_return_address(0);
	equal_traces();
}

static int unloaded(char **paths) {
	enum { CALL_ENDS = 9 }; /* in generated */
	int (*close)(void *);
	void *file = dlopen(paths[0], RTLD_NOW);
	void (*call)(void (*)(const char *), const char *);
	*(void **)&close = dlsym(dlopen("libc.so.6", RTLD_LAZY), "dlclose");
	*(void **)&call = dlsym(file, "call");
	call(note_caller, "");
	call(note_caller, "");
	close(file);
	mmap((void *)((uintptr_t)in_plugin & ~(uintptr_t)4095), 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	register_generated(in_plugin - CALL_ENDS);
	return call_generated(in_plugin - CALL_ENDS, equal_traces);
}
#else
static int registered(void) { return 1; }
static int unloaded(char **paths) { return paths != NULL; }
#endif

/* shortest_time returns the shortest time of 50 traces, in nanoseconds. */
static __attribute__((noinline)) long shortest_time(int depth) {
	long shortest = LONG_MAX;
	volatile int kept = depth;
	if (depth > 0)
		return shortest_time(depth - 1) + (kept != depth);
	for (int i = 0; i < 50; i++) {
		struct timespec from, to;
		clock_gettime(CLOCK_MONOTONIC, &from);
		seen.n = backtrace(seen.pc, MAX);
		clock_gettime(CLOCK_MONOTONIC, &to);
		long time = (to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec - from.tv_nsec;
		shortest = time < shortest ? time : shortest;
	}
	return shortest;
}

/* Forks while another thread is in dlclose. In the child, cached rows are used as in the parent. */
static int closing[2], closed[2];
static void wait_for_fork(void) {
	char byte = 0;
	if (write(closing[1], &byte, 1) != 1 || read(closed[0], &byte, 1) != 1)
		abort();
}

static void *close_file(void *file) {
	dlclose(file);
	return NULL;
}

static int forked(char **paths) {
	enum { DEPTH = 60 };
	pthread_t thread;
	char byte = 0;
	int status = 1;
	void *file = dlopen(paths[0], RTLD_NOW);
	*(void (**)(void))dlsym(file, "at_unload") = wait_for_fork;
	if (pipe(closing) != 0 || pipe(closed) != 0)
		return 0;
	pthread_create(&thread, NULL, close_file, file);
	if (read(closing[0], &byte, 1) != 1)
		return 0;
	pid_t child = fork();
	if (child == 0) {
		long time = shortest_time(DEPTH), most = 20 * seen.n;
		if (time > most)
			dprintf(1, "%ld ns for %d frames\n", time, seen.n);
		_exit(time > most);
	}
	if (write(closed[1], &byte, 1) != 1 || waitpid(child, &status, 0) != child)
		return 0;
	pthread_join(thread, NULL);
	return status == 0;
}

int main(int n, char **arguments) {
	static const struct {
		const char *name;
		int (*run)(void);
	} cases[] = {{"begin", begin}, {"interrupted", interrupted}, {"calls", calls}, {"errno", keeps_errno},
		{"stack", stack_use}, {"outermost", outermost}, {"sandbox", in_sandbox}, {"same", equal_traces},
		{"changing", changing}, {"overflow", overflow}, {"freed", freed}, {"stopped", stopped},
		{"epilogue", epilogue},
		{"registered", registered}, {"contexts", contexts}};
	if (n > 2 && strcmp(arguments[1], "truncated") == 0)
		result = truncated(arguments + 2);
	if (n > 2 && strcmp(arguments[1], "replaced") == 0)
		result = replaced(arguments + 2);
	if (n > 2 && strcmp(arguments[1], "forked") == 0)
		result = forked(arguments + 2);
	if (n > 2 && strcmp(arguments[1], "unloaded") == 0)
		result = unloaded(arguments + 2);
	if (n > 2 && strcmp(arguments[1], "many") == 0)
		result = many(arguments + 2);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		if (n > 1 && strcmp(arguments[1], cases[i].name) == 0)
			result = cases[i].run();
	if (result)
		puts("ok");
	fflush(stdout);
	return !result;
}
