/* Adapter for GNU's libsframe: sframe_decode, sframe_find_fre, and the functions for their results.

   Compile with -DAPI=1 for the library of binutils 2.41 to 2.44 (libsframe.so.1), and with -DAPI=3 for that of 2.46 and
   later (libsframe.so.3). The functions are declared here because not every distribution has sframe-api.h.  */

#include "protocol.h"

#ifndef VERSION
#define VERSION API == 1 ? "2.44" : "2.47"
#endif

typedef struct sframe_decoder_ctx decoder;

#if API == 1
#define PC int32_t
#define WORDS 12
#define TYPE
#else
#define PC int64_t
#define WORDS 24
#define TYPE , uint32_t fde_type
#endif

typedef struct
{
  uint32_t start;
  unsigned char words[WORDS];
  unsigned char info;
  unsigned char slack[64];	/* in case the library's struct has grown */
} fre;

extern decoder *sframe_decode (const char *, size_t, int *);
extern void sframe_decoder_free (decoder **);
extern const char *sframe_errmsg (int);
extern uint32_t sframe_decoder_get_num_fidx (decoder *);
extern uint8_t sframe_decoder_get_version (decoder *);
extern int sframe_find_fre (decoder *, PC, fre *);
extern int sframe_decoder_get_funcdesc_v2 (decoder *, unsigned, uint32_t *num, uint32_t *size, int32_t *start,
					   unsigned char *info, uint8_t *rep);
extern uint8_t sframe_fre_get_base_reg_id (fre *, int *);
extern int32_t sframe_fre_get_cfa_offset (decoder *, fre * TYPE, int *);
extern int32_t sframe_fre_get_ra_offset (decoder *, fre * TYPE, int *);
extern int32_t sframe_fre_get_fp_offset (decoder *, fre * TYPE, int *);
extern bool sframe_fre_get_ra_mangled_p (decoder *, fre *, int *);
#if API == 3
extern uint8_t sframe_decoder_get_flags (decoder *);
extern uint32_t sframe_decoder_get_offsetof_fde_start_addr (decoder *, uint32_t, int *);
extern int sframe_decoder_get_funcdesc_v3 (decoder *, unsigned, uint32_t *num, uint32_t *size, int64_t *start,
					   unsigned char *info, unsigned char *info2, uint8_t *rep);
extern bool sframe_fre_get_ra_undefined_p (decoder *, fre *, int *);
extern uint32_t sframe_get_fre_udata (fre *, int, int *);
#endif

static const char *
hello (void)
{
#if API == 1
  return "{\"reader\":\"libsframe 2.44\",\"formats\":[\"2\"],\"abis\":[\"amd64\",\"aarch64\",\"aarch64_be\"]}";
#else
  return "{\"reader\":\"libsframe 2.47\",\"formats\":[\"2\",\"2e1\",\"2e2\",\"3\"],"
	 "\"abis\":[\"amd64\",\"aarch64\",\"aarch64_be\",\"s390x\"]}";
#endif
}

static decoder *ctx;

static const char *
open_section (const struct question *q)
{
  int err = 0;
  ctx = sframe_decode ((const char *) q->section, q->size, &err);
  return ctx ? NULL : sframe_errmsg (err);
}

static void
close_section (void)
{
  sframe_decoder_free (&ctx);
}

/* Returns the info words of the function that contains a pc, because the library returns rows without them. The search
   starts at the last function found, because most pcs ascend.  */
