/* What programs with the runtimes of compilers do: all of subject.c, then the one mistake that a sanitizer is to report. */
#define LIBRARY
#include "subject.c"
#include <elf.h>

/* Prints notes as compiler-rt finds them: by offsets in the file, from the ELF header in memory. */
extern const char __ehdr_start[] __attribute__((weak, visibility("hidden")));

static void notes(void)
{
	const Elf64_Ehdr *e = (const void *)__ehdr_start;
	const Elf64_Phdr *p = (const void *)(__ehdr_start + (e ? e->e_phoff : 0)), *load = p;
	while (e && load->p_type != PT_LOAD)
		load++;
	for (int i = 0; e && i < e->e_phnum; i++) {
		size_t align = p[i].p_align < 4 ? 4 : p[i].p_align, at = 0;
		if (p[i].p_type != PT_NOTE)
			continue;
		if (p[i].p_vaddr - p[i].p_offset != load->p_vaddr - load->p_offset) {
			printf("notes elsewhere\n");
			continue;
		}
		while (at + sizeof(Elf64_Nhdr) <= p[i].p_filesz) {
			const Elf64_Nhdr *n = (const void *)(__ehdr_start + p[i].p_offset + at);
			size_t name = sizeof *n + n->n_namesz, size = (name + align - 1) / align * align + n->n_descsz;
			printf("note %u:", n->n_type);
			for (size_t j = 0; j < size && at + j < p[i].p_filesz; j++)
				printf(" %02x", ((const unsigned char *)n)[j]);
			printf("\n");
			at += (size + align - 1) / align * align;
		}
	}
	fflush(stdout);
}

#ifdef THREAD
#include <pthread.h>

static int raced, done;

static void *race(void *arg)
{
	raced = 1;
	__atomic_store_n(&done, 1, __ATOMIC_RELAXED); /* orders nothing: the report is the same each time */
	return arg;
}
#endif

__attribute__((noinline)) static int mistake(volatile int n)
{
#if defined ADDRESS
	char *text = malloc(n);
	int c = text[n];
	free(text);
	return c & 0;
#elif defined UNDEFINED
	return (1 << (n + 31)) & 0;
#elif defined THREAD
	pthread_t thread;
	if (pthread_create(&thread, 0, race, 0))
		return 1;
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED))
		;
	raced = n;
	return pthread_join(thread, 0);
#elif defined LEAK
	return !malloc(n * 1000);
#else
	return n != 8;
#endif
}

int main(void)
{
	notes();
	return subject() || mistake(8);
}
