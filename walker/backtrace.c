/*
 * Stack traces by .sframe for programs that are not changed: backtrace of libc, and _Unwind_Backtrace of libgcc. The
 * other files of libsframe-backtrace: libunwind.c (its cursors), files.c (where sections are), stacks.c (where stacks
 * end), and sframe_walker.h (the walk). README.md has measurements.
 *
 * function                          in a handler   locks          system calls   in threads
 * backtrace, unw_backtrace,
 *   _Unwind_Backtrace               yes            none           none           yes
 *   at a frame without a section    yes            libgcc's       libgcc's       yes
 * _Unwind_GetIP, GetIPInfo,
 *   GetCFA, GetGR,
 *   GetLanguageSpecificData         yes            none           none           yes
 * _Unwind_GetRegionStart            yes            libgcc's       none           yes
 * unw_init_local, init_local2,
 *   step, get_reg                   yes            none           none           a cursor: in one
 *   at a frame without a section    yes            libunwind's    libunwind's    a cursor: in one
 * other functions of libunwind      as libunwind's
 * sigaltstack                       yes            none           its own        yes
 * makecontext                       no             none           none           yes
 * dlclose                           no             the linker's   its own        yes
 * the constructor, and what runs
 *   when a file is loaded           no             the linker's   reads sections yes
 *
 * "At a frame without a section" never is code that a signal interrupted, or code in no file: there, a trace ends. A
 * handler may leave a trace by longjmp. No function changes errno, is a cancellation point, or allocates by malloc, but
 * dlclose, makecontext and sigaltstack as libc's do. The first call prepares the library, if its constructor has not
 * run: a call in a constructor of another file, which then locks and allocates as dlsym does.
 *
 * Licence: BSD 3-Clause, as the project that this file is a part of.
 */
#include "backtrace.h"

#include <execinfo.h>
#include <stdlib.h>
#include <unwind.h>

typedef struct _Unwind_Context unwind_context;

/* The functions of others that are called. */
#define OF_LIBGCC(of) \
	of(_Unwind_Reason_Code, _Unwind_Backtrace, _Unwind_Trace_Fn trace, void *argument) \
	of(_Unwind_Ptr, _Unwind_GetIP, unwind_context *c) \
	of(_Unwind_Ptr, _Unwind_GetIPInfo, unwind_context *c, int *before) \
	of(_Unwind_Word, _Unwind_GetCFA, unwind_context *c) \
	of(_Unwind_Word, _Unwind_GetGR, unwind_context *c, int reg) \
	of(_Unwind_Ptr, _Unwind_GetRegionStart, unwind_context *c) \
	of(void *, _Unwind_GetLanguageSpecificData, unwind_context *c)
#define ALL(of) OF_LIBGCC(of) of(int, dlclose, void *handle)
ALL(NEXT_OF)

/* Where libgcc's functions are that continue a trace: no other unwinder's, which next may be. */
static struct {
	_Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
	_Unwind_Ptr (*ip)(unwind_context *, int *);
	_Unwind_Word (*cfa)(unwind_context *);
	_Unwind_Word (*gr)(unwind_context *, int);
} libgcc;

enum sframe_mode sframe_otherwise;

/*
 * What threads share: rows by pc. They hold for a generation. While dlclose runs, walks keep nothing: the code of
 * destructors is still there.
 */
enum { NUM_SLOTS = 1 << 14 };
static struct sfw_cache_slot slots[NUM_SLOTS] __attribute__((aligned(64)));
static uint64_t generation;
static unsigned closing;

