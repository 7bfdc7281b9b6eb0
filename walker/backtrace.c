/*
 * Stack traces by .sframe for programs that are not changed: backtrace of libc, _Unwind_Backtrace of libgcc, and
 * unw_backtrace and cursors of libunwind. See README.md.
 *
 * No function here that takes a trace locks, allocates, or is a cancellation point. A constructor finds what they need
 * of the dynamic linker.
 *
 * Licence: BSD 3-Clause, as the project that this file is a part of.
 */
#define _GNU_SOURCE
#define SFRAME_WALKER_PROCESS
#include "sframe_walker.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unwind.h>

#ifndef SFW_DL_FIND_OBJECT
#error "sframe-backtrace needs _dl_find_object, of glibc 2.35 or later"
#endif

/*
 * Names. The shared library defines the functions of others, and finds those by dlsym. The archive is for programs that
 * are linked with --wrap: in a static program, libgcc's functions have to stay, for exceptions.
 */
#define JOIN_NAMES(a, b) a##b
#define JOIN(a, b) JOIN_NAMES(a, b)
#ifdef SFRAME_BACKTRACE_WRAP
#define EXPORTED(name) JOIN(__wrap_, name)
#define NEXT(name) JOIN(__real_, name)
#define NEXT_OF(type, name, ...) extern type NEXT(name)(__VA_ARGS__) __attribute__((weak));
#else
#define EXPORTED(name) name
#define NEXT(name) JOIN(next_, name)
#define NEXT_OF(type, name, ...) static type (*NEXT(name))(__VA_ARGS__);
#endif
#define PUBLIC __attribute__((visibility("default")))

/* libunwind has each function twice: for stacks of this process only, and for all. */
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
typedef struct _Unwind_Context unwind_context;

/* The functions of others that are called; of libunwind's, with the first argument. */
#define OF_LIBGCC(of) \
	of(_Unwind_Reason_Code, _Unwind_Backtrace, _Unwind_Trace_Fn trace, void *argument) \
	of(_Unwind_Ptr, _Unwind_GetIP, unwind_context *c) \
	of(_Unwind_Ptr, _Unwind_GetIPInfo, unwind_context *c, int *before) \
	of(_Unwind_Word, _Unwind_GetCFA, unwind_context *c) \
	of(_Unwind_Word, _Unwind_GetGR, unwind_context *c, int reg) \
	of(_Unwind_Ptr, _Unwind_GetRegionStart, unwind_context *c) \
	of(void *, _Unwind_GetLanguageSpecificData, unwind_context *c)
#define OF_LIBC(of) of(int, dlclose, void *file)
/* Functions that take a cursor, but for those that are written below. All arguments are passed on. */
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
#define ALL(of) OF_LIBGCC(of) OF_LIBC(of) OF_LIBUNWIND(of, UNW_LOCAL) OF_LIBUNWIND(of, UNW_ANY)
ALL(NEXT_OF)
/* FOUND is NEXT for functions that may be called before the constructor here, by constructors of other files. */
static void find_functions(void);
#define FOUND(name) (NEXT(name) == NULL ? find_functions() : (void)0, NEXT(name))

/* Where libgcc's functions are that continue a trace: no other unwinder's, which next may be. */
static struct {
	_Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
	_Unwind_Ptr (*ip)(unwind_context *, int *);
	_Unwind_Word (*cfa)(unwind_context *);
	_Unwind_Word (*gr)(unwind_context *, int);
} libgcc;

/* What to do where no section describes a frame, by SFRAME_BACKTRACE. */
static enum { BY_DWARF, BY_FRAME_POINTER, BY_SFRAME_ONLY } otherwise;

/*
 * What threads share: rows by pc. They hold for a generation. While dlclose runs, walks keep nothing: the code of
 * destructors is still there.
 */
enum { NUM_SLOTS = 1 << 14 };
static struct sfw_cache_slot slots[NUM_SLOTS] __attribute__((aligned(64)));
static uint64_t generation;
static unsigned closing;

PUBLIC int EXPORTED(dlclose)(void *file) {
	__atomic_add_fetch(&closing, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&generation, 1, __ATOMIC_SEQ_CST);
	int failed = FOUND(dlclose)(file);
	__atomic_sub_fetch(&closing, 1, __ATOMIC_SEQ_CST);
	return failed;
}

/* The stacks of a thread that are known. A handler may change them while the code that it interrupts reads them: then
 * there is another version. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	struct sfw_range stacks[SFW_NUM_STACKS];
	unsigned version;
	unsigned busy;
} thread;

static void fence(void) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

static void read_stacks(struct sfw_process *p) {
	unsigned version;
	if (thread.busy) /* a handler interrupts know_stack */
		return;
	do {
		version = thread.version;
		fence();
		memcpy(p->stacks, thread.stacks, sizeof p->stacks);
		fence();
	} while (version != thread.version);
}

