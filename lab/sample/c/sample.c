/*
 * Samples the program that it is preloaded into (LD_PRELOAD), or linked with: SIGPROF comes to each thread, and in its
 * handler the stack is walked by walker/sframe_walker.h, by _Unwind_Backtrace from there, and by the frame pointer. What
 * they find is compared, and counted in a file. For amd64 and glibc.
 *
 * Environment:
 *	SAMPLE_OUT	the file, which gets the counts at exit or after so many samples
 *	SAMPLE_MAX	the program ends (status 0) after so many
 *	SAMPLE_CLOCK	"timer" (default): a timer for each thread, which starts again when the handler is done;
 *			"itimer": setitimer(ITIMER_PROF), as often as the kernel's clock ticks
 *	SAMPLE_PERIOD	from one sample to the next, in nanoseconds (default 100000)
 *	SAMPLE_ONSTACK	the handler runs on the thread's alternate stack, as Go wants it
 */
#define _GNU_SOURCE
#define SFRAME_WALKER_PROCESS
#include "sframe_walker.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unwind.h>

enum {
	MAX_FRAMES = 512,
	NUM_TALLIES = 4096,
	CACHE = 1024, /* rows that each thread keeps */
	BINS = 4096, /* of ticks per frame */
	BIN = 4,
	ENTRY = 64 /* bytes of _start, at most */
};

/* Why a sample is listed. */
enum kind {
	BEHIND,  /* the walker's chain ends before the other one */
	AHEAD,   /* the other one ends before the walker's */
	DIFFER,  /* both found a frame, and not the same */
	NO_ROOT, /* both end at the same frame, and it is not where the stack begins */
	LOST,    /* _Unwind_Backtrace did not come to the interrupted code */
	CRASHED  /* _Unwind_Backtrace read memory that is not there */
};
static const char *const kinds[] = {"behind", "ahead", "differ", "no-root", "lost", "crashed"};

/* Samples of one kind at one place: that of the last frame that both found. */
struct tally {
	const char *file; /* as the dynamic linker names it */
	uint64_t offset;  /* of the pc in the file */
	uint64_t ours, theirs;
	uint64_t count;
	uint8_t kind, end;
};

static struct {
	atomic_flag busy;
	uint64_t samples, frames, peer_frames, fp_frames, equal, differ, behind, ahead, lost, crashed;
	uint64_t root, outermost, peer_root, fp_root, fp_wrong, interrupted_leaf, full;
	uint64_t ends[SFW_FULL + 1];
	uint64_t ticks[3][BINS]; /* per frame: the walker's, the same with a cache of rows, the other one's */
	uint64_t cache_differs;
	struct tally tallies[NUM_TALLIES];
	size_t num_tallies, more_tallies;
} sum;

static uint64_t max_samples = UINT64_MAX, period = 100000, entry, began_ticks, began_ns;
static const char *out;
static pid_t process;
static int by_itimer;
static volatile sig_atomic_t done;

struct thread {
	struct sfw_process walk;
	struct sfw_cache cache;
	struct sfw_cache_slot *slots;
	struct sfw_frame frames[MAX_FRAMES], again[MAX_FRAMES], by_fp[MAX_FRAMES];
	uint64_t peer[MAX_FRAMES];
	size_t num_peer;
	uint64_t root; /* the pc that the thread's stack begins with, for threads but the first */
	sigjmp_buf crash;
	volatile sig_atomic_t unwinding, ready;
	timer_t timer;
};
static __thread struct thread self __attribute__((tls_model("initial-exec")));

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *unused) {
	(void)unused;
	if (self.num_peer == MAX_FRAMES)
		return _URC_END_OF_STACK;
	self.peer[self.num_peer++] = _Unwind_GetIP(c);
	return _URC_NO_REASON;
}

/* Not to be inlined: the time is that of the calls from the handler on. */
__attribute__((noinline)) static int peer_chain(uint64_t *ticks) {
	self.num_peer = 0;
	self.unwinding = 1;
	if (sigsetjmp(self.crash, 0) != 0) {
		self.unwinding = 0;
		return 0;
	}
	uint64_t t = __builtin_ia32_rdtsc();
	_Unwind_Backtrace(add, NULL);
	*ticks = __builtin_ia32_rdtsc() - t;
	self.unwinding = 0;
	return 1;
}

static uint64_t ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void bin(int whose, uint64_t ticks, size_t frames) {
	uint64_t i = ticks / frames / BIN;
	sum.ticks[whose][i < BINS ? i : BINS - 1]++;
}

