/* Loads n libraries, dir/0.so and so on, which have a function call(function, argument). Prints the time of a dlopen,
 * of a dlopen and dlclose of the next library, and of a backtrace() through the last one, and the private memory. */
#define _GNU_SOURCE
#include "traces.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <string.h>

static void *pcs[64];
static void take(const char *unused) {
	(void)unused;
	backtrace(pcs, 64);
}

static long private_memory(void) {
	char line[256];
	long sum = 0, n;
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "Private_Dirty: %ld", &n) == 1)
			sum += n;
	return sum;
}

int main(int argc, char **argv) {
	enum { AGAIN = 200, TRACES = 20000 };
	void (*call)(void (*)(const char *), const char *) = NULL;
	char path[4096];
	if (argc != 3)
		return 2;
	int n = atoi(argv[2]);
	backtrace(pcs, 64);
	double begin = now();
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof path, "%s/%d.so", argv[1], i);
		void *file = dlopen(path, RTLD_NOW), *found = file != NULL ? dlsym(file, "call") : NULL;
		if (found == NULL)
			return puts(dlerror()), 1;
		memcpy(&call, &found, sizeof call);
	}
	double loaded = now();
	snprintf(path, sizeof path, "%s/%d.so", argv[1], n);
	for (int i = 0; i < AGAIN; i++)
		dlclose(dlopen(path, RTLD_NOW));
	double again = now();
	call(take, "");
	double first = now();
	for (int i = 0; i < TRACES; i++)
		call(take, "");
	printf("%.1f %.1f %.0f %ld\n", (loaded - begin) / n / 1e3, (again - loaded) / AGAIN / 1e3, (now() - first) / TRACES,
		private_memory());
	return 0;
}
