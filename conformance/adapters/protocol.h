/* The protocol of adapters (see conformance/README.md): questions are lines of JSON on standard input, answers lines of
   JSON on standard output.

   An adapter defines hello, which returns its first line, and open_section, lookup and close_section, which are called
   for each question. The section's bytes end where mapped memory ends, so a read past them crashes. Each question is
   answered by a separate process, so a crash affects only one answer.  */

#ifndef PROTOCOL_H
#define PROTOCOL_H

#define _GNU_SOURCE
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *hello (void);

struct question
{
  const char *abi;
  uint64_t address;		/* of the section */
  const unsigned char *section;
  size_t size;
  uint64_t *pcs;
  size_t num_pcs;
};

/* The base to which a rule adds its offset.  */
enum base
{
  NONE,				/* no rule: the value is unchanged */
  CFA,
  SP,
  FP,
  REG
};

struct rule
{
  enum base base;
  unsigned reg;			/* DWARF number */
  int64_t offset;
  bool deref;
};

struct row
{
  bool outermost, signal, is_signed, key_b;
  struct rule cfa, ra, fp;
};

/* Opens the section of a question. Returns NULL, or the reason why the section is refused.  */
static const char *open_section (const struct question *q);
/* Looks up a pc, and sets found if there is a row. Returns NULL, or the reason why the section is refused.  */
static const char *lookup (const struct question *q, uint64_t pc, bool *found, struct row *row);
static void close_section (void);

static void
fail (const char *what)
{
  fprintf (stderr, "adapter: %s\n", what);
  exit (3);
}

/* Returns the value of a key in a line, which starts after the colon.  */
static char *
value (char *line, const char *key)
{
  char quoted[64];
  snprintf (quoted, sizeof quoted, "\"%s\":", key);
  char *at = strstr (line, quoted);
  if (!at)
    fail (key);
  return at + strlen (quoted);
}

/* Returns the DWARF numbers of the registers that rules call sp and fp.  */
static void
abi_registers (const char *abi, unsigned *sp, unsigned *fp)
{
  *sp = 7, *fp = 6;
  if (!strncmp (abi, "aarch64", 7))
    *sp = 31, *fp = 29;
  else if (!strcmp (abi, "s390x"))
    *sp = 15, *fp = 11;
}

static FILE *out;		/* buffers the answer until it is complete */

static void
print_rule (const char *abi, const char *name, const struct rule *r)
{
  unsigned sp, fp;
  abi_registers (abi, &sp, &fp);
  if (r->base == NONE)
    return;
  fprintf (out, ",\"%s\":[\"", name);
  if (r->base == CFA)
    fprintf (out, "cfa");
  else if (r->base == SP || (r->base == REG && r->reg == sp))
    fprintf (out, "sp");
  else if (r->base == FP || (r->base == REG && r->reg == fp))
    fprintf (out, "fp");
  else
    fprintf (out, "r%u", r->reg);
  fprintf (out, "\",%" PRId64 "%s]", r->offset, r->deref ? ",\"*\"" : "");
}

static void
print_row (const char *abi, const struct row *row)
{
  fprintf (out, "{\"outermost\":%s", row->outermost ? "true" : "false");
  if (row->signal)
    fprintf (out, ",\"signal\":true");
  if (!row->outermost)
    {
      print_rule (abi, "cfa", &row->cfa);
      print_rule (abi, "ra", &row->ra);
      print_rule (abi, "fp", &row->fp);
      if (row->is_signed)
	fprintf (out, ",\"signed\":\"%s\"", row->key_b ? "B" : "A");
    }
  fprintf (out, "}");
}

/* Answers a question.  */
static void
reply (char *line)
{
  static unsigned char *area;
  static const size_t room = 64 << 20;
  if (!area)
    {
      area = mmap (NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (area == MAP_FAILED || mprotect (area + room, 4096, PROT_NONE))
	fail ("no memory");
    }
  struct question q = { 0 };
  long id = strtol (value (line, "id"), NULL, 10);
  char *abi = value (line, "abi") + 1;
  q.address = strtoull (value (line, "address") + 1, NULL, 16);
  char *hex = value (line, "section") + 1;
  q.size = strcspn (hex, "\"") / 2;
  if (q.size > room)
    fail ("a section of more than 64 MiB");
  unsigned char *bytes = area + room - q.size;
  for (size_t i = 0; i < q.size; i++)
    {
      char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };
      bytes[i] = strtoul (two, NULL, 16);
    }
  q.section = bytes;
  char *at = value (line, "pcs");
  q.pcs = malloc (strlen (at) * sizeof *q.pcs);
  if (*at == '[')
    for (at++; *at == '"' || *at == ',';)
      {
	if (*at == ',')
	  at++;
	q.pcs[q.num_pcs++] = strtoull (at + 1, &at, 16);
	at++;			/* the quote */
      }
  abi[strcspn (abi, "\"")] = 0;	/* nothing else is read from the line */
  q.abi = abi;

  const char *why = open_section (&q);
  struct row *rows = calloc (q.num_pcs + 1, sizeof *rows);
  bool *found = calloc (q.num_pcs + 1, sizeof *found);
  if (!why)
    {
      for (size_t i = 0; i < q.num_pcs && !why; i++)
	why = lookup (&q, q.pcs[i], &found[i], &rows[i]);
      close_section ();
    }
  fprintf (out, "{\"id\":%ld,", id);
  if (why)
    fprintf (out, "\"refused\":\"%s\"}\n", why);
  else
    {
      fprintf (out, "\"answers\":[");
      for (size_t i = 0; i < q.num_pcs; i++)
	{
	  if (i)
	    fprintf (out, ",");
	  if (found[i])
	    print_row (q.abi, &rows[i]);
	  else
	    fprintf (out, "null");
	}
      fprintf (out, "]}\n");
    }
  free (q.pcs);
  free (rows);
  free (found);
}

int
main (void)
{
  puts (hello ());
  fflush (stdout);
  char *line = NULL;
  size_t size = 0;
  while (getline (&line, &size, stdin) > 0)
    {
      long id = strtol (value (line, "id"), NULL, 10);
      pid_t child = fork ();
      if (child < 0)
	fail ("no process");
      if (child == 0)
	{
	  char *text = NULL;
	  size_t length = 0;
	  alarm (15);
	  out = open_memstream (&text, &length);
	  reply (line);
	  fclose (out);
	  _exit (write (1, text, length) == (ssize_t) length ? 0 : 3);
	}
      int status = 0;
      if (waitpid (child, &status, 0) != child)
	fail ("no status");
      if (WIFSIGNALED (status))
	printf ("{\"id\":%ld,\"ended\":\"%s\"}\n", id, strsignal (WTERMSIG (status)));
      else if (status)
	fail ("a question without an answer");
      fflush (stdout);
    }
  return 0;
}

#endif
