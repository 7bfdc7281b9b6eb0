/*
 * Cursors of libunwind. If no section describes the frame, or if SFrame cannot answer a call, a cursor becomes one of
 * libunwind's, with the same context and at the same frame.
 */
#include "backtrace.h"

/* libunwind has two variants of each function: one for stacks of this process, and one for any stack. */
#if defined(__x86_64__)
#define UNW_LOCAL(name) JOIN(_ULx86_64_, name)
#define UNW_ANY(name) JOIN(_Ux86_64_, name)
#define UNW_MACHINE x86_64
enum { UNW_SP = 7, UNW_FP = 6, UNW_IP = 16, UNW_CFA = 17 };
#elif defined(__aarch64__)
#define UNW_LOCAL(name) JOIN(_ULaarch64_, name)
#define UNW_ANY(name) JOIN(_Uaarch64_, name)
#define UNW_MACHINE aarch64
enum { UNW_SP = 31, UNW_FP = 29, UNW_IP = 32, UNW_CFA = 31 };
#elif defined(__s390x__)
#define UNW_LOCAL(name) JOIN(_ULs390x_, name)
#define UNW_ANY(name) JOIN(_Us390x_, name)
#define UNW_MACHINE s390x
enum { UNW_SP = 15, UNW_FP = 11, UNW_IP = 33, UNW_CFA = 15 };
#endif

typedef uint64_t word;

/* Functions that take a cursor, except those defined below. All arguments are passed on. */
#define OF_CURSORS(of, name) \
	of(int, name(set_reg), void *cursor, word a, word b, word c, word d) \
	of(int, name(get_fpreg), void *cursor, word a, word b, word c, word d) \
	of(int, name(get_save_loc), void *cursor, word a, word b, word c, word d) \
	of(int, name(is_signal_frame), void *cursor, word a, word b, word c, word d) \
	of(int, name(get_proc_info), void *cursor, word a, word b, word c, word d) \
	of(int, name(get_proc_name), void *cursor, word a, word b, word c, word d) \
	of(int, name(reg_states_iterate), void *cursor, word a, word b, word c, word d) \
	of(int, name(apply_reg_state), void *cursor, word a, word b, word c, word d) \
	of(int, name(get_elf_filename), void *cursor, word a, word b, word c, word d) \
	of(int, name(resume), void *cursor, word a, word b, word c, word d)
#define OF_LIBUNWIND(of, name) \
	of(int, name(init_local), void *cursor, void *context) \
	of(int, name(init_local2), void *cursor, void *context, int flag) \
	of(int, name(step), void *cursor) \
	of(int, name(get_reg), void *cursor, int reg, word *value) \
	OF_CURSORS(of, name)
#define ALL(of) OF_LIBUNWIND(of, UNW_LOCAL) OF_LIBUNWIND(of, UNW_ANY) of(int, unw_backtrace, void **array, int size)
ALL(NEXT_OF)
/* FOUND is NEXT for functions that libunwind itself calls. In a thread started by an allocator, it may call them before
 * this library has looked up the originals. */
#define FOUND(name) (NEXT(name) == NULL ? sframe_find_cursors() : (void)0, NEXT(name))

enum { NO_INFO = -10, BAD_REGISTER = -3, INIT_SIGNAL_FRAME = 1 };
struct cursor {
	uint64_t magic[2];
	struct sfw_regs regs;
	void *context;
	int flag, any;
	struct sfw_range mapped; /* found by probes */
	uint8_t signal;          /* the walk has reached code that a signal interrupted */
};
struct unwinder {
	int (*init)(void *, void *, int);
	int (*step)(void *);
	int (*get_reg)(void *, int, word *);
};

static struct cursor *cursor_of(void *cursor) {
	struct cursor *c = cursor;
	return memcmp(c->magic, sframe_magic, sizeof sframe_magic) == 0 ? c : NULL;
}

static int init_cursor(void *cursor, void *context, int flag, int any) {
	struct cursor *c = cursor;
	memcpy(c->magic, sframe_magic, sizeof sframe_magic);
	sfw_regs_of_context(&c->regs, context);
	if (flag != INIT_SIGNAL_FRAME)
		c->regs.interrupted = 0;
	c->context = context;
	c->flag = flag;
	c->any = any;
	c->signal = c->regs.interrupted != 0;
	c->mapped = (struct sfw_range){0, 0};
	sframe_ready();
	return 0;
}

/* convert_cursor turns a cursor of this library into a libunwind cursor, and returns whether it could. */
static int convert_cursor(struct cursor *c) {
	const struct unwinder unwinders[] = {
		{NEXT(UNW_LOCAL(init_local2)), NEXT(UNW_LOCAL(step)), NEXT(UNW_LOCAL(get_reg))},
		{NEXT(UNW_ANY(init_local2)), NEXT(UNW_ANY(step)), NEXT(UNW_ANY(get_reg))},
	}, *u = &unwinders[c->any];
	const uint64_t pc = c->regs.pc;
	uint64_t sp = 0, ip, at;
	if (sframe_otherwise != BY_DWARF || u->init == NULL || u->step == NULL || u->get_reg == NULL)
		return 0;
	sfw_get(&c->regs, sfw_abi_of(SFW_HOST_ABI)->sp, &sp);
	if (u->init(c, c->context, c->flag) < 0)
		return 0;
	do {
		if (u->get_reg(c, UNW_IP, &ip) < 0 || u->get_reg(c, UNW_SP, &at) < 0)
			return 0;
		if (ip == pc && at == sp)
			return 1;
	} while (u->step(c) > 0);
	return 0;
}

