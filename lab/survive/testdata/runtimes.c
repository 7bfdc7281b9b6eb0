/* Programs with sanitizers: all of subject.c, then one error that the sanitizer must report. */
#define LIBRARY
#include "subject.c"

void notes(void);

#ifdef THREAD
#include <pthread.h>

static int raced, done;

static void *race(void *arg)
{
	raced = 1;
	__atomic_store_n(&done, 1, __ATOMIC_RELAXED); /* without synchronisation, so that the race is always reported */
	return arg;
}
#endif

__attribute__((noinline)) static int mistake(volatile int n)
{
#if defined ADDRESS
	char *text = malloc(n);
	int c = text[n];
	free(text);
	return c & 0;
#elif defined UNDEFINED
	return (1 << (n + 31)) & 0;
#elif defined THREAD
	pthread_t thread;
	if (pthread_create(&thread, 0, race, 0))
		return 1;
	while (!__atomic_load_n(&done, __ATOMIC_RELAXED))
		;
	raced = n;
	return pthread_join(thread, 0);
#elif defined LEAK
	return !malloc(n * 1000);
#else
	return n != 8;
#endif
}

int main(void)
{
	notes();
	return subject() || mistake(8);
}