/* know_stack finds the stack that sp is in, and returns whether it could. */
static int know_stack(struct sfw_process *p, uint64_t sp) {
	if (!sfw_process_stack(p, sp))
		return 0;
	if (thread.busy || memcmp(thread.stacks, p->stacks, sizeof p->stacks) == 0)
		return 1;
	thread.busy = 1;
	fence();
	memcpy(thread.stacks, p->stacks, sizeof p->stacks);
	fence();
	thread.version++;
	thread.busy = 0;
	return 1;
}

/*
 * Sections of separate files, which are found by the build-id of the file that they are for: in the directories of
 * SFRAME_PATH. They stay in memory. A place in the array is taken before its file is known, by a thread that may be in
 * a handler; others that need it meanwhile have no section.
 */
enum { MAX_SEPARATE = 512, MAX_ID = 32, MAX_PATH = 256 };
static struct separate {
	uint8_t ready, id_size;
	unsigned char id[MAX_ID];
	const unsigned char *section; /* or NULL */
	size_t size;
	uint64_t address; /* in the file that it is for */
} separates[MAX_SEPARATE];
static unsigned num_separates;
static char directories[1024]; /* each with a 0 after it */

/* build_id finds the build-id in notes, or returns NULL. */
static const unsigned char *build_id(const unsigned char *notes, size_t size, size_t *id_size) {
	enum { HEADER = 12, NAME = 4 };
	while (size >= HEADER) {
		uint64_t name = sfw_load32(notes, 0), text = sfw_load32(notes + 4, 0), type = sfw_load32(notes + 8, 0);
		uint64_t at = HEADER + ((name + 3) & ~(uint64_t)3), end = at + ((text + 3) & ~(uint64_t)3);
		if (end > size)
			return NULL;
		if (type == NT_GNU_BUILD_ID && name == NAME && memcmp(notes + HEADER, "GNU", NAME) == 0 && text > 1 &&
			text <= MAX_ID) {
			*id_size = text;
			return notes + at;
		}
		notes += end;
		size -= end;
	}
	return NULL;
}

/* section_of_file finds the section in a separate file, and returns whether it is for this build-id. */
static int section_of_file(struct separate *s, const unsigned char *file, size_t size) {
	const ElfW(Phdr) *h = NULL;
	size_t num = sfw_headers(file, &h); /* in the first page, which is in memory as a whole */
	int same = 0;
	for (size_t i = 0; i < num; i++) {
		size_t id_size = 0;
		if (h[i].p_offset > size || h[i].p_filesz > size - h[i].p_offset)
			continue; /* as those of the loaded segments, which are empty */
		const unsigned char *bytes = file + h[i].p_offset, *id = NULL;
		if (h[i].p_type == PT_NOTE && (id = build_id(bytes, h[i].p_filesz, &id_size)) != NULL)
			same |= id_size == s->id_size && memcmp(id, s->id, id_size) == 0;
		if (h[i].p_type == SFW_PT_GNU_SFRAME) {
			s->section = bytes;
			s->size = h[i].p_filesz;
			s->address = h[i].p_vaddr;
		}
	}
	return same && s->section != NULL;
}

/* load_separate looks for the file with the section in all directories. Calls are the kernel's where libc's would be
 * cancellation points. */
static void load_separate(struct separate *s) {
	for (const char *dir = directories; *dir != 0; dir += strlen(dir) + 1) {
		static const char digits[] = "0123456789abcdef", part[] = "/.build-id/";
		char path[MAX_PATH + sizeof part + 2 * MAX_ID + sizeof "/.sframe"], *to = path + strlen(dir);
		memcpy(path, dir, strlen(dir));
		memcpy(to, part, sizeof part);
		to += sizeof part - 1;
		for (unsigned i = 0; i < s->id_size; i++) {
			*to++ = digits[s->id[i] >> 4];
			*to++ = digits[s->id[i] & 15];
			if (i == 0)
				*to++ = '/';
		}
		memcpy(to, ".sframe", sizeof ".sframe");
		int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
		long size = fd >= 0 ? syscall(SYS_lseek, fd, 0, SEEK_END) : 0;
		void *file = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
		if (fd >= 0)
			syscall(SYS_close, fd);
		if (file == MAP_FAILED)
			continue;
		if (section_of_file(s, file, (size_t)size))
			return;
		s->section = NULL;
		munmap(file, (size_t)size);
	}
}