PUBLIC int EXPORTED(dlclose)(void *handle) {
	sframe_ready();
	__atomic_add_fetch(&closing, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
	int failed = NEXT(dlclose)(handle);
	__atomic_sub_fetch(&closing, 1, __ATOMIC_SEQ_CST);
	return failed;
}

/*
 * The memory that a walk reads: of stacks, from the frame on where it comes to them. Where the end of a stack is not
 * known (fibers that are no contexts of makecontext, alternate stacks that are not set by sigaltstack), the frames of
 * functions that run are read as the processor reads them, within a window that moves with them. Registers that a
 * signal has interrupted may have any value: they are only read on stacks that are known.
 */
enum { WINDOW = 1 << 16 };

/* set_stack makes the stack that sp is in the one that is read first, and returns whether it could. */
static int set_stack(struct walk *w, uint64_t sp) {
	struct sfw_range stack;
	int known = sframe_stack(sp, &stack);
	if (!known && (w->signal || sframe_otherwise == BY_FRAME_POINTER)) /* which may be anything without rows */
		return 0;
	if (!w->assumed)
		w->process.stacks[1] = w->process.stacks[0];
	w->process.stacks[0] = known ? stack : (struct sfw_range){sp, sp + WINDOW};
	w->assumed = !known;
	return 1;
}

void sframe_start_walk(struct walk *w, uint64_t sp) {
	memset(&w->process, 0, sizeof w->process);
	w->process.how = SFW_NO_SECTION;
	w->assumed = w->signal = w->begins = 0;
	set_stack(w, sp);
	w->cache = (struct sfw_cache){slots, NUM_SLOTS, __atomic_load_n(&generation, __ATOMIC_SEQ_CST)};
	int kept = __atomic_load_n(&closing, __ATOMIC_SEQ_CST) == 0;
	w->space = (struct sfw_space){
		sfw_process_read, sframe_section, &w->process, 0, kept ? &w->cache : NULL, SFW_HOST_ABI,
		sframe_otherwise == BY_FRAME_POINTER, SFW_NUM_STACKS, w->process.stacks,
	};
}

/* note_signals sets w->signal if one of the frames is of interrupted code, and then assumes nothing of stacks. */
static void note_signals(
	struct walk *w, const struct sfw_regs *regs, const struct sfw_frame *frames, size_t n) {
	uint64_t sp;
	for (size_t i = 0; i < n; i++)
		w->signal |= frames[i].interrupted || frames[i].how == SFW_SIGNAL;
	w->signal |= regs->interrupted || regs->how == SFW_SIGNAL;
	if (!w->signal || !w->assumed)
		return;
	w->process.stacks[0] = (struct sfw_range){0, 0};
	w->assumed = 0;
	if (sfw_get(regs, sfw_abi_of(SFW_HOST_ABI)->sp, &sp))
		set_stack(w, sp);
}

/* sframe_next is sfw_walk, and goes on where the walk comes to another stack, by the stack pointer or by the frame
 * pointer. */
size_t sframe_next(struct walk *w, struct sfw_regs *regs, struct sfw_frame *frames, size_t max, enum sfw_how *end) {
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	uint64_t at = 0;
	unsigned tries = 0;
	size_t n = 0;
	*end = SFW_FULL;
	while (n < max) {
		w->process.file.begin = w->process.file.end = 0; /* sfw_walk begins without a section */
		size_t got = sfw_walk(&w->space, regs, frames + n, w->assumed ? 1 : max - n, end);
		note_signals(w, regs, frames + n, got);
		n += got;
		tries = got > 1 || *end == SFW_FULL ? 0 : tries;
		if (*end == SFW_FULL)
			continue;
		int moved = 0;
		while (*end == SFW_BAD_MEMORY && tries < 2 && !moved)
			moved = sfw_get(regs, tries++ == 0 ? a->sp : a->fp, &at) && set_stack(w, at);
		if (!moved)
			break;
		n--; /* the last frame once more */
	}
	w->begins = *end == SFW_NO_ROW && sfw_get(regs, a->sp, &at) && sframe_context_begins(at);
	return n;
}

int sframe_may_leave(const struct walk *w, const struct sfw_regs *regs) {
	struct dl_find_object o;
	return sframe_otherwise == BY_DWARF && !w->signal && !w->begins && !regs->interrupted &&
		_dl_find_object((void *)(uintptr_t)(regs->pc - 1), &o) == 0;
}

/*
 * Traces: of backtrace, into an array, or of _Unwind_Backtrace, by calls.
 */
struct trace {
	struct sfw_regs regs; /* of the next frame */
	struct walk walk;
	void **array;
	int size, num;
	_Unwind_Trace_Fn call;
	void *argument;
	/* For libgcc's unwinder: whether it has come to the frame of regs, to the end, or to a file with a section; and the
	 * number of its steps until it is not left again, as it begins at the top each time. */
	uint8_t found, ended, back, stopped;
	unsigned steps;
};

const uint64_t sframe_magic[2] = {0x7366726d2d627472, 0xb1a5edfaceb0a710};
struct context {
	uint64_t magic[2];
	struct sfw_frame frame;
};

static const struct sfw_frame *frame_of(unwind_context *c) {
	const struct context *ours = (const struct context *)(const void *)c;
	return memcmp(ours->magic, sframe_magic, sizeof sframe_magic) == 0 ? &ours->frame : NULL;
}

/* put adds a frame to the trace. */
static void put(struct trace *t, const struct sfw_frame *f) {
	if (t->call == NULL) {
		t->array[t->num++] = (void *)(uintptr_t)f->pc;
		t->stopped = t->num == t->size;
		return;
	}
	struct context c = {{sframe_magic[0], sframe_magic[1]}, *f};
	t->stopped = t->call((unwind_context *)(void *)&c, t->argument) != _URC_NO_REASON;
}

/* on_frame is called for each frame by libgcc. It does not let libgcc step from a signal trampoline. */
static _Unwind_Reason_Code on_frame(unwind_context *c, void *argument) {
	enum { MAX_STEPS = 64 };
	struct trace *t = argument;
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	int interrupted = 0;
	struct sfw_frame f;
	f.pc = libgcc.ip(c, &interrupted);
	f.sp = libgcc.cfa(c) - (uint64_t)(int64_t)a->bias;
	f.how = SFW_OK;
	f.interrupted = 0;
	if (interrupted)
		return _URC_NORMAL_STOP;
	t->steps++;
	if (!t->found) {
		uint64_t sp;
		t->found = f.pc == t->regs.pc && sfw_get(&t->regs, a->sp, &sp) && sp == f.sp;
		return _URC_NO_REASON;
	}
	if (f.pc == 0) {
		t->ended = 1;
		return _URC_NORMAL_STOP;
	}
	if (sframe_statistics != NULL)
		sframe_count(t->regs.pc, 0);
	t->regs.pc = f.pc;
	t->regs.interrupted = 0;
	t->regs.how = SFW_OK;
	t->regs.valid = 0;
	t->regs.floor = 0;
	sfw_set(&t->regs, a->sp, f.sp);
	struct sfw_section s;
	int described = sframe_section(&t->walk.process, f.pc - 1, &s) == SFW_OK; /* and finds the file of the code */
	if ((described && t->steps < MAX_STEPS) || sfw_trampoline(SFW_HOST_ABI, f.pc, &t->walk.space) != 0) {
		sfw_set(&t->regs, a->fp, libgcc.gr(c, a->fp));
		t->back = 1;
		return _URC_NORMAL_STOP;
	}
	put(t, &f);
	return t->stopped ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

/*
 * The last trace of a thread. The next one mostly has the same outer frames: they are, if the words that lead from one
 * to the next are unchanged. To compare these takes 3.8 ns a frame where rows of the cache take 8, and misses
 * the processor's cache less: a program under heaptrack takes four fifths of the time without this (3 runs, 2026-11).
 */
enum { MAX_STEPS_KEPT = 256, NUM_MEMORIES = 64, NOT_SAVED = -1 };
struct step {
	uint64_t pc, sp, fp;
	int32_t ra, saved; /* where RA and FP are saved, from SP, in bytes */
};
static struct memory {
	unsigned busy; /* by another thread, or a walk that this one interrupts: then there is no memory */
	unsigned num, misses, pause; /* misses: traces in a row with less than half of their frames in the memory */
	uint64_t generation;
	struct step steps[MAX_STEPS_KEPT]; /* the outermost first */
	struct step fresh[MAX_STEPS_KEPT]; /* of this trace, the innermost first */
} memories[NUM_MEMORIES];

/* same_steps puts the frames of the memory from the i-th on as long as they are those of the stack, and returns the
 * number of the last one, which is not put. */
static unsigned same_steps(struct trace *t, const struct memory *m, unsigned i, uint64_t low, uint64_t last) {
	for (; i > 0 && !t->stopped; i--) {
		const struct step *s = &m->steps[i], *next = s - 1;
		uint64_t ra = s->sp + (uint64_t)(int64_t)s->ra, fp = s->sp + (uint64_t)(int64_t)s->saved, value = s->fp;
		if (ra - low > last || sfw_load(ra) != next->pc)
			break;
		if (s->saved != NOT_SAVED) {
			if (fp - low > last)
				break;
			value = sfw_load(fp);
		}
		if (value != next->fp)
			break;
		t->array[t->num++] = (void *)(uintptr_t)s->pc;
		t->stopped = t->num == t->size;
	}
	return i;
}

/* known_frames puts frames from t->regs on into the array: first those with cached rows, and then those of the memory.
 * If traces have little in common, most do not look there: a frame of 256 functions at random takes 10 ns, and 15
 * otherwise (2026-11). */
__attribute__((noinline)) static void known_frames(struct trace *t, struct memory *m) {
	enum { MISSES = 4, PAUSE = 16 };
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	const struct sfw_cache cache = t->walk.cache;
	struct sfw_fast f = {t->regs.pc, t->regs.r[a->sp], t->regs.r[a->fp], 0, 0, 0, 0, 0};
	const struct sfw_range *stack = sfw_stack_of(t->walk.process.stacks, SFW_NUM_STACKS, f.sp);
	if (stack == NULL || stack->high - stack->low > INT32_MAX) /* distances in it fit into a step */
		return;
	f.low = stack->low;
	f.last = stack->high - stack->low - 8;
	const int looks = m->misses < MISSES || ++m->pause % PAUSE < 2; /* one that fills it, and one that compares */
	unsigned known = looks && m->generation == cache.generation ? m->num : 0, num = 0, from = 0;
	while (!t->stopped && num < MAX_STEPS_KEPT - 1) {
		while (known > 0 && m->steps[known - 1].sp < f.sp)
			known--;
		const struct step *old = known > 0 ? &m->steps[known - 1] : NULL;
		if (old != NULL && old->sp == f.sp && old->pc == f.pc && old->fp == f.fp) {
			unsigned i = same_steps(t, m, known - 1, f.low, f.last);
			f.pc = m->steps[i].pc;
			f.sp = m->steps[i].sp;
			f.fp = m->steps[i].fp;
			if (i == 0 || t->stopped || num + known > MAX_STEPS_KEPT) {
				from = known; /* these stay in the memory */
				break;
			}
			while (--known > i) /* from the i-th on, there are other callers */
				m->fresh[num++] = m->steps[known];
		}
		struct step *s = &m->fresh[num];
		const uint64_t pc = f.pc, sp = f.sp, row = sfw_cached(&cache, pc - 1);
		num += looks != 0;
		*s = (struct step){pc, sp, f.fp, 0, NOT_SAVED};
		if ((row & (SFW_KEPT_SIGNED | SFW_KEPT_CFA_DEREF)) != 0 ||
			!sfw_fast_step(&t->walk.space, &f, row, (uint64_t)(int64_t)a->bias))
			break;
		s->ra = (int32_t)(f.ra_at - sp);
		if (f.fp_at != 0)
			s->saved = (int32_t)(f.fp_at - sp);
		t->array[t->num++] = (void *)(uintptr_t)pc;
		t->stopped = t->num == t->size;
	}
	if (!t->stopped && sfw_cached(&cache, f.pc - 1) == SFW_KEPT_OUTERMOST) {
		t->array[t->num++] = (void *)(uintptr_t)f.pc;
		t->ended = 1;
	}
	sfw_regs_of_caller(&t->regs, f.pc, f.sp, f.fp);
	if (!looks)
		return;
	m->misses = from >= num ? 0 : m->misses + 1;
	m->num = from + num <= MAX_STEPS_KEPT ? from + num : 0;
	for (unsigned i = from; i < m->num; i++)
		m->steps[i] = m->fresh[m->num - 1 - i];
	m->generation = cache.generation;
}

/* count_frames counts the frames that a walk has found. The next one's how says how it was found. */
__attribute__((noinline)) static void count_frames(
	const struct sfw_frame *frames, size_t n, enum sfw_how end, const struct sfw_regs *next) {
	for (size_t i = 0; i < n; i++) {
		unsigned how = i + 1 < n ? frames[i + 1].how : end == SFW_FULL ? next->how : (unsigned)end;
		if (how == SFW_SFRAME || how == SFW_SIGNAL || how == SFW_OUTERMOST || how == SFW_ZERO)
			sframe_count(frames[i].pc, 1);
		else if (how == SFW_FRAME_POINTER || sframe_otherwise != BY_DWARF)
			sframe_count(frames[i].pc, 0);
	}
}

/* put_all adds frames to the trace. A call for each would take a fifth of the time of a trace into an array. */
static void put_all(struct trace *t, const struct sfw_frame *frames, size_t n) {
	size_t i = 0;
	if (t->call == NULL) {
		size_t num = (size_t)(t->size - t->num) < n ? (size_t)(t->size - t->num) : n;
		for (; i < num; i++)
			t->array[t->num + (int)i] = (void *)(uintptr_t)frames[i].pc;
		t->num += (int)num;
		t->stopped = t->num == t->size;
		return;
	}
	for (; i < n && !t->stopped; i++)
		put(t, &frames[i]);
}

/* take_trace puts all frames, from that of the caller of a function here on, which has this CFA. It is inlined, as
 * alternate stacks are small. */
__attribute__((always_inline)) static inline void take_trace(struct trace *t, void *pc, uint64_t sp, uint64_t fp) {
	enum { CHUNK = SFW_HOST_ABI == SFW_AMD64 ? 8 : 3 }; /* what fits into 1.5 KiB of an alternate stack */
	struct sfw_frame frames[CHUNK];
	enum sfw_how end = SFW_FULL;
	sframe_ready();
	t->stopped = t->ended = 0;
	t->steps = 0;
	sfw_regs_of_caller(&t->regs, (uint64_t)(uintptr_t)pc, sp, fp);
	sframe_start_walk(&t->walk, sp);
	struct memory *m = &memories[((uint64_t)(uintptr_t)pthread_self() >> 12) % NUM_MEMORIES];
	if (t->call == NULL && sframe_statistics == NULL && t->walk.space.cache != NULL &&
		!__atomic_exchange_n(&m->busy, 1, __ATOMIC_ACQUIRE)) {
		known_frames(t, m);
		__atomic_store_n(&m->busy, 0, __ATOMIC_RELEASE);
	}
	while (!t->stopped && !t->ended) {
		size_t n = sframe_next(&t->walk, &t->regs, frames, CHUNK, &end);
		t->ended = end == SFW_OUTERMOST || end == SFW_ZERO;
		if (sframe_statistics != NULL)
			count_frames(frames, n, end, &t->regs);
		put_all(t, frames, n);
		if (t->stopped)
			return;
		t->found = t->back = 0;
		if (end != SFW_FULL && !t->ended && libgcc.backtrace != NULL && sframe_may_leave(&t->walk, &t->regs))
			libgcc.backtrace(on_frame, t);
		if (end != SFW_FULL && !t->back)
			break;
	}
	if (t->ended && t->call != NULL) {
		frames[0] = (struct sfw_frame){0, 0, SFW_OUTERMOST, 0};
		put_all(t, frames, 1);
	}
}

/* ENTRY defines a function of two arguments, which calls another one with the caller's stack and frame pointer, too.
 * The frame pointer is lost as soon as C begins. */
#if defined(__x86_64__)
#define ENTER(from, to) "endbr64\n\tlea 8(%rsp), %rdx\n\tmov %rbp, %rcx\n\tjmp " to "\n"
#elif defined(__aarch64__)
#define ENTER(from, to) "hint #34\n\tmov x2, sp\n\tmov x3, x29\n\tb " to "\n"
#elif defined(__s390x__)
#define ENTER(from, to) "lgr %r4, %r15\n\tlgr %r5, %r11\n\tjg " to "\n"
#endif
#define ENTRY_OF(from, to) \
	__asm__(".text\n.globl " from "\n.type " from ", %function\n" from ":\n\t.cfi_startproc\n\t" ENTER(from, to) \
		"\t.cfi_endproc\n.size " from ", . - " from "\n");
#define ENTRY(name, to) ENTRY_OF(TEXT(EXPORTED(name)), to)

__attribute__((used, visibility("hidden"))) int sframe_backtrace(void **array, int size, uint64_t sp, uint64_t fp);
int sframe_backtrace(void **array, int size, uint64_t sp, uint64_t fp) {
	struct trace t;
	if (size <= 0)
		return 0;
	t.array = array;
	t.size = size;
	t.call = NULL;
	t.num = 0;
	take_trace(&t, __builtin_return_address(0), sp, fp);
	return t.num;
}
ENTRY(backtrace, "sframe_backtrace")
ENTRY(unw_backtrace, "sframe_backtrace")

__attribute__((used, visibility("hidden"))) _Unwind_Reason_Code sframe_unwind_backtrace(
	_Unwind_Trace_Fn call, void *argument, uint64_t sp, uint64_t fp);
_Unwind_Reason_Code sframe_unwind_backtrace(_Unwind_Trace_Fn call, void *argument, uint64_t sp, uint64_t fp) {
	struct trace t;
	t.call = call;
	t.argument = argument;
	take_trace(&t, __builtin_return_address(0), sp, fp);
	return t.stopped ? _URC_FATAL_PHASE1_ERROR : _URC_END_OF_STACK;
}
ENTRY(_Unwind_Backtrace, "sframe_unwind_backtrace")

PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetIP)(unwind_context *c) {
	const struct sfw_frame *f = frame_of(c);
	return f != NULL ? f->pc : NEXT(_Unwind_GetIP)(c);
}

PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetIPInfo)(unwind_context *c, int *before) {
	const struct sfw_frame *f = frame_of(c);
	if (f == NULL)
		return NEXT(_Unwind_GetIPInfo)(c, before);
	*before = f->interrupted != 0;
	return f->pc;
}