/* step_original steps a cursor of libunwind. */
static int step_original(void *cursor, int (*step)(void *), int (*get_reg)(void *, int, word *)) {
	word ip;
	if (sframe_statistics != NULL && get_reg != NULL && get_reg(cursor, UNW_IP, &ip) == 0)
		sframe_count(ip, 0);
	return step(cursor);
}

static int step_cursor(struct cursor *c, int (*step)(void *), int (*get_reg)(void *, int, word *)) {
	struct walk w;
	struct sfw_frame frame;
	uint64_t sp = 0;
	if (c->regs.pc == 0)
		return 0;
	sfw_get(&c->regs, sfw_abi_of(SFW_HOST_ABI)->sp, &sp);
	sframe_start_walk(&w, sp, c->signal, c->mapped);
	enum sfw_how end = sframe_next(&w, &c->regs, &frame);
	c->signal = w.signal;
	c->mapped = w.process.stacks[SFW_NUM_STACKS - 1];
	if (end == SFW_FULL)
		return 1;
	if (end == SFW_OUTERMOST || end == SFW_ZERO || !sframe_may_leave(&w, &c->regs, 0)) {
		c->regs.pc = 0;
		return 0;
	}
	return convert_cursor(c) ? step_original(c, step, get_reg) : NO_INFO;
}

int sframe_can_guess(void) { return NEXT(unw_backtrace) != NULL; }

/* sframe_guess takes a trace with libunwind, from the frame at pc on. A large array loses frames of this library. */
int sframe_guess(void **array, int size, void *pc) {
	enum { INNER_FRAMES = 3, MOST = 64 };
	const int more = size <= MOST ? INNER_FRAMES : 0;
	void *space[INNER_FRAMES + MOST], **list = size <= MOST ? space : array;
	int n = NEXT(unw_backtrace)(list, size + more), i = 0;
	while (i < n && i < INNER_FRAMES && list[i] != pc)
		i++;
	n = n - i < size ? n - i : size;
	memmove(array, list + i, (size_t)n * sizeof *array);
	return n;
}

static int get_reg_of_cursor(const struct cursor *c, int reg, word *value) {
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	if (reg == UNW_IP) {
		*value = c->regs.pc;
		return 0;
	}
	reg = reg == UNW_SP || reg == UNW_CFA ? a->sp : reg == UNW_FP ? a->fp : -1;
	return reg >= 0 && sfw_get(&c->regs, (unsigned)reg, value) ? 0 : BAD_REGISTER;
}

/* is_libunwind returns whether code belongs to libunwind, whose internal cursors must remain its own. */
static int is_libunwind(const void *code) {
	struct dl_find_object o;
	return _dl_find_object((void *)(uintptr_t)code, &o) == 0 && strstr(o.dlfo_link_map->l_name, "/libunwind") != NULL;
}

#define CURSORS(name, any) \
	PUBLIC int EXPORTED(name(init_local))(void *cursor, void *context) { \
		return is_libunwind(__builtin_return_address(0)) && FOUND(name(init_local)) != NULL \
			? NEXT(name(init_local))(cursor, context) : init_cursor(cursor, context, 0, any); \
	} \
	PUBLIC int EXPORTED(name(init_local2))(void *cursor, void *context, int flag) { \
		return is_libunwind(__builtin_return_address(0)) && FOUND(name(init_local2)) != NULL \
			? NEXT(name(init_local2))(cursor, context, flag) : init_cursor(cursor, context, flag, any); \
	} \
	PUBLIC int EXPORTED(name(step))(void *cursor) { \
		struct cursor *c = cursor_of(cursor); \
		if (c != NULL) \
			return step_cursor(c, NEXT(name(step)), NEXT(name(get_reg))); \
		return FOUND(name(step)) != NULL ? step_original(cursor, NEXT(name(step)), NEXT(name(get_reg))) : NO_INFO; \
	} \
	PUBLIC int EXPORTED(name(get_reg))(void *cursor, int reg, word *value) { \
		struct cursor *c = cursor_of(cursor); \
		if (c != NULL && get_reg_of_cursor(c, reg, value) == 0) \
			return 0; \
		if (c != NULL && !convert_cursor(c)) \
			return BAD_REGISTER; \
		return FOUND(name(get_reg)) != NULL ? NEXT(name(get_reg))(cursor, reg, value) : NO_INFO; \
	}
CURSORS(UNW_LOCAL, 0)
CURSORS(UNW_ANY, 1)

#define PASS_ON(type, name, ...) \
	PUBLIC type EXPORTED(name)(__VA_ARGS__) { \
		if (FOUND(name) == NULL || (cursor_of(cursor) != NULL && !convert_cursor(cursor_of(cursor)))) \
			return NO_INFO; \
		return NEXT(name)(cursor, a, b, c, d); \
	}
OF_CURSORS(PASS_ON, UNW_LOCAL)
OF_CURSORS(PASS_ON, UNW_ANY)

#ifndef SFRAME_BACKTRACE_WRAP
static void find_libunwind(void *file) { ALL(SET_NEXT) }

/* find_in finds libunwind's functions if libunwind is loaded, even if after this library, where RTLD_NEXT does not
 * search. */
static void find_in(const char *name) {
	void *file = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
	if (file == NULL)
		return;
	find_libunwind(file);
	dlclose(file);
}
#endif

void sframe_find_cursors(void) {
#ifndef SFRAME_BACKTRACE_WRAP
	find_libunwind(RTLD_NEXT);
	find_in("libunwind.so.8");
	find_in("libunwind-" TEXT(UNW_MACHINE) ".so.8");
#endif
}
