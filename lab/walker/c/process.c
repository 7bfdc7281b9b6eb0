/*
 * Walks its own stack from signal handlers, and compares the walks with _Unwind_Backtrace. For each of several places,
 * it prints the name, "equal" or the difference, the reason for the end, and whether the last frame is _start. Frames
 * that both find must be equal; _Unwind_Backtrace may find more.
 */
#define _GNU_SOURCE
#include "sframe_process.h"

#include <alloca.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unwind.h>

enum { MAX = 64 };

extern void _start(void);

static struct sfw_process process; /* keeps the stacks */
static char other[1 << 16];        /* the alternate stack */
static const char *place;
static sigjmp_buf after;
static struct sfw_bounds bounds;

struct chain {
	size_t n;
	uint64_t pc[MAX];
};

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *chain) {
	struct chain *all = chain;
	if (all->n == MAX)
		return _URC_END_OF_STACK;
	all->pc[all->n++] = _Unwind_GetIP(c);
	return _URC_NO_REASON;
}

/* Walks that read the stack in different ways, and in chunks of different sizes, must find the same frames. The slots
 * of a small cache are overwritten constantly. */
enum { FEW = 2, MANY = 1024 };
static struct sfw_cache_slot few_slots[FEW], many_slots[MANY];
static struct sfw_cache few = {few_slots, FEW, 0}, many = {many_slots, MANY, 0};
enum way { PLAIN, FEW_SLOTS, MANY_SLOTS, PROBES, BOUNDS };
static size_t walk(
	enum way way, size_t chunk, const struct sfw_regs *from, struct sfw_frame *frames, enum sfw_how *end) {
	struct sfw_regs regs = *from;
	struct sfw_process p;
	memset(&p, 0, sizeof p);
	p.probe = way >= PROBES;
	if (way == BOUNDS)
		p.bounds = &bounds;
	if (!p.probe)
		memcpy(p.stacks, process.stacks, sizeof p.stacks);
	p.cache = way == FEW_SLOTS ? &few : way == MANY_SLOTS ? &many : NULL;
	size_t n = 0;
	do {
		n += sfw_process_walk(&p, &regs, frames + n, chunk < MAX - n ? chunk : MAX - n, end);
	} while (*end == SFW_FULL && n < MAX);
	return n;
}

static void report(const struct sfw_regs *regs) {
	static struct sfw_frame frames[MAX], again[MAX];
	static struct chain peer;
	enum sfw_how end, other_end;
	size_t n = walk(PLAIN, MAX, regs, frames, &end), from = 0;
	static const size_t chunks[] = {MAX, 1, 2, 7};
	for (enum way way = PLAIN; way <= BOUNDS; way++)
		for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
			if (walk(way, chunks[i], regs, again, &other_end) != n || other_end != end ||
				memcmp(frames, again, n * sizeof *frames) != 0)
				printf("%s: a different chain in way %d in chunks of %zu, end %d\n", place, way, chunks[i], other_end);
	peer.n = 0;
	_Unwind_Backtrace(add, &peer);
	while (peer.n > 0 && peer.pc[peer.n - 1] == 0)
		peer.n--;
	while (from < peer.n && peer.pc[from] != regs->pc)
		from++;
	size_t same = 0;
	while (same < n && from + same < peer.n && frames[same].pc == peer.pc[from + same])
		same++;
	int start = frames[n - 1].pc - (uint64_t)(uintptr_t)&_start < 0x80;
	if (same == n && from + n == peer.n)
		printf("%s: equal, end %d, start %d\n", place, end, start);
	else if (same == n)
		printf("%s: the begin, end %d, start %d\n", place, end, start);
	else if (from + same < peer.n && peer.n == MAX && peer.pc[MAX - 1] == peer.pc[from + same - 1])
		printf("%s: the peer repeats a frame, end %d, start %d\n", place, end, start);
	else
		printf("%s: frame %zu is %#llx, expected %#llx (of %zu and %zu)\n", place, same,
			(unsigned long long)frames[same].pc,
			from + same < peer.n ? (unsigned long long)peer.pc[from + same] : 0, n, peer.n - from);
}

