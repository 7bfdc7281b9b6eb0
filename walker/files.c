/*
 * Finds the sections of files, and counts the frames of each file that were unwound with SFrame or otherwise.
 *
 * Separate files are found by the build-id of the file that they describe, in the directories of SFRAME_PATH. Their
 * sections are read into memory when that file is loaded, and checked once: traces make no system calls, and later
 * changes to a separate file do no harm.
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

enum { MAX_FILES = 512, MAX_ID = 32, MAX_PATH = 256 };

void sframe_say(const char *a, const char *b, const char *c) {
	const char *parts[] = {"sframe-backtrace: ", a, b, c, "\n"};
	struct iovec list[sizeof parts / sizeof *parts];
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
		list[i] = (struct iovec){(void *)(uintptr_t)parts[i], strlen(parts[i])};
	if (writev(2, list, sizeof parts / sizeof *parts) < 0)
		return;
}

/* An element of the array is allocated before its section is known. */
static struct separate {
	uint8_t ready, id_size;
	unsigned char id[MAX_ID];
	struct sfw_section section; /* without FDEs if there is none; its address is that in the file it describes */
} separates[MAX_FILES];
static unsigned num_separates;
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

/* section_of_file finds the section in a separate file, and returns whether it is valid and belongs to the loaded
 * file. */
static int section_of_file(struct separate *s, const unsigned char *bytes, size_t size, const struct sfw_file *f) {
	struct sfw_file file;
	int same = 0, proven = 0, sound = 0;
	sfw_headers(bytes, &file); /* in the first page, all of which is in memory */
	for (size_t i = 0; i < file.num; i++) {
		const ElfW(Phdr) *h = &file.h[i];
		size_t text = 0;
		const unsigned char *note, *at = bytes + h->p_offset;
		if (h->p_offset > size || h->p_filesz > size - h->p_offset)
			continue; /* such as the empty loaded segments */
		if (h->p_type == PT_NOTE && (note = build_id(at, h->p_filesz, &text)) != NULL)
			same |= text == s->id_size && memcmp(note, s->id, text) == 0;
		if (h->p_type == PT_NOTE &&
			(note = find_note(at, h->p_filesz, "cfi2sframe", sizeof "cfi2sframe", 1, &text)) != NULL)
			proven |= matches_file(note, text, f);
		if (h->p_type == SFW_PT_GNU_SFRAME)
			sound = sfw_open(&s->section, at, h->p_filesz, h->p_vaddr) == SFW_OK && s->section.abi == SFW_HOST_ABI &&
				sfw_check(&s->section) == SFW_OK;
	}
	if (!same || !proven || !sound)
		sfw_no_section(&s->section);
	return same && proven && sound;
}

/* read_file reads a regular file into new memory, or returns MAP_FAILED. It makes raw system calls, because libc's
 * are cancellation points. */
static unsigned char *read_file(const char *path, size_t *size) {
	enum { MOST = 1 << 30 };
	struct stat st;
	/* O_NONBLOCK: do not wait for the writer of a FIFO. */
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return MAP_FAILED;
	void *b = MAP_FAILED;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= MOST) {
		*size = (size_t)st.st_size;
		b = mmap(NULL, *size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	for (size_t at = 0; b != MAP_FAILED && at < *size;) {
		long n = syscall(SYS_read, fd, (unsigned char *)b + at, *size - at);
		if (n > 0) {
			at += (size_t)n;
		} else if (n == 0 || errno != EINTR) {
			munmap(b, *size);
			b = MAP_FAILED;
		}
	}
	syscall(SYS_close, fd);
	if (b != MAP_FAILED)
		mprotect(b, *size, PROT_READ);
	return b;
}

/* load_separate searches all directories for the separate file. */
static void load_separate(struct separate *s, const struct sfw_file *f) {
	for (const char *dir = directories; *dir != 0; dir += strlen(dir) + 1) {
		static const char digits[] = "0123456789abcdef", part[] = "/.build-id/";
		char path[MAX_PATH + sizeof part + 2 * MAX_ID + sizeof "/.sframe"], *to = path + strlen(dir);
		size_t size = 0;
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
		unsigned char *file = read_file(path, &size);
		if (file == MAP_FAILED)
			continue;
		if (section_of_file(s, file, size, f))
			return;
		munmap(file, size);
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

/* separate_of returns the entry for a build-id, or NULL. */
static struct separate *separate_of(const unsigned char *id, size_t size) {
	unsigned n = __atomic_load_n(&num_separates, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < n && i < MAX_FILES; i++)
		if (__atomic_load_n(&separates[i].ready, __ATOMIC_ACQUIRE) && separates[i].id_size == size &&
			memcmp(separates[i].id, id, size) == 0)
			return &separates[i];
	return NULL;
}

static int load_separate_of(struct dl_phdr_info *info, size_t size, void *argument) {
	const struct sfw_file f = {info->dlpi_phdr, info->dlpi_phnum, info->dlpi_addr, 0, 0, info->dlpi_name};
	struct sfw_section section;
	size_t id_size = 0;
	(void)size;
	(void)argument;
	if (sfw_open_loaded(&section, &f) != SFW_NO_SECTION)
		return 0;
	const unsigned char *id = id_of(&f, &id_size);
	if (id == NULL || separate_of(id, id_size) != NULL)
		return 0;
	unsigned n = __atomic_fetch_add(&num_separates, 1, __ATOMIC_RELAXED);
	if (n >= MAX_FILES)
		return 1;
	memcpy(separates[n].id, id, id_size);
	separates[n].id_size = (uint8_t)id_size;
	load_separate(&separates[n], &f);
	__atomic_store_n(&separates[n].ready, 1, __ATOMIC_RELEASE);
	return 0;
}

/* sframe_load_sections reads the sections of files that were loaded since the last call. */
void sframe_load_sections(void) {
	static uint64_t generation;
	int before = errno;
	uint64_t now = directories[0] != 0 ? sfw_generation() : 0;
	if (now != __atomic_exchange_n(&generation, now, __ATOMIC_RELAXED))
		dl_iterate_phdr(load_separate_of, NULL);
	errno = before;
}

static enum sfw_how separate_section(struct sfw_section *section, const struct sfw_file *f) {
	size_t id_size = 0;
	const unsigned char *id = id_of(f, &id_size);
	const struct separate *s = id != NULL ? separate_of(id, id_size) : NULL;
	if (s == NULL || s->section.num_fdes == 0)
		return SFW_NO_SECTION;
	*section = s->section;
	section->address += f->bias;
	return SFW_OK;
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
 * Statistics.
 */
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
