/* Preloaded into a program, this reports that the loader has finished, and ends the process
   before any code of the program runs. It needs no library, so every C library's loader
   accepts it; linked with -z initfirst, it runs before the other constructors. */
#include <asm/unistd.h>

static long call(long number, long a, const void *b, long c)
{
#if defined __x86_64__
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
#elif defined __aarch64__
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x2 __asm__("x2") = c;
	register const void *x1 __asm__("x1") = b;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#elif defined __s390x__
	register long r1 __asm__("r1") = number, r2 __asm__("r2") = a, r4 __asm__("r4") = c;
	register const void *r3 __asm__("r3") = b;
	__asm__ volatile("svc 0" : "+d"(r2) : "d"(r1), "d"(r3), "d"(r4) : "memory");
	return r2;
#else
#error "no system calls for this machine"
#endif
}

__attribute__((constructor)) static void started(void)
{
	static const char mark[] = "cfi2sframe: started\n";
	call(__NR_write, 1, mark, sizeof mark - 1);
	call(__NR_exit_group, 0, 0, 0);
}
