/* A program that finds its notes from its ELF header on, by their offsets in the file, as the profile
   writer of compiler-rt does. */
#include <elf.h>
#include <stdio.h>

extern const Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden")));

int main(void)
{
	const char *start = (const char *)&__ehdr_start;
	const Elf64_Phdr *p = (const Elf64_Phdr *)(start + __ehdr_start.e_phoff);
	for (int i = 0; i < __ehdr_start.e_phnum; i++) {
		if (p[i].p_type != PT_NOTE)
			continue;
		for (const char *at = start + p[i].p_offset, *end = at + p[i].p_filesz; at < end;) {
			const Elf64_Nhdr *n = (const Elf64_Nhdr *)at;
			const char *name = (const char *)(n + 1), *data = name + ((n->n_namesz + 3) & -4u);
			printf("%.*s %x:", (int)n->n_namesz, name, n->n_type);
			for (unsigned j = 0; j < n->n_descsz; j++)
				printf(" %02x", (unsigned char)data[j]);
			printf("\n");
			at = data + ((n->n_descsz + 3) & -4u);
		}
	}
	return 0;
}
