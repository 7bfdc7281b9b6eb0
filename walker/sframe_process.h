/*
 * Walks of stacks in the running process, on Linux: what profilers, crash handlers and runtimes need in addition to
 * sframe_walker.h. Every function is static. Define _GNU_SOURCE first. In a signal handler:
 *
 *	static const struct sfw_process process = {.probe = 1};
 *	static void on_sample(int signal, siginfo_t *info, void *context) {
 *		struct sfw_frame frames[64];
 *		struct sfw_regs regs;
 *		enum sfw_how end;
 *		sfw_regs_of_context(&regs, context);
 *		size_t n = sfw_process_walk(&process, &regs, frames, 64, &end);
 *		record(frames, n);
 *	}
 *
 * Files are found by _dl_find_object (glibc 2.35), or in a list that sfw_update_files makes. Their sections are in the
 * files, or in separate files (struct sfw_separates). All memory may be read, also stacks of coroutines and pages that
 * are not mapped: a probe asks the kernel about each page. libsframe-backtrace.so uses all but the list.
 *
 * In handlers, at any time: sfw_process_walk, sfw_regs_of_context, sfw_regs_here, sfw_own_stack, sfw_probe,
 * sfw_find_file, sfw_separate_section. They take no lock, allocate no memory and keep errno. Only probes make system
 * calls (rt_sigprocmask, 0.2 microseconds). The functions that set, learn, add, update or forget something are for code
 * outside handlers; two threads must not call them at once. They call mmap, never malloc.
 *
 * Licence: BSD 3-Clause, like the rest of the project.
 */
#ifndef SFRAME_PROCESS_H
#define SFRAME_PROCESS_H

#include "sframe_walker.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define SFW_HOST_ABI SFW_AMD64
#elif defined(__aarch64__) && defined(__AARCH64EB__)
#define SFW_HOST_ABI SFW_AARCH64_BIG
#elif defined(__aarch64__)
#define SFW_HOST_ABI SFW_AARCH64
#elif defined(__s390x__)
#define SFW_HOST_ABI SFW_S390X
#else
#error "SFrame does not support this machine"
#endif

enum { SFW_NUM_STACKS = 3, SFW_PT_GNU_SFRAME = 0x6474e554 };

/* A loaded file: its program headers, load bias, addresses and name. */
struct sfw_file {
	const ElfW(Phdr) *h;
	size_t num;
	uint64_t bias, begin, end;
	const char *name;
};

/* How to walk in this process. A walk uses a copy, so threads and signal handlers may share it, unless it contains the
 * stack of a thread. */
struct sfw_process {
	/* Memory that is read directly: mapped stacks. The last one is private to probes. */
	struct sfw_range stacks[SFW_NUM_STACKS];
	const struct sfw_bounds *bounds;       /* or NULL; sets the first stack if the walk starts on the thread's own */
	const struct sfw_files *files;         /* or NULL: _dl_find_object finds files */
	const struct sfw_separates *separates; /* or NULL */
	const struct sfw_cache *cache;         /* or NULL */
	uint8_t probe;         /* read other memory, after a system call for each page: any stack, in handlers too */
	uint8_t frame_pointer; /* if there is no row, try the frame pointer */
	/* Private: the file of the last frame, and the result of the search for its section. */
	struct sfw_file file;
	enum sfw_how how;
};

/* sfw_auxval is getauxval, but leaves errno unchanged. */
static inline unsigned long sfw_auxval(unsigned long type) {
	int before = errno;
	unsigned long value = getauxval(type);
	errno = before;
	return value;
}

/* sfw_loaded returns whether a range of a file is in one loaded segment whose flags, masked by of_flags, equal
 * flags. */
static inline int sfw_loaded(
	const struct sfw_file *f, uint64_t begin, uint64_t size, ElfW(Word) flags, ElfW(Word) of_flags) {
	for (size_t i = 0; i < f->num; i++) {
		const ElfW(Phdr) *h = &f->h[i];
		if (h->p_type == PT_LOAD && (h->p_flags & of_flags) == flags && h->p_vaddr <= begin && h->p_filesz >= size &&
			begin - h->p_vaddr <= h->p_filesz - size)
			return 1;
	}
	return 0;
}

