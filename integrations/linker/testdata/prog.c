#include <stdio.h>

int sample(int x);

int main(void) {
	printf("%d\n", sample(20));
	return sample(20) < 42;
}
