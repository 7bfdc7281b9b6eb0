/* Calls a function of libc twice: the first time, a PLT entry finds it. */
#include <stdlib.h>

int main(void)
{
	return getenv("one") == getenv("two") ? 0 : 1;
}
