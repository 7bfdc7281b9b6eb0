/*
 * A stack walker for profilers that uses SFrame, versions 1 to 3. One header; every function is static. It needs only a
 * C11 compiler with GNU extensions: no libc, no memory of its own, no locks. It is for signal handlers, kernels, and
 * data from other machines: sfw_open and sfw_lookup (the row for a pc), sfw_check (whether a whole section is valid),
 * sfw_step (to the caller), sfw_walk (all frames):
 *
 *	const struct sfw_space space = {.read = read_word, .section = find_section, .abi = SFW_AMD64};
 *	struct sfw_frame frames[64];
 *	enum sfw_how end;
 *	size_t n = sfw_walk(&space, &regs, frames, 64, &end);
 *
 * sframe_process.h walks the stack of the running thread. README.md has more.
 *
 * Sections are not trusted. Whatever bytes a section contains, nothing outside it is read, each call terminates, and
 * memory is read only as struct sfw_space allows. A lookup checks what it reads.
 *
 * Licence: BSD 3-Clause, like the rest of the project.
 */
#ifndef SFRAME_WALKER_H
#define SFRAME_WALKER_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* ABIs, numbered as in the header of a section. */
enum { SFW_AARCH64_BIG = 1, SFW_AARCH64 = 2, SFW_AMD64 = 3, SFW_S390X = 4 };

/* Result of a call: how a frame was found, or why a walk ended. */
enum sfw_how {
	SFW_OK = 0,        /* of a lookup: there is a row; of a frame: the walk started there */
	SFW_SFRAME,        /* found by a row */
	SFW_SIGNAL,        /* interrupted by a signal: found by the registers that the kernel saved */
	SFW_FRAME_POINTER, /* found by the frame pointer, because there was no row; only on request */
	/* Why walks end; of these, lookups return only SFW_NO_ROW and SFW_BAD_SECTION. */
	SFW_OUTERMOST,   /* the row says that there is no caller */
	SFW_ZERO,        /* the return address is 0, as at the start of some threads */
	SFW_NO_SECTION,  /* the pc is in a file without a known section, or in no file */
	SFW_NO_ROW,      /* the section does not describe the pc */
	SFW_BAD_SECTION, /* the section is malformed, or its version or ABI is unknown */
	SFW_BAD_MEMORY,  /* memory that the rules refer to could not be read */
	SFW_NO_REGISTER, /* a rule needs a register that is known only in topmost frames */
	SFW_NO_PROGRESS, /* the caller's frame would not be above this one */
	SFW_FULL         /* the caller's array is full, and there are more frames */
};

/* Base of a rule's offset. */
enum {
	SFW_NONE, /* no rule: FP keeps its value; RA is where the ABI has it: at its fixed offset, or in its register */
	SFW_CFA,  /* the canonical frame address */
	SFW_SP, SFW_FP,
	SFW_REGISTER /* the register with the DWARF number reg */
};

/* A rule is a value: base + offset, or if deref is set, the word at that address. */
struct sfw_rule {
	int32_t offset; /* in bytes */
	uint16_t reg;   /* for SFW_REGISTER */
	uint8_t base;
	uint8_t deref;
};

/* A row describes how to find the caller's frame. */
struct sfw_row {
	struct sfw_rule cfa, ra, fp;
	uint32_t start;       /* of the row, in bytes from the start of the function or of the repeated block */
	uint8_t outermost;    /* there is no caller; no rule is meaningful */
	uint8_t mangled;      /* the return address is signed (aarch64) */
	uint8_t key_b;        /* it is signed with key B */
	uint8_t signal_frame; /* the return address is that of an interrupted instruction */
};

/* A section opened by sfw_open. Its bytes must remain in memory while it is used. */
struct sfw_section {
	const unsigned char *data;
	uint64_t address;       /* of the section */
	uint32_t fdes, fres;    /* where they begin in data */
	uint32_t num_fdes, fre_len;
	uint32_t num_fres;      /* according to the header; lookups do not use it */
	uint8_t version, abi;
	uint8_t swap;           /* the byte order is not the host's */
	uint8_t sorted, pcrel;  /* flags */
	uint8_t fde_size;
	int8_t fixed_ra, fixed_fp; /* offsets from the CFA for rows without a rule, or 0 */
	uint8_t passing;           /* not cached: the file may be unloaded without changing the generation */
};

enum { SFW_NO_CODE = 2 };
/* The ABI's registers, indexed by DWARF number. Bit i of valid is set if r[i] is known. */
#define SFW_NUM_REGS 32
struct sfw_regs {
	uint64_t pc;
	uint64_t floor; /* the CFA of the previous frame, or 0: stacks grow down, so the next CFA is above it */
	uint32_t valid;
	/* Set if the instruction at pc has not been executed. Otherwise pc is a return address, which may belong to the
	 * next function, so the call before it is looked up. SFW_NO_CODE: fetching from pc caused the fault. */
	uint8_t interrupted;
	uint8_t how;    /* enum sfw_how: how the frame was found, SFW_OK for the first frame of a walk */
	uint8_t stacks; /* number of stacks that the walk has left through a frame pointer, initially 0 */
	uint64_t r[SFW_NUM_REGS];
};

/* Rows by pc, for walking stacks of this process (the stacks in struct sfw_space). The program provides the memory,
 * zeroed. Threads and signal handlers may share the slots: a slot written by two of them at once is invalid. */
struct sfw_cache_slot {
	uint64_t key; /* made of the pc, the row and the generation, so a row is never used for others */
	uint64_t row; /* SFW_KEPT_ROW and others */
};
struct sfw_cache {
	struct sfw_cache_slot *slots;
	uint32_t num; /* a power of two, 2 or more */
	/* Changes when a file is unloaded, which invalidates all slots; see sfw_generation. Set it before a walk. */
	uint64_t generation;
};

/* Memory from low to high, excluding high. */
struct sfw_range {
	uint64_t low, high;
};

/* Access to the program's memory and sections. */
struct sfw_space {
	/* Copies 8 bytes, and returns whether they are readable. Walks read stacks, and aligned words of code to
	 * recognise signal trampolines. */
	int (*read)(void *context, uint64_t address, unsigned char bytes[8]);
	/* Finds the section of the file that contains pc. It fills *s and returns SFW_OK, or returns SFW_NO_SECTION or
	 * SFW_BAD_SECTION. Only sfw_walk calls it. On entry, *s is the section found by the previous call, or s->num_fdes
	 * is 0. */
	enum sfw_how (*section)(void *context, uint64_t pc, struct sfw_section *s);
	void *context;
	/* Bits of an address that hold a pointer authentication code (aarch64), from PTRACE_GETREGSET (NT_ARM_PAC_MASK).
	 * 0 means all bits from 48 up. */
	uint64_t pac_mask;
	const struct sfw_cache *cache; /* or NULL */
	uint8_t abi;                   /* of frames without a section, and of cached rows */
	uint8_t frame_pointer;         /* if there is no row, try the frame pointer */
	/* Stacks of this process that sfw_walk may read directly; it uses the cache only on these. */
	uint8_t num_stacks;
	const struct sfw_range *stacks;
};

