/*
 * Stack traces with .sframe for unmodified programs: replaces libc's backtrace and libgcc's _Unwind_Backtrace.
 * README.md lists the other files of libsframe-backtrace.
 *
 * function                          in a handler   locks          system calls   in threads
 * backtrace, unw_backtrace,
 *   _Unwind_Backtrace               yes            none           none           yes
 *   at a frame without a section    yes            libgcc's       libgcc's       yes
 * _Unwind_GetIP, GetIPInfo, GetCFA,
 *   GetGR, GetLanguageSpecificData  yes            none           none           yes
 * _Unwind_GetRegionStart            yes            libgcc's       none           yes
 * unw_init_local, init_local2,
 *   step, get_reg                   yes            none           none           a cursor: in one
 *   at a frame without a section    yes            libunwind's    libunwind's    a cursor: in one
 * other functions of libunwind      as libunwind's
 * dlclose                           no             the linker's   its own        yes
 * the constructor, and what runs
 *   when a file is loaded           no             the linker's   maps sections  yes
 *
 * Where a trace has reached code that a signal interrupted, it makes a system call (rt_sigprocmask) for the page of the
 * stack pointer, and for each page outside the thread's own stack: registers may hold any value. So do cursors. Other
 * traces make one where they reach code outside files, which may be a signal trampoline.
 *
 * "At a frame without a section" excludes code that a signal interrupted, and code without CFI: there, a trace ends;
 * those of libunwind's functions end only at the former. A handler may leave a trace by longjmp. No function changes
 * errno, is a cancellation point, or calls malloc, except that dlclose behaves like libc's. If the constructor has not
 * run yet (in a call from another file's constructor), the first call prepares the library with dlsym, which takes
 * locks and may allocate.
 */
#include "backtrace.h"

#include <execinfo.h>
#include <stdlib.h>
#include <unwind.h>

typedef struct _Unwind_Context unwind_context;

/* Functions of the replaced unwinders that this file calls. */
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

/* libgcc's functions, which continue a trace. RTLD_NEXT might find those of another unwinder. */
static struct {
	_Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
	_Unwind_Ptr (*ip)(unwind_context *, int *);
	_Unwind_Word (*cfa)(unwind_context *);
	_Unwind_Word (*gr)(unwind_context *, int);
	const void *(*find_fde)(void *pc, void *bases);
} libgcc;

enum sframe_mode sframe_otherwise;

/* Rows by pc, shared by all threads, valid for one generation. It changes before dlclose, and again afterwards,
 * because destructors may capture traces. It also changes when the dynamic linker loads or unloads a file without this
 * dlclose: by libc's, which libraries call that were loaded with RTLD_DEEPBIND, or in another namespace. */
enum { NUM_SLOTS = 1 << 16 };
static struct sfw_cache_slot slots[NUM_SLOTS] __attribute__((aligned(64)));
static uint64_t closed;
static const uint64_t *loads;  /* the dynamic linker's count, or NULL */
static const uint32_t *loaded; /* the number of files in the first namespace, or NULL */

static uint64_t generation(void) {
	uint64_t n = __atomic_load_n(&closed, __ATOMIC_SEQ_CST);
	if (loads != NULL)
		n += __atomic_load_n(loads, __ATOMIC_SEQ_CST) * 0x9e3779b97f4a7c15U;
	if (loaded != NULL)
		n += __atomic_load_n(loaded, __ATOMIC_SEQ_CST) * 0xc2b2ae3d27d4eb4fU;
	return n;
}

PUBLIC int EXPORTED(dlclose)(void *handle) {
	sframe_ready();
	__atomic_add_fetch(&closed, 1, __ATOMIC_SEQ_CST);
	int failed = NEXT(dlclose)(handle);
	__atomic_add_fetch(&closed, 1, __ATOMIC_SEQ_CST);
	return failed;
}

#ifndef SFRAME_BACKTRACE_WRAP
static int get_counts(struct dl_phdr_info *info, size_t size, void *counts) {
	(void)size;
	((uint64_t *)counts)[0] = info->dlpi_adds;
	((uint64_t *)counts)[1] = info->dlpi_adds - info->dlpi_subs;
	return 1;
}

/* find_counts finds the counts that dl_iterate_phdr returns, which takes a lock. glibc 2.35 to 2.43 have them in
 * _rtld_global: the number of files after the first file, and the number of loads after a recursive mutex. */
