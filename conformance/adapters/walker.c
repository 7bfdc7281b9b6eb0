/* Adapter for this project's walker in C, walker/sframe_walker.h: sfw_open and sfw_lookup.  */

#include "protocol.h"
#include "sframe_walker.h"

static const char *
hello (void)
{
  return "{\"reader\":\"sframe_walker.h\",\"formats\":[\"1\",\"2\",\"2e1\",\"2e2\",\"3\"],"
	 "\"abis\":[\"amd64\",\"aarch64\",\"aarch64_be\",\"s390x\"]}";
}

static struct sfw_section section;

static const char *
open_section (const struct question *q)
{
  return sfw_open (&section, q->section, q->size, q->address) == SFW_OK ? NULL : "sfw_open";
}

static void
close_section (void)
{
}

static struct rule
rule (const struct sfw_rule *r)
{
  static const enum base bases[] =
    { [SFW_NONE] = NONE, [SFW_CFA] = CFA, [SFW_SP] = SP, [SFW_FP] = FP, [SFW_REGISTER] = REG };
  return (struct rule) { .base = bases[r->base], .reg = r->reg, .offset = r->offset, .deref = r->deref };
}

static const char *
lookup (const struct question *q, uint64_t pc, bool *found, struct row *row)
{
  struct sfw_row r;
  switch (sfw_lookup (q->section, q->size, q->address, pc, &r))
    {
    case SFW_OK:
      break;
    case SFW_NO_ROW:
      return NULL;
    case SFW_OUTERMOST:
      break;
    default:
      return "sfw_lookup";
    }
  *found = true;
  row->outermost = r.outermost;
  row->signal = r.signal_frame;
  row->is_signed = r.mangled;
  row->key_b = r.key_b;
  row->cfa = rule (&r.cfa);
  row->ra = rule (&r.ra);
  row->fp = rule (&r.fp);
  /* The ABI's fixed offset.  */
  int8_t fixed = sfw_abi_of (section.abi)->fixed_ra;
  if (row->ra.base == NONE && fixed)
    row->ra = (struct rule) { .base = CFA, .offset = fixed, .deref = true };
  return NULL;
}
