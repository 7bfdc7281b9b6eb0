/* The library that chain.c loads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*check)(const char *);

static int cmp(const void *a, const void *b)
{
	static int done;
	if (!done++)
		check("qsort called by a library");
	return *(const int *)a - *(const int *)b;
}

void library_call(void (*fn)(const char *))
{
	int v[] = {3, 1, 2};
	check = fn;
	check("library");
	qsort(v, 3, sizeof *v, cmp);
}

__attribute__((destructor)) static void end(void)
{
	if (check)
		check("destructor of a library");
}

double library_work(int round)
{
	char b[64];
	snprintf(b, sizeof b, "%d %g", round, round / 3.);
	return strtod(b, 0) + strlen(b);
}