static void find_counts(void) {
	const unsigned char *global = dlsym(RTLD_DEFAULT, "_rtld_global");
	const ElfW(Sym) *symbol = NULL;
	uint64_t counts[2] = {0, 0};
	struct dl_find_object o;
	Dl_info info;
	dl_iterate_phdr(get_counts, counts);
	if (global == NULL || _dl_find_object(slots, &o) != 0)
		return;
	while (o.dlfo_link_map->l_prev != NULL)
		o.dlfo_link_map = o.dlfo_link_map->l_prev;
	if (memcmp(global, &o.dlfo_link_map, 8) == 0 && sfw_load32(global + 8, 0) == counts[1])
		loaded = (const uint32_t *)(const void *)(global + 8);
	if (dladdr1(global, &info, (void **)(uintptr_t)&symbol, RTLD_DL_SYMENT) == 0 || symbol == NULL)
		return;
	for (size_t at = sizeof(pthread_mutex_t); at + 8 <= symbol->st_size; at += 8) {
		const pthread_mutex_t *m = (const pthread_mutex_t *)(const void *)(global + at - sizeof *m);
		if (m->__data.__kind == PTHREAD_MUTEX_RECURSIVE && *(const uint64_t *)(const void *)(global + at) == counts[0])
			loads = (const uint64_t *)(const void *)(global + at);
	}
}
#endif

/* The memory that a walk reads: this thread's stack, from the current frame up. On other stacks, of coroutines or
 * signal handlers, frames of running functions are read within a window that moves with them. Interrupted code may have
 * any value in a register: from there on, all other memory is probed. So are frames larger than the window. */
enum { WINDOW = 1 << 16 };
static struct sfw_bounds bounds;
static int can_probe; /* emulators may not check the address first */

static void set_window(struct walk *w, uint64_t sp) {
	w->process.stacks[0] = (struct sfw_range){sp, sp + WINDOW};
	w->assumed = 1;
}

static void forget_window(struct walk *w) {
	if (w->assumed)
		w->process.stacks[0] = (struct sfw_range){0, 0};
	w->assumed = 0;
	w->process.probe = (uint8_t)can_probe;
}

/* check_pc forgets the window if it contains pc: the stack may end before it. */
static void check_pc(struct walk *w, uint64_t pc) {
	if (w->assumed && sfw_stack_of(w->process.stacks, 1, pc) != NULL)
		forget_window(w);
}

/* is_mapped returns whether a stack pointer leads to memory. In a sandbox without rt_sigprocmask, it is believed. */
static int is_mapped(struct walk *w, uint64_t sp) {
	struct sfw_range *mapped = &w->process.stacks[SFW_NUM_STACKS - 1], unused = {0, 0};
	return sfw_stack_of(mapped, 1, sp) != NULL || sfw_probe(mapped, sp) ||
		!sfw_probe(&unused, (uint64_t)(uintptr_t)__builtin_frame_address(0));
}

void sframe_start_walk(struct walk *w, uint64_t sp, uint8_t signal, struct sfw_range mapped) {
	memset(w->process.stacks, 0, sizeof w->process.stacks);
	w->process.stacks[SFW_NUM_STACKS - 1] = mapped;
	w->process.files = NULL;
	w->process.separates = sframe_separates();
	w->process.file.begin = w->process.file.end = w->process.file.num = 0;
	w->process.how = SFW_NO_SECTION;
	w->assumed = 0;
	w->signal = signal;
	int own = (!signal || is_mapped(w, sp)) && sfw_own_stack(&bounds, sp, &w->process.stacks[0]);
	int any = signal || (!own && sframe_otherwise == BY_FRAME_POINTER); /* without rows, sp can be any value */
	w->process.probe = any && can_probe;
	if (!own && !any)
		set_window(w, sp);
	w->cache = (struct sfw_cache){slots, NUM_SLOTS, generation()};
	w->space = (struct sfw_space){sfw_process_read, sframe_section, &w->process, 0, &w->cache, SFW_HOST_ABI,
		sframe_otherwise == BY_FRAME_POINTER, SFW_NUM_STACKS, w->process.stacks};
}

/* note_signal sets w->signal if a signal interrupted the frame or its caller. */
static void note_signal(struct walk *w, const struct sfw_regs *regs, const struct sfw_frame *frame) {
	uint64_t sp;
	w->signal |= frame->interrupted || frame->how == SFW_SIGNAL || regs->interrupted || regs->how == SFW_SIGNAL;
	if (!w->signal)
		return;
	forget_window(w);
	if (regs->how == SFW_SIGNAL && sfw_get(regs, sfw_abi_of(SFW_HOST_ABI)->sp, &sp) &&
		sfw_stack_of(w->process.stacks, 1, sp) == NULL && is_mapped(w, sp))
		sfw_own_stack(&bounds, sp, &w->process.stacks[0]);
}

