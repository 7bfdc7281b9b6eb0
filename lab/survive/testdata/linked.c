/* A program that is linked with the library and is not position-independent. It gets copies
   of the library's variables by copy relocations, and the linker chooses their place by the
   section that contains the library's symbol. */
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
