/* Spends its time in inner, which outer calls: 700 ms in the main thread, then 300 ms in another. */
#include <pthread.h>
#include <stddef.h>
#include <time.h>

volatile unsigned long turns;

__attribute__((noinline)) void inner(long ms) {
	clock_t end = clock() + ms * CLOCKS_PER_SEC / 1000;
	while (clock() < end)
		for (int i = 0; i < 1000000; i++)
			turns++;
}

__attribute__((noinline)) void outer(long ms) {
	inner(ms);
	turns++; /* so that the call is not a jump */
}

void *worker(void *ms) {
	outer(*(long *)ms);
	return NULL;
}

int main(void) {
	long ms = 300;
	pthread_t t;
	outer(700);
	return pthread_create(&t, NULL, worker, &ms) != 0 || pthread_join(t, NULL) != 0;
}
