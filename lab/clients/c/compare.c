/*
 * Preloaded before libsframe-backtrace.so: for each call by a client, walks the stack with the library and with the
 * DWARF unwinder that the client would use, compares both stacks, and returns the library's. At the end, it writes to
 * $COMPARE_OUT:
 *
 *	stacks N		compared
 *	frames N		in the library's stacks
 *	tally KIND 0 COUNT OFFSET OURS THEIRS FILE
 *
 * KIND says how the stacks diverge after a frame with the return address OFFSET, an address in FILE: behind (the
 * library's stack ends first), ahead (DWARF's does) or differ (the callers differ).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

/* From libunwind's header, whose macros would rename the functions that are looked up here. */
enum { RIP = 16, CURSOR_WORDS = 127 };
typedef unsigned long cursor[CURSOR_WORDS];

struct calls {
	int (*backtrace)(void **, int), (*unw_backtrace)(void **, int);
	_Unwind_Reason_Code (*trace)(_Unwind_Trace_Fn, void *);
	_Unwind_Ptr (*ip)(struct _Unwind_Context *);
	int (*init)(cursor, void *), (*init2)(cursor, void *, int), (*step)(cursor), (*reg)(cursor, int, unsigned long *);
};
static struct calls library, dwarf;

enum { MOST = 400, TALLIES = 4096 };
struct stack {
	size_t n;
	void *pc[MOST];
};
struct tally {
	const char *kind;
	void *at, *ours, *theirs;
	unsigned long count;
};
static struct tally tallies[TALLIES];
static size_t num_tallies, lost;
static unsigned long stacks, frames;
static char lock;
static _Thread_local char inside; /* backtrace and unw_backtrace call others of these functions */

static void *must(void *handle, const char *name) {
	void *f = dlsym(handle, name);
	if (f == NULL) {
		fprintf(stderr, "compare: %s\n", dlerror());
		_exit(125);
	}
	return f;
}

static void *must_open(const char *name) {
	void *handle = dlopen(name, RTLD_LAZY);
	if (handle == NULL) {
		fprintf(stderr, "compare: %s\n", dlerror());
		_exit(125);
	}
	return handle;
}

static void find(struct calls *c, void *libc, void *gcc, void *unwind) {
	*(void **)&c->backtrace = must(libc, "backtrace");
	*(void **)&c->trace = must(gcc, "_Unwind_Backtrace");
	*(void **)&c->ip = must(gcc, "_Unwind_GetIP");
	*(void **)&c->unw_backtrace = must(unwind, "unw_backtrace");
	*(void **)&c->init = must(unwind, "_ULx86_64_init_local");
	*(void **)&c->init2 = must(unwind, "_ULx86_64_init_local2");
	*(void **)&c->step = must(unwind, "_ULx86_64_step");
	*(void **)&c->reg = must(unwind, "_ULx86_64_get_reg");
}

static char compares;

/* Allocators capture stacks before anything can be loaded. Until this runs, nothing is compared. */
__attribute__((constructor)) static void prepare(void) {
	void *space[8];
	find(&dwarf, must_open("libc.so.6"), must_open("libgcc_s.so.1"), must_open("libunwind.so.8"));
	dwarf.backtrace(space, 8); /* it loads libgcc */
	compares = 1;
}

static int ready(void) {
	if (library.trace == NULL)
		find(&library, RTLD_NEXT, RTLD_NEXT, RTLD_NEXT);
	return compares;
}

static int mine(void *pc) {
	extern const char __ehdr_start[] __attribute__((visibility("hidden")));
	extern const char _end[] __attribute__((visibility("hidden")));
	return (const char *)pc >= __ehdr_start && (const char *)pc < _end;
}

static void count(const char *kind, void *at, void *ours, void *theirs) {
	for (size_t i = 0; i < num_tallies; i++) {
		struct tally *t = &tallies[i];
		if (t->kind == kind && t->at == at && t->ours == ours) {
			t->count++;
			return;
		}
	}
	if (num_tallies == TALLIES) {
		lost++;
		return;
	}
	tallies[num_tallies++] = (struct tally){kind, at, ours, theirs, 1};
}

/* compare ignores frames of this file, whose calls differ, and a final frame with pc 0, which some unwinders add. */
static void compare(struct stack *ours, struct stack *theirs, size_t most) {
	size_t a = 0, b = 0;
	void *at = NULL;
	while (a < ours->n && mine(ours->pc[a]))
		a++;
	while (b < theirs->n && mine(theirs->pc[b]))
		b++;
	if (ours->n > 0 && ours->pc[ours->n - 1] == NULL)
		ours->n--;
	if (theirs->n > 0 && theirs->pc[theirs->n - 1] == NULL)
		theirs->n--;
	while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
		;
	stacks++;
	frames += ours->n - a;
	for (; a < ours->n && b < theirs->n && ours->pc[a] == theirs->pc[b]; a++, b++)
		at = ours->pc[a];
	if (a < ours->n && b < theirs->n)
		count("differ", at, ours->pc[a], theirs->pc[b]);
	else if (a < ours->n && theirs->n < most)
		count("ahead", at, ours->pc[a], NULL);
	else if (b < theirs->n && ours->n < most)
		count("behind", at, NULL, theirs->pc[b]);
	__atomic_clear(&lock, __ATOMIC_RELEASE);
}

