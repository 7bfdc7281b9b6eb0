/* gcrypt N: runs every available cipher and digest of libgcrypt on N bytes of data. Functions are declared here, so
 * that no headers are needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *gcry_check_version(const char *);
unsigned gcry_md_algo_info(int, int, void *, size_t *);
unsigned gcry_md_get_algo_dlen(int);
unsigned gcry_md_open(void **, int, unsigned);
void gcry_md_write(void *, const void *, size_t);
unsigned char *gcry_md_read(void *, int);
void gcry_md_close(void *);
unsigned gcry_cipher_open(void **, int, int, unsigned);
unsigned gcry_cipher_setkey(void *, const void *, size_t);
unsigned gcry_cipher_setiv(void *, const void *, size_t);
unsigned gcry_cipher_setctr(void *, const void *, size_t);
unsigned gcry_cipher_encrypt(void *, void *, size_t, const void *, size_t);
unsigned gcry_cipher_decrypt(void *, void *, size_t, const void *, size_t);
size_t gcry_cipher_get_algo_keylen(int);
size_t gcry_cipher_get_algo_blklen(int);
void gcry_cipher_close(void *);

static unsigned char data[1 << 16], key[256];

int main(int argc, char **argv) {
	/* ECB, CFB, CBC, STREAM, OFB, CTR, CCM, GCM, POLY1305, OCB, XTS, EAX */
	static const int modes[] = {1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 13, 14};
	int size = argc > 1 ? atoi(argv[1]) : 1024, rounds = argc > 2 ? atoi(argv[2]) : 1, worked = 0;
	gcry_check_version(NULL);
	for (int i = 0; i < 256; i++)
		key[i] = i * 5 + 1;
	for (; rounds > 0; rounds--) {
		for (int algo = 1; algo < 330; algo++) {
			void *md;
			if (gcry_md_get_algo_dlen(algo) == 0 || gcry_md_open(&md, algo, 0))
				continue;
			gcry_md_write(md, data, size);
			gcry_md_read(md, algo);
			gcry_md_close(md);
			worked++;
		}
		for (int algo = 1; algo < 330; algo++)
			for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
				void *c;
				size_t len = gcry_cipher_get_algo_keylen(algo), block = gcry_cipher_get_algo_blklen(algo);
				size_t iv = modes[i] == 9 || modes[i] == 10 ? 12 : modes[i] == 11 ? 15 : block == 1 ? 8 : block;
				if (len == 0 || gcry_cipher_open(&c, algo, modes[i], 0))
					continue;
				if (!gcry_cipher_setkey(c, key, modes[i] == 13 ? 2 * len : len)) {
					modes[i] == 6 ? gcry_cipher_setctr(c, key, block) : gcry_cipher_setiv(c, key, iv);
					worked += !gcry_cipher_encrypt(c, data, size, NULL, 0);
					gcry_cipher_setiv(c, key, iv);
					worked += !gcry_cipher_decrypt(c, data, size, NULL, 0);
				}
				gcry_cipher_close(c);
			}
	}
	printf("%d worked\n", worked);
	return 0;
}