PUBLIC _Unwind_Word EXPORTED(_Unwind_GetCFA)(unwind_context *c) {
	const struct sfw_frame *f = frame_of(c);
	return f != NULL ? f->sp + (uint64_t)(int64_t)sfw_abi_of(SFW_HOST_ABI)->bias : NEXT(_Unwind_GetCFA)(c);
}

/* Of the registers SFrame knows few, and frames only the stack pointer. */
PUBLIC _Unwind_Word EXPORTED(_Unwind_GetGR)(unwind_context *c, int reg) {
	const struct sfw_frame *f = frame_of(c);
	if (f == NULL)
		return NEXT(_Unwind_GetGR)(c, reg);
	return reg == sfw_abi_of(SFW_HOST_ABI)->sp ? f->sp : 0;
}

/* FDEs of SFrame may be of several functions: where one begins, the CFI says. */
PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetRegionStart)(unwind_context *c) {
	const struct sfw_frame *f = frame_of(c);
	if (f == NULL)
		return NEXT(_Unwind_GetRegionStart)(c);
	return (_Unwind_Ptr)_Unwind_FindEnclosingFunction((void *)(uintptr_t)(f->pc + (f->interrupted != 0)));
}

PUBLIC void *EXPORTED(_Unwind_GetLanguageSpecificData)(unwind_context *c) {
	return frame_of(c) != NULL ? NULL : NEXT(_Unwind_GetLanguageSpecificData)(c);
}


