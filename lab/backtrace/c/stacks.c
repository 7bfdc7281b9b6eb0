/*
 * Traces in signal handlers whose interrupted code runs on a stack that the C library does not know, or has odd
 * registers. The first argument names a case. All files must have sections. Traces are compared with libgcc's, except
 * where libgcc fails. Prints "ok" or what is wrong. For amd64.
 */
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

enum { MAX = 1 << 16, STACK = 1 << 20 };
struct chain {
	int n;
	void *pc[MAX];
};
static struct chain ours, theirs;
static _Unwind_Reason_Code (*other_trace)(_Unwind_Trace_Fn, void *);
static _Unwind_Ptr (*other_ip)(struct _Unwind_Context *);
static volatile int handled;
static int result = 1;

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *unused) {
	(void)unused;
	if (theirs.n < MAX && other_ip(c) != 0)
		theirs.pc[theirs.n++] = (void *)other_ip(c);
	return _URC_NO_REASON;
}

static __attribute__((noinline)) void compare(const char *place) {
	theirs.n = 0;
	ours.n = backtrace(ours.pc, MAX);
	other_trace(add, NULL);
	int same = 1;
	while (same < ours.n && same < theirs.n && ours.pc[same] == theirs.pc[same])
		same++;
	if (ours.n == theirs.n && same == ours.n && ours.n > 2)
		return;
	printf("%s: %d frames; libgcc has %d, %d are the same\n", place, ours.n, theirs.n, same);
	result = 0;
}

static void on_signal(int number) {
	handled++;
	compare("handler");
	if (number == SIGUSR1)
		raise(SIGUSR2);
}

static void handle(int number, void (*handler)(int), int flags) {
	const struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	sigaction(number, &action, NULL);
}

static __attribute__((noinline)) void sample(void) {
	compare("call");
	raise(SIGUSR2);
}

static void *new_stack(void) {
	return (char *)mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) + STACK;
}

/* The main thread's stack, far beyond the limit at the start. */
static __attribute__((noinline)) int deep(int left) {
	volatile char space[1000] = {1};
	if (left > 0)
		return deep(left - 1) + space[0];
	sample();
	return space[0];
}

static void raised(void) {
	const rlim_t least = 24 << 20, most = 64 << 20;
	struct rlimit limit;
	getrlimit(RLIMIT_STACK, &limit);
	limit.rlim_cur = limit.rlim_cur < most / 4 ? least : most;
	limit.rlim_cur = limit.rlim_cur < limit.rlim_max ? limit.rlim_cur : limit.rlim_max;
	if (setrlimit(RLIMIT_STACK, &limit) != 0)
		abort();
	deep((int)(limit.rlim_cur / 1200));
}

static void large(void) {
	volatile char *space = alloca(200000);
	space[0] = 1;
	sample();
	space[0] = 2;
}

/* A child that shares the memory, and runs on another stack. */
static int in_clone(void *unused) {
	(void)unused;
	large();
	return 0;
}

