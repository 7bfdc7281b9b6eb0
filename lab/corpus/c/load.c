/* load LIBRARY: loads the library and prints a message. Without an argument, prints a
   message and the page size. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

/* Destructors of the library are not tested. */
static int end(int status)
{
	fflush(stdout);
	_exit(status);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		printf("cfi2sframe: ready %ld\n", sysconf(_SC_PAGESIZE));
		return end(0);
	}
	if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) {
		puts("cfi2sframe: loaded");
		return end(0);
	}
	const char *why = dlerror();
	fprintf(stderr, "%s\n", why ? why : "dlopen failed, and dlerror does not say why");
	/* A plugin may need functions of the program that loads it. */
	if (dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL)) {
		puts("cfi2sframe: loaded lazily");
		return end(0);
	}
	return end(1);
}
