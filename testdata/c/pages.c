/* pages SIZE SFRAME [LIBRARY]: checks that pages have SIZE bytes, that the program's
   headers are in memory where AT_PHDR says, that this is where Linux before 5.18 and
   qemu-user look for them, and that there is an .sframe if SFRAME is 1 and none if it is
   0. With -DDLOPEN it does the same for a library, which is this file with -DLIBRARY. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define PT_GNU_SFRAME 0x6474e554

/* Found through the program headers. */
static __thread int calls = 42;

#ifdef LIBRARY
int work(void) { return calls++; }
#else

static void expect(int ok, const char *file, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s: %s\n", file, what);
		exit(1);
	}
}

/* Reads the ELF header and the program headers of a file. */
static void headers(const char *file, Elf64_Ehdr *e, Elf64_Phdr table[64])
{
	int fd = open(file, O_RDONLY);
	expect(fd >= 0 && read(fd, e, sizeof *e) == sizeof *e && e->e_phnum <= 64, file, "cannot read the ELF header");
	ssize_t size = e->e_phnum * sizeof *table;
	expect(pread(fd, table, size, e->e_phoff) == size, file, "cannot read the program headers");
	close(fd);
}

/* Checks a file that is loaded at bias, with n program headers at phdr. */
static void check(const char *file, const void *phdr, size_t n, unsigned long bias, int sframe)
{
	Elf64_Ehdr e;
	Elf64_Phdr table[64], *load = 0, *found = 0;
	headers(file, &e, table);
	for (int i = e.e_phnum - 1; i >= 0; i--) {
		if (table[i].p_type == PT_LOAD)
			load = &table[i];
		if (table[i].p_type == PT_GNU_SFRAME)
			found = &table[i];
	}
	unsigned long old = bias + load->p_vaddr - load->p_offset + e.e_phoff;
	expect(n == e.e_phnum, file, "has another number of program headers in memory");
	expect(!memcmp(phdr, table, n * sizeof *table), file, "has other program headers in memory");
	expect(!memcmp((void *)old, table, n * sizeof *table), file, "has other program headers at the load address plus e_phoff");
	expect((found != 0) == sframe, file, sframe ? "has no PT_GNU_SFRAME" : "has a PT_GNU_SFRAME");
	if (found)
		expect(*(unsigned short *)(bias + found->p_vaddr) == 0xdee2, file, "has no magic number at PT_GNU_SFRAME");
}

#ifdef DLOPEN
static int sframe;

static int visit(struct dl_phdr_info *info, size_t size, void *file)
{
	if (strcmp(info->dlpi_name, file))
		return 0;
	check(file, info->dlpi_phdr, info->dlpi_phnum, info->dlpi_addr, sframe);
	return 1;
}

static void library(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW);
	expect(lib != 0, file, "cannot be loaded");
	int (*work)(void) = (int (*)(void))dlsym(lib, "work");
	expect(work && work() == 42 && work() == 43, file, "does not work");
	expect(dl_iterate_phdr(visit, (void *)file), file, "is not listed");
}
#endif

int main(int argc, char **argv)
{
	Elf64_Ehdr e;
	Elf64_Phdr table[64];
	headers(argv[0], &e, table);
	expect(getauxval(AT_PAGESZ) == strtoul(argv[1], 0, 10), argv[0], "sees pages of another size");
	check(argv[0], (void *)getauxval(AT_PHDR), getauxval(AT_PHNUM), getauxval(AT_ENTRY) - e.e_entry, atoi(argv[2]));
	expect(calls == 42, argv[0], "has no thread-local storage");
#ifdef DLOPEN
	sframe = atoi(argv[2]);
	library(argv[3]);
#endif
	return 0;
}
#endif
