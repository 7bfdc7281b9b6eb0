#include <brotli/encode.h>
#include <stdio.h>

int main(void) {
	printf("%u\n", (unsigned)BrotliEncoderMaxCompressedSize(1000));
	return 0;
}
