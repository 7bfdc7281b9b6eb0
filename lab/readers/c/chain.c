/* Compares, in many places, the chains of glibc's backtrace() with those of the DWARF unwinder in a libgcc that
   is linked in statically, and so is not the one that backtrace() falls back to.

   Usage: chain LIBRARY SAMPLES

   LIBRARY is built from chainlib.c, or "-" in a static program. Prints for each scene its name, how many frames the
   DWARF unwinder finds, and "equal", "nothing" or "differs"; then the results of a profiling timer. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <ftw.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>
#include "last.h"

#define MOST 512

struct chain {
	void *pc[MOST];
	int n;
};

static _Unwind_Reason_Code one_frame(struct _Unwind_Context *context, void *arg)
{
	struct chain *c = arg;
	if (c->n == MOST)
		return _URC_END_OF_STACK;
	c->pc[c->n++] = (void *)_Unwind_GetIP(context);
	return _URC_NO_REASON;
}

#ifdef STATIC
/* In a static program, backtrace would fall back to the function with which it is compared. The linker redirects these
   calls to this stub, which finds no frames. */
extern _Unwind_Reason_Code __real__Unwind_Backtrace(_Unwind_Trace_Fn, void *);
_Unwind_Reason_Code __wrap__Unwind_Backtrace(_Unwind_Trace_Fn fn, void *arg)
{
	return _URC_END_OF_STACK;
}
#define dwarf_backtrace __real__Unwind_Backtrace
#else
#define dwarf_backtrace _Unwind_Backtrace
#endif

enum { EQUAL, NOTHING, DIFFERS };
static const char *const verdicts[] = {"equal", "nothing", "differs"};

/* Both chains begin in the same function, but at different calls. */
static int compare(const struct chain *a, struct chain *b)
{
	if (b->n > 1 && !b->pc[b->n - 1])
		b->n--; /* libgcc's last frame has no pc */
	if (a->n < 2)
		return NOTHING;
	if (a->n != b->n || memcmp(a->pc + 1, b->pc + 1, (a->n - 1) * sizeof *a->pc))
		return DIFFERS;
	return EQUAL;
}

/* A place is an address in a file. Signal handlers may call place. */
struct place {
	const char *file;
	unsigned long offset;
};

static struct place place(void *pc)
{
	static char *names[16];
	struct dl_find_object o;
	struct place p = {"?", (unsigned long)pc};
	if (_dl_find_object(pc, &o) || !o.dlfo_link_map)
		return p;
	const char *name = o.dlfo_link_map->l_name;
	name = !name || !*name ? "run" : strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
	p.offset -= o.dlfo_link_map->l_addr;
	/* The library's name is freed when the library is closed. */
	for (int i = 0; i < 16; i++) {
		if (!names[i]) {
			static char text[16][40];
			strncpy(text[i], name, sizeof text[i] - 1);
			names[i] = text[i];
		}
		if (!strcmp(names[i], name)) {
			p.file = names[i];
			break;
		}
	}
	return p;
}

static void print_places(const char *what, const struct place *p, int n)
{
	printf("  %s:", what);
	for (int i = 0; i < n; i++)
		printf(" %s+%#lx", p[i].file, p[i].offset);
	putchar('\n');
}

static void print_chain(const char *what, const struct chain *c)
{
	static struct place p[MOST];
	for (int i = 0; i < c->n; i++)
		p[i] = place(c->pc[i]);
	print_places(what, p, c->n);
}

__attribute__((noinline)) void check(const char *scene)
{
	struct chain a, b = {.n = 0};
	a.n = backtrace(a.pc, MOST);
	dwarf_backtrace(one_frame, &b);
	int verdict = compare(&a, &b);
	printf("%s %d %s\n", scene, b.n, verdicts[verdict]);
	if (verdict != EQUAL) {
		print_chain("backtrace", &a);
		print_chain("DWARF", &b);
	}
	fflush(stdout);
}