/* separate_of returns what is known of a file by its program headers, or NULL. */
static const struct separate *separate_of(const ElfW(Phdr) *h, size_t num, uint64_t bias) {
	size_t size = 0;
	const unsigned char *id = NULL;
	for (size_t i = 0; i < num && id == NULL; i++)
		if (h[i].p_type == PT_NOTE)
			id = build_id((const unsigned char *)(uintptr_t)(bias + h[i].p_vaddr), h[i].p_memsz, &size);
	if (id == NULL)
		return NULL;
	unsigned n = __atomic_load_n(&num_separates, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < n && i < MAX_SEPARATE; i++)
		if (__atomic_load_n(&separates[i].ready, __ATOMIC_ACQUIRE) && separates[i].id_size == size &&
			memcmp(separates[i].id, id, size) == 0)
			return &separates[i];
	if (n >= MAX_SEPARATE || (n = __atomic_fetch_add(&num_separates, 1, __ATOMIC_RELAXED)) >= MAX_SEPARATE)
		return NULL;
	int before = errno;
	struct separate *s = &separates[n];
	memcpy(s->id, id, size);
	s->id_size = (uint8_t)size;
	load_separate(s);
	__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
	errno = before;
	return s;
}

static int load_separate_of(struct dl_phdr_info *info, size_t size, void *argument) {
	size_t section = 0;
	(void)size;
	(void)argument;
	if (sfw_of_headers(info->dlpi_phdr, info->dlpi_phnum, info->dlpi_addr, &section) == NULL)
		separate_of(info->dlpi_phdr, info->dlpi_phnum, info->dlpi_addr);
	return 0;
}

static enum sfw_how separate_section(uint64_t pc, struct sfw_section *section) {
	struct dl_find_object o;
	const ElfW(Phdr) *h = NULL;
	if (_dl_find_object((void *)(uintptr_t)pc, &o) != 0)
		return SFW_NO_SECTION;
	size_t n = sfw_headers_of_object(&o, &h);
	const struct separate *s = separate_of(h, n, o.dlfo_link_map->l_addr);
	if (s == NULL || s->section == NULL ||
		sfw_open(section, s->section, s->size, o.dlfo_link_map->l_addr + s->address) != SFW_OK ||
		section->abi != SFW_HOST_ABI)
		return SFW_NO_SECTION;
	return SFW_OK;
}

/* find_section finds the section for a pc. What libc unloads without dlclose are modules of iconv. */
static enum sfw_how find_section(void *context, uint64_t pc, struct sfw_section *s) {
	struct sfw_process *p = context;
	if (pc - p->begin < p->end - p->begin)
		return p->how;
	enum sfw_how how = sfw_process_section(p, pc, s);
	if (how == SFW_NO_SECTION && p->begin != p->end && directories[0] != 0)
		how = p->how = separate_section(pc, s);
	if (how == SFW_OK)
		s->passing = strstr(p->file->l_name, "/gconv/") != NULL;
	return how;
}

/*
 * Statistics: which files have frames that SFrame did not step from.
 */
enum { MAX_FILES = 512 };
static struct file {
	uint64_t begin; /* or 0 while the name is written */
	char name[MAX_PATH];
	uint64_t frames[2]; /* otherwise, by SFrame */
} files[MAX_FILES];
static unsigned num_files;
static const char *statistics; /* SFRAME_BACKTRACE_STATS, or NULL */

static void count(uint64_t pc, int by_sframe) {
	struct dl_find_object o;
	const char *name = "code in no file";
	uint64_t begin = 1;
	if (_dl_find_object((void *)(uintptr_t)(pc - 1), &o) == 0) {
		begin = (uint64_t)(uintptr_t)o.dlfo_map_start;
		name = o.dlfo_link_map->l_name[0] != 0 ? o.dlfo_link_map->l_name : program_invocation_name;
	}
	unsigned i = 0, n = __atomic_load_n(&num_files, __ATOMIC_RELAXED);
	for (; i < n && i < MAX_FILES; i++)
		if (__atomic_load_n(&files[i].begin, __ATOMIC_ACQUIRE) == begin &&
			strncmp(files[i].name, name, MAX_PATH - 1) == 0)
			break;
	if (i >= n && (i = __atomic_fetch_add(&num_files, 1, __ATOMIC_RELAXED)) < MAX_FILES) {
		strncpy(files[i].name, name, MAX_PATH - 1);
		__atomic_store_n(&files[i].begin, begin, __ATOMIC_RELEASE);
	}
	if (i < MAX_FILES)
		__atomic_add_fetch(&files[i].frames[by_sframe != 0], 1, __ATOMIC_RELAXED);
}

static int compare_files(const void *a, const void *b) {
	const struct file *one = a, *two = b;
	for (int i = 0; i < 2; i++)
		if (one->frames[i] != two->frames[i])
			return one->frames[i] < two->frames[i] ? 1 : -1;
	return strcmp(one->name, two->name);
}