struct taking {
	struct stack *stack;
	_Unwind_Ptr (*ip)(struct _Unwind_Context *);
	_Unwind_Trace_Fn fn; /* the client's, or NULL */
	void *argument;
};

static _Unwind_Reason_Code take(struct _Unwind_Context *c, void *argument) {
	struct taking *t = argument;
	void *pc = (void *)t->ip(c);
	if (t->stack->n == MOST)
		return _URC_END_OF_STACK;
	t->stack->pc[t->stack->n++] = pc;
	return t->fn == NULL || mine(pc) ? _URC_NO_REASON : t->fn(c, t->argument);
}

_Unwind_Reason_Code _Unwind_Backtrace(_Unwind_Trace_Fn fn, void *argument) {
	struct stack ours = {0}, theirs = {0};
	if (!ready())
		return library.trace(fn, argument);
	struct taking taking = {&theirs, dwarf.ip, NULL, NULL};
	if (!inside)
		dwarf.trace(take, &taking);
	taking = (struct taking){&ours, library.ip, fn, argument};
	_Unwind_Reason_Code code = library.trace(take, &taking);
	/* If the client ends the walk early, only the frames that it has seen are compared. */
	if (!inside)
		compare(&ours, &theirs, code == _URC_END_OF_STACK ? MOST : ours.n);
	return code;
}

static int both(void **pcs, int size, int (*a)(void **, int), int (*b)(void **, int)) {
	struct stack ours, theirs;
	int most = size + 4 < MOST ? size + 4 : MOST, first = 0;
	if (inside)
		return a(pcs, size);
	inside = 1;
	ours.n = (size_t)a(ours.pc, most);
	theirs.n = (size_t)b(theirs.pc, most);
	inside = 0;
	compare(&ours, &theirs, (size_t)most);
	while (first < (int)ours.n && mine(ours.pc[first]))
		first++;
	int n = (int)ours.n - first < size ? (int)ours.n - first : size;
	memcpy(pcs, ours.pc + first, (size_t)n * sizeof *pcs);
	return n;
}

int backtrace(void **pcs, int size) {
	return ready() ? both(pcs, size, library.backtrace, dwarf.backtrace) : library.backtrace(pcs, size);
}

int unw_backtrace(void **pcs, int size) {
	return ready() ? both(pcs, size, library.unw_backtrace, dwarf.unw_backtrace) : library.unw_backtrace(pcs, size);
}

static void steps(struct stack *s, const struct calls *c, void *context) {
	cursor at;
	unsigned long pc;
	s->n = 0;
	if (c->init(at, context) < 0)
		return;
	do {
		if (c->reg(at, RIP, &pc) < 0 || pc == 0)
			return;
		s->pc[s->n++] = (void *)pc;
	} while (s->n < MOST && c->step(at) > 0);
}

static void walk_both(void *context) {
	struct stack ours, theirs;
	steps(&ours, &library, context);
	steps(&theirs, &dwarf, context);
	compare(&ours, &theirs, MOST);
}

int _ULx86_64_init_local(cursor c, void *context) {
	if (inside) /* libunwind's unw_backtrace */
		return dwarf.init(c, context);
	if (ready())
		walk_both(context);
	return library.init(c, context);
}

int _ULx86_64_init_local2(cursor c, void *context, int flags) {
	if (inside)
		return dwarf.init2(c, context, flags);
	if (ready())
		walk_both(context);
	return library.init2(c, context, flags);
}

__attribute__((destructor)) static void finish(void) {
	const char *name = getenv("COMPARE_OUT");
	FILE *out = name != NULL && stacks > 0 ? fopen(name, "a") : NULL;
	if (out == NULL)
		return;
	fprintf(out, "stacks %lu\nframes %lu\nlost %zu\n", stacks, frames, lost);
	for (size_t i = 0; i < num_tallies; i++) {
		const struct tally *t = &tallies[i];
		Dl_info info;
		const char *file = "?";
		unsigned long base = 0;
		struct link_map *map;
		if (t->at != NULL && dladdr1((char *)t->at - 1, &info, (void **)&map, RTLD_DL_LINKMAP) != 0) {
			file = info.dli_fname;
			base = map->l_addr;
		}
		fprintf(out, "tally %s 0 %lu %#lx %#lx %#lx %s\n", t->kind, t->count, (unsigned long)t->at - base,
			(unsigned long)t->ours, (unsigned long)t->theirs, file);
	}
	fclose(out);
}
