/* Functions that realign their stack, for GCC's vectors or by attributes: stepped through in
 * trace_linux_amd64_test.go. Arguments on the stack make GCC keep a pointer to them (DRAP). */
#include <stdarg.h>

typedef double vec __attribute__((vector_size(32)));

__attribute__((noinline)) void use(vec *v, int n) { (*v)[n & 3] += n; }

__attribute__((noinline)) int sink(int n) { return n + 1; }

__attribute__((noinline)) double many(int a, int b, int c, int d, int e, int f, int g, int h)
{
	vec v = { a, b, c, d };
	use(&v, e);
	use(&v, f);
	return v[g & 3] + h;
}

__attribute__((noinline)) int tail(int a, int b, int c, int d, int e, int f, int g, int h)
{
	vec v = { a, b, c, d };
	use(&v, g + h);
	return sink((int)v[0]);
}

__attribute__((noinline)) double variadic(int n, ...)
{
	va_list l;
	vec v = { n };
	va_start(l, n);
	for (int i = 0; i < n; i++)
		use(&v, va_arg(l, int));
	va_end(l);
	return v[0];
}

__attribute__((noinline)) double sized(int n, int b, int c, int d, int e, int f, int g)
{
	char buf[n + g];
	vec v = { n };
	__asm__ volatile("" : : "r"(buf) : "memory", "rbx", "r12", "r13", "r14", "r15");
	use(&v, n);
	return v[1] + buf[0] * 0;
}

int main(void)
{
	volatile double sum = 0;
	for (int i = 0; i < 20; i++)
		sum += many(i, 2, 3, 4, 5, 6, 7, 8) + tail(1, 2, 3, 4, 5, 6, 7, i) + variadic(3, 1, 2, i) + sized(i + 9, 1, 2, 3, 4, 5, 6);
	return sum == 0;
}
