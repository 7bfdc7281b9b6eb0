/* crypto N: runs every cipher and digest of libcrypto, and signatures, over and over, on N bytes of data.
 * OPENSSL_ia32cap selects other code. Functions are declared here, so that no headers are needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void EVP_CIPHER_do_all_provided(void *, void (*)(void *, void *), void *);
void EVP_MD_do_all_provided(void *, void (*)(void *, void *), void *);
void *EVP_CIPHER_CTX_new(void);
void EVP_CIPHER_CTX_free(void *);
int EVP_CipherInit_ex(void *, void *, void *, const unsigned char *, const unsigned char *, int);
int EVP_CipherUpdate(void *, unsigned char *, int *, const unsigned char *, int);
int EVP_CipherFinal_ex(void *, unsigned char *, int *);
int EVP_Digest(const void *, size_t, unsigned char *, unsigned *, void *, void *);
const char *EVP_MD_get0_name(void *);
void *EVP_PKEY_Q_keygen(void *, const char *, const char *, ...);
void EVP_PKEY_free(void *);
void *EVP_MD_CTX_new(void);
void EVP_MD_CTX_free(void *);
int EVP_DigestSignInit_ex(void *, void **, const char *, void *, const char *, void *, void *);
int EVP_DigestSign(void *, unsigned char *, size_t *, const unsigned char *, size_t);
int EVP_DigestVerifyInit_ex(void *, void **, const char *, void *, const char *, void *, void *);
int EVP_DigestVerify(void *, const unsigned char *, size_t, const unsigned char *, size_t);

static unsigned char data[1 << 16], out[(1 << 16) + 256], key[256], iv[256];
static int size, worked;

static void cipher(void *c, void *arg) {
	(void)arg;
	void *ctx = EVP_CIPHER_CTX_new();
	for (int enc = 0; enc < 2; enc++) {
		int n;
		if (EVP_CipherInit_ex(ctx, c, NULL, key, iv, enc) == 1 && EVP_CipherUpdate(ctx, out, &n, data, size) == 1) {
			EVP_CipherFinal_ex(ctx, out, &n);
			worked++;
		}
	}
	EVP_CIPHER_CTX_free(ctx);
}

static void digest(void *d, void *arg) {
	(void)arg;
	unsigned n;
	worked += EVP_Digest(data, size, out, &n, d, NULL) == 1;
}

static void sign(void *pkey, const char *md) {
	size_t n = sizeof out;
	void *ctx = EVP_MD_CTX_new();
	if (EVP_DigestSignInit_ex(ctx, NULL, md, NULL, NULL, pkey, NULL) == 1 && EVP_DigestSign(ctx, out, &n, data, 100) == 1) {
		void *check = EVP_MD_CTX_new();
		worked += EVP_DigestVerifyInit_ex(check, NULL, md, NULL, NULL, pkey, NULL) == 1 && EVP_DigestVerify(check, out, n, data, 100) == 1;
		EVP_MD_CTX_free(check);
	}
	EVP_MD_CTX_free(ctx);
	EVP_PKEY_free(pkey);
}

int main(int argc, char **argv) {
	size = argc > 1 ? atoi(argv[1]) : 1024;
	int rounds = argc > 2 ? atoi(argv[2]) : 1;
	for (int i = 0; i < (int)sizeof data; i++)
		data[i] = i * 7;
	for (int i = 0; i < 256; i++)
		key[i] = i, iv[i] = 255 - i;
	for (; rounds > 0; rounds--) {
		EVP_MD_do_all_provided(NULL, digest, NULL);
		EVP_CIPHER_do_all_provided(NULL, cipher, NULL);
		sign(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-256"), "SHA256");
		sign(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), NULL);
		sign(EVP_PKEY_Q_keygen(NULL, NULL, "EC", "P-384"), "SHA384");
		EVP_PKEY_free(EVP_PKEY_Q_keygen(NULL, NULL, "X25519"));
		sign(EVP_PKEY_Q_keygen(NULL, NULL, "RSA", (size_t)1024), "SHA256");
	}
	printf("%d worked\n", worked);
	return 0;
}