static void list(enum kind kind, enum sfw_how end, uint64_t pc, uint64_t ours, uint64_t theirs) {
	struct dl_find_object o;
	const char *file = "?";
	uint64_t offset = pc;
	if (_dl_find_object((void *)(uintptr_t)pc, &o) == 0) {
		file = o.dlfo_link_map->l_name;
		offset = pc - o.dlfo_link_map->l_addr;
	}
	for (size_t i = 0; i < sum.num_tallies; i++) {
		struct tally *t = &sum.tallies[i];
		if (t->kind == kind && t->end == end && t->offset == offset && t->file == file) {
			t->count++;
			return;
		}
	}
	if (sum.num_tallies == NUM_TALLIES) {
		sum.more_tallies++;
		return;
	}
	struct tally *t = &sum.tallies[sum.num_tallies++];
	t->file = file;
	t->offset = offset;
	t->ours = ours;
	t->theirs = theirs;
	t->count = 1;
	t->kind = (uint8_t)kind;
	t->end = (uint8_t)end;
}

static int is_root(uint64_t pc) { return pc - entry < ENTRY || (self.root != 0 && pc == self.root); }

static void say(FILE *f, const char *name, uint64_t value) { fprintf(f, "%s %llu\n", name, (unsigned long long)value); }

static uint64_t median(const uint64_t *bins) {
	uint64_t all = 0, below = 0;
	for (int i = 0; i < BINS; i++)
		all += bins[i];
	for (int i = 0; i < BINS; i++)
		if ((below += bins[i]) * 2 >= all)
			return (uint64_t)i * BIN + BIN / 2;
	return 0;
}

/* report writes what was counted. It may be called in a handler, at the end of the process: what it interrupts never goes
 * on. The file's buffer is static, so that nothing is allocated but the FILE, which was made at the begin. */
static FILE *result;
static void report(void) {
	static char maps[1 << 18];
	FILE *f = result;
	say(f, "samples", sum.samples);
	say(f, "frames", sum.frames);
	say(f, "peer-frames", sum.peer_frames);
	say(f, "fp-frames", sum.fp_frames);
	say(f, "equal", sum.equal);
	say(f, "differ", sum.differ);
	say(f, "behind", sum.behind);
	say(f, "ahead", sum.ahead);
	say(f, "lost", sum.lost);
	say(f, "crashed", sum.crashed);
	say(f, "root", sum.root);
	say(f, "outermost", sum.outermost);
	say(f, "peer-root", sum.peer_root);
	say(f, "fp-root", sum.fp_root);
	say(f, "fp-wrong", sum.fp_wrong);
	say(f, "full", sum.full);
	say(f, "cache-differs", sum.cache_differs);
	double tick = (double)(ns() - began_ns) / (double)(__builtin_ia32_rdtsc() - began_ticks);
	fprintf(f, "ns %.1f\n", (double)median(sum.ticks[0]) * tick);
	fprintf(f, "cache-ns %.1f\n", (double)median(sum.ticks[1]) * tick);
	fprintf(f, "peer-ns %.1f\n", (double)median(sum.ticks[2]) * tick);
	for (int i = 0; i <= SFW_FULL; i++)
		if (sum.ends[i] > 0)
			fprintf(f, "end %d %llu\n", i, (unsigned long long)sum.ends[i]);
	say(f, "unlisted", sum.more_tallies);
	for (size_t i = 0; i < sum.num_tallies; i++) {
		const struct tally *t = &sum.tallies[i];
		fprintf(f, "tally %s %d %llu %#llx %#llx %#llx %s\n", kinds[t->kind], t->end, (unsigned long long)t->count,
			(unsigned long long)t->offset, (unsigned long long)t->ours, (unsigned long long)t->theirs, t->file);
	}
	int fd = open("/proc/self/maps", O_RDONLY);
	size_t n = 0;
	for (ssize_t got; n < sizeof maps && (got = read(fd, maps + n, sizeof maps - n)) > 0;)
		n += (size_t)got;
	close(fd);
	fwrite(maps, 1, n, f);
	fflush(f);
}

static void again(void) {
	struct itimerspec t = {{0, 0}, {(time_t)(period / 1000000000), (long)(period % 1000000000)}};
	if (self.ready && !by_itimer)
		timer_settime(self.timer, 0, &t, NULL);
}

static void lock(void) {
	while (atomic_flag_test_and_set_explicit(&sum.busy, memory_order_acquire))
		;
}

