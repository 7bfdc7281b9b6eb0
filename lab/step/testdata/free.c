/* A program without a C library, for ABIs that lack one: calls of many kinds, over and over. */
typedef unsigned long word;

static word state = 88172645463325252ul;
static word next(void) {
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static int numbers[256];
static char text[512];
static void *saved[8];

__attribute__((noinline)) static int ack(int m, int n) {
	if (m == 0)
		return n + 1;
	return n == 0 ? ack(m - 1, 1) : ack(m - 1, ack(m, n - 1));
}

__attribute__((noinline)) static void sort(int *a, int n, int (*less)(int, int)) {
	if (n < 2)
		return;
	int pivot = a[n / 2], i = 0, j = n - 1;
	for (;; i++, j--) {
		while (less(a[i], pivot))
			i++;
		while (less(pivot, a[j]))
			j--;
		if (i >= j)
			break;
		int t = a[i];
		a[i] = a[j];
		a[j] = t;
	}
	sort(a, i, less);
	sort(a + i, n - i, less);
}

__attribute__((noinline)) static int up(int a, int b) { return a < b; }
__attribute__((noinline)) static int down(int a, int b) { return a > b; }

__attribute__((noinline)) static int digits(char *out, word n) {
	char *p = out;
	if (n >= 10)
		p += digits(out, n / 10);
	*p++ = '0' + n % 10;
	return p - out;
}

__attribute__((noinline)) static double series(int n, double x, double a, double b, double c, double d, double e, double f) {
	volatile double sum = 0;
	for (int i = 1; i < n; i++)
		sum += x / i + a * i - b + c / (i + 1) + d - e * f;
	return sum;
}

__attribute__((noinline)) static int array(int n) {
	volatile char a[n * 16]; /* makes the size of the frame variable */
	for (int i = 0; i < n * 16; i++)
		a[i] = i * n;
	return a[n] + digits(text, a[n * 8] & 127);
}

__attribute__((noinline)) static int large(int n) {
	volatile char a[9000];
	for (int i = 0; i < 9000; i += 100)
		a[i] = n;
	return a[8900] + array(3 + n % 5);
}

#ifndef __clang__
__attribute__((noinline)) static void leave(int n) {
	if (n == 0)
		__builtin_longjmp(saved, 1);
	leave(n - 1);
	__asm__ volatile("" ::: "memory");
}
#endif

__attribute__((noinline)) static int jump(int n) {
#ifndef __clang__ /* clang does not support this on all architectures */
	if (__builtin_setjmp(saved))
		return n;
	leave(n % 7);
#endif
	return 0;
}

__attribute__((noinline)) static int many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k) {
	return a + b * c - d + e * f + g - h * i + j - k;
}

__attribute__((used)) void begin(void) {
	volatile word sum = 0;
	for (word n = 0;; n++) {
		sum += ack(2, n % 4);
		for (int i = 0; i < 256; i++)
			numbers[i] = next() & 0xffff;
		sort(numbers, 256, n % 2 ? up : down);
		sum += digits(text, next()) + (word)series(10, n, 1, 2, 3, 4, 5, 6) + array(1 + n % 9) + large(n & 63) + jump(n & 15);
		sum += many(n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
	}
}

#if defined __aarch64__
__asm__(".globl _start\n.type _start, %function\n_start:\n.cfi_startproc\n.cfi_undefined x30\nbl begin\nudf #0\n.cfi_endproc\n.size _start, .-_start");
#elif defined __s390x__
__asm__(".globl _start\n.type _start, @function\n_start:\n.cfi_startproc\n.cfi_undefined %r14\naghi %r15, -160\nbrasl %r14, begin\nj .+0\n.cfi_endproc\n.size _start, .-_start");
#endif
