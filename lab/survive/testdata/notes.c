/* Prints notes as compiler-rt finds them: by offsets in the file, from the ELF header in memory. Compiled without the
   runtime, as profiles would count the program headers. */
#include <elf.h>
#include <stdio.h>

extern const char __ehdr_start[] __attribute__((weak, visibility("hidden")));

void notes(void);

void notes(void)
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
