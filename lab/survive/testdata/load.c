/* load LIBRARY: loads the library and calls its function subject. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	int (*subject)(void) = library ? (int (*)(void))dlsym(library, "subject") : NULL;
	if (!subject) {
		puts(dlerror());
		return 1;
	}
	return subject();
}
