/*
 * Finds the sections of files, and counts the frames of each file that were unwound with SFrame or otherwise.
 *
 * Separate files are found by the build-id of the file that they describe, in the directories of SFRAME_PATH. Their
 * files are mapped, or copied if they may change, when that file is loaded. The first trace that needs them checks
 * them: traces make no system calls.
 *
 * Licence: BSD 3-Clause, like the rest of the project.
 */
#include "backtrace.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { MAX_ID = 32, MAX_PATH = 256 };

void sframe_say(const char *a, const char *b, const char *c) {
	const char *parts[] = {"sframe-backtrace: ", a, b, c, "\n"};
	struct iovec list[sizeof parts / sizeof *parts];
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
		list[i] = (struct iovec){(void *)(uintptr_t)parts[i], strlen(parts[i])};
	if (writev(2, list, sizeof parts / sizeof *parts) < 0)
		return;
}

/* A separate file for loaded files with this build-id. */
struct separate {
	struct separate *next;
	const unsigned char *bytes; /* or NULL */
	size_t size;
	unsigned state; /* UNCHECKED, VALID or INVALID */
	uint8_t id_size;
	unsigned char id[MAX_ID];
};
enum { UNCHECKED, VALID, INVALID };

/* Lists of separate files by the hash of the build-id, which has several if they are in different directories. They are
 * added under the linker's lock, and never removed. */
enum { NUM_LISTS = 1 << 12 };
static struct separate *separates[NUM_LISTS];
static char directories[1024]; /* each followed by a 0 */