/* count_frame counts a frame by how its caller was found. */
__attribute__((noinline)) static void count_frame(uint64_t pc, enum sfw_how end, const struct sfw_regs *next) {
	unsigned how = end == SFW_FULL ? next->how : (unsigned)end;
	if (how == SFW_SFRAME || how == SFW_SIGNAL || how == SFW_OUTERMOST || how == SFW_ZERO)
		sframe_count(pc, 1);
	else if (how == SFW_FRAME_POINTER || sframe_otherwise != BY_DWARF)
		sframe_count(pc, 0);
}

/* sframe_next is sfw_walk for one frame. If memory cannot be read, it moves the window, and then probes; also at code
 * outside files, which may be a signal trampoline. */
enum sfw_how sframe_next(struct walk *w, struct sfw_regs *regs, struct sfw_frame *frame) {
	const unsigned sp_of = sfw_abi_of(SFW_HOST_ABI)->sp;
	uint64_t sp = 0;
	enum sfw_how end;
	int probed, again;
	check_pc(w, regs->pc);
	do {
		probed = w->process.probe || !can_probe;
		sfw_walk_on(&w->space, &w->section, regs, frame, 1, &end);
		note_signal(w, regs, frame);
		again = !probed && (end == SFW_BAD_MEMORY || (end == SFW_NO_SECTION && w->process.file.end == 0));
		if (again && end == SFW_BAD_MEMORY && w->assumed && sfw_get(regs, sp_of, &sp) && sp != w->process.stacks[0].low)
			set_window(w, sp);
		else if (again)
			w->process.probe = 1;
	} while (again);
	if (probed && !w->signal && sframe_otherwise != BY_FRAME_POINTER) {
		w->process.probe = 0;
		if (sfw_get(regs, sp_of, &sp) && sfw_stack_of(w->process.stacks, 1, sp) == NULL)
			set_window(w, sp);
	}
	if (sframe_statistics != NULL)
		count_frame(frame->pc, end, regs);
	return end;
}

int sframe_may_leave(const struct walk *w, const struct sfw_regs *regs, int to_libgcc) {
	void *pc = (void *)(uintptr_t)(regs->pc - 1), *bases[3];
	if (sframe_otherwise != BY_DWARF || w->signal || regs->interrupted)
		return 0;
	if (libgcc.find_fde == NULL || libgcc.find_fde(pc, bases) != NULL)
		return 1;
	/* libunwind guesses at code without CFI. But a function that makecontext starts returns to the start of another. */
	pc = (void *)(uintptr_t)regs->pc;
	return !to_libgcc && (libgcc.find_fde(pc, bases) == NULL || bases[2] != pc);
}

/* Traces: backtrace fills an array, and _Unwind_Backtrace calls a function for each frame. */
enum { OUTERMOST = 1, NO_CFI, MANY = 16 };
struct trace {
	struct sfw_regs regs; /* of the next frame */
	struct walk walk;
	void **array;
	int size, num;
	_Unwind_Trace_Fn call;
	void *argument;
	uint8_t stopped, ended; /* by the client; at an outermost frame, or at one without CFI */
	uint8_t guesses;        /* libunwind, and not libgcc, continues */
	/* For libgcc's unwinder, which starts at the top each time: whether it has reached the frame of regs, or a file
	 * with a section; and the number of its steps before. */
	uint8_t found, back;
	uint8_t passed, again; /* it has passed a file with a section; and then one without, so it would start again */
	int steps;
};

/* Not 0 if one of the last traces would have started libgcc more than once: then it continues to the end. */
static uint8_t starts_often;

const uint64_t sframe_magic[2] = {0x7366726d2d627472, 0xb1a5edfaceb0a710};
struct context {
	uint64_t magic[2];
	uint64_t pc, sp;
	int interrupted;
};

static const struct context *frame_of(unwind_context *c) {
	const struct context *ours = (const struct context *)(const void *)c;
	return memcmp(ours->magic, sframe_magic, sizeof sframe_magic) == 0 ? ours : NULL;
}

