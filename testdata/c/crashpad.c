/* A program whose note says, as Crashpad's does, how far from it something is, which others find
   through the program headers: here the program itself. */
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <string.h>

char info[] __attribute__((used, visibility("hidden"))) = "what the note leads to";

__asm__(".pushsection .note.crashpad.info,\"a\",%note\n"
	".balign 4\n"
	".long 2f-1f, 4f-3f, 0x4f464e49\n"
	"1: .asciz \"Crashpad\"\n"
	"2: .balign 4\n"
	"3: .quad info-3b\n"
	"4:\n"
	".popsection\n");

static int notes(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size, (void)data;
	for (int i = 0; info->dlpi_name[0] == '\0' && i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type != PT_NOTE)
			continue;
		for (const char *at = (char *)info->dlpi_addr + p->p_vaddr, *end = at + p->p_memsz; at < end;) {
			const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)at;
			long distance;
			at += sizeof *n + ((n->n_namesz + 3) & -4u);
			memcpy(&distance, at, sizeof distance);
			if (strcmp((const char *)(n + 1), "Crashpad") == 0)
				printf("%s\n", at + distance);
			at += (n->n_descsz + 3) & -4u;
		}
	}
	return 0;
}

int main(void)
{
	dl_iterate_phdr(notes, NULL);
	return 0;
}
