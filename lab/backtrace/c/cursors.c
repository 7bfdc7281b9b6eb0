/*
 * Walks its stack with libunwind's functions, and compares the frames with libgcc's: unw_backtrace, cursors, and
 * functions that only libunwind implements, on a cursor that libsframe-backtrace initialized. Prints differences, and
 * "done".
 */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

enum { MAX = 256 };
static struct chain {
	int n;
	uint64_t pc[MAX], cfa[MAX];
} other;
static _Unwind_Ptr (*get_ip)(struct _Unwind_Context *);
static _Unwind_Word (*get_cfa)(struct _Unwind_Context *);

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *chain) {
	struct chain *all = chain;
	if (all->n < MAX && get_ip(c) != 0) {
		all->cfa[all->n] = get_cfa(c);
		all->pc[all->n++] = get_ip(c);
	}
	return _URC_NO_REASON;
}

static void *libgcc(const char *name) {
	void *found = dlsym(dlopen("libgcc_s.so.1", RTLD_LAZY), name);
	if (found == NULL)
		abort();
	return found;
}

static int here;   /* the index in other of the first frame of a cursor */
static int signaled;
static int shorter; /* a trace may end at interrupted code, because not all of it has rows */

/* compare compares a walk from a context with libgcc's, and checks the function name that libunwind returns for the
 * frame numbered named. */
static void compare(const char *place, unw_context_t *context, int flag, int named) {
	unw_cursor_t c, copy;
	unw_word_t ip, sp, offset;
	char name[64];
	int i = here;
	if (unw_init_local2(&c, context, flag) != 0)
		printf("%s: unw_init_local2\n", place);
	do {
		if (unw_get_reg(&c, UNW_REG_IP, &ip) != 0 || unw_get_reg(&c, UNW_REG_SP, &sp) != 0)
			printf("%s: unw_get_reg of frame %d\n", place, i);
		if (i > here && (i >= other.n || ip != other.pc[i] || sp != other.cfa[i]))
			printf("%s: frame %d of %d: %#lx, %#lx; expected %#lx, %#lx\n", place, i, other.n, (long)ip, (long)sp,
				(long)other.pc[i], (long)other.cfa[i]);
		if (i == named) {
			copy = c;
			if (unw_get_proc_name(&copy, name, sizeof name, &offset) != 0 || strcmp(name, "main") != 0)
				printf("%s: the function of frame %d is %s\n", place, i, name);
			if (unw_get_reg(&copy, UNW_REG_IP, &offset) != 0 || offset != ip)
				printf("%s: a different frame after unw_get_proc_name\n", place);
			unw_word_t rbx;
			if (unw_get_reg(&copy, UNW_X86_64_RBX, &rbx) != 0 || unw_is_signal_frame(&copy) > 0)
				printf("%s: rbx\n", place);
		}
		i++;
	} while (unw_step(&c) > 0);
	if (i != other.n && !shorter)
		printf("%s: %d frames; expected %d\n", place, i, other.n);
}

static int frame_of_main(void) {
	extern int main(void);
	for (int i = 0; i < other.n; i++)
		if (_Unwind_FindEnclosingFunction((void *)(uintptr_t)other.pc[i]) == (void *)(uintptr_t)&main)
			return i;
	return -1;
}

static __attribute__((noinline)) void walk(const char *place) {
	void *frames[MAX];
	unw_context_t context;
	_Unwind_Reason_Code (*backtrace_of_libgcc)(_Unwind_Trace_Fn, void *);
	backtrace_of_libgcc = (_Unwind_Reason_Code (*)(_Unwind_Trace_Fn, void *))libgcc("_Unwind_Backtrace");
	get_ip = (_Unwind_Ptr (*)(struct _Unwind_Context *))libgcc("_Unwind_GetIP");
	get_cfa = (_Unwind_Word (*)(struct _Unwind_Context *))libgcc("_Unwind_GetCFA");
	other.n = 0;
	backtrace_of_libgcc(add, &other);
	int n = unw_backtrace(frames, MAX);
	for (int i = 1; i < n || i < other.n; i++)
		if (i >= other.n || (i >= n && !shorter) || (i < n && (uint64_t)(uintptr_t)frames[i] != other.pc[i]))
			printf("%s: frame %d of %d, %d: %p; expected %#lx\n", place, i, n, other.n, frames[i], (long)other.pc[i]);
	unw_getcontext(&context);
	here = 0;
	compare(place, &context, 0, frame_of_main());
}