static void cloned(void) {
	int status = 1;
	pid_t child = clone(in_clone, new_stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
	if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
		result = 0;
}

/* A stack switched by code of the program, whose outermost function has neither a row nor CFI. */
void switch_to(void *stack, void (*function)(void));
__asm__(".text\n.type switch_to, @function\nswitch_to:\n\tpush %rbp\n\tmov %rsp, %rbp\n\tmov %rdi, %rsp\n\tcall *%rsi\n"
	"\tmov %rbp, %rsp\n\tpop %rbp\n\tret\n.size switch_to, . - switch_to\n");
static void fiber(void) {
	for (int i = 0; i < 3; i++)
		switch_to(new_stack(), i == 1 ? large : sample);
}

/* A coroutine whose stack is a local variable of another coroutine. */
static ucontext_t outside, outer, inner;
static void enter(ucontext_t *from, ucontext_t *to, void (*function)(void), void *stack, size_t size) {
	getcontext(to);
	to->uc_stack = (stack_t){.ss_sp = stack, .ss_size = size};
	to->uc_link = from;
	makecontext(to, function, 0);
	swapcontext(from, to);
}

static void in_outer(void) {
	char space[1 << 16];
	enter(&outer, &inner, sample, space, sizeof space);
	sample();
}

static void inside(void) { enter(&outside, &outer, in_outer, (char *)new_stack() - STACK, STACK); }

/* Handlers interrupt each other on an alternate stack that was set by a system call. */
static void nested(void) {
	stack_t s = {.ss_sp = (char *)new_stack() - STACK, .ss_size = STACK};
	syscall(SYS_sigaltstack, &s, NULL);
	handle(SIGUSR1, on_signal, SA_ONSTACK);
	handle(SIGUSR2, on_signal, SA_ONSTACK);
	raise(SIGUSR1);
}

/* A handler that returns to code outside files. */
static void restorer(void) {
	static const unsigned char code[] = {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}; /* mov $15, %rax; syscall */
	unsigned char *b = (unsigned char *)new_stack() - STACK;
	struct {
		void (*handler)(int);
		unsigned long flags;
		void *restorer;
		unsigned long mask;
	} action = {on_signal, 0x04000000, b, 0};
	memcpy(b, code, sizeof code);
	mprotect(b, STACK, PROT_READ | PROT_EXEC);
	syscall(SYS_rt_sigaction, SIGUSR2, &action, NULL, 8);
	raise(SIGUSR2);
}

/* A handler has left a jump to address 0. Then a signal interrupts code without a row, whose stack begins with an
 * address that looks like a return address: kill_self pushes one. */
static sigjmp_buf back;
static void leave(int number) {
	(void)number;
	ours.n = backtrace(ours.pc, MAX);
	siglongjmp(back, 1);
}

void kill_self(int process, int thread);
__asm__(".text\n.type kill_self, @function\nkill_self:\n\tlea after_call(%rip), %rax\n\tpush %rax\n\tmov $12, %edx\n"
	"\tmov $234, %eax\n\tsyscall\n\tpop %rax\n\tret\n.size kill_self, . - kill_self\n"
	".type calls, @function\ncalls:\n\t.cfi_startproc\n\tcall calls\nafter_call:\n\tret\n\t.cfi_endproc\n"
	".size calls, . - calls\n");
static void recovered(void) {
	void (*volatile nowhere)(void) = NULL;
	handle(SIGSEGV, leave, 0);
	if (sigsetjmp(back, 1) == 0)
		nowhere();
	kill_self(getpid(), (int)syscall(SYS_gettid));
}

/* A function returns to 0x4141, and the stack above contains an address in a file. libgcc would crash. The trace ends
 * there. */
void smash(const void *above);
__asm__(".text\n.type smash, @function\nsmash:\n\t.cfi_startproc\n\tpush %rdi\n\tpush $0x4141\n\tret\n\t.cfi_endproc\n"
	".size smash, . - smash\n");
static int data;
static void smashed(void) {
	static const char *const above[] = {(const char *)&data, (const char *)0x1234, (const char *)(void *)smash + 1};
	handle(SIGSEGV, leave, 0);
	for (volatile unsigned i = 0; i < sizeof above / sizeof *above; i++) {
		handled++;
		if (sigsetjmp(back, 1) == 0)
			smash(above[i]);
		if (ours.n != 3 || ours.pc[2] != (void *)0x4141) {
			printf("%d frames; %p\n", ours.n, ours.pc[2]);
			result = 0;
		}
	}
}

/* A saved frame pointer is overwritten with each address of the dead part of the stack. backtrace ends, and faults less
 * often than glibc's. */
static volatile int faults;
static void count_fault(int number) {
	(void)number;
	faults++;
	siglongjmp(back, 1);
}

static int trace_damaged(int (*trace)(void **, int)) {
	volatile char *space = alloca(64); /* the CFA is found with the frame pointer */
	uint64_t *volatile frame = __builtin_frame_address(0);
	const uint64_t saved = *frame;
	faults = 0;
	space[0] = 1;
	for (volatile int64_t at = -4096; at < 0; at += 8) {
		*frame = (uint64_t)frame + (uint64_t)at;
		if (sigsetjmp(back, 1) == 0)
			trace(ours.pc, 200);
		*frame = saved;
		handled++;
	}
	return faults;
}

static __attribute__((noinline)) void damaged(void) {
	volatile char *space = alloca(64);
	int (*other)(void **, int);
	*(void **)&other = dlsym(dlopen("libc.so.6", RTLD_LAZY), "backtrace");
	space[0] = 1;
	handle(SIGSEGV, count_fault, SA_NODEFER);
	alarm(20);
	int most = trace_damaged(other), num = trace_damaged(backtrace);
	alarm(0);
	if (num > most)
		result = !printf("%d faults; glibc: %d\n", num, most);
}

/* The stack pointer is wrong: in its thread's stack, but not in a mapped page. */
void fault_at(void *sp);
__asm__(".text\n.type fault_at, @function\nfault_at:\n\t.cfi_startproc\n\tmov %rdi, %rsp\n\tmovl $0, 0\n"
	"\t.cfi_endproc\n.size fault_at, . - fault_at\n");
static void *in_protected(void *unused) {
	char *page = (char *)((uintptr_t)__builtin_frame_address(0) & ~(uintptr_t)4095) - (1 << 18);
	const stack_t alternate = {.ss_sp = (char *)new_stack() - STACK, .ss_size = STACK};
	sigaltstack(&alternate, NULL);
	handle(SIGSEGV, leave, SA_ONSTACK);
	mprotect(page, 4096, PROT_NONE);
	handled++;
	ours.n = 0;
	if (sigsetjmp(back, 1) == 0)
		fault_at(page + 64);
	if (ours.n != 3)
		result = !printf("protected: %d frames\n", ours.n);
	return unused;
}

static void lower(void) {
	char *in_stack = (char *)__builtin_frame_address(0) - (4 << 20);
	const stack_t alternate = {.ss_sp = (char *)new_stack() - STACK, .ss_size = STACK};
	struct rlimit limit;
	getrlimit(RLIMIT_STACK, &limit);
	limit.rlim_cur = 1 << 20;
	setrlimit(RLIMIT_STACK, &limit);
	sigaltstack(&alternate, NULL);
	handle(SIGSEGV, leave, SA_ONSTACK);
	ours.n = 0;
	if (sigsetjmp(back, 1) == 0)
		fault_at(in_stack);
	if (ours.n != 3)
		result = !printf("lowered: %d frames\n", ours.n);
}

/* A signal interrupts an epilogue, where CFI still finds the frame pointer below the stack pointer. */
void kill_in_epilogue(int process, int thread);
__asm__(".text\n.type kill_in_epilogue, @function\nkill_in_epilogue:\n\t.cfi_startproc\n\tpush %rbp\n"
	"\t.cfi_def_cfa_offset 16\n\t.cfi_offset 6, -16\n\tpop %rbp\n\t.cfi_def_cfa_offset 8\n\tmov $12, %edx\n"
	"\tmov $234, %eax\n\tsyscall\n\tret\n\t.cfi_endproc\n.size kill_in_epilogue, . - kill_in_epilogue\n");

/* A sandbox refuses rt_sigprocmask. */
static void refused(void) {
	struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	const struct sock_fprog program = {sizeof code / sizeof *code, code};
	const stack_t alternate = {.ss_sp = (char *)new_stack() - STACK, .ss_size = STACK};
	sigaltstack(&alternate, NULL);
	handle(SIGUSR2, on_signal, SA_ONSTACK);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		abort();
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2);
	kill_in_epilogue(getpid(), (int)syscall(SYS_gettid));
}