/* once runs the check for only the first of many calls from the same scene. */
static void once(const char *scene)
{
	static const char *last;
	if (last != scene)
		check(scene);
	last = scene;
}

static const char *scene;

static int cmp(const void *a, const void *b)
{
	once(scene);
	return *(const int *)a - *(const int *)b;
}
static void visit(const void *node, VISIT which, int depth) { once("twalk"); }
static int file(const char *path, const struct stat *st, int type, struct FTW *ftw) { return once("nftw"), 1; }
static int entry(const struct dirent *d) { return once("scandir"), 0; }
static int object(struct dl_phdr_info *info, size_t size, void *arg) { return once("dl_iterate_phdr"), 1; }
static ssize_t cookie_write(void *c, const char *b, size_t n) { return once("fopencookie"), n; }

static void sort(const char *name, int n)
{
	int *v = malloc(n * sizeof *v);
	for (int i = 0; i < n; i++)
		v[i] = i * 7919 % n;
	scene = name;
	qsort(v, n, sizeof *v, cmp);
	free(v);
}

static pthread_key_t key;
static void destructor(void *v) { check("destructor of a thread's key"); }
static void first(void) { check("pthread_once"); }
static void *thread(void *v)
{
	static pthread_once_t o = PTHREAD_ONCE_INIT;
	check("thread");
	sort("qsort in a thread", 1000);
	pthread_once(&o, first);
	pthread_setspecific(key, v);
	return v;
}

static sigjmp_buf jump;
static volatile int *volatile nowhere = (volatile int *)16;
static void handler(int sig)
{
	check(scene);
	if (sig == SIGSEGV || sig == SIGABRT)
		siglongjmp(jump, 1);
	if (sig == SIGUSR1) {
		scene = "signal in a signal handler";
		raise(SIGUSR2);
	}
}
static int cmp_signal(const void *a, const void *b)
{
	static int done;
	if (!done++) {
		scene = "signal in qsort";
		raise(SIGUSR2);
	}
	return *(const int *)a - *(const int *)b;
}

static volatile int expired;
static void timer_thread(union sigval v)
{
	check("thread of a timer");
	expired = 1;
}

static ucontext_t main_context, other_context;
static void other(void) { check("makecontext"); }

static void on_exit_handler(int status, void *arg) { check("on_exit"); }
static void at_exit_handler(void) { check("atexit"); }

__attribute__((noinline)) static int deep(int n)
{
	volatile char pad[64];
	pad[n % 64] = n;
	if (n == 0)
		check("200 frames");
	else
		deep(n - 1);
	return pad[n % 64];
}

__attribute__((noinline)) static int dynamic(int n)
{
	volatile char *p = __builtin_alloca(n);
	memset((void *)p, 0, n);
	check("alloca");
	return p[n / 2];
}

__attribute__((noinline)) static int aligned(int n)
{
	volatile char wide[64] __attribute__((aligned(64)));
	volatile char *p = __builtin_alloca(n); /* and so the frame is found through another register */
	wide[0] = p[0] = n;
	check("realigned stack");
	return wide[0] + p[0];
}

extern void __chk_fail(void);
void __stack_chk_fail(void) /* in place of glibc's */
{
	check("__stack_chk_fail");
	siglongjmp(jump, 1);
}

/* A call that does not return, at the end of a function without padding: the return address is in the next function. */
extern void last_call(void);
void never(void)
{
	check("call that does not return");
	siglongjmp(jump, 1);
}
asm(".pushsection .text\n"
    ".type last_call, @function\n"
    "last_call:\n"
    "	.cfi_startproc\n"
    "	sub $56, %rsp\n"
    "	.cfi_adjust_cfa_offset 56\n"
    "	call never\n"
    "	.cfi_endproc\n"
    ".size last_call, . - last_call\n"
    ".type after_last_call, @function\n"
    "after_last_call:\n"
    "	.cfi_startproc\n"
    "	ret\n"
    "	.cfi_endproc\n"
    ".size after_last_call, . - after_last_call\n"
    ".popsection\n");

