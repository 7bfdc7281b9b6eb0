/* Looks up rows with libsframe, by its public functions only.

   Usage: find SECTION <PCS >ANSWERS

   SECTION is the contents of an .sframe, PCS are 64-bit distances from its start. ANSWERS begin with what
   the library says of the section, and there is one for each pc. All numbers have this machine's byte
   order. lookup.go has the same two structures. */
#include <sframe-api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef SFRAME_VERSION_3
#define V3_API 1 /* of libsframe.so.3 */
#endif

struct head {
	int32_t error; /* of sframe_decode or of reading functions, or 0 */
	uint8_t version, abi;
	int8_t fixed_ra, fixed_fp;
};

enum { FOUND = 1, HAS_CFA = 2, HAS_RA = 4, HAS_FP = 8, SIGNED = 16, OUTERMOST = 32, FLEXIBLE = 64, IN_FDE = 128 };
enum { KEY_B = 1, SIGNAL = 2, MASK = 4 };

struct answer {
	uint8_t flags;
	uint8_t fde;   /* flags of the function */
	uint8_t base;  /* as SFRAME_BASE_REG_* */
	uint8_t words; /* how many of data there are */
	int32_t cfa, ra, fp;
	uint32_t data[6]; /* data words, unsigned */
};

/* What the library says of functions: sframe_find_fre does not tell which one it found, and of which type. */
struct function {
	int64_t start;
	uint32_t size;
	uint8_t flags;
	uint32_t type;
};

static struct function *functions;
static uint32_t num;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void *get(size_t n)
{
	void *p = malloc(n ? n : 1);
	if (!p)
		die("malloc");
	return p;
}

static char *read_file(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	long n;
	char *b;
	if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET))
		die(path);
	b = get(n);
	if (fread(b, 1, n, f) != (size_t)n)
		die(path);
	fclose(f);
	*size = n;
	return b;
}

static int read_functions(sframe_decoder_ctx *ctx)
{
	num = sframe_decoder_get_num_fidx(ctx);
	functions = get(num * sizeof *functions);
	for (uint32_t i = 0; i < num; i++) {
		struct function *f = &functions[i];
		uint32_t fres;
		unsigned char info = 0;
		uint8_t rep;
		int32_t start = 0;
		int err = 0;
		memset(f, 0, sizeof *f);
#ifdef V3_API
		int64_t start64 = 0;
		unsigned char info2 = 0;
		if (sframe_decoder_get_version(ctx) == SFRAME_VERSION_3) {
			err = sframe_decoder_get_funcdesc_v3(ctx, i, &fres, &f->size, &start64, &info, &info2, &rep);
			f->type = SFRAME_V3_FDE_TYPE(info2);
			if (SFRAME_V3_FDE_SIGNAL_P(info))
				f->flags |= SIGNAL;
		} else {
			err = sframe_decoder_get_funcdesc_v2(ctx, i, &fres, &f->size, &start, &info, &rep);
			start64 = start;
		}
		if (!err && sframe_decoder_get_flags(ctx) & SFRAME_F_FDE_FUNC_START_PCREL)
			start64 += sframe_decoder_get_offsetof_fde_start_addr(ctx, i, &err);
		f->start = start64;
#else
		err = sframe_decoder_get_funcdesc_v2(ctx, i, &fres, &f->size, &start, &info, &rep);
		f->start = start;
#endif
		if (err)
			return err;
		if (SFRAME_V1_FUNC_PAUTH_KEY(info) == SFRAME_AARCH64_PAUTH_KEY_B)
			f->flags |= KEY_B;
		if (SFRAME_V1_FUNC_FDE_TYPE(info) == SFRAME_FDE_TYPE_PCMASK)
			f->flags |= MASK;
	}
	return 0;
}

static const struct function *find_function(int64_t pc)
{
	uint32_t low = 0, high = num;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (functions[mid].start <= pc)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == 0 || pc - functions[low - 1].start >= functions[low - 1].size)
		return NULL;
	return &functions[low - 1];
}

static void look_up(sframe_decoder_ctx *ctx, int64_t pc, struct answer *a)
{
	sframe_frame_row_entry fre;
	const struct function *f = find_function(pc);
	int err;
	memset(a, 0, sizeof *a);
	memset(&fre, 0, sizeof fre);
	if (f) {
		a->flags |= IN_FDE;
		a->fde = f->flags;
		if (f->type)
			a->flags |= FLEXIBLE;
	}
#ifndef V3_API
	if (pc != (int32_t)pc)
		return; /* the parameter has 32 bits */
#endif
	if (sframe_find_fre(ctx, pc, &fre))
		return;
	a->flags |= FOUND;
	err = 0;
	a->base = sframe_fre_get_base_reg_id(&fre, &err);
	if (err)
		a->base = 0xff;
	err = 0;
	if (sframe_fre_get_ra_mangled_p(ctx, &fre, &err) && !err)
		a->flags |= SIGNED;
#ifdef V3_API
	uint32_t type = f ? f->type : SFRAME_FDE_TYPE_DEFAULT;
	err = 0;
	if (sframe_fre_get_ra_undefined_p(ctx, &fre, &err) && !err)
		a->flags |= OUTERMOST;
	for (; a->words < 6; a->words++) {
		err = 0;
		a->data[a->words] = sframe_get_fre_udata(&fre, a->words, &err);
		if (err) {
			a->data[a->words] = 0;
			break;
		}
	}
#define GET(what) sframe_fre_get_##what##_offset(ctx, &fre, type, &err)
#else
#define GET(what) sframe_fre_get_##what##_offset(ctx, &fre, &err)
#endif
	err = 0;
	a->cfa = GET(cfa);
	if (!err)
		a->flags |= HAS_CFA;
	else
		a->cfa = 0;
	err = 0;
	a->ra = GET(ra);
	if (!err)
		a->flags |= HAS_RA;
	else
		a->ra = 0;
	err = 0;
	a->fp = GET(fp);
	if (!err)
		a->flags |= HAS_FP;
	else
		a->fp = 0;
}

int main(int argc, char **argv)
{
	static int64_t pcs[1 << 14];
	static struct answer answers[1 << 14];
	struct head head = {0};
	sframe_decoder_ctx *ctx;
	size_t size, n;
	char *b;
	int err = 0;
	if (argc != 2) {
		fputs("usage: find SECTION <PCS >ANSWERS\n", stderr);
		return 2;
	}
	b = read_file(argv[1], &size);
	ctx = sframe_decode(b, size, &err);
	if (!ctx && !err)
		err = -1;
	if (ctx)
		err = read_functions(ctx);
	if (err) {
		head.error = err;
		return fwrite(&head, sizeof head, 1, stdout) != 1 || fflush(stdout) ? 2 : 0;
	}
	head.version = sframe_decoder_get_version(ctx);
	head.abi = sframe_decoder_get_abi_arch(ctx);
	head.fixed_ra = sframe_decoder_get_fixed_ra_offset(ctx);
	head.fixed_fp = sframe_decoder_get_fixed_fp_offset(ctx);
	if (fwrite(&head, sizeof head, 1, stdout) != 1)
		die("answers");
	while ((n = fread(pcs, sizeof *pcs, sizeof pcs / sizeof *pcs, stdin)) > 0) {
		for (size_t i = 0; i < n; i++)
			look_up(ctx, pcs[i], &answers[i]);
		if (fwrite(answers, sizeof *answers, n, stdout) != n)
			die("answers");
	}
	if (ferror(stdin) || fflush(stdout))
		die("answers");
	sframe_decoder_free(&ctx);
	return 0;
}
