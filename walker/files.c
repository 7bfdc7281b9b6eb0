/* Finds the sections of files, also separate ones in the directories of SFRAME_PATH, and counts the frames of each file
 * that were unwound with SFrame or otherwise. Separate files are found when the files that they describe are loaded. */
#include "backtrace.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>

static struct sfw_separates separates;

void sframe_say(const char *a, const char *b, const char *c) {
	const char *parts[] = {"sframe-backtrace: ", a, b, c, "\n"};
	struct iovec list[sizeof parts / sizeof *parts];
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
		list[i] = (struct iovec){(void *)(uintptr_t)parts[i], strlen(parts[i])};
	if (writev(2, list, sizeof parts / sizeof *parts) < 0)
		return;
}

/* sframe_set_path sets the directories from SFRAME_PATH. */
void sframe_set_path(const char *path) {
	if (!sfw_set_directories(&separates, path))
		sframe_say("SFRAME_PATH has too many directories, or too long ones: ", path, "");
}

/* sframe_separates returns the separate files, or NULL. */
const struct sfw_separates *sframe_separates(void) { return separates.directories[0] != 0 ? &separates : NULL; }

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
		if (separates.directories[0] != 0 && sfw_find_file(NULL, (uint64_t)(uintptr_t)in, &f))
			sfw_add_separates(&separates, &f);
	}
	seen = info->dlpi_adds;
	return result;
}

/* sframe_add_new_files finds the separate files of files that were loaded since the last call, given an address in a
 * loaded file. It returns whether libunwind is among them. dl_iterate_phdr holds the linker's lock. */
int sframe_add_new_files(void *address) { return dl_iterate_phdr(add_new, address) == LIBUNWIND; }

/* is_gconv returns whether a file is a module of iconv, which libc unloads without dlclose. strstr would take 300
 * bytes of stack on some machines. */
static int is_gconv(const char *path) {
	static const char name[] = "/gconv";
	const char *base = strrchr(path, '/');
	return base != NULL && base - path >= (long)sizeof name - 1 &&
		memcmp(base - (sizeof name - 1), name, sizeof name - 1) == 0;
}

/* sframe_section is sfw_process_section, but marks sections that must not be cached. */
enum sfw_how sframe_section(void *context, uint64_t pc, struct sfw_section *s) {
	struct sfw_process *p = context;
	if (pc - p->file.begin >= p->file.end - p->file.begin) {
		sfw_process_section(p, pc, s);
		s->passing = is_gconv(p->file.name);
	}
	return p->how;
}

/* Statistics. Linux allows a process 65,530 mappings, of which a file has at least four. */
enum { MAX_FILES = 1 << 14 };
static struct file {
	uint64_t begin; /* or 0 while the name is written */
	char name[SFW_MAX_PATH];
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
			strncmp(files[i].name, name, SFW_MAX_PATH - 1) == 0)
			break;
	if (i >= n && (i = __atomic_fetch_add(&num_files, 1, __ATOMIC_RELAXED)) < MAX_FILES) {
		strncpy(files[i].name, name, SFW_MAX_PATH - 1);
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
