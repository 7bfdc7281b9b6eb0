/*
 * Finds the ends of stacks without locks, and with system calls only where a stack may have been unmapped, for use in
 * signal handlers, new threads, and sandboxes.
 *
 * Two adjacent words in a thread's descriptor, struct pthread, are the address and the size of its stack. glibc does
 * not document their offset, but in the main thread they are 0 and __libc_stack_end. Alternate stacks and the stacks of
 * makecontext are recorded when they are set.
 *
 * Licence: BSD 3-Clause, like the rest of the project.
 */
#include "backtrace.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>

static struct sfw_range main_stack;
static size_t descriptor_at; /* of the words in struct pthread, or 0 */

static uint64_t descriptor_word(size_t i) { return sfw_load((uint64_t)(uintptr_t)pthread_self() + 8 * i); }

/* The lock for changes of the contexts is held by a thread, or is 0. It is on a page
 * that is zero after fork, when its owner is gone. */
static uint64_t lock_before_start, *lock = &lock_before_start;

/* sframe_learn_stacks finds the main thread's stack, and the words in struct pthread. Nothing else is mapped between
 * the start of that stack and its size limit. */
void sframe_learn_stacks(void) {
	/* The size of the smallest struct pthread in glibc 2.35 to 2.43. */
	enum { SIZE = 1856, MOST = 128 << 20 };
	extern void *__libc_stack_end;
	struct rlimit limit;
	const char *last = (const char *)sfw_auxval(AT_EXECFN);
	void *own = mmap(NULL, sizeof *lock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (own != MAP_FAILED && madvise(own, sizeof *lock, MADV_WIPEONFORK) == 0)
		lock = own;
	if (getpid() != syscall(SYS_gettid))
		return;
	for (size_t i = 1; i < SIZE / 8; i++)
		if (descriptor_word(i) == (uint64_t)(uintptr_t)__libc_stack_end && descriptor_word(i - 1) == 0)
			descriptor_at = i - 1;
	if (last == NULL || getrlimit(RLIMIT_STACK, &limit) != 0)
		return;
	const uint64_t page = sfw_auxval(AT_PAGESZ), size = limit.rlim_cur < MOST ? limit.rlim_cur : MOST;
	main_stack.high = (uint64_t)(uintptr_t)last + strlen(last) + 1;
	main_stack.low = ((main_stack.high + page - 1) & ~(page - 1)) - (size & ~(page - 1));
}

/* thread_stack returns the stack of the calling thread, or an empty range in the main thread. */
static struct sfw_range thread_stack(void) {
	struct sfw_range none = {0, 0};
	if (descriptor_at == 0)
		return none;
	uint64_t low = descriptor_word(descriptor_at), size = descriptor_word(descriptor_at + 1),
		guard = descriptor_word(descriptor_at + 2);
	return low == 0 || guard > size ? none : (struct sfw_range){low + guard, low + size};
}

/* Sanitizers call sigaltstack before their runtime is ready for instrumented code. */
__attribute__((no_sanitize("thread"))) static void set_range(struct sfw_range *r, uint64_t low, uint64_t high) {
	__atomic_store_n(&r->high, 0, __ATOMIC_SEQ_CST); /* concurrent readers find no stack */
	__atomic_store_n(&r->low, low, __ATOMIC_SEQ_CST);
	__atomic_store_n(&r->high, high, __ATOMIC_SEQ_CST);
}

static _Thread_local __attribute__((tls_model("initial-exec"))) struct sfw_range alternate;

__attribute__((no_sanitize("thread"))) PUBLIC int EXPORTED(sigaltstack)(const stack_t *new, stack_t *old) {
	int failed = (int)syscall(SYS_sigaltstack, new, old);
	if (failed == 0 && new != NULL) {
		uint64_t low = (uint64_t)(uintptr_t)new->ss_sp;
		set_range(&alternate, low, (new->ss_flags & SS_DISABLE) != 0 ? 0 : low + new->ss_size);
	}
	return failed;
}

/* Stacks passed to makecontext. One of up to 2^k bytes overlaps at most two aligned blocks of 2^k bytes, and is found
 * in a hash table by its blocks. Freed stacks remain until a new one overlaps them: see sframe_stack. The table may be
 * read at any time; a full one is replaced by a larger one. */
enum { MIN_BLOCK = 12, FIRST_SLOTS = 1024 };
struct contexts {
	uint64_t num; /* a power of two */
	struct sfw_range *slots; /* unused: low is 0; free again: high is 0 */
};
static struct contexts first_contexts = {FIRST_SLOTS, (struct sfw_range[FIRST_SLOTS]){{0, 0}}};
static struct contexts *contexts = &first_contexts;
static uint64_t num_used, sizes; /* bit k of sizes is set if a stack has blocks of 2^k bytes */

/* take_lock returns whether it could: a handler may have left makecontext for another context of this thread. */
static int take_lock(void) {
	const uint64_t self = (uint64_t)(uintptr_t)pthread_self();
	const int before = errno;
	uint64_t owner = 0;
	while (!__atomic_compare_exchange_n(lock, &owner, self, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED) && owner != self) {
		syscall(SYS_nanosleep, &(const struct timespec){0, 20000}, NULL);
		owner = 0;
	}
	errno = before;
	return owner == 0;
}

static unsigned block_size(const struct sfw_range *r) {
	uint64_t size = r->high - r->low;
	return size <= 1 << MIN_BLOCK ? MIN_BLOCK : 64 - (unsigned)__builtin_clzll(size - 1);
}

/* slot_of returns the i-th slot for a block. */
static struct sfw_range *slot_of(const struct contexts *t, uint64_t block, uint64_t i) {
	return &t->slots[((block * 0x9e3779b97f4a7c15U >> 32) + i) & (t->num - 1)];
}

/* put_context stores a stack under each of its blocks. */
static void put_context(const struct contexts *t, const struct sfw_range *r) {
	for (uint64_t k = block_size(r), block = r->low >> k; block <= (r->high - 1) >> k; block++) {
		uint64_t i = 0;
		while (slot_of(t, block, i)->high != 0)
			i++;
		num_used += slot_of(t, block, i)->low == 0;
		set_range(slot_of(t, block, i), r->low, r->high);
	}
	__atomic_fetch_or(&sizes, (uint64_t)1 << block_size(r), __ATOMIC_RELEASE);
}

/* has_context returns whether a table contains a stack. */
static int has_context(const struct contexts *t, const struct sfw_range *r) {
	const struct sfw_range *slot;
	for (uint64_t i = 0; (slot = slot_of(t, r->low >> block_size(r), i))->low != 0; i++)
		if (slot->low == r->low && slot->high == r->high)
			return 1;
	return 0;
}

/* drop_overlapping removes the stacks that overlap a new one. They may also have a block before it or after it. */
static void drop_overlapping(const struct sfw_range *new) {
	for (uint64_t left = sizes; left != 0; left &= left - 1)
		for (uint64_t k = (uint64_t)__builtin_ctzll(left), b = (new->low >> k) - (new->low >> k != 0);
			b <= ((new->high - 1) >> k) + 1; b++)
			for (uint64_t i = 0; slot_of(contexts, b, i)->low != 0; i++) {
				struct sfw_range *old = slot_of(contexts, b, i);
				if (old->low < new->high && old->high > new->low)
					set_range(old, old->low, 0);
			}
}

/* grow_contexts replaces the table with a larger one, and returns whether it could. */
static int grow_contexts(void) {
	const uint64_t num = 2 * contexts->num;
	struct contexts *t = mmap(NULL, sizeof *t + num * sizeof *t->slots, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (t == MAP_FAILED)
		return 0;
	*t = (struct contexts){num, (struct sfw_range *)(t + 1)};
	num_used = 0;
	for (uint64_t i = 0; i < contexts->num; i++)
		if (contexts->slots[i].high != 0 && !has_context(t, &contexts->slots[i]))
			put_context(t, &contexts->slots[i]);
	__atomic_store_n(&contexts, t, __ATOMIC_RELEASE);
	return 1;
}

NEEDS_NEXT_OF(void, makecontext, ucontext_t *context, void (*function)(void), int n, ...)

#ifndef SFRAME_BACKTRACE_WRAP
void sframe_find_contexts(void *file) { SET_NEXT(void, makecontext) }
#endif

/* sframe_note_context records a stack, and returns libc's makecontext. */
typedef void make_context(ucontext_t *, void (*)(void), int, ...);
__attribute__((used)) INNER make_context *sframe_note_context(const ucontext_t *context);
make_context *sframe_note_context(const ucontext_t *context) {
	struct sfw_range r = {(uint64_t)(uintptr_t)context->uc_stack.ss_sp, context->uc_stack.ss_size};
	r.high += r.low;
	sframe_ready();
	if (r.low != 0 && r.high > r.low && take_lock()) {
		if (!has_context(contexts, &r)) {
			drop_overlapping(&r);
			if (2 * (num_used + 2) <= contexts->num || grow_contexts())
				put_context(contexts, &r);
		}
		__atomic_store_n(lock, 0, __ATOMIC_RELEASE);
	}
	return NEXT(makecontext);
}

/* makecontext takes any number of arguments; PASS_ON leaves them in registers and on the stack. */
#if defined(__x86_64__)
#define PASS_ON \
	"endbr64\n\tpush %rdi\n\tpush %rsi\n\tpush %rdx\n\tpush %rcx\n\tpush %r8\n\tpush %r9\n\tpush %rax\n\t" \
	".cfi_adjust_cfa_offset 56\n\tcall sframe_note_context\n\tmov %rax, %r11\n\t" \
	"pop %rax\n\tpop %r9\n\tpop %r8\n\tpop %rcx\n\tpop %rdx\n\tpop %rsi\n\tpop %rdi\n\t" \
	".cfi_adjust_cfa_offset -56\n\tjmp *%r11\n"
#elif defined(__aarch64__)
#define PASS_ON \
	"hint #34\n\tstp x29, x30, [sp, #-80]!\n\t.cfi_adjust_cfa_offset 80\n\t.cfi_offset 29, -80\n\t" \
	".cfi_offset 30, -72\n\tstp x0, x1, [sp, #16]\n\tstp x2, x3, [sp, #32]\n\tstp x4, x5, [sp, #48]\n\t" \
	"stp x6, x7, [sp, #64]\n\tbl sframe_note_context\n\tmov x16, x0\n\tldp x0, x1, [sp, #16]\n\t" \
	"ldp x2, x3, [sp, #32]\n\tldp x4, x5, [sp, #48]\n\tldp x6, x7, [sp, #64]\n\tldp x29, x30, [sp], #80\n\t" \
	".cfi_adjust_cfa_offset -80\n\t.cfi_restore 29\n\t.cfi_restore 30\n\tbr x16\n"
#elif defined(__s390x__)
#define PASS_ON \
	"stmg %r2, %r15, 16(%r15)\n\t.cfi_offset 14, -48\n\t.cfi_offset 15, -40\n\taghi %r15, -160\n\t" \
	".cfi_adjust_cfa_offset 160\n\tbrasl %r14, sframe_note_context\n\tlgr %r1, %r2\n\tlmg %r2, %r15, 176(%r15)\n\t" \
	".cfi_adjust_cfa_offset -160\n\t.cfi_restore 14\n\t.cfi_restore 15\n\tbr %r1\n"
#endif
#define NAME TEXT(EXPORTED(makecontext))
__asm__(".text\n.globl " NAME "\n.type " NAME ", %function\n" NAME ":\n\t.cfi_startproc\n\t" PASS_ON
	"\t.cfi_endproc\n.size " NAME ", . - " NAME "\n");

/* in_range returns whether sp is in a stack, or up to a number of bytes below it, as after a stack overflow. It sets
 * *stack to the part of the stack from sp up. */
static int in_range(const struct sfw_range *r, uint64_t sp, uint64_t below, struct sfw_range *stack) {
	uint64_t high = __atomic_load_n(&r->high, __ATOMIC_SEQ_CST), low = __atomic_load_n(&r->low, __ATOMIC_SEQ_CST);
	if (sp >= high || sp + below < low || __atomic_load_n(&r->high, __ATOMIC_SEQ_CST) != high)
		return 0;
	*stack = (struct sfw_range){sp > low ? sp : low, high};
	return 1;
}

/* context_stack finds the stack that contains sp, or else the nearest one above it. */
static int context_stack(uint64_t sp, uint64_t below, struct sfw_range *stack) {
	const struct contexts *t = __atomic_load_n(&contexts, __ATOMIC_ACQUIRE);
	struct sfw_range found = {UINT64_MAX, 0}, next;
	for (uint64_t left = __atomic_load_n(&sizes, __ATOMIC_RELAXED); left != 0; left &= left - 1) {
		const struct sfw_range *slot;
		const uint64_t k = (uint64_t)__builtin_ctzll(left);
		for (uint64_t block = sp >> k; block <= (sp + below) >> k && block <= found.low >> k; block++)
			for (uint64_t i = 0; __atomic_load_n(&(slot = slot_of(t, block, i))->low, __ATOMIC_RELAXED) != 0; i++)
				if (in_range(slot, sp, below, &next) && next.low < found.low)
					found = next;
	}
	if (found.high != 0)
		*stack = found;
	return found.high != 0;
}

/* is_mapped asks the kernel, which reads 8 bytes of a page before it rejects the first argument. */
static int is_mapped(uint64_t page) { return syscall(SYS_rt_sigprocmask, -1, page, NULL, 8) < 0 && errno == EINVAL; }

/* keep_mapped reduces a stack to its first mapped part, and returns whether there is one near its low end. */
static int keep_mapped(struct sfw_range *stack) {
	enum { PAGE = 4096, MOST = 16 };
	int before = errno;
	uint64_t page = stack->low & ~(uint64_t)(PAGE - 1), last = page + MOST * PAGE;
	while (page < last && page < stack->high && !is_mapped(page))
		page += PAGE;
	stack->low = page > stack->low ? page : stack->low;
	while (page < stack->high && is_mapped(page))
		page += PAGE;
	stack->high = page < stack->high ? page : stack->high;
	errno = before;
	return stack->low < stack->high;
}

/* sframe_stack finds the used part, from sp up, of the stack that contains sp, and returns whether it succeeded. After
 * a signal, sp may have any value. It may be below the stack: in a guard page, or beyond it by the size of a frame. It
 * may be in a coroutine's or an alternate stack that was unmapped, so these make a system call for each page. */
int sframe_stack(uint64_t sp, int signal, struct sfw_range *stack) {
	enum { BELOW = 1 << 24 };
	struct sfw_range thread = thread_stack(), other;
	if (in_range(&thread, sp, 0, stack) || in_range(&main_stack, sp, 0, stack))
		return 1;
	if (in_range(&alternate, sp, 0, stack) || context_stack(sp, 0, stack))
		return !signal || keep_mapped(stack);
	if (!signal)
		return 0;
	int own = in_range(&thread, sp, BELOW, stack) || in_range(&main_stack, sp, BELOW, stack);
	if (!context_stack(sp, BELOW, &other) || (own && stack->low < other.low) || !keep_mapped(&other))
		return own;
	*stack = other;
	return 1;
}

/* sframe_context_begins returns whether sp is at the start of a makecontext stack. A function called there returns to
 * libc code that has neither a caller nor a row. */
int sframe_context_begins(uint64_t sp) {
	enum { ARGUMENTS = 512 };
	struct sfw_range stack;
	return context_stack(sp, 0, &stack) && stack.high - sp <= ARGUMENTS;
}