/*
 * The beginning.
 */
#ifndef SFRAME_BACKTRACE_WRAP
static void find_functions(void *file) { ALL(SET_NEXT) }

void sframe_set_function(void *function, void *file, const char *name) {
	void *found;
	memcpy(&found, function, sizeof found);
	if (found == NULL && (found = dlsym(file, name)) != NULL)
		memcpy(function, &found, sizeof found);
}
#endif

#ifndef SFRAME_BACKTRACE_WRAP
static void find_libgcc(void *file) {
	find_functions(file);
	sframe_set_function(&libgcc.ip, file, "_Unwind_GetIPInfo");
	sframe_set_function(&libgcc.cfa, file, "_Unwind_GetCFA");
	sframe_set_function(&libgcc.gr, file, "_Unwind_GetGR");
	sframe_set_function(&libgcc.backtrace, file, "_Unwind_Backtrace");
}
#endif

/* open_unwinders finds libunwind's functions, and libgcc's own. That library is loaded: this one needs it. dlopen would
 * run libc's constructor with no arguments, if that has not run. */
static void open_unwinders(void) {
	if (environ == NULL)
		return;
	sframe_find_cursors();
#ifdef SFRAME_BACKTRACE_WRAP
	libgcc.ip = NEXT(_Unwind_GetIPInfo);
	libgcc.cfa = NEXT(_Unwind_GetCFA);
	libgcc.gr = NEXT(_Unwind_GetGR);
	libgcc.backtrace = NEXT(_Unwind_Backtrace);
#else
	void *file = libgcc.backtrace == NULL ? dlopen("libgcc_s.so.1", RTLD_LAZY) : NULL;
	if (file != NULL)
		find_libgcc(file);
#endif
}