struct sfw_frame {
	uint64_t pc;
	uint64_t sp;     /* when control returns to this frame, or 0 if it is unknown */
	uint8_t how;     /* enum sfw_how: how this frame was found */
	uint8_t interrupted; /* pc is the next instruction. Otherwise it is a return address: pc - 1 is in the call. */
};

/* Constants of each ABI. */
struct sfw_abi {
	uint8_t big, sp, fp, lr; /* byte order, DWARF register numbers; lr is SFW_NUM_REGS if calls push the address */
	int8_t fixed_ra;         /* offset of the return address from the CFA; 0: given by rows */
	int16_t bias, scale;     /* a data word w is the CFA offset w * scale + bias; the caller's SP is CFA - bias */
	/* Linux: the code that signal handlers return to (a call to rt_sigreturn), and the ucontext of the interrupted
	 * code: its distance from the handler's CFA, and where pc and the registers are in it, in 8-byte words. */
	uint8_t code_size, code[9];
	uint8_t context, saved_pc, num_saved;
	uint8_t fault; /* where it describes the last fault, or 0: see sfw_no_code */
	uint8_t saved[SFW_NUM_REGS];
};

static inline const struct sfw_abi *sfw_abi_of(unsigned abi) {
/* mov x8, #139; svc #0. Instructions are little-endian regardless of the byte order of data. */
#define SFW_SIGNALS_OF_AARCH64 \
	8, {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}, 128, 55, 32, 22, \
	{23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, \
		36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54}
	static const struct sfw_abi abis[] = {
		{0, 0, 0, 0, 0, 0, 0, 0, {0}, 0, 0, 0, 0, {0}},
		{1, 31, 29, 30, 0, 0, 1, SFW_SIGNALS_OF_AARCH64}, {0, 31, 29, 30, 0, 0, 1, SFW_SIGNALS_OF_AARCH64},
		/* mov $15, %rax; syscall */
		{0, 7, 6, SFW_NUM_REGS, -8, 0, 1, 9, {0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}, 0, 21, 16, 24,
			{18, 17, 19, 16, 14, 13, 15, 20, 5, 6, 7, 8, 9, 10, 11, 12}},
		/* svc 173. Floating-point registers are not in DWARF order. */
		{1, 15, 11, 14, 0, 160, 8, 2, {0x0a, 173}, 136, 6, 32, 0, {7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
			21, 22, 32, 34, 36, 38, 33, 35, 37, 39, 40, 42, 44, 46, 41, 43, 45, 47}},
	};
#undef SFW_SIGNALS_OF_AARCH64
	return abi >= SFW_AARCH64_BIG && abi <= SFW_S390X ? &abis[abi] : NULL;
}

/* Unaligned loads without memcpy. */
typedef struct { uint16_t v; } __attribute__((packed, may_alias)) sfw_u16;
typedef struct { uint32_t v; } __attribute__((packed, may_alias)) sfw_u32;
typedef struct { uint64_t v; } __attribute__((packed, may_alias)) sfw_u64;

static inline uint32_t sfw_load16(const unsigned char *b, unsigned swap) {
	uint16_t v = ((const sfw_u16 *)(const void *)b)->v;
	return swap ? __builtin_bswap16(v) : v;
}

static inline uint32_t sfw_load32(const unsigned char *b, unsigned swap) {
	uint32_t v = ((const sfw_u32 *)(const void *)b)->v;
	return swap ? __builtin_bswap32(v) : v;
}

static inline uint64_t sfw_load64(const unsigned char *b, unsigned swap) {
	uint64_t v = ((const sfw_u64 *)(const void *)b)->v;
	return swap ? __builtin_bswap64(v) : v;
}

#define SFW_HOST_BIG (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

/* sfw_no_section makes *s an empty section. */
static inline void sfw_no_section(struct sfw_section *s) {
	s->data = NULL;
	s->address = 0;
	s->fdes = s->fres = s->num_fdes = s->fre_len = s->num_fres = 0;
	s->version = s->abi = s->swap = s->sorted = s->pcrel = s->fde_size = s->passing = 0;
	s->fixed_ra = s->fixed_fp = 0;
}

/* sfw_open parses the header of the section in data, which is at the given address in memory. Bytes after the
 * section are allowed: GNU ld leaves such bytes in PT_GNU_SFRAME. */
static inline enum sfw_how sfw_open(struct sfw_section *s, const void *bytes, size_t size, uint64_t address) {
	enum { HEADER = 28, MAGIC = 0xdee2, SORTED = 1, FRAME_POINTER = 2, PCREL = 4 };
	static const uint8_t known[] = {0, SORTED | FRAME_POINTER, SORTED | FRAME_POINTER | PCREL, SORTED | PCREL};
	static const uint8_t fde_sizes[] = {0, 17, 20, 16};
	const unsigned char *b = (const unsigned char *)bytes;
	sfw_no_section(s);
	if (size < HEADER || size > UINT32_MAX)
		return SFW_BAD_SECTION;
	unsigned magic = sfw_load16(b, 0);
	unsigned swap = magic != MAGIC;
	if (swap && sfw_load16(b, 1) != MAGIC)
		return SFW_BAD_SECTION;
	unsigned version = b[2], flags = b[3];
	const struct sfw_abi *a = sfw_abi_of(b[4]);
	if (version < 1 || version > 3 || (flags & ~(unsigned)known[version]) != 0 || a == NULL ||
		(b[4] == SFW_S390X && version == 1) || a->big != (swap ^ SFW_HOST_BIG))
		return SFW_BAD_SECTION;
	/* A fixed RA offset must be present if and only if the ABI has one: it decides which data words rows contain. */
	if ((b[6] != 0) != (a->fixed_ra != 0))
		return SFW_BAD_SECTION;
	uint32_t num = sfw_load32(b + 8, swap), len = sfw_load32(b + 16, swap);
	/* Offsets are relative to the end of the header. */
	uint64_t base = (uint64_t)HEADER + b[7];
	uint64_t fdes = base + sfw_load32(b + 20, swap), fres = base + sfw_load32(b + 24, swap);
	uint64_t end = fdes + (uint64_t)num * fde_sizes[version];
	if (base > size || end > size || (fres < end && num > 0) || fres + len > size)
		return SFW_BAD_SECTION;
	if (version == 3 && (flags & PCREL) == 0 && num > 0)
		return SFW_BAD_SECTION; /* V3 defines no other base for start addresses */
	s->data = b;
	s->address = address;
	s->fdes = (uint32_t)fdes;
	s->fres = (uint32_t)fres;
	s->num_fdes = num;
	s->fre_len = len;
	s->num_fres = sfw_load32(b + 12, swap);
	s->version = (uint8_t)version;
	s->abi = b[4];
	s->swap = (uint8_t)swap;
	s->sorted = (flags & SORTED) != 0;
	s->pcrel = (flags & PCREL) != 0;
	s->fde_size = fde_sizes[version];
	s->fixed_fp = (int8_t)b[5];
	s->fixed_ra = (int8_t)b[6];
	return SFW_OK;
}

