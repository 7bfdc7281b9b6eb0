/* The C subjects: everything that may break when a tool moves parts of a file. With
   -DLIBRARY there is no main, and with -DNO_UNWINDER no function unwinds the stack. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef NO_UNWINDER
#include <unwind.h>
#endif

static int constructed;
static _Thread_local int local = 7;
static int (*const functions[])(const char *) = {puts, atoi}; /* relocated */

__attribute__((constructor)) static void construct(void) { constructed = 1; }

#ifdef NO_UNWINDER
static int frames(void) { return 3; }
#else
static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *depth)
{
	(void)context;
	++*(int *)depth;
	return _URC_NO_REASON;
}

/* Requires .eh_frame_hdr, which libgcc finds through the program headers. */
__attribute__((noinline)) static int frames(void)
{
	int depth = 0;
	_Unwind_Backtrace(frame, &depth);
	return depth;
}
#endif

static int deepest;

static int compare(const void *a, const void *b)
{
	int depth = frames();
	if (depth > deepest)
		deepest = depth;
	return strcmp(*(char *const *)a, *(char *const *)b);
}

__attribute__((visibility("default"))) int subject(void)
{
	const char *words[] = {"stack", "frame", "trace"};
	qsort(words, 3, sizeof *words, compare);
	printf("%s %s %s\n", words[0], words[1], words[2]);
	printf("constructed %d, local %d, %d frames\n", constructed, local++, deepest);
	functions[0](getenv("NEVER_SET") ? "set" : "not set");
	return fflush(stdout) != 0 || functions[1]("42") != 42 || deepest < 3;
}

#ifdef LIBRARY
int exported = 1;
const int constant = 2;
int large[100];
#else
int main(void) { return subject(); }
#endif