static void handler(int signal, siginfo_t *info, void *context) {
	struct sfw_regs regs;
	(void)info;
	sfw_regs_of_context(&regs, context);
	report(&regs);
	if (signal != SIGUSR1)
		siglongjmp(after, 1);
}

#if defined(__x86_64__)
#define TRAP "ud2"
#elif defined(__aarch64__)
#define TRAP "udf #0"
#elif defined(__s390x__)
#define TRAP ".short 0"
#endif

/* A leaf function, whose return address is in a register if the ABI has one for it. */
__attribute__((noinline)) static int leaf(int n) {
	__asm__ volatile(TRAP ::: "memory");
	return n + 1;
}

__attribute__((noinline)) static int deep(int n) {
	volatile int kept = n;
	if (n == 0)
		return leaf(1);
	return deep(n - 1) + kept;
}

static int compare(const void *a, const void *b) {
	raise(SIGUSR1);
	return *(const int *)a - *(const int *)b;
}

/* A frame of variable size, which needs a frame pointer. */
__attribute__((noinline)) static int variable(size_t n) {
	char *b = alloca(n);
	memset(b, 1, n);
	raise(SIGUSR1);
	return b[n / 2];
}

/* A realigned frame, whose CFA is loaded from memory on amd64. */
__attribute__((noinline)) static int aligned(size_t n) {
	_Alignas(64) volatile char b[64];
	char *more = alloca(n);
	memset(more, 1, n);
	b[0] = 1;
	raise(SIGUSR1);
	return b[0] + more[n / 2];
}

/* Handlers on an alternate stack, from which the walk continues in the interrupted code. On s390x, the kernel's frames
 * for the two handlers differ. */
static void nested(int signal) {
	(void)signal;
	raise(SIGUSR1);
	siglongjmp(after, 1);
}

static void nested_info(int signal, siginfo_t *info, void *context) {
	(void)info;
	(void)context;
	nested(signal);
}

__attribute__((noinline)) static int here(void) {
	struct sfw_regs regs;
	sfw_regs_here(&regs);
	struct sfw_frame frames[MAX];
	enum sfw_how end;
	size_t n = walk(PLAIN, MAX, &regs, frames, &end);
	struct chain peer = {0, {0}};
	_Unwind_Backtrace(add, &peer);
	/* Both begin in this function, at different pcs. */
	size_t same = 1;
	while (same < n && same < peer.n && frames[same].pc == peer.pc[same])
		same++;
	printf("%s: %s, end %d, start %d\n", place, same == n ? "equal" : "different", end,
		frames[n - 1].pc - (uint64_t)(uintptr_t)&_start < 0x80);
	return (int)n;
}

/* can_read returns whether the walker can read a word, and if so, expects the right value. */
static int can_read(struct sfw_process *p, const char *at) {
	uint64_t found = 0;
	errno = ERANGE;
	int done = sfw_process_read(p, (uint64_t)(uintptr_t)at, (unsigned char *)&found);
	if ((done && memcmp(at, &found, sizeof found) != 0) || errno != ERANGE)
		printf("read %llx, errno %d\n", (unsigned long long)found, errno);
	return done;
}

/* read_pages reads in the three pages of a mapping, of which only the second one is readable. */
static void read_pages(void) {
	enum { PAGE = 1 << 16 };
	static const int offsets[] = {PAGE - 8, PAGE - 4, PAGE, PAGE + 4092, 2 * PAGE - 8, 2 * PAGE - 4, 2 * PAGE};
	struct sfw_process p;
	char *b = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(&p, 0, sizeof p);
	memset(b, 42, 3 * PAGE);
	munmap(b, PAGE);
	mprotect(b + 2 * PAGE, PAGE, PROT_NONE);
	for (p.probe = 0; p.probe <= 1; p.probe++) {
		printf("probe %d:", p.probe);
		for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++)
			printf(" %d", can_read(&p, b + offsets[i]));
		printf("\n");
	}
}

