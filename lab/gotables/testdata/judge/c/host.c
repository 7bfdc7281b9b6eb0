/* Opens the library named by its argument, and runs it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
	void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
	void (*run)(void) = lib ? (void (*)(void))dlsym(lib, "Run") : NULL;
	if (run == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	run();
	return 0;
}