/* put adds a frame to the trace. */
static inline void put(struct trace *t, uint64_t pc, uint64_t sp, int interrupted) {
	t->num++;
	if (t->call == NULL) {
		t->array[t->num - 1] = (void *)(uintptr_t)pc;
		t->stopped = t->num == t->size;
		return;
	}
	struct context c = {{sframe_magic[0], sframe_magic[1]}, pc, sp, interrupted};
	t->stopped = t->call((unwind_context *)(void *)&c, t->argument) != _URC_NO_REASON;
}

/* has_no_section returns whether the last trace through a return address found no section for it, but CFI. */
static int has_no_section(const struct trace *t, uint64_t pc) {
	return sfw_cached(&t->walk.cache, pc - 1) == SFW_KEPT_NO_SECTION;
}

/* keep_end notes why the walk ended in the last file, which contains pc: without a section, or without CFI either. CFI
 * of code in data segments may be registered later. */
static void keep_end(const struct trace *t, uint64_t pc, int has_cfi) {
	const struct sfw_process *p = &t->walk.process;
	if (t->walk.signal || t->walk.section.passing || sframe_otherwise != BY_DWARF || (p->how == SFW_OK && has_cfi) ||
		!sfw_loaded(&p->file, pc - 1 - p->file.bias, 1, PF_R | PF_X, PF_R | PF_W | PF_X))
		return;
	sfw_keep_packed(&t->walk.cache, pc - 1, has_cfi ? SFW_KEPT_NO_SECTION : SFW_KEPT_LAST);
}

