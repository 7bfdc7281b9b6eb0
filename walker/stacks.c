/*
 * Records the stacks of sigaltstack and makecontext, and finds the ends of stacks.
 *
 * Licence: BSD 3-Clause, like the rest of the project.
 */
#include "backtrace.h"

#include <signal.h>
#include <ucontext.h>

static struct sfw_stacks stacks;

void sframe_learn_stacks(void) { sfw_learn_stacks(&stacks); }

static _Thread_local __attribute__((tls_model("initial-exec"))) struct sfw_range alternate;

__attribute__((no_sanitize("thread"))) PUBLIC int EXPORTED(sigaltstack)(const stack_t *new, stack_t *old) {
	int failed = (int)syscall(SYS_sigaltstack, new, old);
	if (failed == 0 && new != NULL) {
		uint64_t low = (uint64_t)(uintptr_t)new->ss_sp;
		sfw_set_range(&alternate, low, (new->ss_flags & SS_DISABLE) != 0 ? 0 : low + new->ss_size);
	}
	return failed;
}

NEEDS_NEXT_OF(void, makecontext, ucontext_t *context, void (*function)(void), int n, ...)

#ifndef SFRAME_BACKTRACE_WRAP
void sframe_find_contexts(void *file) { SET_NEXT(void, makecontext) }
#endif

/* sframe_note_context records a stack, and returns libc's makecontext. */
typedef void make_context(ucontext_t *, void (*)(void), int, ...);
__attribute__((used)) INNER make_context *sframe_note_context(const ucontext_t *context);
make_context *sframe_note_context(const ucontext_t *context) {
	sframe_ready();
	sfw_add_stack(&stacks, (uint64_t)(uintptr_t)context->uc_stack.ss_sp, context->uc_stack.ss_size);
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

/* sframe_stack is sfw_find_stack for the calling thread. */
int sframe_stack(uint64_t sp, int signal, struct sfw_range *stack) {
	return sfw_find_stack(&stacks, sp, signal, &alternate, stack);
}

/* sframe_context_begins returns whether sp is at the start of a makecontext stack. A function called there returns to
 * libc code that has neither a caller nor a row. */
int sframe_context_begins(uint64_t sp) {
	enum { ARGUMENTS = 512 };
	struct sfw_range stack;
	return sfw_added_stack(&stacks, sp, 0, &stack) && stack.high - sp <= ARGUMENTS;
}
