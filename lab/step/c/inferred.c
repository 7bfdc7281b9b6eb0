/*
 * Compares rows of code without CFI with what the processor does. Loaded through LD_PRELOAD. $STEP_ENTRIES lists
 * the starts of functions, which get breakpoints. Up to $STEP_CALLS calls to each are single-stepped in the
 * process: a step takes 8 microseconds of processor time; with ptrace, 32 (28 November 2026).
 *
 * The ground truth is a shadow stack. A call adds a frame, and the return to the caller removes it.
 */
#define _GNU_SOURCE
#include "sframe_process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { TRAP_FLAG = 0x100, INT3 = 0xcc, RBP = 6, RSP = 7, PAGE = 4096 };
enum { ENTRIES = 1 << 19, SITES = 1 << 21, FILES = 256, FRAMES = 64, REMOVED = 256 };
enum { MAX_FOREIGN = 2000 }; /* steps in code with CFI before a call is abandoned */

/* An address where a function begins. */
struct entry {
	unsigned char *at, byte;
	uint64_t calls;
};

/* An instruction that was executed, and its row. */
struct site {
	uint64_t pc;
	enum { UNKNOWN, HAS_CFI, NO_ROW, INFERRED } is;
	struct sfw_row row;
	uint64_t steps, wrong;
};

struct frame {
	uint64_t cfa, ra, fp;
};

/* A thread, which is followed while it has frames. */
struct thread {
	uint64_t pc, sp; /* before the last step */
	struct frame frames[FRAMES];
	struct entry *removed[REMOVED]; /* breakpoints */
	unsigned num_frames, num_removed, foreign;
};

struct file {
	char *name;
	uint64_t bias;
};

static struct entry entries[ENTRIES];
static struct site *sites;
static struct file files[FILES];
static size_t num_entries, num_files;
static uint64_t steps, max_steps, max_calls, abandoned;
static pid_t pid;
static __thread struct thread thread __attribute__((tls_model("initial-exec")));

extern const void *_Unwind_Find_FDE(void *pc, void *bases);
extern int __sigaction(int signal, const struct sigaction *new, struct sigaction *old);

