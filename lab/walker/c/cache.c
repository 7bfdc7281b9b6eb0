/*
 * Tests walks with a cache: which rows a second walk looks up again, whether a new generation invalidates all rows, and
 * whether loading and unloading a file each change the generation. Prints what is wrong.
 */
#define _GNU_SOURCE
#include "sframe_process.h"

#include <stdio.h>
#include <string.h>

enum { CODE = 0x1000, CODE_SIZE = 0x100, TRAMPOLINE = 0x9000, WORDS = 64, CFA = 50, MAX = 16 };

/* A section of version 2 for amd64 with one function and one row: the CFA is SP plus the last byte. */
static unsigned char bytes[] = {
	0xe2, 0xde, 2, 1, 3, 0, 0xf8, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, /* the header */
	0, 0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,                                /* the FDE */
	0, 3, 0,                                                                                      /* the row */
};

static uint64_t stack[WORDS];
static unsigned lookups, code_reads;

static int read_word(void *context, uint64_t address, unsigned char word[8]) {
	const struct sfw_abi *a = sfw_abi_of(SFW_AMD64);
	(void)context;
	if (address - (uint64_t)(uintptr_t)stack <= sizeof stack - 8) {
		memcpy(word, (const void *)(uintptr_t)address, 8);
		return 1;
	}
	code_reads++;
	for (unsigned i = 0; i < 8; i++)
		word[i] = address + i - TRAMPOLINE < a->code_size ? a->code[address + i - TRAMPOLINE] : 0;
	return 1;
}

static enum sfw_how find_section(void *context, uint64_t pc, struct sfw_section *s) {
	(void)context;
	lookups++;
	return pc - TRAMPOLINE + 1 < 16 ? SFW_NO_SECTION : sfw_open(s, bytes, sizeof bytes, 0);
}

static size_t walk(struct sfw_cache *cache, struct sfw_frame *frames, enum sfw_how *end) {
	const struct sfw_range range = {(uint64_t)(uintptr_t)stack, (uint64_t)(uintptr_t)(stack + WORDS)};
	const struct sfw_space space = {read_word, find_section, NULL, 0, cache, SFW_AMD64, 0, 1, &range};
	struct sfw_regs regs;
	memset(&regs, 0, sizeof regs);
	memset(frames, 0, MAX * sizeof *frames);
	regs.interrupted = 1;
	regs.pc = CODE;
	sfw_set(&regs, 7, range.low);
	sfw_set(&regs, 6, 0);
	lookups = code_reads = 0;
	return sfw_walk(&space, &regs, frames, MAX, end);
}

static void generations(void) {
	uint64_t first = sfw_generation(), loaded, unloaded;
	void *file = dlopen("libBrokenLocale.so.1", RTLD_NOW); /* part of glibc, and not loaded otherwise */
	loaded = sfw_generation();
	if (file == NULL || dlclose(file) != 0)
		printf("%s\n", dlerror());
	unloaded = sfw_generation();
	if (loaded == first || unloaded == loaded || unloaded == first || sfw_generation() != unloaded)
		printf("generations %d, %d, %d\n", (int)first, (int)loaded, (int)unloaded);
}

int main(void) {
	generations();
	static struct sfw_cache_slot slots[64];
	struct sfw_cache cache = {slots, 64, 0};
	struct sfw_frame frames[MAX], again[MAX];
	enum sfw_how end, other;
	for (uint64_t generation = 0; generation < 3; generation++) {
		/* Two calls, a handler's trampoline, interrupted code, and a caller without a row. The frames have a different
		 * size in each generation. */
		unsigned size = bytes[sizeof bytes - 1] = (unsigned char)(8 * (generation + 1)), words = size / 8;
		memset(stack, 0, sizeof stack);
		stack[words - 1] = CODE + 0x10;
		stack[2 * words - 1] = CODE + 0x20;
		stack[3 * words - 1] = TRAMPOLINE;
		uint64_t *saved = &stack[3 * words];
		saved[sfw_abi_of(SFW_AMD64)->saved_pc] = CODE + 0x30;
		saved[sfw_abi_of(SFW_AMD64)->saved[7]] = (uint64_t)(uintptr_t)(stack + CFA);
		stack[CFA + words - 1] = CODE + CODE_SIZE + 0x10;
		cache.generation = generation;
		for (int round = 0; round < 3; round++) {
			size_t n = walk(NULL, frames, &end);
			if (n != 6 || end != SFW_NO_ROW || frames[4].how != SFW_SIGNAL ||
				frames[4].sp != (uint64_t)(uintptr_t)(stack + CFA))
				printf("%zu frames, end %d, the fifth how %d\n", n, end, frames[4].how);
			size_t found = walk(&cache, again, &other);
			if (found != n || other != end || memcmp(frames, again, sizeof frames) != 0)
				printf("generation %d: %zu frames with a cache, end %d\n", (int)generation, found, other);
			/* The trampoline is looked up each time, which reads two words of code. */
			if (lookups != (round > 0 ? 1 : 6) || code_reads != (round > 0 ? 2 : 3))
				printf("round %d: %u lookups of files, %u reads of code\n", round, lookups, code_reads);
		}
	}
	return 0;
}