/* With SFRAME_BACKTRACE=fp, frame pointers on a fiber's stack lead from interrupted code to its callers. */
static void *callers[3];
static __attribute__((noinline)) void trap(void) {
	void **frame = __builtin_frame_address(0);
	for (unsigned i = 0; i < sizeof callers / sizeof *callers; i++, frame = *frame)
		callers[i] = frame[1];
	__asm__ volatile("ud2" ::: "memory");
}

static __attribute__((noinline)) void call_trap(void) {
	volatile int kept = 1;
	trap();
	(void)kept;
}

static void on_fiber(void) {
	volatile int kept = 1;
	call_trap();
	(void)kept;
}

static void pointers(void) {
	handle(SIGILL, leave, 0);
	handled++;
	if (sigsetjmp(back, 1) == 0)
		switch_to(new_stack(), on_fiber);
	int at = 0;
	while (at < ours.n && ours.pc[at] != callers[0])
		at++;
	if (at + 3 > ours.n || memcmp(ours.pc + at, callers, sizeof callers) != 0)
		result = !printf("%d frames; %p after %d\n", ours.n, callers[0], at);
}

static void unmapped(void) {
	pthread_t thread;
	pthread_create(&thread, NULL, in_protected, NULL);
	pthread_join(thread, NULL);
	lower();
}

/* A timer interrupts code in the vDSO. Its trace has this function, and ends like the others. */
static void on_timer(int number, siginfo_t *info, void *context) {
	const uint64_t vdso = getauxval(AT_SYSINFO_EHDR);
	(void)number, (void)info;
	if ((uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] - vdso >= 1 << 14)
		return;
	handled++;
	compare("vDSO");
}

static void in_vdso(void) {
	enum { SAMPLES = 30 };
	const struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
	const struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	struct timespec now;
	sigaction(SIGPROF, &action, NULL);
	setitimer(ITIMER_PROF, &often, NULL);
	while (handled < SAMPLES)
		clock_gettime(CLOCK_MONOTONIC, &now);
	setitimer(ITIMER_PROF, &never, NULL);
}

int main(int n, char **arguments) {
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {{"raised", raised}, {"large", large}, {"cloned", cloned}, {"fiber", fiber}, {"inside", inside},
		{"nested", nested}, {"restorer", restorer}, {"recovered", recovered}, {"smashed", smashed},
		{"vdso", in_vdso}, {"damaged", damaged}, {"unmapped", unmapped},
		{"refused", refused}, {"pointers", pointers}};
	void *file = dlopen("libgcc_s.so.1", RTLD_LAZY);
	*(void **)&other_trace = dlsym(file, "_Unwind_Backtrace");
	*(void **)&other_ip = dlsym(file, "_Unwind_GetIP");
	handle(SIGUSR2, on_signal, 0);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		if (n > 1 && strcmp(arguments[1], cases[i].name) == 0)
			cases[i].run();
	puts(result && handled > 0 ? "ok" : "failed");
	return 0;
}
