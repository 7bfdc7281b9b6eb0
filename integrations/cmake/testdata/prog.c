#include <dlfcn.h>
#include <stdio.h>

int inner(int x);
int sample(int x);

int main(int argc, char **argv) {
	int (*part)(int) = NULL;
	if (argc > 1) {
		void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		if (plugin)
			part = (int (*)(int))dlsym(plugin, "part");
		if (!part) {
			fputs(dlerror(), stderr);
			return 1;
		}
	}
	printf("%d %d %d\n", sample(1), sample(2), part ? part(inner(3)) : inner(3));
	return 0;
}