/* on_frame is called by libgcc for each frame. It stops libgcc from stepping out of a signal trampoline. */
static _Unwind_Reason_Code on_frame(unwind_context *c, void *argument) {
	enum { INNER_FRAMES = 16 };
	struct trace *t = argument;
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	int interrupted = 0;
	const uint64_t pc = libgcc.ip(c, &interrupted), sp = libgcc.cfa(c) - (uint64_t)(int64_t)a->bias;
	if (interrupted)
		return _URC_NORMAL_STOP;
	if (!t->found) { /* if the stack is damaged, libgcc may find other frames, and repeat them */
		uint64_t at;
		t->found = pc == t->regs.pc && sfw_get(&t->regs, a->sp, &at) && at == sp;
		return t->found || t->steps++ < t->num + INNER_FRAMES ? _URC_NO_REASON : _URC_NORMAL_STOP;
	}
	if (pc == 0) {
		t->ended = OUTERMOST;
		return _URC_NORMAL_STOP;
	}
	if (sframe_statistics != NULL) {
		sframe_count(t->regs.pc, 0);
	} else if (has_no_section(t, pc)) {
		t->again |= t->passed;
		put(t, pc, sp, 0);
		return t->stopped ? _URC_NORMAL_STOP : _URC_NO_REASON;
	}
	sfw_regs_of_caller(&t->regs, pc, sp, 0);
	int described = sframe_section(&t->walk.process, pc - 1, &t->walk.section) == SFW_OK; /* sets the file */
	t->again |= t->passed && !described;
	t->passed |= described;
	check_pc(&t->walk, pc);
	if ((described && !t->again && __atomic_load_n(&starts_often, __ATOMIC_RELAXED) == 0) ||
		sfw_trampoline(SFW_HOST_ABI, pc, &t->walk.space) != 0) {
		sfw_set(&t->regs, a->fp, libgcc.gr(c, a->fp));
		t->back = 1;
		return _URC_NORMAL_STOP;
	}
	if (!described)
		keep_end(t, pc, 1);
	put(t, pc, sp, 0);
	return t->stopped ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

/* Frames with cached rows. Each thread remembers its last trace, because most traces share their outer frames with the
 * previous one: frames are shared if the saved words that lead from one to the next are unchanged. Comparing these
 * words takes half the time of using a row, with fewer cache misses. Without saved traces, a program under heaptrack
 * takes 25 % longer (3 runs, 2026-11). */
enum { MAX_STEPS_KEPT = 256, NUM_MEMORIES = 64 };
enum { NOT_SAVED = -1, NOT_COMPARED = INT32_MIN }; /* the latter is outside every stack */
struct step {
	uint64_t pc, sp, fp;
	int32_t ra, saved; /* where RA and FP are saved, in bytes from SP */
};
static struct memory {
	unsigned busy; /* used by another thread, or by a walk that this one interrupts */
	unsigned misses, pause; /* misses: traces in a row with less than half of their frames in the saved trace */
	unsigned num, num_fresh;
	uint64_t generation;
	struct step steps[MAX_STEPS_KEPT]; /* the outermost first */
	struct step fresh[MAX_STEPS_KEPT]; /* of this trace, the innermost first */
} memories[NUM_MEMORIES];

/* take_memory returns the thread's saved trace if a trace into an array may use it, or NULL. Saving a trace takes
 * twice as long as walking with rows, so threads whose traces have little in common do it rarely. */
static struct memory *take_memory(const struct trace *t) {
	enum { MISSES = 4, PAUSE = 32 };
	struct memory *m = &memories[((uint64_t)(uintptr_t)pthread_self() >> 12) % NUM_MEMORIES];
	if (t->call != NULL || __atomic_exchange_n(&m->busy, 1, __ATOMIC_ACQUIRE))
		return NULL;
	if (m->generation != t->walk.cache.generation)
		m->num = 0;
	m->generation = t->walk.cache.generation;
	m->num_fresh = 0;
	if (m->misses < MISSES || ++m->pause % PAUSE < 2) /* one trace is saved, and the next is compared with it */
		return m;
	__atomic_store_n(&m->busy, 0, __ATOMIC_RELEASE);
	return NULL;
}

static void remember(struct memory *m, struct step s) {
	if (m->num_fresh < MAX_STEPS_KEPT)
		m->fresh[m->num_fresh] = s;
	m->num_fresh++;
}

/* keep_steps replaces all but the outermost steps with those of this trace. */
static void keep_steps(struct memory *m, unsigned outermost) {
	m->num = outermost + m->num_fresh <= MAX_STEPS_KEPT ? outermost + m->num_fresh : 0;
	for (unsigned i = outermost; i < m->num; i++)
		m->steps[i] = m->fresh[m->num - 1 - i];
}

/* load_ra loads a return address and removes its pointer authentication code. */
static uint64_t load_ra(const struct trace *t, uint64_t at) {
	uint64_t ra = sfw_load(at);
	return SFW_HOST_ABI == SFW_AMD64 || SFW_HOST_ABI == SFW_S390X ? ra : sfw_strip(&t->walk.space, ra);
}

/* same_steps adds frames while they equal those of the saved trace, starting at f, which is the n-th outermost
 * frame. It returns the number of the frame where it stops, and sets f to that frame, which is not added. */
static unsigned same_steps(struct trace *t, const struct memory *m, unsigned n, struct sfw_fast *f) {
	const struct step *s = &m->steps[n] - 1;
	if (n == 0 || s->sp != f->sp || s->pc != f->pc || s->fp != f->fp)
		return n;
	for (; s > m->steps && !t->stopped; s--) {
		const struct step *next = s - 1;
		uint64_t ra = s->sp + (uint64_t)(int64_t)s->ra, fp = s->sp + (uint64_t)(int64_t)s->saved, value = s->fp;
		if (ra - f->low > f->last || load_ra(t, ra) != next->pc)
			break;
		if (s->saved != NOT_SAVED) {
			if (fp - f->low > f->last)
				break;
			value = sfw_load(fp);
		}
		if (value != next->fp)
			break;
		put(t, s->pc, s->sp, 0);
	}
	f->pc = s->pc;
	f->sp = s->sp;
	f->fp = s->fp;
	return (unsigned)(s - m->steps) + 1;
}

/* step_by_row unwinds f with a cached row, and returns whether it could. */
static int step_by_row(const struct trace *t, struct sfw_fast *f, uint64_t *row) {
	const struct sfw_cache cache = {slots, NUM_SLOTS, t->walk.cache.generation};
	*row = sfw_cached(&cache, f->pc - 1);
	return sfw_fast_step(&t->walk.space, sfw_abi_of(SFW_HOST_ABI), f, *row);
}

/* put_by_memory adds frames from the saved trace, and the remaining frames with cached rows. */
static void put_by_memory(struct trace *t, struct memory *m, struct sfw_fast *from) {
	struct sfw_fast f = *from; /* a copy that stays in registers */
	unsigned known = m->num, left, outermost = 0, by_memory = 0, by_row = 0;
	uint64_t row;
	while (!t->stopped) {
		while (known > 0 && m->steps[known - 1].sp < f.sp)
			known--;
		left = same_steps(t, m, known, &f);
		by_memory += known - left;
		struct step s = {f.pc, f.sp, f.fp, NOT_COMPARED, NOT_SAVED};
		if (t->stopped || !step_by_row(t, &f, &row)) {
			outermost = left < known ? known : 0;
			break;
		}
		by_row++;
		put(t, s.pc, s.sp, 0);
		if ((row & SFW_KEPT_CFA_DEREF) == 0)
			s.ra = (int32_t)(f.ra_at - s.sp);
		if (f.fp_at != 0)
			s.saved = (int32_t)(f.fp_at - s.sp);
		while (known > left) /* added from the saved trace, but the frame that they lead to has changed */
			remember(m, m->steps[--known]);
		remember(m, s);
	}
	if (outermost == 0)
		remember(m, (struct step){f.pc, f.sp, f.fp, NOT_COMPARED, NOT_SAVED});
	*from = f;
	keep_steps(m, outermost);
	m->misses = by_memory > by_row ? 0 : m->misses + 1;
}

/* put_by_rows adds frames with cached rows. */
static void put_by_rows(struct trace *t, struct sfw_fast *from) {
	struct sfw_fast f = *from;
	void **next = t->array + t->num, **end = t->array + t->size;
	uint64_t row;
	while (next < end) {
		uint64_t pc = f.pc;
		if (!step_by_row(t, &f, &row))
			break;
		*next++ = (void *)(uintptr_t)pc;
	}
	t->num = (int)(next - t->array);
	t->stopped = next == end;
	*from = f;
}

/* put_calls is put_by_rows for _Unwind_Backtrace. */
static void put_calls(struct trace *t, struct sfw_fast *f) {
	uint64_t pc = f->pc, sp = f->sp, row;
	while (!t->stopped && step_by_row(t, f, &row)) {
		put(t, pc, sp, 0);
		pc = f->pc;
		sp = f->sp;
	}
}

/* put_cached adds frames, starting with t->regs, while their rows are cached and they are on one stack. */
__attribute__((noinline)) static void put_cached(struct trace *t, struct memory *m) {
	struct sfw_fast f;
	if (sframe_statistics != NULL || t->regs.interrupted || !sfw_fast_begin(&t->walk.space, &t->regs, &f))
		return;
	const uint64_t sp = f.sp;
	if (t->call != NULL)
		put_calls(t, &f);
	else if (m != NULL && f.last <= INT32_MAX) /* distances in the stack fit into a struct step */
		put_by_memory(t, m, &f);
	else
		put_by_rows(t, &f);
	if (f.sp != sp)
		sfw_fast_end(&t->walk.space, &t->regs, &f);
	const uint64_t last = t->stopped ? 0 : sfw_cached(&t->walk.cache, f.pc - 1);
	if (last == SFW_KEPT_OUTERMOST || last == SFW_KEPT_LAST) {
		put(t, f.pc, f.sp, 0);
		t->ended = last == SFW_KEPT_LAST ? NO_CFI : OUTERMOST;
	}
}

/* take_trace adds all frames, starting at the caller of an exported function with this CFA. Inlined, because
 * alternate stacks are small. */
__attribute__((always_inline)) static inline void take_trace(struct trace *t, void *pc, uint64_t sp, uint64_t fp) {
	sframe_ready();
	t->stopped = t->ended = t->found = t->back = t->passed = t->again = 0;
	t->num = 0;
	sfw_regs_of_caller(&t->regs, (uint64_t)(uintptr_t)pc, sp, fp);
	sframe_start_walk(&t->walk, sp, 0, (struct sfw_range){0, 0});
	if (!has_no_section(t, t->regs.pc)) {
		struct memory *m = take_memory(t);
		put_cached(t, m);
		if (m != NULL)
			__atomic_store_n(&m->busy, 0, __ATOMIC_RELEASE);
	}
	while (!t->stopped && !t->ended) {
		struct sfw_frame frame = {t->regs.pc, 0, SFW_OK, 0};
		enum sfw_how end = SFW_NO_SECTION;
		int leaves = !t->regs.interrupted && !t->walk.signal && sframe_statistics == NULL &&
			has_no_section(t, t->regs.pc) && sfw_get(&t->regs, sfw_abi_of(SFW_HOST_ABI)->sp, &frame.sp);
		if (!leaves)
			end = sframe_next(&t->walk, &t->regs, &frame);
		t->ended = end == SFW_OUTERMOST || end == SFW_ZERO ? OUTERMOST : 0;
		put(t, frame.pc, frame.sp, frame.interrupted);
		if (end == SFW_FULL && !t->stopped)
			put_cached(t, NULL);
		if (end == SFW_FULL || t->stopped || t->ended)
			continue;
		if (!leaves && (libgcc.backtrace != NULL || t->guesses)) {
			leaves = sframe_may_leave(&t->walk, &t->regs, 1);
			if (end == SFW_NO_SECTION || end == SFW_NO_ROW)
				keep_end(t, t->regs.pc, leaves);
		}
		if (!leaves || t->guesses)
			break;
		t->again |= t->back;
		t->found = t->back = 0;
		t->steps = 0;
		libgcc.backtrace(on_frame, t);
		if (!t->back)
			break;
	}
	const unsigned often = t->again ? MANY + 1 : t->found ? __atomic_load_n(&starts_often, __ATOMIC_RELAXED) : 0;
	if (often > 0)
		__atomic_store_n(&starts_often, (uint8_t)(often - 1), __ATOMIC_RELAXED);
	if (t->ended == OUTERMOST && !t->stopped && t->call != NULL)
		put(t, 0, 0, 0);
}

/* ENTRY defines a function that passes on its two arguments, the caller's stack pointer and the caller's frame pointer,
 * which C code may overwrite. */
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

/* fill_array returns the number of frames, or less than 0 if libunwind must take the trace. Inlined, because each frame
 * of this library takes libgcc 130 ns. */
__attribute__((always_inline)) static inline int fill_array(
	void **array, int size, void *pc, uint64_t sp, uint64_t fp, int guesses) {
	struct trace t;
	if (size <= 0)
		return 0;
	t.array = array;
	t.size = size;
	t.call = NULL;
	t.guesses = (uint8_t)guesses;
	take_trace(&t, pc, sp, fp);
	int left = guesses && !t.stopped && t.ended != OUTERMOST && sframe_may_leave(&t.walk, &t.regs, 0);
	return left ? -1 : t.num;
}

__attribute__((used)) INNER int sframe_backtrace(void **array, int size, uint64_t sp, uint64_t fp);
int sframe_backtrace(void **array, int size, uint64_t sp, uint64_t fp) {
	return fill_array(array, size, __builtin_return_address(0), sp, fp, 0);
}
ENTRY(backtrace, "sframe_backtrace")

/* libunwind caches rows, and guesses at code without CFI, which its clients expect. */
__attribute__((used)) INNER int sframe_unw_backtrace(void **array, int size, uint64_t sp, uint64_t fp);
int sframe_unw_backtrace(void **array, int size, uint64_t sp, uint64_t fp) {
	void *pc = __builtin_return_address(0);
	int n = fill_array(array, size, pc, sp, fp, sframe_can_guess());
	return n >= 0 ? n : sframe_guess(array, size, pc);
}
ENTRY(unw_backtrace, "sframe_unw_backtrace")

__attribute__((used)) INNER _Unwind_Reason_Code sframe_unwind_backtrace(
	_Unwind_Trace_Fn call, void *argument, uint64_t sp, uint64_t fp);
_Unwind_Reason_Code sframe_unwind_backtrace(_Unwind_Trace_Fn call, void *argument, uint64_t sp, uint64_t fp) {
	struct trace t;
	t.call = call;
	t.argument = argument;
	t.guesses = 0;
	take_trace(&t, __builtin_return_address(0), sp, fp);
	return t.stopped ? _URC_FATAL_PHASE1_ERROR : _URC_END_OF_STACK;
}
ENTRY(_Unwind_Backtrace, "sframe_unwind_backtrace")

PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetIP)(unwind_context *c) {
	const struct context *f = frame_of(c);
	return f != NULL ? f->pc : NEXT(_Unwind_GetIP)(c);
}

PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetIPInfo)(unwind_context *c, int *before) {
	const struct context *f = frame_of(c);
	if (f == NULL)
		return NEXT(_Unwind_GetIPInfo)(c, before);
	*before = f->interrupted;
	return f->pc;
}

PUBLIC _Unwind_Word EXPORTED(_Unwind_GetCFA)(unwind_context *c) {
	const struct context *f = frame_of(c);
	return f != NULL ? f->sp + (uint64_t)(int64_t)sfw_abi_of(SFW_HOST_ABI)->bias : NEXT(_Unwind_GetCFA)(c);
}

/* SFrame restores few registers, and a frame records only the stack pointer. */
PUBLIC _Unwind_Word EXPORTED(_Unwind_GetGR)(unwind_context *c, int reg) {
	const struct context *f = frame_of(c);
	if (f == NULL)
		return NEXT(_Unwind_GetGR)(c, reg);
	return reg == sfw_abi_of(SFW_HOST_ABI)->sp ? f->sp : 0;
}

/* An SFrame FDE may cover several functions, so the CFI says where this one starts. */
PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetRegionStart)(unwind_context *c) {
	const struct context *f = frame_of(c);
	if (f == NULL)
		return NEXT(_Unwind_GetRegionStart)(c);
	return (_Unwind_Ptr)_Unwind_FindEnclosingFunction((void *)(uintptr_t)(f->pc + (f->interrupted != 0)));
}