static void
function (int64_t pc, unsigned char *info, unsigned char *info2)
{
  static uint32_t at;
  uint32_t num, size, count = sframe_decoder_get_num_fidx (ctx);
  uint8_t rep;
  for (uint32_t i = 0; i < count; i++, at++)
    {
      at %= count;
      int64_t start = 0;
      *info2 = 0;
#if API == 3
      if (sframe_decoder_get_version (ctx) == 3)
	{
	  if (sframe_decoder_get_funcdesc_v3 (ctx, at, &num, &size, &start, info, info2, &rep))
	    continue;
	}
      else
#endif
	{
	  int32_t start32;
	  if (sframe_decoder_get_funcdesc_v2 (ctx, at, &num, &size, &start32, info, &rep))
	    continue;
	  start = start32;
	}
#if API == 3
      if (sframe_decoder_get_flags (ctx) & 4)
	{
	  int err = 0;
	  start += sframe_decoder_get_offsetof_fde_start_addr (ctx, at, &err);
	}
#endif
      if (pc >= start && pc - start < size)
	return;
    }
  *info = *info2 = 0;
}

/* Returns a rule of a default FDE: an offset from the CFA or, on s390x in V2, a register.  */
static struct rule
slot (const struct question *q, int32_t offset)
{
  if (!strcmp (q->abi, "s390x") && sframe_decoder_get_version (ctx) == 2 && offset & 1)
    return (struct rule) { .base = REG, .reg = offset >> 1 };
  return (struct rule) { .base = CFA, .offset = offset, .deref = true };
}

#if API == 3
/* Decodes a rule of a flexible FDE, whose control word is at the index.  */
static bool
flexible (fre *f, int index, int32_t offset, struct rule *r)
{
  int err = 0;
  uint32_t control = sframe_get_fre_udata (f, index, &err);
  if (err || !control)
    return false;
  *r = (struct rule) { .base = control & 1 ? REG : CFA, .reg = control >> 3, .offset = offset, .deref = control & 2 };
  return true;
}
#endif

static const char *
lookup (const struct question *q, uint64_t pc, bool *found, struct row *row)
{
  fre f;
  int err = 0;
  int64_t distance = pc - q->address;
  if (distance != (PC) distance)
    return NULL;		/* the API cannot express this distance */
  if (sframe_find_fre (ctx, distance, &f))
    return NULL;
  *found = true;
  unsigned char info = 0, info2 = 0;
  function (distance, &info, &info2);
  row->signal = sframe_decoder_get_version (ctx) == 3 && info & 0x80;
#if API == 3
  uint32_t type = info2 & 0x1f;
  if (sframe_fre_get_ra_undefined_p (ctx, &f, &err))
    {
      row->outermost = true;
      return NULL;
    }
#define OFFSET(what) sframe_fre_get_##what##_offset (ctx, &f, type, &err)
#else
#define OFFSET(what) sframe_fre_get_##what##_offset (ctx, &f, &err)
#endif
  int32_t cfa = OFFSET (cfa);
  if (err)
    return sframe_errmsg (err);
  row->is_signed = sframe_fre_get_ra_mangled_p (ctx, &f, &err);
  row->key_b = info & 0x20;
#if API == 3
  if (type == 1)
    {
      int other = 0;
      if (!flexible (&f, 0, cfa, &row->cfa))
	return "a CFA without a rule";
      err = 0;
      int32_t ra = OFFSET (ra);
      bool padded = !sframe_get_fre_udata (&f, 2, &other) && !other;
      if (!flexible (&f, 2, ra, &row->ra) && !err && ra)
	row->ra = slot (q, ra);	/* fixed by the header */
      err = 0;
      int32_t fp = OFFSET (fp);
      if (!err)
	flexible (&f, padded ? 3 : 4, fp, &row->fp);
      return NULL;
    }
#endif
  row->cfa = (struct rule) { .base = sframe_fre_get_base_reg_id (&f, &err) ? SP : FP, .offset = cfa };
  err = 0;
  int32_t ra = OFFSET (ra);
  /* 0 is SFRAME_FRE_RA_OFFSET_INVALID.  */
  if (!err && ra)
    row->ra = slot (q, ra);
  err = 0;
  int32_t fp = OFFSET (fp);
  if (!err)
    row->fp = slot (q, fp);
  return NULL;
}