/* Walks that share a cache with signal handlers, which interrupt them anywhere. */
static volatile sig_atomic_t interrupts, torn;

static void walk_cached(const struct sfw_regs *regs) {
	struct sfw_frame frames[MAX], again[MAX];
	enum sfw_how end, other_end;
	memset(frames, 0, sizeof frames);
	memset(again, 0, sizeof again);
	size_t n = walk(PLAIN, MAX, regs, frames, &end);
	if (walk(FEW_SLOTS, MAX, regs, again, &other_end) != n || end != other_end ||
		memcmp(frames, again, sizeof frames) != 0)
		torn++;
}

static void on_alarm(int signal, siginfo_t *info, void *context) {
	struct sfw_regs regs;
	(void)signal;
	(void)info;
	sfw_regs_of_context(&regs, context);
	walk_cached(&regs);
	interrupts++;
}

__attribute__((noinline)) static int interrupted(int n) {
	volatile int kept = n;
	if (n > 0)
		return interrupted(n - 1) + kept;
	struct sfw_regs regs;
	while (interrupts < 2000 && !torn) {
		sfw_regs_here(&regs);
		walk_cached(&regs);
	}
	return 1;
}

static void find_stack(struct sfw_range *r) {
	pthread_attr_t a;
	void *stack = NULL;
	size_t size = 0;
	if (pthread_getattr_np(pthread_self(), &a) != 0 || pthread_attr_getstack(&a, &stack, &size) != 0)
		abort();
	pthread_attr_destroy(&a);
	r->low = (uint64_t)(uintptr_t)stack;
	r->high = r->low + size;
}

int main(void) {
	find_stack(&process.stacks[0]);
	process.stacks[1].low = (uint64_t)(uintptr_t)other;
	process.stacks[1].high = process.stacks[1].low + sizeof other;
	stack_t stack = {other, 0, sizeof other};
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_sigaction = handler;
	a.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGILL, &a, NULL);
	a.sa_sigaction = NULL;
	a.sa_flags = SA_ONSTACK | SA_NODEFER;
	a.sa_handler = nested;
	sigaltstack(&stack, NULL);
	sigaction(SIGTERM, &a, NULL);
	a.sa_flags |= SA_SIGINFO;
	a.sa_sigaction = nested_info;
	sigaction(SIGHUP, &a, NULL);
	sfw_learn_bounds(&bounds);
	read_pages();
	setvbuf(stdout, NULL, _IOLBF, 0);
	volatile int sum = 0;
	place = "leaf";
	if (sigsetjmp(after, 1) == 0)
		sum += deep(5);
	place = "qsort";
	int numbers[2] = {2, 1};
	qsort(numbers, 2, sizeof *numbers, compare);
	place = "alloca";
	sum += variable(1000);
	place = "aligned";
	sum += aligned(1000);
	place = "here";
	sum += here();
	place = "nested";
	if (sigsetjmp(after, 1) == 0)
		raise(SIGTERM);
	place = "nested info";
	if (sigsetjmp(after, 1) == 0)
		raise(SIGHUP);
	/* The caller of a leaf function that is interrupted at its first instruction. */
	place = "nested leaf";
	sigaction(SIGILL, &a, NULL);
	if (sigsetjmp(after, 1) == 0)
		sum += deep(5);
	place = "interrupts";
	a.sa_flags = SA_SIGINFO | SA_RESTART;
	a.sa_sigaction = on_alarm;
	sigaction(SIGALRM, &a, NULL);
	const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &often, NULL);
	sum += interrupted(5);
	setitimer(ITIMER_REAL, &never, NULL);
	printf("interrupts: %s\n", torn ? "another chain" : "equal");
	return sum == 0;
}