/* sfw_start returns the start address of the i-th FDE. */
static inline uint64_t sfw_start(const struct sfw_section *s, uint32_t i) {
	uint32_t at = s->fdes + i * s->fde_size;
	uint64_t start = s->address;
	if (s->version == 3)
		start += sfw_load64(s->data + at, s->swap);
	else
		start += (uint64_t)(int64_t)(int32_t)sfw_load32(s->data + at, s->swap);
	return s->pcrel ? start + at : start;
}

/* sfw_empty returns whether the i-th FDE has size 0. */
static inline int sfw_empty(const struct sfw_section *s, uint32_t i) {
	return sfw_load32(s->data + s->fdes + i * s->fde_size + (s->version == 3 ? 8 : 4), s->swap) == 0;
}

/* A valid FDE. */
struct sfw_fde {
	uint32_t size, num;         /* bytes of code, rows */
	uint32_t rows;              /* where the rows begin in the section */
	uint8_t width;              /* of the start address of a row, in bytes */
	uint8_t mask, rep;          /* rows are looked up by pc modulo rep, if it is not 0 */
	uint8_t key_b, signal_frame, flexible;
};

/* sfw_fde_at decodes the i-th FDE, and returns whether it is valid. */
static inline int sfw_fde_at(const struct sfw_section *s, uint32_t i, struct sfw_fde *d) {
	enum { TYPE = 0xf, MASK = 1 << 4, KEY_B = 1 << 5, SIGNAL = 1 << 7, ATTRIBUTE = 5, FLEXIBLE = 1 };
	const unsigned char *b = s->data + s->fdes + i * s->fde_size + (s->version == 3 ? 8 : 4);
	unsigned info, type = 0, known = TYPE | MASK | KEY_B;
	uint32_t left = s->fre_len, offset = sfw_load32(b + 4, s->swap);
	d->size = sfw_load32(b, s->swap);
	d->rep = 0;
	if (offset > left)
		return 0;
	left -= offset;
	d->rows = s->fres + offset;
	if (s->version == 3) {
		if (left < ATTRIBUTE)
			return 0;
		const unsigned char *a = s->data + d->rows;
		d->num = sfw_load16(a, s->swap);
		info = a[2];
		type = a[3];
		d->rep = a[4];
		d->rows += ATTRIBUTE;
		left -= ATTRIBUTE;
		known |= SIGNAL;
	} else {
		d->num = sfw_load32(b + 8, s->swap);
		info = b[12];
		if (s->version == 2)
			d->rep = b[13];
	}
	if (type > FLEXIBLE || (info & ~known) != 0 || (info & TYPE) > 2)
		return 0;
	d->mask = (info & MASK) != 0;
	if (!d->mask)
		d->rep = 0;
	else if (d->rep == 0 && s->version != 1)
		return 0;
	d->width = (uint8_t)(1U << (info & TYPE));
	d->key_b = (info & KEY_B) != 0;
	d->signal_frame = (info & SIGNAL) != 0;
	d->flexible = type == FLEXIBLE;
	/* A row has at least a start address and an info byte. */
	return (uint64_t)d->num * (d->width + 1U) <= left;
}

/* sfw_search returns the last FDE that starts at or before pc, or num_fdes. If several FDEs have the same start, it
 * returns the last nonempty FDE. Unsorted sections, as in objects, are searched linearly. */