static struct entry *find_entry(uint64_t pc) {
	size_t low = 0, high = num_entries;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if ((uint64_t)entries[middle].at < pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low < num_entries && (uint64_t)entries[low].at == pc ? &entries[low] : NULL;
}

/* find_site returns the site of a pc. It needs no lock: concurrent threads store the same row. */
static struct site *find_site(uint64_t pc) {
	struct site *s = &sites[pc % SITES];
	for (uint64_t none = 0; s->pc != pc; none = 0, s = s + 1 == sites + SITES ? sites : s + 1)
		if (__atomic_compare_exchange_n(&s->pc, &none, pc, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) || none == pc)
			break;
	if (s->is == UNKNOWN) {
		struct sfw_file file;
		struct sfw_section section;
		void *bases[3];
		int found = sfw_find_file(NULL, pc, &file) && sfw_open_loaded(&section, &file) == SFW_OK &&
			sfw_find(&section, pc, &s->row) == SFW_OK;
		s->is = _Unwind_Find_FDE((void *)pc, bases) != NULL ? HAS_CFI : found ? INFERRED : NO_ROW;
	}
	return s;
}

static int is_call(const unsigned char *p) {
	while (*p == 0x66 || *p == 0xf2 || *p == 0x3e || (*p & 0xf0) == 0x40)
		p++;
	return *p == 0xe8 || (*p == 0xff && (p[1] & 0x38) == 0x10);
}

/* follows_call returns whether a word of the stack may be a return address, because a call precedes it. */
static int follows_call(uint64_t ra) {
	struct sfw_process process = {.probe = 1};
	const struct sfw_space memory = {.read = sfw_process_read, .context = &process};
	return sfw_follows_call(&memory, sfw_abi_of(SFW_AMD64), ra);
}

/* read_stack does not read above the return address, because only wrong rows point there. */
static int read_stack(void *of, uint64_t address, unsigned char bytes[8]) {
	const struct thread *t = of;
	if (address < t->sp - 128 || address > t->frames[t->num_frames - 1].cfa - 8)
		return 0;
	memcpy(bytes, (const void *)address, 8);
	return 1;
}

static void compare(struct thread *t, struct site *s, const ucontext_t *u) {
	const struct sfw_space space = {.read = read_stack, .context = t};
	const struct frame *f = &t->frames[t->num_frames - 1];
	struct sfw_regs regs;
	sfw_regs_of_context(&regs, u);
	regs.interrupted = 1;
	steps++;
	if (sfw_step_row(&s->row, SFW_AMD64, &regs, &space) != SFW_SFRAME || regs.r[RSP] != f->cfa || regs.pc != f->ra ||
		regs.r[RBP] != f->fp)
		s->wrong++;
}

/* remove_entry removes a breakpoint until the thread is no longer followed. */
static void remove_entry(struct thread *t, struct entry *e) {
	*e->at = e->byte;
	if (t->num_removed < REMOVED)
		t->removed[t->num_removed++] = e;
}

static void stop_following(struct thread *t) {
	for (; t->num_removed > 0; t->num_removed--) {
		struct entry *e = t->removed[t->num_removed - 1];
		if (e->calls < max_calls && steps < max_steps)
			*e->at = INT3;
	}
	t->num_frames = t->foreign = 0;
}

/* track updates the frames according to the last instruction. */
static void track(struct thread *t, const greg_t *r) {
	uint64_t pc = r[REG_RIP], sp = r[REG_RSP];
	uint64_t ra = *(const uint64_t *)sp;
	const struct frame *f = &t->frames[t->num_frames - 1];
	if (sp == f->cfa && pc == f->ra) {
		t->num_frames--;
	} else if (sp >= f->cfa || t->num_frames == FRAMES) {
		abandoned++;
		t->num_frames = 0;
	} else if (sp == t->sp - 8 && ra != pc && ra - t->pc <= 8 && is_call((const unsigned char *)t->pc)) {
		t->frames[t->num_frames++] = (struct frame){sp + 8, ra, r[REG_RBP]};
	}
}

static void on_trap(int signal, siginfo_t *info, void *context) {
	(void)signal;
	struct thread *t = &thread;
	ucontext_t *u = context;
	greg_t *r = u->uc_mcontext.gregs;
	uint64_t sp = r[REG_RSP];
	int stepped = info->si_code == TRAP_TRACE;
	if (stepped) {
		track(t, r);
	} else {
		struct entry *e = find_entry(--r[REG_RIP]);
		if (e == NULL)
			abort();
		remove_entry(t, e);
		if (t->num_frames > 0)
			return; /* another thread has set it */
		uint64_t ra = *(const uint64_t *)sp;
		if (!follows_call(ra)) {
			e->calls = max_calls; /* a label */
		} else if (steps < max_steps) {
			e->calls++;
			t->frames[t->num_frames++] = (struct frame){sp + 8, ra, r[REG_RBP]};
		}
	}
	uint64_t pc = r[REG_RIP];
	const unsigned char *code = (const unsigned char *)pc;
	struct site *s = NULL;
	if (t->num_frames > 0) {
		s = find_site(pc);
		t->foreign = s->is == HAS_CFI ? t->foreign + 1 : 0;
	}
	/* Stop before a system call, which could block SIGTRAP. */
	if (s == NULL || t->foreign > MAX_FOREIGN || (code[0] == 0x0f && code[1] == 0x05)) {
		abandoned += s != NULL;
		r[REG_EFL] &= ~(greg_t)TRAP_FLAG;
		stop_following(t);
		return;
	}
	r[REG_EFL] |= TRAP_FLAG;
	int repeated = stepped && pc == t->pc && sp == t->sp; /* rep */
	t->pc = pc;
	t->sp = sp;
	struct entry *e = find_entry(pc);
	if (e != NULL && *e->at == INT3)
		remove_entry(t, e);
	s->steps += !repeated;
	if (s->is == INFERRED && !repeated)
		compare(t, s, u);
}

static int add_file(struct dl_phdr_info *info, size_t size, void *unused) {
	(void)size, (void)unused;
	const char *name = *info->dlpi_name != 0 ? info->dlpi_name : getenv("STEP_PROGRAM");
	if (num_files < FILES)
		files[num_files++] = (struct file){strdup(name), info->dlpi_addr};
	return 0;
}

/* sigaction keeps the program from replacing the handler, as bash does. */
int sigaction(int signal, const struct sigaction *restrict new, struct sigaction *restrict old) {
	return signal == SIGTRAP ? 0 : __sigaction(signal, new, old);
}

static int by_address(const void *a, const void *b) {
	const struct entry *x = a, *y = b;
	return (x->at > y->at) - (x->at < y->at);
}

/* limit returns the number in an environment variable, or ULONG_MAX if it is 0. */
static unsigned long limit(const char *name) {
	unsigned long n = strtoul(getenv(name), NULL, 10);
	return n > 0 ? n : ULONG_MAX;
}

static __attribute__((constructor)) void begin(void) {
	char name[PAGE];
	unsigned long address;
	struct sigaction a = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	FILE *list = fopen(getenv("STEP_ENTRIES"), "r");
	if (list == NULL)
		abort();
	unsetenv("LD_PRELOAD"); /* not in child processes */
	pid = getpid();
	max_steps = limit("STEP_STEPS");
	max_calls = limit("STEP_CALLS");
	sites = mmap(NULL, SITES * sizeof *sites, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
	if (sites == MAP_FAILED)
		abort();
	dl_iterate_phdr(add_file, NULL);
	while (fscanf(list, "%lx %4095[^\n]", &address, name) == 2)
		for (size_t i = 0; i < num_files; i++)
			if (strcmp(files[i].name, name) == 0 && num_entries < ENTRIES)
				entries[num_entries++].at = (unsigned char *)(files[i].bias + address);
	fclose(list);
	qsort(entries, num_entries, sizeof *entries, by_address);
	__sigaction(SIGTRAP, &a, NULL);
	for (size_t i = 0; i < num_entries; i++) {
		struct entry *e = &entries[i];
		if (mprotect((void *)((uint64_t)e->at / PAGE * PAGE), PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
			abort();
		e->byte = *e->at;
		*e->at = INT3;
	}
}

static __attribute__((destructor)) void end(void) {
	if (getpid() != pid)
		return;
	FILE *out = fopen(getenv("STEP_REPORT"), "w");
	if (out == NULL)
		abort();
	max_steps = 0;
	uint64_t called = 0, calls = 0;
	for (size_t i = 0; i < num_entries; i++) {
		*entries[i].at = entries[i].byte;
		called += entries[i].calls > 0;
		calls += entries[i].calls;
	}
	fprintf(out, "%lu calls of %lu functions, %lu not to their end\n", calls, called, abandoned);
	for (size_t f = 0; f < num_files; f++) {
		uint64_t by_sp = 0, by_fp = 0, others = 0, wrong = 0, no_row = 0, instructions = 0;
		for (struct site *s = sites; s < sites + SITES; s++) {
			struct sfw_file of;
			if (s->is <= HAS_CFI || !sfw_find_file(NULL, s->pc, &of) || of.bias != files[f].bias)
				continue;
			if (s->wrong > 0)
				fprintf(out, "wrong: %#lx of %s in %lu of %lu steps\n", s->pc - of.bias, of.name, s->wrong, s->steps);
			instructions += s->is == INFERRED;
			wrong += s->wrong;
			unsigned base = sfw_base(&s->row.cfa, sfw_abi_of(SFW_AMD64));
			*(s->is == NO_ROW ? &no_row : base == SFW_SP ? &by_sp : base == SFW_FP ? &by_fp : &others) += s->steps;
		}
		if (instructions > 0 || no_row > 0)
			fprintf(out,
				"%s: %lu steps at %lu instructions, CFA by SP %lu, FP %lu, others %lu; wrong %lu, no row %lu\n",
				files[f].name, by_sp + by_fp + others, instructions, by_sp, by_fp, others, wrong, no_row);
	}
	fclose(out);
}
