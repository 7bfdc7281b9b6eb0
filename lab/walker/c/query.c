/*
 * Asks the walker for rows and steps, on behalf of a program that knows the answers.
 *
 * Input, repeated until the end of the file: the section's size, its address, the number of pcs, the section, the pcs.
 * Output: what sfw_open and sfw_check return, a byte each, and for each pc a record: the row, and two steps with it.
 * Numbers are 8 bytes long, little-endian on every machine, unless a record says otherwise.
 */
#include "sframe_walker.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t get(int *end) {
	uint64_t v = 0;
	for (unsigned i = 0; i < 8; i++) {
		int c = getchar();
		if (c == EOF) {
			*end = 1;
			return 0;
		}
		v |= (uint64_t)(unsigned char)c << (8 * i);
	}
	return v;
}

static void put(uint64_t v, unsigned size) {
	for (; size > 0; size--, v >>= 8)
		putchar((int)(v & 0xff));
}

/* Arbitrary values, the same as in evaluate.go (the finalizer of splitmix64). */
static uint64_t mix(uint64_t x) {
	x += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

/* Memory in the ABI's byte order; some of it is unreadable. */
static int read_memory(void *big, uint64_t address, unsigned char bytes[8]) {
	uint64_t v = mix(address);
	if (v % 16 == 0)
		return 0;
	if (v % 16 == 1)
		v = 0;
	for (unsigned i = 0; i < 8; i++)
		bytes[*(int *)big ? 7 - i : i] = (unsigned char)(v >> (8 * i));
	return 1;
}

static void put_rule(const struct sfw_rule *r) {
	put((uint32_t)r->offset, 4);
	put(r->reg, 2);
	put(r->base, 1);
	put(r->deref, 1);
}

/* step unwinds one frame at pc: the topmost, where all registers are known, or a caller's. */
static void step(const struct sfw_section *s, uint64_t pc, int topmost) {
	const struct sfw_abi *a = sfw_abi_of(s->abi);
	int big = a->big;
	struct sfw_space m = {read_memory, NULL, &big, 0, NULL, s->abi, pc % 8 == 0, 0, NULL};
	struct sfw_regs regs;
	for (unsigned i = 0; i < SFW_NUM_REGS; i++)
		regs.r[i] = mix(i ^ pc << 8);
	regs.pc = topmost ? pc : pc + 1;
	regs.interrupted = (uint8_t)topmost;
	regs.how = SFW_OK;
	regs.stacks = 0;
	regs.floor = topmost ? 0 : mix(pc);
	regs.valid = topmost ? UINT32_MAX : (uint32_t)1 << a->sp | (uint32_t)1 << a->fp;
	put(sfw_step(s, &regs, &m), 1);
	put(regs.interrupted, 1);
	put(regs.valid, 4);
	put(regs.pc, 8);
	put(regs.floor, 8);
	put(regs.r[a->sp], 8);
	put(regs.r[a->fp], 8);
}

int main(void) {
	for (;;) {
		int end = 0;
		uint64_t size = get(&end), address = get(&end), n = get(&end);
		if (end)
			return 0;
		/* Exactly as large as the section, so that a sanitizer detects reads after it. */
		unsigned char *section = malloc(size);
		if ((section == NULL && size > 0) || fread(section, 1, size, stdin) != size)
			return 1;
		struct sfw_section s;
		enum sfw_how opened = sfw_open(&s, section, size, address);
		put(opened, 1);
		put(opened == SFW_OK ? sfw_check(&s) : opened, 1);
		for (; n > 0; n--) {
			struct sfw_row row = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0, 0, 0, 0};
			uint64_t pc = get(&end);
			enum sfw_how how = sfw_lookup(section, size, address, pc, &row);
			put(how, 1);
			if (how == SFW_OK) {
				put(row.outermost, 1);
				put(row.mangled, 1);
				put(row.key_b, 1);
				put(row.signal_frame, 1);
				put(row.start, 4);
				put_rule(&row.cfa);
				put_rule(&row.ra);
				put_rule(&row.fp);
			}
			if (opened == SFW_OK) {
				step(&s, pc, 1);
				step(&s, pc, 0);
			}
		}
		fflush(stdout);
		free(section);
	}
}