static inline uint32_t sfw_search(const struct sfw_section *s, uint64_t pc) {
	/* The maximum number of empty FDEs to skip after an FDE with the same start. Any number of empty FDEs is valid, but
	 * lookups must not become slow in a section with millions of them. */
	enum { EMPTY = 64 };
	uint32_t found = s->num_fdes;
	if (!s->sorted) {
		uint64_t best = 0;
		for (uint32_t i = 0; i < s->num_fdes; i++) {
			uint64_t start = sfw_start(s, i);
			if (start > pc || start < best || (start == best && sfw_empty(s, i)))
				continue;
			best = start;
			found = i;
		}
		return found;
	}
	/* Branches, so that the processor can load speculatively: most of the time is memory latency. */
	uint32_t low = 0, high = s->num_fdes; /* FDEs below low start at or before pc, the others from high after it */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (sfw_start(s, middle) <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return found;
	found = low - 1;
	for (unsigned n = 0; n < EMPTY && found > 0 && sfw_empty(s, found); n++, found--)
		if (sfw_start(s, found - 1) != sfw_start(s, found))
			break;
	return found;
}

/* Data words of a row, consumed in order. */
struct sfw_words {
	const unsigned char *b;
	unsigned swap, size, left;
	uint8_t none, bad; /* a missing word was read; the words are not a valid row */
};

static inline uint32_t sfw_unsigned(struct sfw_words *w) {
	if (w->left == 0) {
		w->none = 1;
		return 0;
	}
	uint32_t v = w->size == 1 ? *w->b : w->size == 2 ? sfw_load16(w->b, w->swap) : sfw_load32(w->b, w->swap);
	w->b += w->size;
	w->left--;
	return v;
}

static inline int32_t sfw_signed(struct sfw_words *w) {
	uint32_t v = sfw_unsigned(w);
	return w->size == 1 ? (int8_t)v : w->size == 2 ? (int16_t)v : (int32_t)v;
}

/* sfw_cfa_offset returns the CFA offset that a word encodes. */
static inline int32_t sfw_cfa_offset(struct sfw_words *w, const struct sfw_abi *a, int32_t word) {
	int64_t v = (int64_t)word * a->scale + a->bias;
	if (v < INT32_MIN || v > INT32_MAX)
		w->bad = 1;
	return (int32_t)v;
}

/* sfw_slot decodes a rule of a default FDE. In version 2 on s390x, odd words encode registers. */
static inline void sfw_slot(struct sfw_words *w, const struct sfw_section *s, struct sfw_rule *r) {
	int32_t v = sfw_signed(w);
	if (w->none)
		return;
	if (s->abi == SFW_S390X && s->version == 2 && (v & 1) != 0) {
		if (v < 0 || v / 2 > (int32_t)UINT16_MAX)
			w->bad = 1;
		r->base = SFW_REGISTER;
		r->reg = (uint16_t)(v / 2);
		return;
	}
	r->base = SFW_CFA;
	r->offset = v;
	r->deref = 1;
}

/* sfw_rule_words decodes a rule of a flexible FDE: a control word, followed by an offset unless it is 0. */
static inline void sfw_rule_words(struct sfw_words *w, struct sfw_rule *r) {
	enum { REGISTER = 1, DEREF = 2, UNKNOWN = 4, SHIFT = 3 };
	uint32_t control = sfw_unsigned(w);
	if (w->none || control == 0)
		return;
	r->offset = sfw_signed(w);
	r->deref = (control & DEREF) != 0;
	r->base = SFW_CFA;
	if ((control & REGISTER) != 0) {
		r->base = SFW_REGISTER;
		r->reg = (uint16_t)(control >> SHIFT);
	} else if (control >> SHIFT != 0) {
		w->bad = 1;
	}
	if (w->none || control >> SHIFT > UINT16_MAX || (control & UNKNOWN) != 0)
		w->bad = 1;
}

/* Info byte of a row: base of the CFA, number of data words, and the binary logarithm of their size. */
enum { SFW_ROW_SP = 1, SFW_ROW_COUNT = 1, SFW_ROW_SIZE = 5, SFW_ROW_MANGLED = 1 << 7 };

/* sfw_row_size returns the size of a row, excluding its start address. */
static inline uint32_t sfw_row_size(unsigned info) {
	return 1 + ((info >> SFW_ROW_COUNT & 0xf) << (info >> SFW_ROW_SIZE & 3));
}

/* sfw_fixed replaces a missing rule with the fixed offset in the section's header. */
static inline void sfw_fixed(struct sfw_rule *r, int8_t offset) {
	if (r->base != SFW_NONE || offset == 0)
		return;
	r->base = SFW_CFA;
	r->offset = offset;
	r->deref = 1;
}

/* sfw_no_rules makes *row an outermost row, which says that there is no caller. */
static inline void sfw_no_rules(struct sfw_row *row) {
	static const struct sfw_rule none = {0, 0, SFW_NONE, 0};
	row->cfa = row->ra = row->fp = none;
	row->start = 0;
	row->outermost = 1;
	row->mangled = row->key_b = row->signal_frame = 0;
}

/* sfw_decode decodes the row at an offset, and returns whether it is valid. */
static inline int sfw_decode(const struct sfw_section *s, uint32_t at, unsigned flexible, struct sfw_row *row) {
	static const struct sfw_rule no_rule = {0, 0, SFW_NONE, 0};
	const struct sfw_abi *a = sfw_abi_of(s->abi);
	unsigned info = s->data[at], log_size = info >> SFW_ROW_SIZE & 3, count = info >> SFW_ROW_COUNT & 0xf;
	if (log_size > 2 || sfw_row_size(info) > s->fres + s->fre_len - at)
		return 0;
	row->mangled = (info & SFW_ROW_MANGLED) != 0;
	row->outermost = count == 0;
	if (count == 0)
		return 1;
	struct sfw_words w;
	w.b = s->data + at + 1;
	w.swap = s->swap;
	w.size = 1U << log_size;
	w.left = count;
	w.none = w.bad = 0;
	if (flexible) {
		sfw_rule_words(&w, &row->cfa);
		if (row->cfa.base != SFW_REGISTER)
			return 0;
		row->cfa.offset = sfw_cfa_offset(&w, a, row->cfa.offset);
		sfw_rule_words(&w, &row->ra);
		sfw_rule_words(&w, &row->fp);
	} else {
		row->cfa.offset = sfw_cfa_offset(&w, a, sfw_signed(&w));
		row->cfa.base = (info & SFW_ROW_SP) != 0 ? SFW_SP : SFW_FP;
		if (a->fixed_ra == 0) {
			sfw_slot(&w, s, &row->ra);
			if (row->ra.base == SFW_CFA && row->ra.offset == 0)
				row->ra = no_rule; /* a word of 0 is a placeholder before FP's word */
		}
		sfw_slot(&w, s, &row->fp);
	}
	if (s->fixed_ra != a->fixed_ra)
		sfw_fixed(&row->ra, s->fixed_ra);
	sfw_fixed(&row->fp, s->fixed_fp);
	return !w.bad && w.left == 0;
}

/* sfw_find looks up the row for pc. It returns SFW_OK, SFW_NO_ROW or SFW_BAD_SECTION. A PC-mask FDE of version 1
 * does not give its block size, so it is used only if it has a single row, which starts at 0. */
static inline enum sfw_how sfw_find(const struct sfw_section *s, uint64_t pc, struct sfw_row *row) {
	uint32_t i = sfw_search(s, pc);
	struct sfw_fde d;
	sfw_no_rules(row);
	if (i == s->num_fdes)
		return SFW_NO_ROW;
	if (!sfw_fde_at(s, i, &d))
		return SFW_BAD_SECTION;
	uint64_t distance = pc - sfw_start(s, i);
	if (distance >= d.size)
		return SFW_NO_ROW;
	uint32_t at = (uint32_t)distance, limit = d.size;
	if (d.rep != 0) {
		at = (uint32_t)(pc % d.rep);
		limit = d.rep;
	} else if (d.mask) {
		if (d.num != 1)
			return SFW_NO_ROW;
		at = 0;
	}
	row->key_b = d.key_b;
	row->signal_frame = d.signal_frame;
	if (d.num == 0 && s->version == 3 && !d.flexible) /* none of the code has a caller */
		return SFW_OK;
	uint32_t end = s->fres + s->fre_len, off = d.rows, next = 0, found = 0;
	for (uint32_t left = d.num; left > 0; left--) {
		if (end - off < d.width + 1U)
			return SFW_BAD_SECTION;
		const unsigned char *b = s->data + off;
		uint32_t start = d.width == 1 ? *b : d.width == 2 ? sfw_load16(b, s->swap) : sfw_load32(b, s->swap);
		if (start >= limit || start < next)
			return SFW_BAD_SECTION;
		if (start > at)
			break;
		found = off + d.width;
		row->start = start;
		next = start + 1;
		uint32_t size = d.width + sfw_row_size(b[d.width]);
		/* The last row may be truncated; this matters only if it is the result. */
		off = size > end - off ? end : off + size;
	}
	if (found == 0)
		return SFW_NO_ROW;
	return sfw_decode(s, found, d.flexible, row) ? SFW_OK : SFW_BAD_SECTION;
}

/* sfw_lookup combines sfw_open and sfw_find. */
static inline enum sfw_how sfw_lookup(
	const void *section, size_t size, uint64_t address, uint64_t pc, struct sfw_row *row) {
	struct sfw_section s;
	enum sfw_how how = sfw_open(&s, section, size, address);
	return how == SFW_OK ? sfw_find(&s, pc, row) : how;
}

/* sfw_check validates all FDEs of a section, their order, and the number of rows in the header. Lookups do not need
 * this check. */
static inline enum sfw_how sfw_check(const struct sfw_section *s) {
	uint64_t sum = 0, before = 0;
	for (uint32_t i = 0; i < s->num_fdes; i++) {
		struct sfw_fde d;
		uint64_t start = sfw_start(s, i);
		if (!sfw_fde_at(s, i, &d) || (s->sorted && start < before))
			return SFW_BAD_SECTION;
		before = start;
		sum += d.num;
	}
	return sum == s->num_fres ? SFW_OK : SFW_BAD_SECTION;
}

/* sfw_get reads a register, and returns whether its value is known. */
static inline int sfw_get(const struct sfw_regs *regs, unsigned reg, uint64_t *value) {
	if (reg >= SFW_NUM_REGS || (regs->valid >> reg & 1) == 0)
		return 0;
	*value = regs->r[reg];
	return 1;
}

static inline void sfw_set(struct sfw_regs *regs, unsigned reg, uint64_t value) {
	regs->r[reg] = value;
	regs->valid |= (uint32_t)1 << reg;
}

/* sfw_read reads 8 bytes of memory in the ABI's byte order. */
static inline int sfw_read(const struct sfw_space *m, const struct sfw_abi *a, uint64_t address, uint64_t *value) {
	uint64_t raw = 0;
	if (!m->read(m->context, address, (unsigned char *)&raw))
		return 0;
	*value = (a->big ^ SFW_HOST_BIG) != 0 ? __builtin_bswap64(raw) : raw;
	return 1;
}

/* sfw_value evaluates a rule. It returns SFW_OK, SFW_NO_REGISTER or SFW_BAD_MEMORY. */
static inline enum sfw_how sfw_value(const struct sfw_rule *r, const struct sfw_regs *regs, uint64_t cfa,
	const struct sfw_space *m, const struct sfw_abi *a, uint64_t *value) {
	uint64_t v = cfa;
	if (r->base != SFW_CFA) {
		unsigned reg = r->base == SFW_SP ? a->sp : r->base == SFW_FP ? a->fp : r->reg;
		if (!sfw_get(regs, reg, &v))
			return SFW_NO_REGISTER;
	}
	v += (uint64_t)(int64_t)r->offset;
	if (r->deref)
		return sfw_read(m, a, v, value) ? SFW_OK : SFW_BAD_MEMORY;
	*value = v;
	return SFW_OK;
}

/* sfw_strip removes the pointer authentication code from a return address. */
static inline uint64_t sfw_strip(const struct sfw_space *m, uint64_t address) {
	return address & ~(m->pac_mask != 0 ? m->pac_mask : 0xffff000000000000U);
}

/* sfw_base returns SFW_SP or SFW_FP if the rule of a flexible FDE uses that register. */
static inline unsigned sfw_base(const struct sfw_rule *r, const struct sfw_abi *a) {
	if (r->base == SFW_REGISTER && r->reg == a->fp)
		return SFW_FP;
	if (r->base == SFW_REGISTER && r->reg == a->sp)
		return SFW_SP;
	return r->base;
}

/* sfw_step_row unwinds one frame with a row. It returns SFW_SFRAME; any other result is an error, and leaves the
 * registers unchanged. */
static inline enum sfw_how sfw_step_row(
	const struct sfw_row *row, unsigned abi, struct sfw_regs *regs, const struct sfw_space *m) {
	const struct sfw_abi *a = sfw_abi_of(abi);
	uint64_t cfa, ra, fp = 0;
	enum sfw_how how;
	if (a == NULL)
		return SFW_BAD_SECTION;
	if (row->outermost)
		return SFW_OUTERMOST;
	if ((how = sfw_value(&row->cfa, regs, 0, m, a, &cfa)) != SFW_OK)
		return how;
	if (row->ra.base != SFW_NONE) {
		if ((how = sfw_value(&row->ra, regs, cfa, m, a, &ra)) != SFW_OK)
			return how;
	} else if (a->fixed_ra != 0) {
		if (!sfw_read(m, a, cfa + (uint64_t)(int64_t)a->fixed_ra, &ra))
			return SFW_BAD_MEMORY;
	} else if (!sfw_get(regs, a->lr, &ra)) {
		return SFW_NO_REGISTER;
	}
	int have_fp;
	if (row->fp.base != SFW_NONE) {
		if ((how = sfw_value(&row->fp, regs, cfa, m, a, &fp)) != SFW_OK)
			return how;
		have_fp = 1;
	} else {
		have_fp = sfw_get(regs, a->fp, &fp);
	}
	if (row->mangled)
		ra = sfw_strip(m, ra);
	if (ra == 0)
		return SFW_ZERO;
	/* The caller's frame is above this one, except for leaf functions without a frame. Code interrupted by a signal
	 * may be on a different stack, and so may a frame that only the frame pointer leads to (Go's asmcgocall). */
	if (!row->signal_frame && (cfa < regs->floor || (cfa == regs->floor && !regs->interrupted))) {
		enum { MAX_STACKS = 64 };
		if (sfw_base(&row->cfa, a) != SFW_FP || row->cfa.deref || regs->stacks == MAX_STACKS)
			return SFW_NO_PROGRESS;
		regs->stacks++;
	}
	regs->valid = 0;
	if (have_fp)
		sfw_set(regs, a->fp, fp);
	sfw_set(regs, a->sp, cfa - (uint64_t)(int64_t)a->bias);
	regs->floor = row->signal_frame ? 0 : cfa;
	regs->interrupted = row->signal_frame;
	regs->how = SFW_SFRAME;
	regs->pc = ra;
	return SFW_SFRAME;
}

/* sfw_step_fp unwinds one frame with the frame pointer, which points to the caller's frame pointer and the return
 * address. Only on amd64 does this give the caller's stack pointer. s390x has no such frame record. */
static inline enum sfw_how sfw_step_fp(unsigned abi, struct sfw_regs *regs, const struct sfw_space *m) {
	const struct sfw_abi *a = sfw_abi_of(abi);
	uint64_t at, fp, ra;
	if (a == NULL || abi == SFW_S390X || !sfw_get(regs, a->fp, &at))
		return SFW_NO_REGISTER;
	if (at < regs->floor || at > UINT64_MAX - 16)
		return SFW_NO_PROGRESS;
	if (!sfw_read(m, a, at, &fp) || !sfw_read(m, a, at + 8, &ra))
		return SFW_BAD_MEMORY;
	if (abi != SFW_AMD64)
		ra = sfw_strip(m, ra);
	if (ra == 0)
		return SFW_ZERO;
	regs->valid = 0;
	sfw_set(regs, a->fp, fp);
	if (abi == SFW_AMD64)
		sfw_set(regs, a->sp, at + 16);
	regs->floor = at + 16;
	regs->interrupted = 0;
	regs->how = SFW_FRAME_POINTER;
	regs->pc = ra;
	return SFW_FRAME_POINTER;
}

/* sfw_no_code returns whether the saved state of the thread's last fault says that pc is not executable. On amd64, its
 * words are the error code, the trap, a signal mask and the address; on aarch64, the first one is the address. */
static inline int sfw_no_code(const struct sfw_abi *a, uint64_t pc, const uint64_t fault[4]) {
	enum { PAGE_FAULT = 14, FETCH = 16 };
	if (a->lr == SFW_NUM_REGS)
		return fault[1] == PAGE_FAULT && (fault[0] & FETCH) != 0 && fault[3] == pc;
	return a->fault != 0 && fault[0] == pc;
}

/* sfw_saved reads the registers from the ucontext at an address, and returns whether it could. After a failure, the
 * registers are unchanged. */
static inline int sfw_saved(
	const struct sfw_abi *a, uint64_t context, struct sfw_regs *regs, const struct sfw_space *m) {
	uint64_t pc, value, fault[4];
	if (!sfw_read(m, a, context + 8U * a->saved_pc, &pc))
		return 0;
	for (unsigned i = 0; i < 4; i++)
		if (!sfw_read(m, a, context + 8U * (a->fault + i), &fault[i]))
			return 0;
	regs->pc = pc;
	regs->floor = 0; /* the interrupted code may have another stack */
	regs->valid = 0;
	regs->interrupted = sfw_no_code(a, pc, fault) ? SFW_NO_CODE : 1;
	regs->how = SFW_SIGNAL;
	for (unsigned i = 0; i < a->num_saved; i++)
		if (sfw_read(m, a, context + 8U * a->saved[i], &value))
			sfw_set(regs, i, value);
	return 1;
}

/* On s390x, handlers without SA_SIGINFO return to svc 119 (sigreturn), and have a different frame. */
enum { SFW_SIGRETURN = 119 };

/* sfw_trampoline returns the value of the last byte of the instructions at pc if the kernel makes handlers return
 * there, or 0. It reads aligned words, which do not cross pages. */
static inline unsigned sfw_trampoline(unsigned abi, uint64_t pc, const struct sfw_space *m) {
	const struct sfw_abi *a = sfw_abi_of(abi);
	unsigned char word[8];
	unsigned before = pc & 7, last = 0;
	if (a == NULL)
		return 0;
	for (unsigned i = 0, at = before; i < a->code_size; i++, at++) {
		if ((i == 0 || at % 8 == 0) && !m->read(m->context, pc - before + at / 8 * 8, word))
			return 0;
		last = word[at % 8];
		if (i + 1U < a->code_size && last != a->code[i])
			return 0;
	}
	return last == a->code[a->code_size - 1] || (abi == SFW_S390X && last == SFW_SIGRETURN) ? last : 0;
}

/* sfw_step_signal goes from the trampoline, whose stack pointer is that of the handler's caller, to the interrupted
 * code. Afterwards, all registers are known. */
static inline enum sfw_how sfw_step_signal(unsigned abi, struct sfw_regs *regs, const struct sfw_space *m) {
	enum { SIGNO = 8, ADDRESS = 24, OLD_CONTEXT = 8, MCONTEXT = 40, OLD_SIGNO = 384 };
	enum { ILL = 4, TRAP = 5, FPE = 8, SEGV = 11 };
	const struct sfw_abi *a = sfw_abi_of(abi);
	uint64_t cfa, context, signo, address = UINT64_MAX;
	if (!sfw_get(regs, a->sp, &cfa))
		return SFW_NO_REGISTER;
	cfa += (uint64_t)(int64_t)a->bias;
	context = cfa + a->context;
	if (abi != SFW_S390X)
		return sfw_saved(a, context, regs, m) ? SFW_SIGNAL : SFW_BAD_MEMORY;
	/* After faults that complete the instruction, pc points to the next instruction, as after a call. */
	uint64_t number = cfa + SIGNO;
	if (sfw_trampoline(abi, regs->pc, m) == SFW_SIGRETURN) {
		if (!sfw_read(m, a, cfa + OLD_CONTEXT, &context))
			return SFW_BAD_MEMORY;
		context -= MCONTEXT;
		number = context + OLD_SIGNO;
	} else if (!sfw_read(m, a, cfa + ADDRESS, &address)) {
		return SFW_BAD_MEMORY;
	}
	if (!sfw_read(m, a, number, &signo) || !sfw_saved(a, context, regs, m))
		return SFW_BAD_MEMORY;
	signo >>= 32;
	regs->interrupted = signo != ILL && signo != TRAP && signo != FPE;
	if (signo == SEGV && address >> 12 == regs->pc >> 12) /* only the page is known */
		regs->interrupted = SFW_NO_CODE;
	return SFW_SIGNAL;
}

/* sfw_lookup_pc returns the pc to look up for a frame; for a caller, it is inside the call instruction. */
static inline uint64_t sfw_lookup_pc(const struct sfw_regs *regs) { return regs->pc - (regs->interrupted ? 0 : 1); }

/* A cached row: flags, and offsets in 8-byte words. Rows that do not fit are rare, and are looked up each time. */
enum {
	SFW_KEPT_ROW = 1,           /* CFA at an offset from SP; RA, and FP if it is saved, from the CFA */
	SFW_KEPT_OUTERMOST = 2, /* no caller */
	SFW_KEPT_NO_ROW = 128,  /* no row; for return addresses */
	SFW_KEPT_NO_SECTION = 256, /* for return addresses; stored only by libsframe-backtrace, like the next one */
	SFW_KEPT_LAST = 512,       /* neither a row nor CFI */
	SFW_KEPT_CFA_OF_FP = 4,
	SFW_KEPT_CFA_DEREF = 8, /* the CFA is loaded from there: functions that realign their stack */
	SFW_KEPT_FP = 16,       /* FP is saved */
	SFW_KEPT_FP_OF_FP = 32, /* at an offset from FP */
	SFW_KEPT_SIGNED = 64,   /* RA is signed */
	SFW_OFFSET_BITS = 18,
	SFW_CFA_AT = 64 - SFW_OFFSET_BITS, /* the highest bits, because each step waits for it */
	SFW_RA_AT = SFW_CFA_AT - SFW_OFFSET_BITS,
	SFW_FP_AT = SFW_RA_AT - SFW_OFFSET_BITS
};

/* sfw_key hashes the contents of a slot, so that halves of two slots do not match any pc. */
static inline uint64_t sfw_key(uint64_t pc, uint64_t row, uint64_t generation) {
	return pc + row * 0x9e3779b97f4a7c15U + generation * 0xc2b2ae3d27d4eb4fU;
}

/* sfw_slots_of returns the two slots that a pc may use. The low bits of return addresses are as uniform as random
 * numbers: of 5,000 addresses in python3, libc, cc1 and libstdc++, 5 % find both of their slots taken (2026-11). */
static inline struct sfw_cache_slot *sfw_slots_of(const struct sfw_cache *c, uint64_t pc) {
	return &c->slots[((pc + 1) & (2 * c->num - 1) & ~(uint64_t)3) / 2];
}

/* sfw_row_in returns the row in a slot, or 0 if the slot belongs to a different pc. */
static inline uint64_t sfw_row_in(const struct sfw_cache_slot *slot, uint64_t pc, uint64_t generation) {
	uint64_t row = __atomic_load_n(&slot->row, __ATOMIC_RELAXED);
	return __atomic_load_n(&slot->key, __ATOMIC_RELAXED) == sfw_key(pc, row, generation) ? row : 0;
}

/* sfw_cached returns the row for a pc, or 0. */
static inline uint64_t sfw_cached(const struct sfw_cache *c, uint64_t pc) {
	const struct sfw_cache_slot *slot = sfw_slots_of(c, pc);
	uint64_t row = sfw_row_in(slot, pc, c->generation);
	return __builtin_expect(row != 0, 1) ? row : sfw_row_in(slot + 1, pc, c->generation);
}

/* sfw_pack stores an offset in a cached row, and returns whether it fits. */
static inline int sfw_pack(uint64_t *row, int32_t offset, unsigned at) {
	int32_t words = offset / 8, limit = (int32_t)1 << (SFW_OFFSET_BITS - 1);
	*row |= ((uint64_t)(int64_t)words & (((uint64_t)1 << SFW_OFFSET_BITS) - 1)) << at;
	return offset % 8 == 0 && words >= -limit && words < limit;
}

/* sfw_offset returns an offset of a cached row. */
static inline uint64_t sfw_offset(uint64_t row, unsigned at) {
	return (uint64_t)((int64_t)(row << (64 - at - SFW_OFFSET_BITS)) >> (64 - SFW_OFFSET_BITS)) * 8;
}

/* sfw_keep_packed stores a cached row in the first slot of a pc, and moves the previous row to the second slot. */
static inline void sfw_keep_packed(const struct sfw_cache *c, uint64_t pc, uint64_t row) {
	struct sfw_cache_slot *slot = sfw_slots_of(c, pc);
	__atomic_store_n(&slot[1].row, __atomic_load_n(&slot->row, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_store_n(&slot[1].key, __atomic_load_n(&slot->key, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_store_n(&slot->row, row, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->key, sfw_key(pc, row, c->generation), __ATOMIC_RELAXED);
}

/* sfw_keep stores a row, or NULL for no row. */
static inline void sfw_keep(
	const struct sfw_cache *c, uint64_t pc, const struct sfw_row *row, const struct sfw_abi *a) {
	uint64_t kept = row == NULL ? SFW_KEPT_NO_ROW : row->outermost ? SFW_KEPT_OUTERMOST : SFW_KEPT_ROW;
	if (row != NULL && !row->outermost) {
		unsigned cfa = sfw_base(&row->cfa, a), fp = sfw_base(&row->fp, a);
		int fixed = row->ra.base == SFW_NONE && a->fixed_ra != 0;
		if (row->signal_frame || (cfa != SFW_SP && cfa != SFW_FP) ||
			(fp != SFW_NONE && ((fp != SFW_CFA && fp != SFW_FP) || !row->fp.deref)) ||
			(!fixed && (a->fixed_ra != 0 || row->ra.base != SFW_CFA || !row->ra.deref)) ||
			!sfw_pack(&kept, row->cfa.offset, SFW_CFA_AT) || !sfw_pack(&kept, row->ra.offset, SFW_RA_AT) ||
			!sfw_pack(&kept, row->fp.offset, SFW_FP_AT))
			return;
		if (cfa == SFW_FP)
			kept |= SFW_KEPT_CFA_OF_FP;
		if (row->cfa.deref)
			kept |= SFW_KEPT_CFA_DEREF;
		if (fp != SFW_NONE)
			kept |= SFW_KEPT_FP;
		if (fp == SFW_FP)
			kept |= SFW_KEPT_FP_OF_FP;
		if (row->mangled)
			kept |= SFW_KEPT_SIGNED;
	}
	sfw_keep_packed(c, pc, kept);
}

/* sfw_load reads from a stack of this process, without sanitizers. */
__attribute__((no_sanitize("address"))) __attribute__((no_sanitize("thread"))) static inline uint64_t sfw_load(
	uint64_t address) {
	return ((const sfw_u64 *)(uintptr_t)address)->v;
}

/* sfw_stack_of returns the stack that contains sp, or NULL. */
static inline const struct sfw_range *sfw_stack_of(const struct sfw_range *stacks, unsigned num, uint64_t sp) {
	for (unsigned i = 0; i < num; i++)
		if (sp >= stacks[i].low && sp < stacks[i].high && stacks[i].high - stacks[i].low >= 8)
			return &stacks[i];
	return NULL;
}

/* A frame unwound with cached rows. */
struct sfw_fast {
	uint64_t pc, sp, fp;
	uint64_t low, last; /* address of the first word of its stack, and the distance from it to the last word */
	uint64_t ra_at, fp_at; /* where the last step found RA, and FP or 0 */
};

/* sfw_fast_step unwinds one frame with a cached row, and returns whether it could. */
static inline int sfw_fast_step(const struct sfw_space *m, const struct sfw_abi *a, struct sfw_fast *f, uint64_t row) {
	uint64_t cfa = ((row & SFW_KEPT_CFA_OF_FP) != 0 ? f->fp : f->sp) + sfw_offset(row, SFW_CFA_AT), fp = f->fp;
	if ((row & SFW_KEPT_ROW) == 0)
		return 0;
	if (__builtin_expect((row & SFW_KEPT_CFA_DEREF) != 0, 0)) {
		if (cfa - f->low > f->last)
			return 0;
		cfa = sfw_load(cfa);
	}
	f->ra_at = cfa + (a->fixed_ra != 0 ? (uint64_t)(int64_t)a->fixed_ra : sfw_offset(row, SFW_RA_AT));
	f->fp_at = 0;
	if (f->ra_at - f->low > f->last)
		return 0;
	uint64_t ra = sfw_load(f->ra_at), sp = cfa - (uint64_t)(int64_t)a->bias;
	if ((row & SFW_KEPT_FP) != 0) {
		f->fp_at = ((row & SFW_KEPT_FP_OF_FP) != 0 ? fp : cfa) + sfw_offset(row, SFW_FP_AT);
		if (f->fp_at - f->low > f->last)
			return 0;
		fp = sfw_load(f->fp_at);
	}
	if (__builtin_expect((row & SFW_KEPT_SIGNED) != 0, 0)) /* a branch: a conditional move would delay each step */
		ra = sfw_strip(m, ra);
	if (ra == 0 || sp <= f->sp)
		return 0;
	f->pc = ra;
	f->sp = sp;
	f->fp = fp;
	return 1;
}

/* sfw_fast_begin returns whether cached rows can be used, starting at this frame. */
static inline int sfw_fast_begin(const struct sfw_space *m, const struct sfw_regs *regs, struct sfw_fast *f) {
	const struct sfw_abi *a = sfw_abi_of(m->abi);
	if (m->cache == NULL || regs->interrupted == SFW_NO_CODE || a == NULL || a->big != SFW_HOST_BIG ||
		!sfw_get(regs, a->sp, &f->sp) || !sfw_get(regs, a->fp, &f->fp))
		return 0;
	const struct sfw_range *stack = sfw_stack_of(m->stacks, m->num_stacks, f->sp);
	if (stack == NULL)
		return 0;
	f->low = stack->low;
	f->last = stack->high - stack->low - 8;
	f->pc = regs->pc;
	return 1;
}

/* sfw_fast_end sets regs to those of the current frame. */
static inline void sfw_fast_end(const struct sfw_space *m, struct sfw_regs *regs, const struct sfw_fast *f) {
	const struct sfw_abi *a = sfw_abi_of(m->abi);
	regs->valid = 0;
	sfw_set(regs, a->sp, f->sp);
	sfw_set(regs, a->fp, f->fp);
	regs->pc = f->pc;
	regs->floor = f->sp + (uint64_t)(int64_t)a->bias;
	regs->how = SFW_SFRAME;
	regs->interrupted = 0;
}

/* sfw_run continues sfw_walk from the n-th frame, for as long as rows are cached and frames are on one stack. */
static inline size_t sfw_run(const struct sfw_space *m, struct sfw_regs *regs, struct sfw_frame *frames, size_t n,
	size_t max, enum sfw_how *end) {
	struct sfw_fast f;
	const size_t from = n;
	if (!sfw_fast_begin(m, regs, &f))
		return n;
	const struct sfw_cache cache = *m->cache;
	const struct sfw_abi *a = sfw_abi_of(m->abi);
	uint8_t how = regs->how, interrupted = regs->interrupted;
	for (; n < max; n++) {
		uint64_t row = sfw_cached(&cache, f.pc - !interrupted);
		frames[n].pc = f.pc;
		frames[n].sp = f.sp;
		frames[n].how = how;
		frames[n].interrupted = interrupted;
		if (row == SFW_KEPT_OUTERMOST)
			*end = SFW_OUTERMOST;
		if (row == SFW_KEPT_NO_ROW && !interrupted && !m->frame_pointer)
			*end = SFW_NO_ROW;
		if (!sfw_fast_step(m, a, &f, row))
			break;
		how = SFW_SFRAME;
		interrupted = 0;
	}
	if (n > from)
		sfw_fast_end(m, regs, &f);
	return n + (*end != SFW_FULL);
}

/* sfw_step unwinds one frame with the section for regs->pc; s may be NULL. It returns SFW_SFRAME, SFW_SIGNAL or
 * SFW_FRAME_POINTER; any other result is the reason why the walk ends, and leaves the registers unchanged. */
static inline enum sfw_how sfw_step(const struct sfw_section *s, struct sfw_regs *regs, const struct sfw_space *m) {
	struct sfw_row row;
	unsigned abi = s != NULL ? s->abi : m->abi;
	enum sfw_how how = SFW_NO_SECTION;
	sfw_no_rules(&row);
	if (s != NULL)
		how = sfw_find(s, sfw_lookup_pc(regs), &row);
	/* The row of a signal trampoline restores fewer registers than the kernel saved. */
	if ((how != SFW_OK || row.signal_frame) && sfw_trampoline(abi, regs->pc, m) != 0) {
		how = sfw_step_signal(abi, regs, m);
	} else {
		if (m->cache != NULL && s != NULL && abi == m->abi && !s->passing &&
			(how == SFW_OK || (how == SFW_NO_ROW && !regs->interrupted)))
			sfw_keep(m->cache, sfw_lookup_pc(regs), how == SFW_OK ? &row : NULL, sfw_abi_of(abi));
		if (how == SFW_OK)
			how = sfw_step_row(&row, abi, regs, m);
	}
	if (how == SFW_SFRAME || how == SFW_SIGNAL || how == SFW_OUTERMOST || how == SFW_ZERO || !m->frame_pointer)
		return how;
	return sfw_step_fp(abi, regs, m) == SFW_FRAME_POINTER ? SFW_FRAME_POINTER : how;
}

/* sfw_follows_call returns whether the instruction before an address may be a call. Only amd64 code is read: elsewhere,
 * the register for return addresses is rarely used for anything else. */
static inline int sfw_follows_call(const struct sfw_space *m, const struct sfw_abi *a, uint64_t ra) {
	enum { CALL = 0xe8, INDIRECT = 0xff, REG = 7 << 3, OF_CALL = 2 << 3 };
	unsigned char b[8];
	if (a->lr != SFW_NUM_REGS)
		return 1;
	if (!m->read(m->context, ra - 8, b))
		return 0;
	int follows = b[3] == CALL;
	for (unsigned i = 1; i <= 6; i++)
		follows |= b[i] == INDIRECT && (b[i + 1] & REG) == OF_CALL;
	return follows;
}

/* sfw_return steps from a pc that is not executable to its caller, if a row describes the caller. The return address
 * is on the stack, or in the ABI's return address register. The walk records no frame for that pc. */
static inline void sfw_return(const struct sfw_space *m, struct sfw_regs *regs, struct sfw_section *s) {
	const struct sfw_abi *a = sfw_abi_of(m->abi);
	struct sfw_row row;
	uint64_t sp, ra;
	regs->interrupted = 1;
	if (a == NULL || !sfw_get(regs, a->sp, &sp) ||
		(m->section(m->context, regs->pc, s) == SFW_OK && sfw_find(s, regs->pc, &row) == SFW_OK))
		return;
	if (a->lr == SFW_NUM_REGS ? !sfw_read(m, a, sp, &ra) : !sfw_get(regs, a->lr, &ra))
		return;
	if (m->section(m->context, ra - 1, s) != SFW_OK || sfw_find(s, ra - 1, &row) != SFW_OK || row.outermost ||
		!sfw_follows_call(m, a, ra))
		return;
	if (a->lr == SFW_NUM_REGS)
		sfw_set(regs, a->sp, sp + 8);
	regs->pc = ra;
	regs->interrupted = 0;
}

/* sfw_walk_on is sfw_walk for callers that keep the section between calls. */
static inline size_t sfw_walk_on(const struct sfw_space *m, struct sfw_section *s, struct sfw_regs *regs,
	struct sfw_frame *frames, size_t max, enum sfw_how *end) {
	const struct sfw_abi *a = sfw_abi_of(m->abi);
	size_t n = 0;
	*end = SFW_FULL;
	while (*end == SFW_FULL) {
		n = sfw_run(m, regs, frames, n, max, end);
		if (n == max || *end != SFW_FULL)
			break;
		if (regs->interrupted == SFW_NO_CODE)
			sfw_return(m, regs, s);
		struct sfw_frame *f = &frames[n++];
		f->pc = regs->pc;
		if (a == NULL || !sfw_get(regs, a->sp, &f->sp))
			f->sp = 0;
		f->how = regs->how;
		f->interrupted = regs->interrupted;
		enum sfw_how found = m->section(m->context, sfw_lookup_pc(regs), s);
		enum sfw_how how = sfw_step(found == SFW_OK ? s : NULL, regs, m);
		if (how >= SFW_OUTERMOST)
			*end = how == SFW_NO_SECTION ? found : how;
	}
	return n;
}

/* sfw_walk writes up to max frames, starting at regs, the topmost first, and returns their number. *end is the
 * reason why the walk ended. After SFW_FULL, regs are those of the next frame, so another call continues the walk;
 * otherwise they are those of the last frame. */
static inline size_t sfw_walk(
	const struct sfw_space *m, struct sfw_regs *regs, struct sfw_frame *frames, size_t max, enum sfw_how *end) {
	struct sfw_section s;
	sfw_no_section(&s);
	return sfw_walk_on(m, &s, regs, frames, max, end);
}

#endif /* SFRAME_WALKER_H */
