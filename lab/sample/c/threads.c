/* Threads that sort, and that other threads wait for: short ones, again and again. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static double total;

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void *work(void *argument) {
	unsigned seed = *(unsigned *)argument;
	for (int round = 0; round < 20; round++) {
		double values[500];
		char text[64];
		for (int i = 0; i < 500; i++)
			values[i] = sin((double)rand_r(&seed)) + pow(1.0001, i);
		qsort(values, 500, sizeof *values, compare);
		snprintf(text, sizeof text, "%g %d", values[250], round);
		pthread_mutex_lock(&mutex);
		total += strtod(text, NULL);
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(void) {
	for (unsigned round = 0;; round++) {
		pthread_t threads[4];
		unsigned seeds[4];
		for (unsigned i = 0; i < 4; i++) {
			seeds[i] = round * 4 + i;
			if (pthread_create(&threads[i], NULL, work, &seeds[i]) != 0)
				abort();
		}
		for (unsigned i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
}