static void count(size_t n, enum sfw_how end, size_t from, int whole, size_t fp) {
	const struct sfw_frame *f = self.frames;
	size_t peers = self.num_peer - from, same = 0;
	sum.samples++;
	sum.ends[end]++;
	sum.frames += n;
	sum.outermost += end == SFW_OUTERMOST;
	sum.full += end == SFW_FULL;
	int root = is_root(f[n - 1].pc);
	sum.root += (uint64_t)root;
	if (fp > 0) {
		size_t right = 0;
		while (right < n && right < fp && f[right].pc == self.by_fp[right].pc)
			right++;
		sum.fp_frames += fp;
		sum.fp_root += is_root(self.by_fp[fp - 1].pc) && right == n;
		sum.fp_wrong += right < fp; /* a frame that the walker did not find there */
	}
	if (!whole || from == self.num_peer) {
		*(whole ? &sum.lost : &sum.crashed) += 1;
		list(whole ? LOST : CRASHED, end, f[0].pc, f[0].pc, 0);
		return;
	}
	sum.peer_frames += peers;
	sum.peer_root += (uint64_t)is_root(self.peer[self.num_peer - 1]);
	while (same < n && same < peers && f[same].pc == self.peer[from + same])
		same++;
	uint64_t last = f[same > 0 ? same - 1 : 0].pc;
	if (same < n && same < peers) {
		sum.differ++;
		list(DIFFER, end, last, f[same].pc, self.peer[from + same]);
	} else if (n < peers && end != SFW_FULL) {
		sum.behind++;
		list(BEHIND, end, last, 0, self.peer[from + same]);
	} else if (n > peers && self.num_peer < MAX_FRAMES) {
		sum.ahead++;
		list(AHEAD, end, last, f[same].pc, 0);
	} else {
		sum.equal++;
		/* The last frame that is in a file. */
		struct dl_find_object o;
		while (same > 1 && _dl_find_object((void *)(uintptr_t)f[same - 1].pc, &o) != 0)
			same--;
		if (!root && end != SFW_FULL)
			list(NO_ROOT, end, f[same - 1].pc, same < n ? f[same].pc : 0, f[0].pc);
	}
}

static void on_sample(int signal, siginfo_t *info, void *context) {
	(void)signal;
	(void)info;
	if (done || !self.ready || getpid() != process)
		return;
	int before = errno;
	struct sfw_regs regs, start;
	sfw_regs_of_context(&start, context);
	uint64_t ticks[3] = {0, 0, 0}, t;
	/* Goroutines have stacks of their own, from here up. */
	enum { GOROUTINE = 1 << 16 };
	self.walk.stacks[1].low = start.r[7];
	self.walk.stacks[1].high = start.r[7] + GOROUTINE;
	enum sfw_how end = SFW_OK, other = SFW_OK;
	size_t n = 0, kept = 0;
	int whole = 0;
	/* Who is not the first finds the stack in the processor's cache: they take turns. */
	static volatile unsigned turns;
	unsigned turn = turns++;
	for (unsigned i = 0; i < 3; i++) {
		switch ((turn + i) % 3) {
		case 0:
			regs = start;
			self.walk.cache = NULL;
			t = __builtin_ia32_rdtsc();
			n = sfw_process_walk(&self.walk, &regs, self.frames, MAX_FRAMES, &end);
			ticks[0] = __builtin_ia32_rdtsc() - t;
			break;
		case 1:
			regs = start;
			self.walk.cache = &self.cache;
			t = __builtin_ia32_rdtsc();
			kept = sfw_process_walk(&self.walk, &regs, self.again, MAX_FRAMES, &other);
			ticks[1] = __builtin_ia32_rdtsc() - t;
			break;
		default:
			whole = peer_chain(&ticks[2]);
		}
	}
	int differs = kept != n || other != end;
	for (size_t i = 0; i < n && !differs; i++)
		differs = self.frames[i].pc != self.again[i].pc;
	size_t all = self.num_peer, from = 0;
	while (self.num_peer > 0 && self.peer[self.num_peer - 1] == 0)
		self.num_peer--; /* the mark of the end */
	while (from < self.num_peer && self.peer[from] != start.pc)
		from++;
	/* By the frame pointer alone. */
	const struct sfw_space space = {sfw_process_read, sfw_process_section, &self.walk, 0, NULL, SFW_HOST_ABI, 1, 0, NULL};
	size_t fp = 0;
	regs = start;
	do {
		self.by_fp[fp++].pc = regs.pc;
	} while (fp < MAX_FRAMES && sfw_step_fp(SFW_HOST_ABI, &regs, &space) == SFW_FRAME_POINTER);

	lock();
	if (sum.samples < max_samples) {
		bin(0, ticks[0], n);
		bin(1, ticks[1], n);
		if (whole && all > 0)
			bin(2, ticks[2], all);
		sum.cache_differs += (uint64_t)differs;
		count(n, end, from, whole, fp);
	}
	if (sum.samples >= max_samples) {
		done = 1; /* and nobody gets the lock again */
		report();
		_exit(0);
	}
	atomic_flag_clear_explicit(&sum.busy, memory_order_release);
	again();
	errno = before;
}

/* A crash of _Unwind_Backtrace is one sample lost; any other is the program's. */
static void on_crash(int signal, siginfo_t *info, void *context) {
	(void)info;
	(void)context;
	if (self.unwinding)
		siglongjmp(self.crash, 1);
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_handler = SIG_DFL;
	syscall(SYS_rt_sigaction, signal, &a, NULL, 8);
}