/* Samples interrupt the program anywhere: in prologues, in PLT stubs, in ld.so. */
enum { FAILURES = 2000, DEPTH = 64 };
static volatile long samples, failures;
static struct failure {
	struct place a[DEPTH], b[DEPTH];
	int na, nb;
} failed[FAILURES];

static void sample(int sig, siginfo_t *info, void *context)
{
	static struct chain a, b; /* SIGPROF is blocked meanwhile, and in all threads but one */
	a.n = backtrace(a.pc, MOST);
	b.n = 0;
	dwarf_backtrace(one_frame, &b);
	samples++;
	if (compare(&a, &b) == EQUAL)
		return;
	if (failures < FAILURES) {
		struct failure *f = &failed[failures];
		for (f->na = 0; f->na < a.n && f->na < DEPTH; f->na++)
			f->a[f->na] = place(a.pc[f->na]);
		for (f->nb = 0; f->nb < b.n && f->nb < DEPTH; f->nb++)
			f->b[f->nb] = place(b.pc[f->nb]);
	}
	failures++;
}

static int cmp_plain(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static double work(int round)
{
	static int v[300];
	char buf[256], *end;
	double sum = 0;
	for (int i = 0; i < 300; i++)
		v[i] = (i * 7919 + round) % 300;
	qsort(v, 300, sizeof *v, cmp_plain);
	for (int i = 0; i < 20; i++) {
		snprintf(buf, sizeof buf, "%d %s %.17g %x", v[i], "text", sin(i + round) * i, i);
		sum += strtod(buf, &end) + strlen(buf) + atoi(strchr(buf, ' ') + 1);
		char *copy = strdup(buf);
		sum += strcmp(copy, buf) + (memchr(copy, 'x', 3) != 0);
		free(copy);
		struct tm tm;
		time_t t = round * 86400L + i;
		gmtime_r(&t, &tm);
		sum += strftime(buf, sizeof buf, "%A %d %B %Y %H:%M:%S", &tm) + pow(i, 1.5) + exp(i / 7.) + log(i + 1);
	}
	return sum;
}

static void sampled(const char *name, const char *library, long want)
{
	struct sigaction sa = {.sa_sigaction = sample, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct itimerval it = {{0, 500}, {0, 500}}, off = {{0, 0}, {0, 0}};
	static volatile double sum; /* keeps the work from being optimized away */
	samples = failures = 0;
	sigaction(SIGPROF, &sa, 0);
	setitimer(ITIMER_PROF, &it, 0);
	for (int round = 0; samples < want; round++) {
		sum += work(round);
		if (library && round % 8 == 0) { /* its functions are resolved again each time */
			void *h = dlopen(library, RTLD_LAZY);
			double (*f)(int) = h ? dlsym(h, "library_work") : 0;
			if (f)
				sum += f(round);
			if (h)
				dlclose(h);
		}
	}
	setitimer(ITIMER_PROF, &off, 0);
	signal(SIGPROF, SIG_IGN);
	printf("samples %s: %ld, not equal %ld\n", name, samples, failures);
	for (int i = 0; i < failures && i < FAILURES; i++) {
		print_places("backtrace", failed[i].a, failed[i].na);
		print_places("DWARF", failed[i].b, failed[i].nb);
	}
	fflush(stdout);
}

static void mask_sigprof(int how)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGPROF);
	pthread_sigmask(how, &set, 0);
}

