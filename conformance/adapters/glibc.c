/* Adapter of the reader in glibc, which backtrace uses when glibc is configured with --enable-sframe: its
   sysdeps/generic/sframe-read.c, compiled together with this, and used as sysdeps/generic/sframe.c does.

   It reads sections of the machine's own byte order, and asks for neither the ABI nor the size.  */

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
  /* A library is no larger than what the distance has bits for.  */
  int64_t distance = pc - q->address;
  if (distance != (int32_t) distance || __sframe_find_fre (&ctx, distance, &fre) != _URC_NO_REASON)
    return NULL;
  int32_t cfa = __sframe_fre_get_cfa_offset (&ctx, &fre, &err);
  if (err != _URC_NO_REASON)
    return NULL;		/* then backtrace goes back to .eh_frame */
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
