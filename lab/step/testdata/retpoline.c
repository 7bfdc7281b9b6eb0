/* Calls a function of libc twice; the first call resolves it through the PLT. */
#include <stdlib.h>

int main(void)
{
	return getenv("one") == getenv("two") ? 0 : 1;
}
