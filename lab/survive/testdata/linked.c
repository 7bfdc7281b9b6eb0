/* A program that is linked with the library, and not position-independent: it gets the
   library's variables by copy relocations, which the linker places by the section
   that the library's symbol is in. */
#include <stdio.h>

extern int exported, large[100];
extern const int constant;
int subject(void);

int main(void)
{
	exported++;
	large[99] = 3;
	printf("%d %d %d\n", exported, constant, large[99]);
	return subject();
}