PUBLIC void *EXPORTED(_Unwind_GetLanguageSpecificData)(unwind_context *c) {
	return frame_of(c) != NULL ? NULL : NEXT(_Unwind_GetLanguageSpecificData)(c);
}

/* Start-up. */
#ifndef SFRAME_BACKTRACE_WRAP
static void find_functions(void *file) { ALL(SET_NEXT) }

void sframe_set_function(void *function, void *file, const char *name) {
	void *found;
	memcpy(&found, function, sizeof found);
	if (found == NULL && (found = dlsym(file, name)) != NULL)
		memcpy(function, &found, sizeof found);
}

static void find_libgcc(void *file) {
	find_functions(file);
	sframe_set_function(&libgcc.ip, file, "_Unwind_GetIPInfo");
	sframe_set_function(&libgcc.cfa, file, "_Unwind_GetCFA");
	sframe_set_function(&libgcc.gr, file, "_Unwind_GetGR");
	sframe_set_function(&libgcc.find_fde, file, "_Unwind_Find_FDE");
	sframe_set_function(&libgcc.backtrace, file, "_Unwind_Backtrace");
}
#endif

/* open_unwinders finds the functions of libunwind, and of libgcc, which is loaded because this library needs it.
 * dlopen would run libc's constructor without arguments if it has not run yet. */