/* find_note finds the note with the given name and type, or returns NULL. */
static const unsigned char *find_note(
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

static const unsigned char *build_id(const unsigned char *notes, size_t size, size_t *id_size) {
	const unsigned char *id = find_note(notes, size, "GNU", sizeof "GNU", NT_GNU_BUILD_ID, id_size);
	return id != NULL && *id_size > 1 && *id_size <= MAX_ID ? id : NULL;
}

/* checksum computes the checksum that walker/README.md specifies. */
__attribute__((no_sanitize("address"))) static uint64_t checksum(const unsigned char *b, uint64_t size) {
	uint64_t sum = size;
	for (uint64_t i = 0; i < size; i += 8) {
		uint64_t word = 0;
		memcpy(&word, b + i, size - i < 8 ? size - i : 8);
		sum = (sum ^ word) * 0x9e3779b97f4a7c15U;
		sum ^= sum >> 32;
	}
	return sum;
}

/* matches_file returns whether the checksums in a separate file match the loaded file, whose code cannot change. */
static int matches_file(const unsigned char *sums, size_t size, const struct sfw_file *f) {
	enum { SUM = 24 };
	if (size == 0 || size % SUM != 0)
		return 0;
	for (; size > 0; size -= SUM, sums += SUM) {
		uint64_t begin = sfw_load64(sums, 0), length = sfw_load64(sums + 8, 0);
		if (!sfw_loaded(f, begin, length, PF_R, PF_R | PF_W) ||
			checksum((const unsigned char *)(uintptr_t)(f->bias + begin), length) != sfw_load64(sums + 16, 0))
			return 0;
	}
	return 1;
}

/* section_of_file finds the section in a separate file, and returns whether there is one. If the file has not been
 * checked, it also returns whether the section is valid and belongs to the loaded file. */
__attribute__((noinline)) static int section_of_file(
	struct sfw_section *section, const struct separate *s, const struct sfw_file *f, int checked) {
	struct sfw_file file;
	int same = checked, proven = checked, sound = 0;
	sfw_headers(s->bytes, &file); /* in the first page, all of which is in memory */
	for (size_t i = 0; i < file.num; i++) {
		const ElfW(Phdr) *h = &file.h[i];
		size_t text = 0;
		const unsigned char *note, *at = s->bytes + h->p_offset;
		if (h->p_offset > s->size || h->p_filesz > s->size - h->p_offset)
			continue; /* such as the empty loaded segments */
		if (!checked && h->p_type == PT_NOTE && (note = build_id(at, h->p_filesz, &text)) != NULL)
			same |= text == s->id_size && memcmp(note, s->id, text) == 0;
		if (!checked && h->p_type == PT_NOTE &&
			(note = find_note(at, h->p_filesz, "cfi2sframe", sizeof "cfi2sframe", 1, &text)) != NULL)
			proven |= matches_file(note, text, f);
		if (h->p_type == SFW_PT_GNU_SFRAME)
			sound = sfw_open(section, at, h->p_filesz, h->p_vaddr) == SFW_OK && section->abi == SFW_HOST_ABI &&
				(checked || sfw_check(section) == SFW_OK);
	}
	return same && proven && sound;
}

/* copy_file reads a file into new memory, or returns MAP_FAILED. */
static void *copy_file(int fd, size_t size) {
	unsigned char *b = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (size_t at = 0; b != MAP_FAILED && at < size;) {
		long n = syscall(SYS_read, fd, b + at, size - at);
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

/* map_file returns the contents of a regular file, or MAP_FAILED. To overwrite or truncate a mapped file is fatal, so
 * only files that nobody may write are mapped: these are replaced instead. It makes raw system calls, because libc's
 * are cancellation points. */
static void *map_file(const char *path, size_t *size) {
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
		b = may_change ? copy_file(fd, *size) : mmap(NULL, *size, PROT_READ, MAP_PRIVATE, fd, 0);
	}
	syscall(SYS_close, fd);
	return b;
}

/* list_of returns the list for a build-id. */
static struct separate **list_of(const unsigned char *id, size_t size) {
	uint32_t hash = 0;
	for (size_t i = 0; i < size; i++)
		hash = hash * 31 + id[i];
	return &separates[hash % NUM_LISTS];
}

/* find_separate returns the first entry for a build-id in the rest of its list, or NULL. */
static struct separate *find_separate(struct separate *s, const unsigned char *id, size_t size) {
	while (s != NULL && (s->id_size != size || memcmp(s->id, id, size) != 0))
		s = s->next;
	return s;
}

/* add_separate adds an entry, in memory that is never freed. */
static void add_separate(const unsigned char *id, size_t id_size, const unsigned char *bytes, size_t size) {
	enum { BLOCK = 256 };
	static struct separate *block;
	static size_t left;
	struct separate **list = list_of(id, id_size);
	if (left == 0) {
		block = mmap(NULL, BLOCK * sizeof *block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (block == MAP_FAILED)
			return;
		left = BLOCK;
	}
	struct separate *s = &block[--left];
	s->next = *list;
	s->bytes = bytes;
	s->size = size;
	s->id_size = (uint8_t)id_size;
	memcpy(s->id, id, id_size);
	__atomic_store_n(list, s, __ATOMIC_RELEASE);
}

/* find_separates adds the separate files for a build-id in all directories. */
static void find_separates(const unsigned char *id, size_t id_size) {
	add_separate(id, id_size, NULL, 0); /* even if there is none, the build-id is known */
	for (const char *dir = directories; *dir != 0; dir += strlen(dir) + 1) {
		static const char digits[] = "0123456789abcdef", part[] = "/.build-id/";
		char path[MAX_PATH + sizeof part + 2 * MAX_ID + sizeof "/.sframe"], *to = path + strlen(dir);
		size_t size = 0;
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
		const unsigned char *file = map_file(path, &size);
		if (file != MAP_FAILED)
			add_separate(id, id_size, file, size);
	}
}

/* id_of finds the build-id of a loaded file, or returns NULL. */
static const unsigned char *id_of(const struct sfw_file *f, size_t *size) {
	for (size_t i = 0; i < f->num; i++) {
		const ElfW(Phdr) *h = &f->h[i];
		const unsigned char *id;
		if (h->p_type == PT_NOTE && sfw_loaded(f, h->p_vaddr, h->p_memsz, PF_R, PF_R) &&
			(id = build_id((const unsigned char *)(uintptr_t)(f->bias + h->p_vaddr), h->p_memsz, size)) != NULL)
			return id;
	}
	return NULL;
}

/* add_file finds the separate files of a loaded file, unless its build-id is known. */
static void add_file(const struct sfw_file *f) {
	struct sfw_section section;
	size_t size = 0;
	const unsigned char *id = sfw_open_loaded(&section, f) == SFW_NO_SECTION ? id_of(f, &size) : NULL;
	if (id != NULL && find_separate(*list_of(id, size), id, size) == NULL)
		find_separates(id, size);
}

enum { NO_LIBUNWIND = 1, LIBUNWIND };

/* add_new adds new files, which are the last ones in the list of loaded files, and returns whether libunwind is one. */
static int add_new(struct dl_phdr_info *info, size_t size, void *address) {
	static unsigned long long seen;
	struct dl_find_object o;
	struct sfw_file f;
	int result = NO_LIBUNWIND;
	(void)size;
	if (_dl_find_object(address, &o) != 0)
		return result;
	const struct link_map *map = o.dlfo_link_map;
	while (map->l_next != NULL)
		map = map->l_next;
	for (; map != NULL && seen < info->dlpi_adds; map = map->l_prev, seen++) {
		const void *in = map == o.dlfo_link_map ? address : map->l_ld; /* static programs lack the latter */
		if (strstr(map->l_name, "/libunwind") != NULL)
			result = LIBUNWIND;
		if (directories[0] != 0 && sfw_find_file((uint64_t)(uintptr_t)in, &f))
			add_file(&f);
	}
	seen = info->dlpi_adds;
	return result;
}

/* sframe_add_new_files finds the separate files of files that were loaded since the last call, given an address in a
 * loaded file. It returns whether libunwind is among them. dl_iterate_phdr holds the linker's lock. */
int sframe_add_new_files(void *address) { return dl_iterate_phdr(add_new, address) == LIBUNWIND; }

static enum sfw_how separate_section(struct sfw_section *section, const struct sfw_file *f) {
	size_t id_size = 0;
	const unsigned char *id = id_of(f, &id_size);
	struct separate *s = id != NULL ? __atomic_load_n(list_of(id, id_size), __ATOMIC_ACQUIRE) : NULL;
	for (; (s = find_separate(s, id, id_size)) != NULL; s = s->next) {
		unsigned state = __atomic_load_n(&s->state, __ATOMIC_RELAXED);
		if (s->bytes == NULL || state == INVALID)
			continue;
		int found = section_of_file(section, s, f, state == VALID);
		if (state == UNCHECKED)
			__atomic_store_n(&s->state, found ? VALID : INVALID, __ATOMIC_RELAXED);
		if (found) {
			section->address += f->bias;
			return SFW_OK;
		}
	}
	sfw_no_section(section);
	return SFW_NO_SECTION;
}

/* is_gconv returns whether a file is a module of iconv, which libc unloads without dlclose. strstr would take 300
 * bytes of stack on some machines. */
static int is_gconv(const char *path) {
	static const char name[] = "/gconv";
	const char *base = strrchr(path, '/');
	return base != NULL && base - path >= (long)sizeof name - 1 &&
		memcmp(base - (sizeof name - 1), name, sizeof name - 1) == 0;
}

/* sframe_section is sfw_process_section, extended to separate sections. */
enum sfw_how sframe_section(void *context, uint64_t pc, struct sfw_section *s) {
	struct sfw_process *p = context;
	if (pc - p->file.begin < p->file.end - p->file.begin)
		return p->how;
	p->how = sfw_process_section(p, pc, s);
	if (p->how == SFW_NO_SECTION && directories[0] != 0)
		p->how = separate_section(s, &p->file);
	s->passing = is_gconv(p->file.name);
	return p->how;
}

/* sframe_set_path sets the directories from SFRAME_PATH. */
void sframe_set_path(const char *path) {
	char *to = directories;
	for (size_t n; path != NULL && *path != 0; path += n + (path[n] == ':')) {
		n = strcspn(path, ":");
		if (n == 0)
			continue;
		if (n > MAX_PATH || (size_t)(to - directories) + n + 2 > sizeof directories) {
			sframe_say("SFRAME_PATH has too many directories, or too long ones: ", path, "");
			return;
		}
		memcpy(to, path, n);
		to += n + 1;
	}
}

/*
 * Statistics. Linux allows a process 65,530 mappings, of which a file has at least four.
 */
enum { MAX_FILES = 1 << 14 };
static struct file {
	uint64_t begin; /* or 0 while the name is written */
	char name[MAX_PATH];
	uint64_t frames[2]; /* unwound otherwise, and by SFrame */
} files[MAX_FILES];
static unsigned num_files;
const char *sframe_statistics;

void sframe_count(uint64_t pc, int by_sframe) {
	struct dl_find_object o;
	const char *name = "code outside files";
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

/* A file may have two entries: if two threads reached it at the same time, or if it was loaded twice. */
__attribute__((destructor)) static void print_statistics(void) {
	if (sframe_statistics == NULL)
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
	if (strcmp(sframe_statistics, "1") != 0 &&
		(fd = open(sframe_statistics, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) < 0) {
		sframe_say(sframe_statistics, ": ", strerror(errno));
		return;
	}
	dprintf(fd, "sframe-backtrace: process %d: %llu frames by SFrame, %llu otherwise\n%12s %12s  %s\n", (int)getpid(),
		(unsigned long long)sum[1], (unsigned long long)sum[0], "by SFrame", "otherwise", "file");
	for (unsigned i = 0; i < num; i++) {
		char path[PATH_MAX];
		const char *name = files[i].name;
		if (strstr(name, "/../") != NULL && realpath(name, path) != NULL)
			name = path;
		dprintf(fd, "%12llu %12llu  %s\n", (unsigned long long)files[i].frames[1],
			(unsigned long long)files[i].frames[0], name);
	}
	if (fd != 2)
		close(fd);
}
