/* A program, or a library with the program that uses it, that prints a note of its own, and all
   notes that its program headers lead to.

   KIND is the note's kind: OWN, which only the program knows, or PACKAGE, which others find
   through the program headers. SECTION is its section. REACH says how the program finds it:
   CODE by an instruction, DATA by a pointer, SYMBOL by an instruction and with a symbol, START
   by the symbol of the section's start that linkers make, NONE not at all. With POINTER there is
   a pointer in the note. */
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <string.h>

#define TEXT2(x) #x
#define TEXT(x) TEXT2(x)

#define OWN "App", "1"
#define PACKAGE "FDO", "0xcafe1a7e"
#define NAME2(name, type) name
#define NAME(...) NAME2(__VA_ARGS__)
#define TYPE2(name, type) type
#define TYPE(...) TYPE2(__VA_ARGS__)

#define SYMBOL 1
#define CODE 2
#define DATA 3
#define START 4
#define NONE 5

#ifndef MAIN

static const char message[] __attribute__((used)) = "what the pointer in the note leads to";

struct note {
	unsigned name_size, size, type;
	char name[4];
	char text[32];
#ifdef POINTER
	const char *pointer;
#endif
};

__asm__(".pushsection " TEXT(SECTION) ",\"a\",%note\n"
#ifdef POINTER
	".balign 8\n"
#else
	".balign 4\n"
#endif
#if REACH == SYMBOL
	".type note,%object\n.size note,48\n"
	"note:\n"
#else
	".Lnote:\n"
#endif
	".long 4, 2f-1f, " TYPE(KIND) "\n"
	".asciz \"" NAME(KIND) "\"\n"
	"1: .asciz \"version 1.2.3, says the program\"\n"
#ifdef POINTER
	".quad message\n"
#endif
	"2:\n"
	".popsection\n");

#if REACH == DATA
__asm__(".pushsection .data.rel.local,\"aw\"\n.balign 8\npointer: .quad .Lnote\n.popsection\n");
extern const struct note *pointer __attribute__((visibility("hidden")));
#elif REACH == START
#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
extern const struct note CAT(__start_, SECTION) __attribute__((visibility("hidden")));
#endif

static const struct note *find(void)
{
	const struct note *n;
#if REACH == NONE
	n = NULL;
#elif REACH == DATA
	n = *(const struct note *volatile *)&pointer;
#elif REACH == START
	n = &CAT(__start_, SECTION);
#else
#if REACH == SYMBOL
#define LABEL "note"
#else
#define LABEL ".Lnote"
#endif
#if defined(__x86_64__)
	__asm__ volatile("lea " LABEL "(%%rip), %0" : "=r"(n));
#elif defined(__aarch64__)
	__asm__ volatile("adrp %0, " LABEL "\nadd %0, %0, :lo12:" LABEL : "=r"(n));
#elif defined(__s390x__)
	__asm__ volatile("larl %0, " LABEL : "=r"(n));
#endif
#endif
	return n;
}

void show(void)
{
	const struct note *n = find();
	if (n == NULL)
		return;
	printf("%.4s: %.32s\n", n->name, n->text);
#ifdef POINTER
	printf("%s\n", n->pointer);
#endif
}

#endif

#ifndef LIBRARY

void show(void);

static int notes(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)size, (void)data;
	/* Of the program and of its library, not of others. */
	if (info->dlpi_name[0] != '\0' && strstr(info->dlpi_name, "note") == NULL)
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		size_t align = p->p_align == 8 ? 8 : 4;
		if (p->p_type != PT_NOTE)
			continue;
		for (const char *at = (char *)info->dlpi_addr + p->p_vaddr, *end = at + p->p_memsz; at < end;) {
			const ElfW(Nhdr) *n = (const ElfW(Nhdr) *)at;
			unsigned sum = 0;
			at += (sizeof *n + n->n_namesz + align - 1) & -align;
			for (unsigned j = 0; j < n->n_descsz; j++)
				sum = sum * 31 + (unsigned char)at[j];
			/* An address in it would differ from run to run. */
			if (strcmp((const char *)(n + 1), "App") == 0)
				sum = 0;
			/* Properties have a program header of their own, too. */
			if (n->n_type != 5)
				printf("note %s %#x, %u bytes, %u\n", (const char *)(n + 1), n->n_type, n->n_descsz, sum);
			at += (n->n_descsz + align - 1) & -align;
		}
	}
	return 0;
}

int main(void)
{
	show();
	dl_iterate_phdr(notes, NULL);
	return 0;
}

#endif