static void open_unwinders(void) {
	if (environ == NULL)
		return;
	sframe_find_cursors();
#ifdef SFRAME_BACKTRACE_WRAP
	extern const void *_Unwind_Find_FDE(void *pc, void *bases) __attribute__((weak));
	libgcc.find_fde = _Unwind_Find_FDE;
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

/* Until start_once is done, calls by other threads, or by an allocator that dlsym calls, find no separate sections:
 * their traces end at a file without a section. */
static unsigned started;
static void start_once(char **environment) {
	int before = errno;
	if (__atomic_exchange_n(&started, 1, __ATOMIC_SEQ_CST))
		return;
	read_environment(environment);
#ifndef SFRAME_BACKTRACE_WRAP
	/* These lookups must not fail: a failing dlsym calls malloc, and an allocator would then read environ before it is
	 * set. */
	find_functions(RTLD_NEXT);
	struct dl_find_object o;
	if (_dl_find_object((void *)(uintptr_t)NEXT(_Unwind_Backtrace), &o) == 0 &&
		strstr(o.dlfo_link_map->l_name, "/libgcc_s.") != NULL)
		find_libgcc(RTLD_NEXT); /* the next unwinder is libgcc */
	find_counts();
#endif
	open_unwinders();
	sfw_learn_bounds(&bounds);
	struct sfw_range mapped = {0, 0};
	can_probe = !sfw_probe(&mapped, UINT64_MAX - 4095);
	sframe_add_new_files(slots);
	errno = before;
}

void sframe_ready(void) {
	if (!__atomic_load_n(&started, __ATOMIC_RELAXED))
		start_once(environ);
}

/* With the linker's -z initfirst, this constructor runs before all others, libc's included: environ is not set yet. */
__attribute__((constructor(101))) static void start(int n, char **arguments, char **environment) {
	(void)n;
	(void)arguments;
	start_once(environment);
}

#ifndef SFRAME_BACKTRACE_WRAP
/* The C library's start files call this function, if it exists, in each loaded file before its constructors.
 * __gmon_start__ was meant for profiling. dlopen cannot be wrapped: it searches the RUNPATH of its caller. */
PUBLIC void __gmon_start__(void);
__attribute__((no_sanitize("thread"))) PUBLIC void __gmon_start__(void) {
	static int opened;
	if (environ == NULL || !started) /* at start-up, this thread sets started */
		return;
	int before = errno;
	if (loads == NULL)
		__atomic_add_fetch(&closed, 1, __ATOMIC_SEQ_CST);
	if (sframe_add_new_files(__builtin_return_address(0)) || !__atomic_exchange_n(&opened, 1, __ATOMIC_RELAXED))
		open_unwinders();
	errno = before;
}
#endif
