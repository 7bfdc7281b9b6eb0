/* Calls libraries through the PLT, from frames of several shapes, and checks that
   its own stack survives. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int cmp(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

__attribute__((noinline)) static int vary(int n, ...)
{
	va_list ap;
	int i, sum = 0;
	va_start(ap, n);
	for (i = 0; i < n; i++)
		sum += va_arg(ap, int);
	va_end(ap);
	return sum;
}

__attribute__((noinline)) static int dynamic(int n)
{
	int *a = __builtin_alloca(n * sizeof *a), i;
	for (i = 0; i < n; i++)
		a[i] = (i * 7919) % 101;
	qsort(a, n, sizeof *a, cmp);
	return a[n / 2];
}

__attribute__((noinline)) static int aligned(int n)
{
	int a[16] __attribute__((aligned(64))), i;
	char *s = __builtin_alloca(n + 1);
	memset(a, n, sizeof a);
	memset(s, 'x', n);
	s[n] = 0;
	for (i = 0; i < 16; i++)
		a[i] += (int)strlen(s);
	return a[n % 16] + ((unsigned long)a % 64 != 0);
}

__attribute__((noinline)) static int large(int n)
{
	char a[70000];
	memset(a, n, sizeof a);
	return a[n] + a[69999];
}

int main(int argc, char **argv)
{
	char buf[64];
	double d = sqrt(atof("2.25")) + pow(argc, 2);
	snprintf(buf, sizeof buf, "%d %d %d %d %.2f", vary(4, 1, 2, 3, 4), dynamic(50), aligned(5), large(3), d);
	puts(buf);
	return strcmp(buf, "10 49 84215050 6 2.50") != 0 || getenv("NEVER_SET") != NULL || argv[argc] != NULL;
}
