#include <stdio.h>

int inner(int x);
int sample(int x);

int main(void) {
	printf("%d %d %d\n", sample(1), sample(2), inner(3));
	return 0;
}