static const char *variable(char **environment, const char *name) {
	size_t size = strlen(name);
	for (; environment != NULL && *environment != NULL; environment++)
		if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
			return *environment + size + 1;
	return NULL;
}

static void read_environment(char **environment) {
	if (sfw_auxval(AT_SECURE) != 0)
		return;
	const char *value = variable(environment, "SFRAME_BACKTRACE_STATS");
	if (value != NULL && value[0] != 0 && strcmp(value, "0") != 0)
		sframe_statistics = value;
	sframe_set_path(variable(environment, "SFRAME_PATH"));
	value = variable(environment, "SFRAME_BACKTRACE");
	if (value == NULL || value[0] == 0 || strcmp(value, "dwarf") == 0)
		return;
	if (strcmp(value, "fp") == 0)
		sframe_otherwise = BY_FRAME_POINTER;
	else if (strcmp(value, "sframe") == 0)
		sframe_otherwise = BY_SFRAME_ONLY;
	else
		sframe_say("SFRAME_BACKTRACE=", value, " is unknown; use dwarf, fp or sframe");
}

/* Calls that come meanwhile, of other threads, or of the allocator that dlsym calls, find the library as it is: traces
 * end where a section is missing. */
static unsigned started;
static void start_once(char **environment) {
	int before = errno;
	if (__atomic_exchange_n(&started, 1, __ATOMIC_SEQ_CST))
		return;
	read_environment(environment);
#ifndef SFRAME_BACKTRACE_WRAP
	/* These are there: a dlsym that fails calls malloc, and allocators would read environ before it is there. */
	find_functions(RTLD_NEXT);
	sframe_find_contexts(RTLD_NEXT);
	struct dl_find_object o;
	if (_dl_find_object((void *)(uintptr_t)NEXT(_Unwind_Backtrace), &o) == 0 &&
		strstr(o.dlfo_link_map->l_name, "/libgcc_s.") != NULL)
		find_libgcc(RTLD_NEXT); /* the next unwinder is libgcc */
#endif
	open_unwinders();
	sframe_learn_stacks();
	sframe_load_sections();
	errno = before;
}

void sframe_ready(void) {
	if (!__atomic_load_n(&started, __ATOMIC_RELAXED))
		start_once(environ);
}

/* The linker's -z initfirst makes this constructor the first of all, also of libc's: environ is not there yet. */
__attribute__((constructor(101))) static void start(int n, char **arguments, char **environment) {
	(void)n;
	(void)arguments;
	start_once(environment);
}

#ifndef SFRAME_BACKTRACE_WRAP
/* What the C library's start files call in each file that is loaded, before its constructors, if it is defined. It was
 * meant for profiles. dlopen cannot be wrapped: it searches the RUNPATH of its caller. */
PUBLIC void __gmon_start__(void);
__attribute__((no_sanitize("thread"))) PUBLIC void __gmon_start__(void) {
	static uint64_t seen;
	if (environ == NULL || !started) /* started is set, if it is, by this thread */
		return;
	uint64_t now = sfw_generation();
	if (__atomic_exchange_n(&seen, now, __ATOMIC_RELAXED) == now)
		return;
	int before = errno;
	open_unwinders();
	sframe_load_sections();
	errno = before;
}
#endif