/* sfw_open_loaded finds the section of a loaded file. */
static inline enum sfw_how sfw_open_loaded(struct sfw_section *s, const struct sfw_file *f) {
	const ElfW(Phdr) *found = NULL;
	for (size_t i = 0; i < f->num; i++)
		if (f->h[i].p_type == SFW_PT_GNU_SFRAME)
			found = &f->h[i];
	if (found == NULL || !sfw_loaded(f, found->p_vaddr, found->p_memsz, PF_R, PF_R))
		return SFW_NO_SECTION;
	uint64_t address = f->bias + found->p_vaddr;
	enum sfw_how how = sfw_open(s, (const void *)(uintptr_t)address, found->p_memsz, address);
	return how == SFW_OK && s->abi != SFW_HOST_ABI ? SFW_BAD_SECTION : how;
}

static inline int sfw_count_phdr(struct dl_phdr_info *info, size_t size, void *generation) {
	(void)size;
	*(uint64_t *)generation = info->dlpi_adds + info->dlpi_subs;
	return 1;
}

/* sfw_generation returns a number that changes with each dlopen and dlclose. It takes 7 ns, and acquires the dynamic
 * linker's lock, so signal handlers must not call it. */
static inline uint64_t sfw_generation(void) {
	uint64_t generation = 0;
	dl_iterate_phdr(sfw_count_phdr, &generation);
	return generation;
}

/* Separate files, found by the build-id of the file that they describe (cfi2sframe detach; README.md has the format).
 * They are mapped, or copied if they may change, when they are added. The first lookup checks them. */
enum { SFW_MAX_ID = 32, SFW_MAX_PATH = 256, SFW_NUM_LISTS = 1 << 12, SFW_UNCHECKED = 0, SFW_VALID, SFW_INVALID };
struct sfw_separate {
	struct sfw_separate *next;
	const unsigned char *bytes; /* or NULL */
	size_t size;
	unsigned state; /* SFW_UNCHECKED, SFW_VALID or SFW_INVALID */
	uint8_t id_size;
	unsigned char id[SFW_MAX_ID];
};

/* A set of separate files, initially zero. Entries are never removed, so lookups take no lock. */
struct sfw_separates {
	char directories[1024]; /* each followed by a 0 */
	/* By the hash of the build-id, which has several entries if its files are in different directories. */
	struct sfw_separate *lists[SFW_NUM_LISTS];
	struct sfw_separate *block; /* memory for entries */
	size_t left;
};

/* sfw_set_directories sets the directories from a list with colons, such as SFRAME_PATH. It returns 0 if there are too
 * many, or if their names are too long. */
static inline int sfw_set_directories(struct sfw_separates *s, const char *path) {
	char *to = (char *)memset(s->directories, 0, sizeof s->directories);
	for (size_t n; path != NULL && *path != 0; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		if (n == 0)
			continue;
		if (n > SFW_MAX_PATH || (size_t)(to - s->directories) + n + 2 > sizeof s->directories)
			return 0;
		memcpy(to, path, n);
		to += n + 1;
	}
	return 1;
}

/* sfw_headers finds the program headers in the first page of a file that is mapped at start. */
static inline void sfw_headers(const void *start, struct sfw_file *f) {
	enum { PAGE = 4096 };
	const ElfW(Ehdr) *e = (const ElfW(Ehdr) *)start;
	f->num = 0;
	if (e->e_ident[EI_MAG0] != ELFMAG0 || e->e_ident[EI_MAG1] != ELFMAG1 || e->e_ident[EI_MAG2] != ELFMAG2 ||
		e->e_ident[EI_MAG3] != ELFMAG3 || e->e_phentsize != sizeof *f->h || e->e_phoff > PAGE ||
		e->e_phoff % sizeof e->e_phoff != 0 || e->e_phnum > (PAGE - e->e_phoff) / sizeof *f->h)
		return;
	f->h = (const ElfW(Phdr) *)(const void *)((const unsigned char *)start + e->e_phoff);
	f->num = e->e_phnum;
}

/* sfw_find_note finds the note with the given name and type, or returns NULL. */
static inline const unsigned char *sfw_find_note(
	const unsigned char *notes, size_t size, const char *name, size_t name_size, uint32_t type, size_t *text_size) {
	enum { HEADER = 12 };
	while (size >= HEADER) {
		uint64_t named = sfw_load32(notes, 0), text = sfw_load32(notes + 4, 0);
		uint64_t at = HEADER + ((named + 3) & ~(uint64_t)3), end = at + ((text + 3) & ~(uint64_t)3);
		if (end > size)
			return NULL;
		if (sfw_load32(notes + 8, 0) == type && named == name_size && memcmp(notes + HEADER, name, name_size) == 0) {
			*text_size = text;
			return notes + at;
		}
		notes += end;
		size -= end;
	}
	return NULL;
}