static void handler(int number, siginfo_t *info, void *context) {
	(void)number;
	(void)info;
	shorter = getenv("SHORT") != NULL;
	walk("handler");
	/* Start at the code that the signal interrupted. */
	for (here = 0; here < other.n; here++)
		if (other.pc[here] == (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP])
			break;
	compare("interrupted", context, UNW_INIT_SIGNAL_FRAME, frame_of_main());
	shorter = 0;
	signaled = 1;
}

static int on_compare(const void *a, const void *b) {
	walk("qsort");
	return *(const int *)a - *(const int *)b;
}

/* Functions with a frame pointer and without CFI: a generated one, and one in this program. libunwind's own functions
 * give the expected frames, in arrays of any size. */
void without_cfi(void (*function)(void));
__asm__(".text\n.type without_cfi, @function\nwithout_cfi:\n\tpush %rbp\n\tmov %rsp, %rbp\n\tcall *%rdi\n"
	"\tleave\n\tret\n.size without_cfi, . - without_cfi\n");
static const unsigned char generated[] = {
	0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0xc9, 0xc3}; /* push %rbp; mov %rsp, %rbp; call *%rdi; leave; ret */
static __attribute__((noinline)) void called_by_generated(void) {
	void *frames[MAX], *expected[MAX];
	int (*original)(void **, int);
	unw_context_t context;
	*(void **)&original = dlsym(dlopen("libunwind.so.8", RTLD_LAZY), "unw_backtrace");
	int n, want;
	for (int size = 1; size <= MAX; size += size < 20 ? 1 : MAX - 20) {
		want = original(expected, size), n = unw_backtrace(frames, size);
		if (n != want || memcmp(frames + 1, expected + 1, (size_t)(n - 1) * sizeof *frames) != 0)
			printf("generated: %d frames of %d; expected %d\n", n, size, want);
	}
	for (other.n = 0; other.n < want; other.n++)
		other.pc[other.n] = (uint64_t)(uintptr_t)expected[other.n];
	unw_getcontext(&context);
	unw_cursor_t c;
	unw_word_t ip = 0;
	if (unw_init_local(&c, &context) != 0)
		printf("generated: unw_init_local\n");
	for (n = 1; unw_step(&c) > 0; n++)
		if (unw_get_reg(&c, UNW_REG_IP, &ip) != 0 || n >= want || ip != other.pc[n])
			printf("generated: frame %d of %d: %#lx\n", n, want, (long)ip);
	if (n != want)
		printf("generated: %d frames of a cursor; expected %d\n", n, want);
}

/* The same on the smallest usual stack of a coroutine. */
static ucontext_t outside, inside;
static void (*generated_code)(void (*)(void));
static int in_coroutine;
static void count_frames(void) {
	void *frames[8];
	in_coroutine = unw_backtrace(frames, 8);
}

static void enter(void) {
	generated_code(count_frames);
}

static void on_small_stack(void) {
	enum { SIZE = 8192 };
	char *stack = mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(stack, SIZE, PROT_NONE);
	getcontext(&inside);
	inside.uc_stack = (stack_t){.ss_sp = stack + SIZE, .ss_size = SIZE};
	inside.uc_link = &outside;
	makecontext(&inside, enter, 0);
	swapcontext(&outside, &inside);
	if (in_coroutine < 3)
		printf("%d frames on a small stack\n", in_coroutine);
}

static void call_generated(void) {
	void *code = mmap(NULL, sizeof generated, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void (*call)(void (*)(void));
	memcpy(code, generated, sizeof generated);
	mprotect(code, sizeof generated, PROT_READ | PROT_EXEC);
	memcpy(&call, &code, sizeof call);
	call(called_by_generated);
	generated_code = call;
	on_small_stack();
}

int main(void) {
	call_generated();
	without_cfi(called_by_generated);
	int numbers[] = {2, 1};
	qsort(numbers, 2, sizeof *numbers, on_compare);
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
	puts(signaled ? "done" : "no signal");
	return 0;
}