/* Two entries may be of one file, if two threads have come to it at a time, or it was loaded twice. */
__attribute__((destructor)) static void print_statistics(void) {
	if (statistics == NULL)
		return;
	unsigned n = num_files < MAX_FILES ? num_files : MAX_FILES, num = 0;
	uint64_t sum[2] = {0, 0};
	for (unsigned i = 0; i < n; i++) {
		unsigned to = 0;
		while (to < num && strcmp(files[to].name, files[i].name) != 0)
			to++;
		if (to == num)
			files[num++] = files[i];
		else
			for (int by = 0; by < 2; by++)
				files[to].frames[by] += files[i].frames[by];
		for (int by = 0; by < 2; by++)
			sum[by] += files[i].frames[by];
	}
	qsort(files, num, sizeof *files, compare_files);
	int fd = 2;
	if (strcmp(statistics, "1") != 0 && (fd = open(statistics, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0) {
		fprintf(stderr, "sframe-backtrace: %s: %s\n", statistics, strerror(errno));
		return;
	}
	dprintf(fd, "sframe-backtrace: process %d: %llu frames by SFrame, %llu otherwise\n%12s %12s  %s\n", (int)getpid(),
		(unsigned long long)sum[1], (unsigned long long)sum[0], "by SFrame", "otherwise", "file");
	for (unsigned i = 0; i < num; i++)
		dprintf(fd, "%12llu %12llu  %s\n", (unsigned long long)files[i].frames[1],
			(unsigned long long)files[i].frames[0], files[i].name);
	if (fd != 2)
		close(fd);
}

/* A walk of this thread's stack. */
struct walk {
	struct sfw_process process;
	struct sfw_cache cache;
	struct sfw_space space;
};

static void start_walk(struct walk *w, uint64_t sp) {
	memset(&w->process, 0, sizeof w->process);
	w->process.how = SFW_NO_SECTION;
	read_stacks(&w->process);
	know_stack(&w->process, sp);
	w->cache = (struct sfw_cache){slots, NUM_SLOTS, __atomic_load_n(&generation, __ATOMIC_SEQ_CST)};
	int kept = __atomic_load_n(&closing, __ATOMIC_SEQ_CST) == 0;
	w->space = (struct sfw_space){
		sfw_process_read, find_section, &w->process, 0, kept ? &w->cache : NULL, SFW_HOST_ABI,
		otherwise == BY_FRAME_POINTER, SFW_NUM_STACKS, w->process.stacks,
	};
}

/* next_chunk is sfw_walk, and goes on where the walk comes to a stack that is not known, by the stack pointer or by the
 * frame pointer. */
static size_t next_chunk(
	struct walk *w, struct sfw_regs *regs, struct sfw_frame *frames, size_t max, enum sfw_how *end) {
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	const struct sfw_range *stacks = w->process.stacks;
	uint64_t at;
	w->process.begin = w->process.end = 0; /* sfw_walk begins without a section */
	size_t n = sfw_walk(&w->space, regs, frames, max, end);
	while (*end == SFW_BAD_MEMORY && sfw_get(regs, a->sp, &at)) {
		if (sfw_stack_of(stacks, SFW_NUM_STACKS, at) != NULL &&
			(!sfw_get(regs, a->fp, &at) || sfw_stack_of(stacks, SFW_NUM_STACKS, at) != NULL))
			break;
		if (!know_stack(&w->process, at))
			break;
		w->process.begin = w->process.end = 0;
		n += sfw_walk(&w->space, regs, frames + n - 1, max - n + 1, end) - 1; /* the last frame once more */
	}
	return n;
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
	int stopped;
	/* For libgcc's unwinder: whether it has come to the frame of regs, to the end, or to a file with a section; and the
	 * number of its steps until it is not left again, as it begins at the top each time. */
	int found, ended, back;
	unsigned steps;
};

/* A context is of a trace if it begins so. What libgcc's begin with are pointers, which these are not. */
static const uint64_t magic[2] = {0x7366726d2d627472, 0xb1a5edfaceb0a710};
struct context {
	uint64_t magic[2];
	struct sfw_frame frame;
};

static const struct sfw_frame *frame_of(unwind_context *c) {
	const struct context *ours = (const struct context *)(const void *)c;
	return memcmp(ours->magic, magic, sizeof magic) == 0 ? &ours->frame : NULL;
}

/* put adds a frame to the trace. */
static void put(struct trace *t, const struct sfw_frame *f) {
	if (t->call == NULL) {
		t->array[t->num++] = (void *)(uintptr_t)f->pc;
		t->stopped = t->num == t->size;
		return;
	}
	struct context c = {{magic[0], magic[1]}, *f};
	t->stopped = t->call((unwind_context *)(void *)&c, t->argument) != _URC_NO_REASON;
}

/* undefines_ra returns whether a CIE or an FDE has the bytes of an instruction that RA is not defined. */
static int undefines_ra(const unsigned char *record) {
	enum { UNDEFINED = 7, RA = SFW_HOST_ABI == SFW_AMD64 ? 16 : SFW_HOST_ABI == SFW_S390X ? 14 : 30 };
	uint32_t end = sfw_load32(record, 0) + 4;
	for (uint32_t i = 8; i + 1 < end; i++)
		if (record[i] == UNDEFINED && record[i + 1] == RA)
			return 1;
	return 0;
}

/* has_no_caller returns whether the CFI says that of the code before a return address, where libgcc has found the end.
 * A return address of 0 on the stack is another end: the same code may have a caller elsewhere. */
static int has_no_caller(uint64_t pc) {
	struct {
		void *text, *data, *function;
	} bases;
	extern const void *_Unwind_Find_FDE(void *pc, void *bases);
	const unsigned char *fde = _Unwind_Find_FDE((void *)(uintptr_t)(pc - 1), &bases);
	return fde != NULL && (undefines_ra(fde) || undefines_ra(fde + 4 - sfw_load32(fde + 4, 0)));
}

/* sp_of_context returns the stack pointer of a frame of libgcc's: the CFA of the frame before. Of what a signal has
 * interrupted on aarch64, libgcc has the address of the registers that the kernel saved, sp and pc after the others. */
static uint64_t sp_of_context(const struct trace *t, unwind_context *c, uint64_t pc, int interrupted) {
	enum { SAVED_SP = 8 * 32, SAVED_PC = 8 * 33 };
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	uint64_t cfa = libgcc.cfa(c), saved_sp, saved_pc;
	if (interrupted && (SFW_HOST_ABI == SFW_AARCH64 || SFW_HOST_ABI == SFW_AARCH64_BIG) &&
		sfw_read(&t->walk.space, a, cfa + SAVED_PC, &saved_pc) && saved_pc == pc &&
		sfw_read(&t->walk.space, a, cfa + SAVED_SP, &saved_sp))
		return saved_sp;
	return cfa - (uint64_t)(int64_t)a->bias;
}

/* on_frame is called for each frame by libgcc. */
static _Unwind_Reason_Code on_frame(unwind_context *c, void *argument) {
	enum { MAX_STEPS = 64 };
	struct trace *t = argument;
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	int interrupted = 0;
	struct sfw_frame f;
	f.pc = libgcc.ip(c, &interrupted);
	f.sp = sp_of_context(t, c, f.pc, interrupted);
	f.how = SFW_OK;
	f.interrupted = interrupted != 0;
	t->steps++;
	if (!t->found) {
		uint64_t sp;
		t->found = f.pc == t->regs.pc && sfw_get(&t->regs, a->sp, &sp) && sp == f.sp;
		return _URC_NO_REASON;
	}
	if (f.pc == 0) {
		t->ended = 1;
		if (!t->regs.interrupted && t->walk.space.cache != NULL && has_no_caller(t->regs.pc))
			sfw_keep_row(&t->walk.cache, t->regs.pc - 1, SFW_KEPT | SFW_KEPT_OUTERMOST);
		return _URC_NORMAL_STOP;
	}
	if (statistics != NULL)
		count(t->regs.pc, 0);
	t->regs.pc = f.pc;
	t->regs.interrupted = f.interrupted;
	t->regs.how = SFW_OK;
	t->regs.valid = 0;
	t->regs.floor = 0;
	sfw_set(&t->regs, a->sp, f.sp);
	struct sfw_section s;
	if (t->steps < MAX_STEPS && find_section(&t->walk.process, f.pc - !f.interrupted, &s) == SFW_OK) {
		sfw_set(&t->regs, a->fp, libgcc.gr(c, a->fp));
		t->walk.process.begin = t->walk.process.end = 0; /* s is not the walk's */
		t->back = 1;
		return _URC_NORMAL_STOP;
	}
	put(t, &f);
	return t->stopped ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

/* set_regs sets the registers of the caller of a function here, which has this CFA. */
static void set_regs(struct sfw_regs *regs, void *pc, uint64_t sp, uint64_t fp) {
	regs->pc = (uint64_t)(uintptr_t)pc;
	regs->floor = 0;
	regs->valid = 0;
	regs->interrupted = 0;
	regs->how = SFW_OK;
	regs->stacks = 0;
	sfw_set(regs, sfw_abi_of(SFW_HOST_ABI)->sp, sp);
	sfw_set(regs, sfw_abi_of(SFW_HOST_ABI)->fp, fp);
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
	unsigned num;
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

/* known_frames puts frames from t->regs on into the array: first those with rows in the cache, as sfw_run does, and
 * then those of the memory. */
static void known_frames(struct trace *t, struct memory *m) {
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	const struct sfw_cache cache = t->walk.cache;
	uint64_t pc = t->regs.pc, sp = t->regs.r[a->sp], fp = t->regs.r[a->fp], floor = 0;
	const struct sfw_range *stack = sfw_stack_of(t->walk.process.stacks, SFW_NUM_STACKS, sp);
	if (stack == NULL)
		return;
	const uint64_t low = stack->low, last = stack->high - low - 8;
	unsigned known = m->generation == cache.generation ? m->num : 0, num = 0, from = 0;
	while (!t->stopped && num < MAX_STEPS_KEPT - 1) {
		while (known > 0 && m->steps[known - 1].sp < sp)
			known--;
		const struct step *old = known > 0 ? &m->steps[known - 1] : NULL;
		if (old != NULL && old->sp == sp && old->pc == pc && old->fp == fp) {
			unsigned i = same_steps(t, m, known - 1, low, last);
			pc = m->steps[i].pc;
			sp = m->steps[i].sp;
			fp = m->steps[i].fp;
			if (i == 0 || t->stopped || num + known > MAX_STEPS_KEPT) {
				from = known; /* these stay in the memory */
				break;
			}
			while (--known > i) /* from the i-th on, there are other callers */
				m->fresh[num++] = m->steps[known];
		}
		struct step *s = &m->fresh[num++];
		*s = (struct step){pc, sp, fp, 0, NOT_SAVED};
		uint64_t row = sfw_kept_row(&cache, pc - 1);
		if ((row & SFW_KEPT_STEP) == 0 || (row & SFW_KEPT_MANGLED) != 0)
			break;
		uint64_t cfa = ((row & SFW_KEPT_CFA_OF_FP) != 0 ? fp : sp) + sfw_offset_in(row, SFW_CFA_AT, SFW_CFA_BITS);
		if ((row & SFW_KEPT_CFA_DEREF) != 0)
			break;
		uint64_t ra_at = cfa + sfw_offset_in(row, SFW_RA_AT, SFW_RA_BITS);
		uint64_t fp_at = ((row & SFW_KEPT_FP_OF_FP) != 0 ? fp : cfa) + sfw_offset_in(row, SFW_FP_AT, SFW_FP_BITS);
		if (ra_at - low > last || ra_at - sp > INT32_MAX || cfa <= floor)
			break;
		uint64_t ra = sfw_load(ra_at), saved = fp;
		if ((row & SFW_KEPT_FP) != 0) {
			if (fp_at - low > last || fp_at - sp > INT32_MAX)
				break;
			saved = sfw_load(fp_at);
			s->saved = (int32_t)(fp_at - sp);
		}
		if (ra == 0)
			break;
		s->ra = (int32_t)(ra_at - sp);
		t->array[t->num++] = (void *)(uintptr_t)pc;
		t->stopped = t->num == t->size;
		pc = ra;
		fp = saved;
		sp = cfa - (uint64_t)(int64_t)a->bias;
		floor = cfa;
	}
	if (!t->stopped && (sfw_kept_row(&cache, pc - 1) & SFW_KEPT_OUTERMOST) != 0) {
		t->array[t->num++] = (void *)(uintptr_t)pc;
		t->ended = 1;
	}
	set_regs(&t->regs, (void *)(uintptr_t)pc, sp, fp);
	m->num = from + num <= MAX_STEPS_KEPT ? from + num : 0;
	for (unsigned i = from; i < m->num; i++)
		m->steps[i] = m->fresh[m->num - 1 - i];
	m->generation = cache.generation;
}

/* count_frames counts the frames that a walk has found. The next one's how says how it was found. */
static void count_frames(const struct sfw_frame *frames, size_t n, enum sfw_how end, const struct sfw_regs *next) {
	for (size_t i = 0; i < n; i++) {
		unsigned how = i + 1 < n ? frames[i + 1].how : end == SFW_FULL ? next->how : (unsigned)end;
		if (how == SFW_SFRAME || how == SFW_SIGNAL || how == SFW_OUTERMOST || how == SFW_ZERO)
			count(frames[i].pc, 1);
		else if (how == SFW_FRAME_POINTER || otherwise != BY_DWARF)
			count(frames[i].pc, 0);
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

/* take_trace puts all frames, from that of the caller of a function here on, which has this CFA. */
static void take_trace(struct trace *t, void *pc, uint64_t sp, uint64_t fp) {
	enum { CHUNK = 32 };
	struct sfw_frame frames[CHUNK];
	enum sfw_how end = SFW_FULL;
	t->stopped = t->ended = 0;
	t->steps = 0;
	set_regs(&t->regs, pc, sp, fp);
	start_walk(&t->walk, sp);
	struct memory *m = &memories[((uint64_t)(uintptr_t)&thread >> 12) % NUM_MEMORIES];
	if (t->call == NULL && statistics == NULL && t->walk.space.cache != NULL &&
		!__atomic_exchange_n(&m->busy, 1, __ATOMIC_ACQUIRE)) {
		known_frames(t, m);
		__atomic_store_n(&m->busy, 0, __ATOMIC_RELEASE);
	}
	while (!t->stopped && !t->ended) {
		size_t n = next_chunk(&t->walk, &t->regs, frames, CHUNK, &end);
		t->ended = end == SFW_OUTERMOST || end == SFW_ZERO;
		if (statistics != NULL)
			count_frames(frames, n, end, &t->regs);
		put_all(t, frames, n);
		if (t->stopped)
			return;
		t->found = t->back = 0;
		if (end != SFW_FULL && !t->ended && otherwise == BY_DWARF && libgcc.backtrace != NULL)
			libgcc.backtrace(on_frame, t);
		if (end != SFW_FULL && !t->back)
			break;
	}
	if (t->ended && t->call != NULL) {
		struct sfw_frame last = {0, 0, SFW_OUTERMOST, 0};
		put(t, &last);
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
#define QUOTE(text) #text
#define TEXT(text) QUOTE(text)
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
	return f != NULL ? f->pc : FOUND(_Unwind_GetIP)(c);
}

PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetIPInfo)(unwind_context *c, int *before) {
	const struct sfw_frame *f = frame_of(c);
	if (f == NULL)
		return FOUND(_Unwind_GetIPInfo)(c, before);
	*before = f->interrupted;
	return f->pc;
}

PUBLIC _Unwind_Word EXPORTED(_Unwind_GetCFA)(unwind_context *c) {
	const struct sfw_frame *f = frame_of(c);
	return f != NULL ? f->sp + (uint64_t)(int64_t)sfw_abi_of(SFW_HOST_ABI)->bias : FOUND(_Unwind_GetCFA)(c);
}

/* Of the registers SFrame knows few, and frames only the stack pointer. */
PUBLIC _Unwind_Word EXPORTED(_Unwind_GetGR)(unwind_context *c, int reg) {
	const struct sfw_frame *f = frame_of(c);
	if (f == NULL)
		return FOUND(_Unwind_GetGR)(c, reg);
	return reg == sfw_abi_of(SFW_HOST_ABI)->sp ? f->sp : 0;
}

/* FDEs of SFrame may be of several functions: where one begins, the CFI says. */
PUBLIC _Unwind_Ptr EXPORTED(_Unwind_GetRegionStart)(unwind_context *c) {
	const struct sfw_frame *f = frame_of(c);
	if (f == NULL)
		return FOUND(_Unwind_GetRegionStart)(c);
	return (_Unwind_Ptr)_Unwind_FindEnclosingFunction((void *)(uintptr_t)(f->pc + f->interrupted));
}

PUBLIC void *EXPORTED(_Unwind_GetLanguageSpecificData)(unwind_context *c) {
	return frame_of(c) != NULL ? NULL : FOUND(_Unwind_GetLanguageSpecificData)(c);
}

/*
 * libunwind's cursors. Where no section describes the frame, and for functions that SFrame has no answer to, a cursor
 * becomes libunwind's: of the same context, at the same frame.
 */
enum { NO_INFO = -10, BAD_REGISTER = -3, INIT_SIGNAL_FRAME = 1 };
struct cursor {
	uint64_t magic[2];
	struct sfw_regs regs;
	void *context;
	int flag, any;
};
struct unwinder {
	int (*init)(void *, void *, int);
	int (*step)(void *);
	int (*get_reg)(void *, int, word *);
};
static struct sfw_range libunwind[2]; /* its code, whose own cursors are not ours */

static struct cursor *cursor_of(void *cursor) {
	struct cursor *c = cursor;
	return memcmp(c->magic, magic, sizeof magic) == 0 ? c : NULL;
}

static int init_cursor(void *cursor, void *context, int flag, int any) {
	struct cursor *c = cursor;
	memcpy(c->magic, magic, sizeof magic);
	sfw_regs_of_context(&c->regs, context);
	c->regs.interrupted = flag == INIT_SIGNAL_FRAME;
	c->context = context;
	c->flag = flag;
	c->any = any;
	return 0;
}

/* convert_cursor makes libunwind's cursor of one here, and returns whether it could. */
static int convert_cursor(struct cursor *c) {
	const struct unwinder unwinders[] = {
		{NEXT(UNW_LOCAL(init_local2)), NEXT(UNW_LOCAL(step)), NEXT(UNW_LOCAL(get_reg))},
		{NEXT(UNW_ANY(init_local2)), NEXT(UNW_ANY(step)), NEXT(UNW_ANY(get_reg))},
	}, *u = &unwinders[c->any];
	const uint64_t pc = c->regs.pc;
	uint64_t sp = 0, ip, at;
	if (otherwise != BY_DWARF || u->init == NULL || u->step == NULL || u->get_reg == NULL)
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

static int step_cursor(struct cursor *c, int (*next)(void *)) {
	struct walk w;
	struct sfw_frame frame;
	enum sfw_how end;
	uint64_t sp = 0;
	if (c->regs.pc == 0)
		return 0;
	sfw_get(&c->regs, sfw_abi_of(SFW_HOST_ABI)->sp, &sp);
	start_walk(&w, sp);
	next_chunk(&w, &c->regs, &frame, 1, &end);
	if (end == SFW_FULL)
		return 1;
	if (end == SFW_OUTERMOST || end == SFW_ZERO || otherwise != BY_DWARF) {
		c->regs.pc = 0;
		return 0;
	}
	return convert_cursor(c) ? next(c) : NO_INFO;
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

static int is_libunwind(const void *code) {
	for (unsigned i = 0; i < 2; i++)
		if ((uint64_t)(uintptr_t)code - libunwind[i].low < libunwind[i].high - libunwind[i].low)
			return 1;
	return 0;
}

/* A program may load libunwind later than this library: without its functions, they are looked for again. */
#define CURSORS(name, any) \
	PUBLIC int EXPORTED(name(init_local))(void *cursor, void *context) { \
		return FOUND(name(init_local)) != NULL && is_libunwind(__builtin_return_address(0)) \
			? NEXT(name(init_local))(cursor, context) : init_cursor(cursor, context, 0, any); \
	} \
	PUBLIC int EXPORTED(name(init_local2))(void *cursor, void *context, int flag) { \
		return FOUND(name(init_local2)) != NULL && is_libunwind(__builtin_return_address(0)) \
			? NEXT(name(init_local2))(cursor, context, flag) : init_cursor(cursor, context, flag, any); \
	} \
	PUBLIC int EXPORTED(name(step))(void *cursor) { \
		struct cursor *c = cursor_of(cursor); \
		if (c != NULL) \
			return step_cursor(c, NEXT(name(step))); \
		return FOUND(name(step)) != NULL ? NEXT(name(step))(cursor) : NO_INFO; \
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
/* set_function finds a function, if the pointer to it has none. Its type the caller knows. */
static void set_function(void *function, void *file, const char *name) {
	void *found;
	memcpy(&found, function, sizeof found);
	if (found == NULL && (found = dlsym(file, name)) != NULL)
		memcpy(function, &found, sizeof found);
}
#define SET_NEXT(type, name, ...) set_function(&NEXT(name), file, TEXT(name));
#endif

/* find_functions finds the functions of others, in files that are loaded already but for libgcc's. */
static void find_functions(void) {
#ifdef SFRAME_BACKTRACE_WRAP
	libgcc.ip = NEXT(_Unwind_GetIPInfo);
	libgcc.cfa = NEXT(_Unwind_GetCFA);
	libgcc.gr = NEXT(_Unwind_GetGR);
	libgcc.backtrace = NEXT(_Unwind_Backtrace);
#else
	/* What a dlopen has loaded is not after this library. */
	static const char *const files[] = {NULL, "libunwind.so.8", "libunwind-" TEXT(UNW_MACHINE) ".so.8", "libgcc_s.so.1"};
	for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
		int gcc = i + 1 == sizeof files / sizeof *files;
		void *file = i == 0 ? RTLD_NEXT : dlopen(files[i], RTLD_LAZY | (gcc ? 0 : RTLD_NOLOAD));
		if (i > 0 && file == NULL)
			continue;
		ALL(SET_NEXT)
		if (!gcc)
			continue;
		set_function(&libgcc.ip, file, "_Unwind_GetIPInfo");
		set_function(&libgcc.cfa, file, "_Unwind_GetCFA");
		set_function(&libgcc.gr, file, "_Unwind_GetGR");
		set_function(&libgcc.backtrace, file, "_Unwind_Backtrace");
	}
#endif
	struct dl_find_object o;
	const void *inits[] = {(const void *)NEXT(UNW_LOCAL(init_local)), (const void *)NEXT(UNW_ANY(init_local))};
	for (unsigned i = 0; i < 2; i++)
		if (inits[i] != NULL && _dl_find_object((void *)(uintptr_t)inits[i], &o) == 0)
			libunwind[i] = (struct sfw_range){
				(uint64_t)(uintptr_t)o.dlfo_map_start, (uint64_t)(uintptr_t)o.dlfo_map_end};
}

/* set_directories takes the directories of SFRAME_PATH. */
static void set_directories(const char *path) {
	char *to = directories;
	for (size_t n; path != NULL && *path != 0; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		if (n == 0)
			continue;
		if (n > MAX_PATH || (size_t)(to - directories) + n + 2 > sizeof directories) {
			fprintf(stderr, "sframe-backtrace: SFRAME_PATH: %.*s is too long, or there are too many\n", (int)n, path);
			continue;
		}
		memcpy(to, path, n);
		to += n + 1;
	}
}

__attribute__((constructor(101))) static void start(void) {
	find_functions();
	statistics = secure_getenv("SFRAME_BACKTRACE_STATS");
	if (statistics != NULL && (statistics[0] == 0 || strcmp(statistics, "0") == 0))
		statistics = NULL;
	set_directories(secure_getenv("SFRAME_PATH"));
	if (directories[0] != 0)
		dl_iterate_phdr(load_separate_of, NULL);
	const char *mode = secure_getenv("SFRAME_BACKTRACE");
	if (mode == NULL || mode[0] == 0)
		return;
	if (strcmp(mode, "fp") == 0)
		otherwise = BY_FRAME_POINTER;
	else if (strcmp(mode, "sframe") == 0)
		otherwise = BY_SFRAME_ONLY;
	else if (strcmp(mode, "dwarf") != 0)
		fprintf(stderr, "sframe-backtrace: SFRAME_BACKTRACE=%s is unknown; use dwarf, fp or sframe\n", mode);
}