static inline const unsigned char *sfw_build_id(const unsigned char *notes, size_t size, size_t *id_size) {
	const unsigned char *id = sfw_find_note(notes, size, "GNU", sizeof "GNU", NT_GNU_BUILD_ID, id_size);
	return id != NULL && *id_size > 1 && *id_size <= SFW_MAX_ID ? id : NULL;
}

/* sfw_checksum computes the sfw_checksum that README.md specifies. */
__attribute__((no_sanitize("address"))) static inline uint64_t sfw_checksum(const unsigned char *b, uint64_t size) {
	uint64_t sum = size;
	for (uint64_t i = 0; i < size; i += 8) {
		uint64_t word = 0;
		memcpy(&word, b + i, size - i < 8 ? size - i : 8);
		sum = (sum ^ word) * 0x9e3779b97f4a7c15U;
		sum ^= sum >> 32;
	}
	return sum;
}

/* sfw_matches_file returns whether the checksums in a separate file match the loaded file, whose code cannot change. */
static inline int sfw_matches_file(const unsigned char *sums, size_t size, const struct sfw_file *f) {
	enum { SUM = 24 };
	if (size == 0 || size % SUM != 0)
		return 0;
	for (; size > 0; size -= SUM, sums += SUM) {
		uint64_t begin = sfw_load64(sums, 0), length = sfw_load64(sums + 8, 0);
		if (!sfw_loaded(f, begin, length, PF_R, PF_R | PF_W) ||
			sfw_checksum((const unsigned char *)(uintptr_t)(f->bias + begin), length) != sfw_load64(sums + 16, 0))
			return 0;
	}
	return 1;
}

/* sfw_section_of_file finds the section in a separate file, and returns whether there is one. If the file has not been
 * checked, it also returns whether the section is valid and belongs to the loaded file. */
__attribute__((noinline, unused)) static int sfw_section_of_file(
	struct sfw_section *section, const struct sfw_separate *s, const struct sfw_file *f, int checked) {
	struct sfw_file file;
	int same = checked, proven = checked, sound = 0;
	sfw_headers(s->bytes, &file); /* in the first page, all of which is in memory */
	for (size_t i = 0; i < file.num; i++) {
		const ElfW(Phdr) *h = &file.h[i];
		size_t text = 0;
		const unsigned char *note, *at = s->bytes + h->p_offset;
		if (h->p_offset > s->size || h->p_filesz > s->size - h->p_offset)
			continue; /* such as the empty loaded segments */
		if (!checked && h->p_type == PT_NOTE && (note = sfw_build_id(at, h->p_filesz, &text)) != NULL)
			same |= text == s->id_size && memcmp(note, s->id, text) == 0;
		if (!checked && h->p_type == PT_NOTE &&
			(note = sfw_find_note(at, h->p_filesz, "cfi2sframe", sizeof "cfi2sframe", 1, &text)) != NULL)
			proven |= sfw_matches_file(note, text, f);
		if (h->p_type == SFW_PT_GNU_SFRAME)
			sound = sfw_open(section, at, h->p_filesz, h->p_vaddr) == SFW_OK && section->abi == SFW_HOST_ABI &&
				(checked || sfw_check(section) == SFW_OK);
	}
	return same && proven && sound;
}

/* sfw_copy_file reads a file into new memory, or returns MAP_FAILED. */
static inline void *sfw_copy_file(int fd, size_t size) {
	void *b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t at = 0; b != MAP_FAILED && at < size;) {
		long n = syscall(SYS_read, fd, (unsigned char *)b + at, size - at);
		if (n > 0) {
			at += (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			munmap(b, size);
			return MAP_FAILED;
		}
	}
	if (b != MAP_FAILED)
		mprotect(b, size, PROT_READ);
	return b;
}

/* sfw_map_file returns the contents of a regular file, or MAP_FAILED. To overwrite or truncate a mapped file is fatal,
 * so only files that nobody may write are mapped: these are replaced instead. It makes raw system calls, because
 * libc's are cancellation points. */