static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*real_pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

static void begin_thread(void) {
	struct sigevent e;
	memset(&e, 0, sizeof e);
	e.sigev_notify = SIGEV_THREAD_ID;
	e.sigev_signo = SIGPROF;
	e._sigev_un._tid = (pid_t)syscall(SYS_gettid);
	if (!by_itimer && timer_create(CLOCK_MONOTONIC, &e, &self.timer) != 0)
		return;
	self.slots = calloc(CACHE, sizeof *self.slots);
	self.cache.slots = self.slots;
	self.cache.num = self.slots != NULL ? CACHE : 0;
	self.ready = 1;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGPROF);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	again();
}

#ifndef SAMPLE_STATIC
struct start {
	void *(*routine)(void *);
	void *argument;
};

static void *thread_main(void *argument) {
	struct start s = *(struct start *)argument;
	free(argument);
	/* The last frame of the chain is where all threads begin. */
	self.num_peer = 0;
	_Unwind_Backtrace(add, NULL);
	while (self.num_peer > 0 && self.peer[self.num_peer - 1] == 0)
		self.num_peer--;
	if (self.num_peer > 0)
		self.root = self.peer[self.num_peer - 1];
	sfw_stack_of_thread(&self.walk.stacks[0]);
	begin_thread();
	void *value = s.routine(s.argument);
	if (self.ready) {
		self.ready = 0;
		if (!by_itimer)
			timer_delete(self.timer);
		free(self.slots);
	}
	return value;
}

__attribute__((visibility("default"))) int pthread_create(
	pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument) {
	struct start *s = malloc(sizeof *s);
	if (s == NULL)
		return EAGAIN;
	s->routine = routine;
	s->argument = argument;
	if (real_pthread_create == NULL)
		*(void **)&real_pthread_create = dlsym(RTLD_NEXT, "pthread_create");
	int err = real_pthread_create(thread, attributes, thread_main, s);
	if (err != 0)
		free(s);
	return err;
}

/* Programs that handle all signals, as those of Go do, get all but two. */
__attribute__((visibility("default"))) int sigaction(int signal, const struct sigaction *a, struct sigaction *old) {
	if (real_sigaction == NULL)
		*(void **)&real_sigaction = dlsym(RTLD_NEXT, "sigaction");
	if (out != NULL && (signal == SIGPROF || signal == SIGSEGV))
		a = NULL;
	return real_sigaction(signal, a, old);
}
#else
static void find_real(void) { real_sigaction = sigaction; }
#endif

__attribute__((destructor)) static void finish(void) {
	if (out == NULL || done || getpid() != process)
		return;
	lock();
	done = 1;
	report();
}

__attribute__((constructor)) static void begin(void) {
	const char *v = getenv("SAMPLE_OUT");
	if (v == NULL)
		return;
#ifdef SAMPLE_STATIC
	find_real();
#else
	*(void **)&real_sigaction = dlsym(RTLD_NEXT, "sigaction");
#endif
	process = getpid();
	result = fopen(v, "we");
	if (result == NULL) {
		perror(v);
		_exit(99);
	}
	static char buffer[1 << 16];
	setvbuf(result, buffer, _IOFBF, sizeof buffer);
	if ((v = getenv("SAMPLE_MAX")) != NULL)
		max_samples = strtoull(v, NULL, 10);
	if ((v = getenv("SAMPLE_PERIOD")) != NULL)
		period = strtoull(v, NULL, 10);
	by_itimer = (v = getenv("SAMPLE_CLOCK")) != NULL && strcmp(v, "itimer") == 0;
	entry = getauxval(AT_ENTRY);
	began_ns = ns();
	began_ticks = __builtin_ia32_rdtsc();
	self.num_peer = 0;
	_Unwind_Backtrace(add, NULL); /* what it does once is done */
	struct sigaction a;
	memset(&a, 0, sizeof a);
	a.sa_flags = SA_SIGINFO | SA_RESTART | (getenv("SAMPLE_ONSTACK") != NULL ? SA_ONSTACK : 0);
	a.sa_sigaction = on_sample;
	real_sigaction(SIGPROF, &a, NULL);
	a.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
	a.sa_sigaction = on_crash;
	real_sigaction(SIGSEGV, &a, NULL);
	/* Programs that this one runs are not sampled. */
	out = getenv("SAMPLE_OUT");
	sfw_stack_of_thread(&self.walk.stacks[0]);
	unsetenv("LD_PRELOAD");
	unsetenv("SAMPLE_OUT");
	begin_thread();
	if (by_itimer) {
		struct itimerval t = {{0, (long)(period / 1000)}, {0, (long)(period / 1000)}};
		setitimer(ITIMER_PROF, &t, NULL);
	}
}
