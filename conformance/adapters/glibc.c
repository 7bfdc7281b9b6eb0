/* Adapter for the reader in glibc, which backtrace uses if glibc is configured with --enable-sframe. glibc's
   sysdeps/generic/sframe-read.c is compiled together with this file, and called as in sysdeps/generic/sframe.c.

   The reader supports only the byte order of the machine, and checks neither the ABI nor the size of a section.  */

#include "protocol.h"
#define ATTRIBUTE_PACKED __attribute__ ((packed))
#include "sframe-read.h"

static const char *
hello (void)
{
  return "{\"reader\":\"glibc 2.43\",\"formats\":[\"2\",\"2e1\"],"
	 "\"abis\":[\"amd64\",\"aarch64\"],\"cannot\":[\"signed\"]}";
}

static sframe_decoder_ctx ctx;

static const char *
open_section (const struct question *q)
{
  memset (&ctx, 0, sizeof ctx);
  return __sframe_decode (&ctx, (const char *) q->section) == _URC_NO_REASON ? NULL : "refused";
}

static void
close_section (void)
{
}

static const char *
lookup (const struct question *q, uint64_t pc, bool *found, struct row *row)
{
  sframe_frame_row_entry fre;
  _Unwind_Reason_Code err;
  /* Distances within a library fit in 32 bits.  */
  int64_t distance = pc - q->address;
  if (distance != (int32_t) distance || __sframe_find_fre (&ctx, distance, &fre) != _URC_NO_REASON)
    return NULL;
  int32_t cfa = __sframe_fre_get_cfa_offset (&ctx, &fre, &err);
  if (err != _URC_NO_REASON)
    return NULL;		/* then backtrace falls back to .eh_frame */
  *found = true;
  row->cfa.base = __sframe_fre_get_base_reg_id (&fre) == SFRAME_BASE_REG_SP ? SP : FP;
  row->cfa.offset = cfa;
  int32_t ra = __sframe_fre_get_ra_offset (&ctx, &fre, &err);
  if (err == _URC_NO_REASON)
    row->ra = (struct rule) { .base = CFA, .offset = ra, .deref = true };
  int32_t fp = __sframe_fre_get_fp_offset (&ctx, &fre, &err);
  if (err == _URC_NO_REASON)
    row->fp = (struct rule) { .base = CFA, .offset = fp, .deref = true };
  return NULL;
}