static inline void *sfw_map_file(const char *path, size_t *size) {
	enum { MOST = 1 << 30 };
	struct stat st;
	/* O_NONBLOCK: do not wait for the writer of a FIFO. */
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return MAP_FAILED;
	void *b = MAP_FAILED;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= MOST) {
		int may_change = (st.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) != 0 ||
			(st.st_uid != 0 && st.st_uid != sfw_auxval(AT_EUID));
		*size = (size_t)st.st_size;
		b = may_change ? sfw_copy_file(fd, *size) : mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	syscall(SYS_close, fd);
	return b;
}

/* sfw_list_of returns the list for a build-id. */
static inline struct sfw_separate **sfw_list_of(struct sfw_separates *s, const unsigned char *id, size_t size) {
	uint32_t hash = 0;
	for (size_t i = 0; i < size; i++)
		hash = hash * 31 + id[i];
	return &s->lists[hash % SFW_NUM_LISTS];
}

/* sfw_next_separate returns the first entry for a build-id in the rest of its list, or NULL. */
static inline struct sfw_separate *sfw_next_separate(struct sfw_separate *s, const unsigned char *id, size_t size) {
	while (s != NULL && (s->id_size != size || memcmp(s->id, id, size) != 0))
		s = s->next;
	return s;
}

/* sfw_add_separate adds an entry, in memory that is never freed. */
static inline void sfw_add_separate(
	struct sfw_separates *s, const unsigned char *id, size_t id_size, const void *bytes, size_t size) {
	enum { BLOCK = 256 };
	struct sfw_separate **list = sfw_list_of(s, id, id_size);
	if (s->left == 0) {
		void *block = mmap(NULL, BLOCK * sizeof *s->block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (block == MAP_FAILED)
			return;
		s->block = (struct sfw_separate *)block;
		s->left = BLOCK;
	}
	struct sfw_separate *new_one = &s->block[--s->left];
	new_one->next = *list;
	new_one->bytes = (const unsigned char *)bytes;
	new_one->size = size;
	new_one->id_size = (uint8_t)id_size;
	memcpy(new_one->id, id, id_size);
	__atomic_store_n(list, new_one, __ATOMIC_RELEASE);
}

/* sfw_id_of finds the build-id of a loaded file, or returns NULL. */
static inline const unsigned char *sfw_id_of(const struct sfw_file *f, size_t *size) {
	for (size_t i = 0; i < f->num; i++) {
		const ElfW(Phdr) *h = &f->h[i];
		const unsigned char *id;
		if (h->p_type == PT_NOTE && sfw_loaded(f, h->p_vaddr, h->p_memsz, PF_R, PF_R) &&
			(id = sfw_build_id((const unsigned char *)(uintptr_t)(f->bias + h->p_vaddr), h->p_memsz, size)) != NULL)
			return id;
	}
	return NULL;
}

/* sfw_add_separates adds the separate files of a loaded file, unless the file contains a section or its build-id is
 * known. */
static inline void sfw_add_separates(struct sfw_separates *s, const struct sfw_file *f) {
	static const char digits[] = "0123456789abcdef", part[] = "/.build-id/";
	char path[SFW_MAX_PATH + sizeof part + 2 * SFW_MAX_ID + sizeof "/.sframe"];
	struct sfw_section section;
	size_t id_size = 0, size = 0;
	const unsigned char *id = sfw_open_loaded(&section, f) == SFW_NO_SECTION ? sfw_id_of(f, &id_size) : NULL;
	if (id == NULL || sfw_next_separate(*sfw_list_of(s, id, id_size), id, id_size) != NULL)
		return;
	sfw_add_separate(s, id, id_size, NULL, 0); /* even if there is none, the build-id is known */
	for (const char *dir = s->directories; *dir != 0; dir += strlen(dir) + 1) {
		char *to = path + strlen(dir);
		memcpy(path, dir, strlen(dir));
		memcpy(to, part, sizeof part);
		to += sizeof part - 1;
		for (size_t i = 0; i < id_size; i++) {
			*to++ = digits[id[i] >> 4];
			*to++ = digits[id[i] & 15];
			if (i == 0)
				*to++ = '/';
		}
		memcpy(to, ".sframe", sizeof ".sframe");
		const void *file = sfw_map_file(path, &size);
		if (file != MAP_FAILED)
			sfw_add_separate(s, id, id_size, file, size);
	}
}

/* sfw_separate_section finds the section of a loaded file in its separate file. */
static inline enum sfw_how sfw_separate_section(
	const struct sfw_separates *separates, const struct sfw_file *f, struct sfw_section *section) {
	size_t id_size = 0;
	const unsigned char *id = sfw_id_of(f, &id_size);
	struct sfw_separate *s = NULL;
	if (id != NULL)
		s = __atomic_load_n(sfw_list_of((struct sfw_separates *)(uintptr_t)separates, id, id_size), __ATOMIC_ACQUIRE);
	for (; (s = sfw_next_separate(s, id, id_size)) != NULL; s = s->next) {
		unsigned state = __atomic_load_n(&s->state, __ATOMIC_RELAXED);
		if (s->bytes == NULL || state == SFW_INVALID)
			continue;
		int found = sfw_section_of_file(section, s, f, state == SFW_VALID);
		if (state == SFW_UNCHECKED)
			__atomic_store_n(&s->state, found ? SFW_VALID : SFW_INVALID, __ATOMIC_RELAXED);
		if (found) {
			section->address += f->bias;
			return SFW_OK;
		}
	}
	sfw_no_section(section);
	return SFW_NO_SECTION;
}

/* A list of loaded files, for systems without _dl_find_object. Zeroed memory is an empty list. ThreadSanitizer sees
 * neither the barriers of the list nor the locks of the dynamic linker, so it must ignore these functions: while it
 * reports a race, it may wait for the dynamic linker, which waits for it. */
struct sfw_file_list {
	size_t num, max; /* of files, which follow in descending order: new files are mapped below others */
};
struct sfw_files {
	struct sfw_file_list *lists[2];
	unsigned updates; /* lists[updates % 2] is valid; a lookup may still read the other one */
};

static inline struct sfw_file *sfw_in_list(struct sfw_file_list *list) { return (struct sfw_file *)(void *)(list + 1); }

struct sfw_update {
	struct sfw_file_list **list;
	struct sfw_separates *separates;
};

__attribute__((no_sanitize("thread"))) static inline int sfw_list_file(
	struct dl_phdr_info *info, size_t size, void *update) {
	const size_t first = 84; /* as many as fit into a page */
	const struct sfw_update *u = (const struct sfw_update *)update;
	struct sfw_file_list *list = *u->list;
	struct sfw_file f = {info->dlpi_phdr, info->dlpi_phnum, info->dlpi_addr, UINT64_MAX, 0, info->dlpi_name};
	(void)size;
	for (size_t i = 0; i < f.num; i++) {
		const uint64_t begin = f.bias + f.h[i].p_vaddr, end = begin + f.h[i].p_memsz;
		if (f.h[i].p_type == PT_LOAD && begin < f.begin)
			f.begin = begin;
		if (f.h[i].p_type == PT_LOAD && end > f.end)
			f.end = end;
	}
	if (list == NULL || list->num == list->max) { /* the old memory is never freed, because a lookup may read it */
		size_t num = list != NULL ? list->num : 0, max = num > 0 ? 2 * num : first;
		void *b = mmap(NULL, sizeof *list + max * sizeof f, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (b == MAP_FAILED)
			return 1;
		if (num > 0)
			memcpy(b, list, sizeof *list + num * sizeof f);
		*u->list = list = (struct sfw_file_list *)b;
		list->max = max;
	}
	struct sfw_file *all = sfw_in_list(list);
	size_t i = list->num++;
	for (; i > 0 && all[i - 1].begin < f.begin; i--)
		all[i] = all[i - 1];
	all[i] = f;
	if (u->separates != NULL)
		sfw_add_separates(u->separates, &f);
	return 0;
}

/* sfw_other_list empties the list that is not valid. */
__attribute__((no_sanitize("thread"))) static inline struct sfw_file_list **sfw_other_list(struct sfw_files *f) {
	struct sfw_file_list **list = &f->lists[(f->updates + 1) % 2];
	__sync_synchronize(); /* a lookup that reads a change also reads the last change of updates */
	if (*list != NULL)
		(*list)->num = 0;
	return list;
}

/* sfw_update_files lists the loaded files, adds their separate files unless separates is NULL, and returns whether
 * there was enough memory. Call it at start and after dlopen. */
static inline int sfw_update_files(struct sfw_files *f, struct sfw_separates *separates) {
	struct sfw_update u = {sfw_other_list(f), separates};
	if (dl_iterate_phdr(sfw_list_file, &u) != 0)
		return 0;
	__atomic_store_n(&f->updates, f->updates + 1, __ATOMIC_RELEASE);
	return 1;
}

/* sfw_forget_files makes the list empty. Call it before dlclose, which may unmap sections (glibc; musl's does not), and
 * sfw_update_files afterwards. Until then, walks in all threads end with SFW_NO_SECTION. */
static inline void sfw_forget_files(struct sfw_files *f) {
	sfw_other_list(f);
	__atomic_store_n(&f->updates, f->updates + 1, __ATOMIC_RELEASE);
}

/* sfw_listed_file finds a file in a list, and returns whether it could. */
__attribute__((no_sanitize("thread"))) static inline int sfw_listed_file(
	const struct sfw_files *files, uint64_t address, struct sfw_file *f) {
	enum { TRIES = 8 };
	for (unsigned tries = 0; tries < TRIES; tries++) {
		const unsigned updates = __atomic_load_n(&files->updates, __ATOMIC_ACQUIRE);
		struct sfw_file_list *list = __atomic_load_n(&files->lists[updates % 2], __ATOMIC_RELAXED);
		size_t num = list != NULL ? __atomic_load_n(&list->num, __ATOMIC_RELAXED) : 0, low = 0, high = num;
		struct sfw_file found = {NULL, 0, 0, 0, 0, ""};
		while (low < high) {
			size_t middle = low + (high - low) / 2;
			if (sfw_in_list(list)[middle].begin <= address)
				high = middle;
			else
				low = middle + 1;
		}
		if (low < num)
			found = sfw_in_list(list)[low];
		__sync_synchronize();
		if (__atomic_load_n(&files->updates, __ATOMIC_RELAXED) != updates)
			continue; /* the list may have been rewritten */
		if (address - found.begin >= found.end - found.begin)
			return 0;
		*f = found;
		return 1;
	}
	return 0;
}

/* sfw_find_file finds the loaded file that contains an address, in a list of files or, if that is NULL, by
 * _dl_find_object, and returns whether there is one. The latter omits the vDSO. AT_PHDR gives the address of the
 * program's headers; those of other files are in the first page, except in a few libraries, which are walked as if they
 * had no section. Not inlined: alternate stacks are small. */
__attribute__((noinline, unused, no_sanitize("thread"))) static int sfw_find_file(
	const struct sfw_files *files, uint64_t address, struct sfw_file *f) {
	f->h = NULL;
	f->num = 0;
	f->bias = f->begin = f->end = 0;
	f->name = "";
	if (files != NULL)
		return sfw_listed_file(files, address, f);
#ifdef DLFO_STRUCT_HAS_EH_DBASE
	struct dl_find_object o;
	if (_dl_find_object((void *)(uintptr_t)address, &o) != 0) {
		const void *vdso = (const void *)sfw_auxval(AT_SYSINFO_EHDR);
		if (vdso != NULL)
			sfw_headers(vdso, f);
		for (size_t i = 0; i < f->num; i++)
			if (f->h[i].p_type == PT_LOAD && f->h[i].p_offset == 0) {
				f->begin = (uint64_t)(uintptr_t)vdso;
				f->end = f->begin + f->h[i].p_memsz;
				f->bias = f->begin - f->h[i].p_vaddr;
			}
		if (address - f->begin < f->end - f->begin)
			return 1;
		f->num = 0;
		f->begin = f->end = 0;
		return 0;
	}
	const struct link_map *map = o.dlfo_link_map;
	f->bias = map->l_addr;
	f->begin = (uint64_t)(uintptr_t)o.dlfo_map_start;
	f->end = (uint64_t)(uintptr_t)o.dlfo_map_end;
	f->name = map->l_name;
	if (map->l_prev != NULL || map->l_name[0] != 0) {
		sfw_headers(o.dlfo_map_start, f);
		return 1;
	}
	f->h = (const ElfW(Phdr) *)sfw_auxval(AT_PHDR);
	f->num = f->h != NULL && sfw_auxval(AT_PHENT) == sizeof *f->h ? sfw_auxval(AT_PHNUM) : 0;
	return 1;
#else
	return 0;
#endif
}

static inline enum sfw_how sfw_process_section(void *context, uint64_t pc, struct sfw_section *s) {
	struct sfw_process *p = (struct sfw_process *)context;
	if (pc - p->file.begin < p->file.end - p->file.begin) /* in the file of the previous frame */
		return p->how;
	p->how = sfw_find_file(p->files, pc, &p->file) ? sfw_open_loaded(s, &p->file) : SFW_NO_SECTION;
	if (p->how == SFW_NO_SECTION && p->separates != NULL)
		p->how = sfw_separate_section(p->separates, &p->file, s);
	return p->how;
}

/* How to find the stack of the calling thread without locks and system calls. Three adjacent words in glibc's thread
 * descriptor, struct pthread, are the address and the size of the stack, and the size of its guard. glibc does not
 * document their offset, but in the main thread the first two are 0 and __libc_stack_end. */
struct sfw_bounds { /* initially zero */
	struct sfw_range main_stack;
	size_t descriptor_at; /* of the words in struct pthread, or 0 */
};

static inline uint64_t sfw_descriptor_word(size_t i) { return sfw_load((uint64_t)(uintptr_t)pthread_self() + 8 * i); }

/* sfw_learn_bounds finds the main thread's stack, and the words in struct pthread. Call it in the main thread. Nothing
 * else is mapped between the start of that stack and its size limit. */
static inline void sfw_learn_bounds(struct sfw_bounds *b) {
	const uint64_t most = 128 << 20, page = sfw_auxval(AT_PAGESZ);
	const char *last = (const char *)sfw_auxval(AT_EXECFN);
	struct rlimit limit;
	if (getpid() != syscall(SYS_gettid))
		return;
#ifdef __GLIBC__
	enum { SIZE = 1856 }; /* of the smallest struct pthread in glibc 2.35 to 2.43 */
	extern void *__libc_stack_end;
	for (size_t i = 1; i < SIZE / 8; i++)
		if (sfw_descriptor_word(i) == (uint64_t)(uintptr_t)__libc_stack_end && sfw_descriptor_word(i - 1) == 0)
			b->descriptor_at = i - 1;
#endif
	if (last == NULL || getrlimit(RLIMIT_STACK, &limit) != 0)
		return;
	b->main_stack.high = (uint64_t)(uintptr_t)last + strlen(last) + 1;
	b->main_stack.low = ((b->main_stack.high + page - 1) & ~(page - 1)) -
		((limit.rlim_cur < most ? limit.rlim_cur : most) & ~(page - 1));
}

/* sfw_own_stack finds the calling thread's stack, from the red zone below sp up, and returns whether sp is in it. All
 * of it is mapped, or may be. After an epilogue has popped registers, CFI still finds them in the red zone. */
static inline int sfw_own_stack(const struct sfw_bounds *b, uint64_t sp, struct sfw_range *stack) {
	enum { RED_ZONE = 128 };
	struct sfw_range own = b->main_stack;
	const uint64_t low = b->descriptor_at != 0 ? sfw_descriptor_word(b->descriptor_at) : 0;
	if (low != 0) {
		own.low = low + sfw_descriptor_word(b->descriptor_at + 2); /* the guard */
		own.high = low + sfw_descriptor_word(b->descriptor_at + 1);
	}
	if (sp < own.low || sp >= own.high)
		return 0;
	stack->low = sp - own.low > RED_ZONE ? sp - RED_ZONE : own.low;
	stack->high = own.high;
	return 1;
}

/* sfw_probe returns whether 8 bytes are mapped, and adds their page to a range. The kernel reads the bytes before it
 * rejects the first argument. */
static inline int sfw_probe(struct sfw_range *mapped, uint64_t address) {
	enum { PAGE = 4096 };
	const uint64_t page = address & ~(uint64_t)(PAGE - 1);
	const int before = errno; /* which is the interrupted code's */
	const int is_mapped = syscall(SYS_rt_sigprocmask, -1, address, NULL, 8) < 0 && errno == EINVAL;
	errno = before;
	if (is_mapped && page != mapped->high)
		mapped->low = page;
	if (is_mapped)
		mapped->high = page + PAGE;
	return is_mapped;
}

static inline int sfw_process_read(void *context, uint64_t address, unsigned char bytes[8]) {
	struct sfw_process *p = (struct sfw_process *)context;
	const struct sfw_range *stack = sfw_stack_of(p->stacks, SFW_NUM_STACKS, address);
	/* Stacks, and code of the last frame's file, are mapped readable. */
	if ((stack == NULL || address > stack->high - 8) &&
		!sfw_loaded(&p->file, address - p->file.bias, 8, PF_R | PF_X, PF_R | PF_X) &&
		(!p->probe || !sfw_probe(&p->stacks[SFW_NUM_STACKS - 1], address)))
		return 0;
	((sfw_u64 *)(void *)bytes)->v = sfw_load(address);
	return 1;
}

/* sfw_process_walk is sfw_walk in this process. Signal handlers may call it. Get the registers from
 * sfw_regs_of_context or sfw_regs_here. */
static inline size_t sfw_process_walk(
	const struct sfw_process *p, struct sfw_regs *regs, struct sfw_frame *frames, size_t max, enum sfw_how *end) {
	struct sfw_process walk = *p;
	const struct sfw_space space = {sfw_process_read, sfw_process_section, &walk, 0, p->cache, SFW_HOST_ABI,
		p->frame_pointer, SFW_NUM_STACKS, walk.stacks};
	uint64_t sp;
	walk.file.begin = walk.file.end = walk.file.num = 0;
	if (p->bounds != NULL && sfw_get(regs, sfw_abi_of(SFW_HOST_ABI)->sp, &sp) &&
		(!p->probe || sfw_probe(&walk.stacks[SFW_NUM_STACKS - 1], sp)))
		sfw_own_stack(p->bounds, sp, &walk.stacks[0]);
	return sfw_walk(&space, regs, frames, max, end);
}

/* sfw_regs_of_caller sets the registers to those of a function's caller. */
static inline void sfw_regs_of_caller(struct sfw_regs *regs, uint64_t pc, uint64_t sp, uint64_t fp) {
	regs->pc = pc;
	regs->floor = 0;
	regs->valid = 0;
	regs->interrupted = 0;
	regs->how = SFW_OK;
	regs->stacks = 0;
	sfw_set(regs, sfw_abi_of(SFW_HOST_ABI)->sp, sp);
	sfw_set(regs, sfw_abi_of(SFW_HOST_ABI)->fp, fp);
}

/* sfw_regs_of_context reads the registers from the third argument of an SA_SIGINFO handler. On s390x, set
 * regs->interrupted to 0 after SIGILL, SIGTRAP and SIGFPE: pc is after the instruction. */
static inline void sfw_regs_of_context(struct sfw_regs *regs, const void *context) {
	const struct sfw_abi *a = sfw_abi_of(SFW_HOST_ABI);
	const sfw_u64 *words = (const sfw_u64 *)context;
	sfw_regs_of_caller(regs, words[a->saved_pc].v, 0, 0);
	uint64_t fault[4];
	for (unsigned i = 0; i < 4; i++)
		fault[i] = words[a->fault + i].v;
	regs->interrupted = sfw_no_code(a, regs->pc, fault) ? SFW_NO_CODE : 1;
	for (unsigned i = 0; i < a->num_saved; i++)
		sfw_set(regs, i, words[a->saved[i]].v);
}

/* sfw_regs_here reads the registers of the calling function, where the walk starts. */
__attribute__((always_inline)) static inline void sfw_regs_here(struct sfw_regs *regs) {
	uint64_t pc, sp, fp;
#if defined(__x86_64__)
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2" : "=&r"(pc), "=&r"(sp), "=&r"(fp));
	sfw_regs_of_caller(regs, pc, sp, fp);
#else
	uint64_t lr;
#if defined(__aarch64__)
	__asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
		: "=&r"(pc), "=&r"(sp), "=&r"(fp), "=&r"(lr));
#elif defined(__s390x__)
	__asm__ volatile("larl %0, .\n\tlgr %1, %%r15\n\tlgr %2, %%r11\n\tlgr %3, %%r14"
		: "=&a"(pc), "=&a"(sp), "=&a"(fp), "=&a"(lr));
#endif
	sfw_regs_of_caller(regs, pc, sp, fp);
	sfw_set(regs, sfw_abi_of(SFW_HOST_ABI)->lr, lr);
#endif
	regs->interrupted = 1;
}

#endif /* SFRAME_PROCESS_H */
