/*
 * Many threads capture stack traces; timer handlers interrupt them and capture more, while threads load and unload
 * files and fork. Each trace must match libgcc's, which may end earlier, at code without CFI, and errno must be
 * unchanged. Prints "done" or what is wrong. Arguments: seconds, threads, plugins.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

enum { MAX = 128, DEPTH = 12, SMALL_STACK = 1 << 16, MAX_FORKS = 16 };
static int stop;
static pthread_barrier_t begin; /* running threads would slow down the creation of others */
static unsigned long traces, wrong, shorts, loads, forks;
static int shorter;
static char **plugins;
static int num_plugins;
/* TSan does not see the dynamic linker's lock. */
static pthread_mutex_t linker = PTHREAD_MUTEX_INITIALIZER;
#ifdef __SANITIZE_THREAD__
#define LINKER(does) (pthread_mutex_##does(&linker))
#else
#define LINKER(does) ((void)linker)
#endif

static _Unwind_Reason_Code (*backtrace_of_libgcc)(_Unwind_Trace_Fn, void *);
static _Unwind_Ptr (*ip_of_libgcc)(struct _Unwind_Context *);

struct chain {
	int n;
	void *frames[MAX];
};

static _Unwind_Reason_Code add(struct _Unwind_Context *c, void *chain) {
	struct chain *all = chain;
	void *ip = (void *)ip_of_libgcc(c);
	if (all->n == MAX || ip == NULL)
		return _URC_NORMAL_STOP;
	all->frames[all->n++] = ip;
	return _URC_NO_REASON;
}

static void handler(int number) {
	struct chain other = {0, {NULL}};
	void *frames[MAX];
	int before = errno;
	errno = EDOM;
	int n = backtrace(frames, MAX), changed = errno != EDOM;
	errno = before;
	backtrace_of_libgcc(add, &other);
	__atomic_add_fetch(&traces, 1, __ATOMIC_RELAXED);
	/* A trace ends in interrupted code without a row. */
	int least = number != 0 && n < other.n ? n : other.n;
	__atomic_add_fetch(&shorts, least < other.n, __ATOMIC_RELAXED);
	if (changed || n < least || memcmp(frames + 1, other.frames + 1, (size_t)(least - 1) * sizeof *frames) != 0)
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
}

static void spin(const char *unused) {
	(void)unused;
	handler(0);
	for (volatile int i = 0; i < 2000; i++)
		;
}

static __attribute__((noinline)) int descend(int depth) {
	volatile int kept = depth;
	if (depth > 0)
		return descend(depth - 1) + kept;
	spin(NULL);
	return kept;
}

static void load(unsigned i) {
	LINKER(lock);
	void *file = dlopen(plugins[i % (unsigned)num_plugins], RTLD_NOW);
	LINKER(unlock);
	void (*call)(void (*)(const char *), const char *);
	void *found = file != NULL ? dlsym(file, "call") : NULL;
	memcpy(&call, &found, sizeof found);
	if (call == NULL) {
		printf("%s\n", dlerror());
		exit(1);
	}
	call(spin, "");
	LINKER(lock);
	dlclose(file);
	LINKER(unlock);
	__atomic_add_fetch(&loads, 1, __ATOMIC_RELAXED);
}

static void fork_once(void) {
	static int forking;
	/* Limited, because threads that fork at the same time wait for each other. */
	pid_t child = __atomic_fetch_add(&forking, 1, __ATOMIC_RELAXED) < MAX_FORKS ? fork() : -1;
	if (child == 0) {
		unsigned long before = wrong;
		handler(0);
		_exit(wrong != before);
	}
	int status = 0;
	while (child > 0 && waitpid(child, &status, 0) < 0)
		;
	if (status != 0)
		__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&forks, child > 0, __ATOMIC_RELAXED);
	__atomic_sub_fetch(&forking, 1, __ATOMIC_RELAXED);
}

static void work(unsigned kind) {
	if (kind % 8 == 1)
		load(kind / 8);
	else if (kind % 64 == 2)
		fork_once();
	else
		descend(DEPTH);
}

static void *loop(void *number) {
	stack_t alternate = {0};
	if ((uintptr_t)number % 2 == 0) {
		alternate.ss_sp = malloc(SMALL_STACK);
		alternate.ss_size = SMALL_STACK;
		sigaltstack(&alternate, NULL);
	}
	pthread_barrier_wait(&begin);
	for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++)
		work((unsigned)(uintptr_t)number + i);
	alternate.ss_flags = SS_DISABLE;
	sigaltstack(&alternate, NULL);
	free(alternate.ss_sp);
	return NULL;
}

int main(int n, char **arguments) {
	if (n < 4)
		return 2;
	double seconds = atof(arguments[1]);
	size_t num = (size_t)atoi(arguments[2]);
	shorter = getenv("SHORT") != NULL;
	plugins = arguments + 3;
	num_plugins = n - 3;
	void *file = dlopen("libgcc_s.so.1", RTLD_LAZY);
	backtrace_of_libgcc = (_Unwind_Reason_Code (*)(_Unwind_Trace_Fn, void *))dlsym(file, "_Unwind_Backtrace");
	ip_of_libgcc = (_Unwind_Ptr (*)(struct _Unwind_Context *))dlsym(file, "_Unwind_GetIP");
	pthread_t *threads = calloc(num, sizeof *threads);
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = handler;
	action.sa_flags = SA_ONSTACK | SA_RESTART;
	sigaction(SIGALRM, &action, NULL);
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 18);
	pthread_barrier_init(&begin, NULL, (unsigned)num + 1);
	for (size_t i = 0; i < num; i++)
		if (pthread_create(&threads[i], &small, loop, (void *)(uintptr_t)i) != 0)
			return 3;
	pthread_barrier_wait(&begin);
	/* Send the timer's signals to each thread in turn: signals to a process mostly reach its main thread. */
	struct timespec pause = {0, 200000}, now, end;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += (time_t)seconds;
	for (size_t i = 0;; i++) {
		pthread_kill(threads[i % num], SIGALRM);
		nanosleep(&pause, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec > end.tv_nsec))
			break;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (size_t i = 0; i < num; i++)
		pthread_join(threads[i], NULL);
	free(threads);
	fprintf(stderr, "%lu traces, %lu shorter, %lu loads, %lu forks\n", traces, shorts, loads, forks);
	/* With all sections, such code is only the vDSO and the dynamic linker's resolver. */
	if (!shorter && shorts > traces / 1000)
		printf("%lu of %lu traces are shorter\n", shorts, traces);
	if (wrong > 0 || traces == 0 || loads == 0 || forks == 0)
		printf("%lu of %lu traces are wrong, %lu loads, %lu forks\n", wrong, traces, loads, forks);
	else
		puts("done");
	return 0;
}
