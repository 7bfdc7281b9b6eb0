/*
 * A libFuzzer target: lookups, steps and walks with any section and any memory.
 *
 * Input: pc, the section's address and the stack pointer, 8 bytes each; options; the number of words on the stack;
 * these words; and the section, which ends with the input, so that the sanitizer detects reads after it. Memory outside
 * the stack cannot be read, except that one option adds a signal trampoline at pc. With a second option, the stack is
 * mapped at a fixed address, with no memory around it, and the walker reads it directly.
 */
#define _GNU_SOURCE
#include "sframe_walker.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FRAME_POINTER = 1, CALLER = 2, TRAMPOLINES = 4, SIGRETURN = 8, DIRECT = 16, MAX_FRAMES = 24, HEADER = 26 };

struct input {
	const struct sfw_section *section;
	const unsigned char *words;
	uint64_t sp, size, pc;
	unsigned reads, options;
};

static int read_stack(void *context, uint64_t address, unsigned char bytes[8]) {
	struct input *in = context;
	const struct sfw_abi *a = sfw_abi_of(in->section->abi);
	/* For each frame: two words of code, twice; pc and two words about the fault; the registers, twice; the signal's
	 * number and the frame; two words for the frame pointer. */
	if (++in->reads > (4 + 3 + 2 * SFW_NUM_REGS + 2 + 2) * MAX_FRAMES)
		abort();
	if (in->size >= 8 && address - in->sp <= in->size - 8) {
		memcpy(bytes, in->words + (address - in->sp), 8);
		return 1;
	}
	if ((in->options & TRAMPOLINES) == 0)
		return 0;
	for (unsigned i = 0; i < 8; i++) {
		uint64_t at = address + i - in->pc;
		bytes[i] = at < a->code_size ? a->code[at] : 0;
		if (at == 1 && in->section->abi == SFW_S390X && (in->options & SIGRETURN) != 0)
			bytes[i] = SFW_SIGRETURN;
	}
	return 1;
}

static enum sfw_how the_section(void *context, uint64_t pc, struct sfw_section *s) {
	(void)pc;
	*s = *((struct input *)context)->section;
	return SFW_OK;
}

static void expect(int condition) {
	if (!condition)
		abort();
}

/* copy_stack copies the words of the stack to the end of a page. */
static uint64_t copy_stack(const unsigned char *words, size_t size) {
	enum { PAGE = 4096 };
	static unsigned char *const begin = (unsigned char *)0x7e8000000000;
	static int mapped;
	if (!mapped)
		expect(mmap(begin - PAGE, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
				begin - PAGE &&
			mprotect(begin, PAGE, PROT_READ | PROT_WRITE) == 0);
	mapped = 1;
	memcpy(begin + PAGE - size, words, size);
	return (uint64_t)(uintptr_t)(begin + PAGE - size);
}

static void lookup(const struct sfw_section *s, uint64_t pc) {
	struct sfw_row row;
	enum sfw_how how = sfw_find(s, pc, &row);
	expect(how == SFW_OK || how == SFW_NO_ROW || how == SFW_BAD_SECTION);
	if (how != SFW_OK)
		return;
	expect(row.outermost <= 1 && row.mangled <= 1 && row.key_b <= 1 && row.signal_frame <= 1);
	expect(row.outermost || (row.cfa.base >= SFW_SP && row.cfa.base <= SFW_REGISTER));
	expect(row.ra.base <= SFW_REGISTER && row.fp.base <= SFW_REGISTER);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
	uint64_t head[3];
	if (size < HEADER)
		return 0;
	memcpy(head, data, sizeof head);
	unsigned options = data[24];
	size_t words = (size_t)data[25] * 8;
	if (words > size - HEADER)
		words = (size - HEADER) / 8 * 8;
	const unsigned char *section = data + HEADER + words;
	struct sfw_section s;
	if (sfw_open(&s, section, size - HEADER - words, head[1]) != SFW_OK)
		return 0;
	sfw_check(&s);
	uint64_t pc = head[0];
	lookup(&s, pc);
	for (uint32_t i = 0; i < s.num_fdes && i < 4; i++) {
		uint64_t start = sfw_start(&s, i);
		lookup(&s, start);
		lookup(&s, start + (pc & 0xff));
	}
	struct sfw_cache_slot slots[4];
	struct sfw_cache cache = {slots, 4, 0};
	memset(slots, 0, sizeof slots);
	struct sfw_range stack = {0, 0};
	if ((options & DIRECT) != 0) {
		head[2] = stack.low = copy_stack(data + HEADER, words);
		stack.high = stack.low + words;
	}
	struct input in = {&s, data + HEADER, head[2], words, pc, 0, options};
	struct sfw_space m = {read_stack, the_section, &in, 0, &cache, s.abi, (options & FRAME_POINTER) != 0,
		(options & DIRECT) != 0, &stack};
	struct sfw_regs regs, before;
	memset(&regs, 0, sizeof regs);
	for (unsigned i = 0; i < SFW_NUM_REGS; i++)
		regs.r[i] = head[2] + 8 * (i % 7);
	regs.r[sfw_abi_of(s.abi)->sp] = head[2];
	regs.pc = pc;
	regs.valid = (options & CALLER) != 0 ? (uint32_t)1 << sfw_abi_of(s.abi)->sp : UINT32_MAX;
	regs.interrupted = (options & CALLER) == 0;
	before = regs;
	enum sfw_how how = sfw_step(&s, &regs, &m);
	if (how >= SFW_OUTERMOST)
		expect(memcmp(&regs, &before, sizeof regs) == 0);
	regs = before;
	in.reads = 0;
	struct sfw_frame frames[MAX_FRAMES];
	size_t n = sfw_walk(&m, &regs, frames, MAX_FRAMES, &how);
	expect(n >= 1 && n <= MAX_FRAMES && how >= SFW_OUTERMOST && how <= SFW_FULL);
	for (size_t i = 1; i < n; i++)
		expect(frames[i].how >= SFW_SFRAME && frames[i].how <= SFW_FRAME_POINTER);
	/* The chain must be the same with and without the rows in the cache. */
	for (int i = 0; i < 2; i++) {
		struct sfw_frame again[MAX_FRAMES];
		enum sfw_how other;
		regs = before;
		in.reads = 0;
		if (i == 1)
			m.cache = NULL;
		expect(sfw_walk(&m, &regs, again, MAX_FRAMES, &other) == n && other == how);
		for (size_t j = 0; j < n; j++)
			expect(again[j].pc == frames[j].pc && again[j].sp == frames[j].sp && again[j].how == frames[j].how);
	}
	return 0;
}
