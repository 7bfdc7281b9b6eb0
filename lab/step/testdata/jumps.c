/* jumps N: control transfers other than calls and returns, N times: longjmp, signal handlers on both stacks,
 * siglongjmp out of them, faults, contexts, threads, a child. With ALONE, without threads, a child and jumps out of
 * handlers, through which QEMU does not step reliably. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __aarch64__
/* Makes libgcc use atomic operations without loops, which would not end under QEMU's single steps. */
_Bool __aarch64_have_lse_atomics = 1;
#endif

static jmp_buf plain;
static sigjmp_buf masked;
static volatile int handled, switched, *volatile nowhere = (int *)8;
static ucontext_t left, right, back;
static char leftstack[65536], rightstack[65536], altstack[65536];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;

__attribute__((noinline)) static void deep(int n) {
	volatile char local[64];
	memset((char *)local, n, sizeof local);
	if (!n)
		longjmp(plain, 1);
	deep(n - 1);
	local[1]++;
}

static void count(int sig) {
	char text[64];
	snprintf(text, sizeof text, "%d %d", sig, handled++);
}

static void leave(int sig) { siglongjmp(masked, sig); }

static void goleft(void) {
	for (int i = 0; i < 5; i++, switched++)
		swapcontext(&left, &right);
}

static void goright(void) {
	for (int i = 0; i < 5; i++, switched++)
		swapcontext(&right, &left);
}

static void *add(void *x) {
	char text[64];
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&lock);
		sum += (long)x;
		pthread_mutex_unlock(&lock);
	}
	snprintf(text, sizeof text, "%f", (double)(long)x);
	return NULL;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void handle(int sig, void (*handler)(int), int flags) {
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags};
	sigaction(sig, &act, NULL);
}

static void once(void) {
	for (volatile int i = 0; i < 10; i++)
		if (!setjmp(plain))
			deep(i);
	handle(SIGUSR1, count, 0);
	for (int i = 0; i < 5; i++)
		raise(SIGUSR1);
#ifndef ALONE
	handle(SIGUSR2, leave, 0);
	for (volatile int i = 0; i < 3; i++)
		if (!sigsetjmp(masked, 1))
			raise(SIGUSR2);
	stack_t alt = {.ss_sp = altstack, .ss_size = sizeof altstack};
	sigaltstack(&alt, NULL);
	handle(SIGUSR1, count, SA_ONSTACK | SA_RESTART);
	for (int i = 0; i < 5; i++)
		raise(SIGUSR1);
	handle(SIGSEGV, leave, SA_ONSTACK | SA_NODEFER);
	for (volatile int i = 0; i < 3; i++)
		if (!sigsetjmp(masked, 1))
			*nowhere = 1;
#else
	(void)leave;
#endif

	getcontext(&left);
	left.uc_stack.ss_sp = leftstack;
	left.uc_stack.ss_size = sizeof leftstack;
	left.uc_link = &back;
	makecontext(&left, goleft, 0);
	getcontext(&right);
	right.uc_stack.ss_sp = rightstack;
	right.uc_stack.ss_size = sizeof rightstack;
	right.uc_link = &back;
	makecontext(&right, goright, 0);
	swapcontext(&back, &left);

#ifndef ALONE
	pthread_t threads[4];
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, add, (void *)i);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	int status;
	pid_t pid = fork();
	if (!pid)
		_exit(3);
	waitpid(pid, &status, 0);
	sum += WEXITSTATUS(status);
#else
	add((void *)1);
#endif
	int numbers[64];
	for (int i = 0; i < 64; i++)
		numbers[i] = i * 37 % 64;
	qsort(numbers, 64, sizeof *numbers, compare);
}

int main(int argc, char **argv) {
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--)
		once();
	printf("%d handled, %d switched, sum %ld\n", handled, switched, sum);
	return 0;
}