static void *sampled_thread(void *arg)
{
	mask_sigprof(SIG_UNBLOCK);
	sampled("in a thread", 0, *(long *)arg);
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t t;
	struct sigaction sa = {.sa_handler = handler};
	long want = argc > 2 ? atol(argv[2]) : 0;
	const char *library = argc > 1 && strcmp(argv[1], "-") ? argv[1] : 0;
	if (argc != 3)
		return 2;
#ifndef STATIC
	printf("libgcc_s: %s\n", dlopen("libgcc_s.so.1", RTLD_LAZY) ? "there" : "none");
#endif
	check("main");
	deep(200);
	dynamic(argc * 100);
	sort("qsort of 10", 10);
	sort("qsort of 100000", 100000);
	int x = 3, v[] = {1, 2, 3, 4};
	size_t n = 4;
	scene = "bsearch";
	bsearch(&x, v, 4, sizeof *v, cmp);
	scene = "lfind";
	lfind(&x, v, &n, sizeof *v, cmp);
	void *root = 0;
	scene = "tsearch";
	for (int i = 0; i < 4; i++)
		tsearch(&v[i], &root, cmp);
	twalk(root, visit);
	nftw("/etc", file, 4, 0);
	struct dirent **names;
	scandir("/", &names, entry, alphasort);
	dl_iterate_phdr(object, 0);
	FILE *f = fopencookie(0, "w", (cookie_io_functions_t){.write = cookie_write});
	fprintf(f, "%d\n", 1);
	fclose(f);
	pthread_key_create(&key, destructor);
	pthread_create(&t, 0, thread, &x);
	pthread_join(t, 0);

	static char stack[1 << 16];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
	sigaltstack(&alternate, 0);
	sigaction(SIGUSR1, &sa, 0);
	sigaction(SIGUSR2, &sa, 0);
	sigaction(SIGALRM, &sa, 0);
	sigaction(SIGABRT, &sa, 0);
	sa.sa_flags = SA_ONSTACK;
	sigaction(SIGSEGV, &sa, 0);
	scene = "signal by raise";
	raise(SIGUSR1);
	qsort(v, 4, sizeof *v, cmp_signal);
	scene = "signal in nanosleep";
	ualarm(20000, 0);
	usleep(200000);
	scene = "fault, on another stack";
	if (!sigsetjmp(jump, 1))
		*nowhere = 0;
	scene = "fault in memcpy";
	if (!sigsetjmp(jump, 1))
		memcpy((void *)nowhere, stack, argc * 1000);
	scene = "jump to nowhere";
	if (!sigsetjmp(jump, 1))
		((void (*)(void))argv[0])();

	void (*volatile aborts)(int) = last_abort; /* if the compiler knew the function, main would end with the call */
	scene = "abort";
	if (!sigsetjmp(jump, 1))
		aborts(argc);
	if (!sigsetjmp(jump, 1))
		last_stack_chk_fail(argc);

	struct sigevent ev = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = timer_thread};
	timer_t timer;
	struct itimerspec soon = {.it_value = {0, 1000000}};
	if (!timer_create(CLOCK_MONOTONIC, &ev, &timer)) {
		timer_settime(timer, 0, &soon, 0);
		while (!expired)
			usleep(1000);
	}

	if (library) {
		void *h = dlopen(library, RTLD_LAZY);
		void (*call)(void (*)(const char *)) = h ? dlsym(h, "library_call") : 0;
		if (!call)
			printf("%s\n", dlerror());
		else
			call(check);
		if (h)
			dlclose(h);
	}

	sampled("in main", library, want);
	mask_sigprof(SIG_BLOCK);
	pthread_create(&t, 0, sampled_thread, &want);
	pthread_join(t, 0);

	/* Scenes that glibc or V2 does not support come last. */
	getcontext(&other_context);
	other_context.uc_stack.ss_sp = malloc(1 << 17);
	other_context.uc_stack.ss_size = 1 << 17;
	other_context.uc_link = &main_context;
	makecontext(&other_context, other, 0);
	swapcontext(&main_context, &other_context);
	aligned(argc * 10);
	if (!sigsetjmp(jump, 1))
		last_call();
	int messages = dup(2), null = open("/dev/null", O_WRONLY);
	dup2(null, 2);
	scene = "__chk_fail";
	if (!sigsetjmp(jump, 1))
		__chk_fail();
	dup2(messages, 2);
	atexit(at_exit_handler);
	on_exit(on_exit_handler, 0);
	return 0;
}
