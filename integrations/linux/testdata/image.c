/* A program without libc that uses its .sframe like a kernel: it finds the section between __start_sframe and
 * __end_sframe, and walks its own stack with it, through functions with different frames and sections. It prints the
 * return addresses, and how the walk ended. */
#include "sframe_walker.h"

extern const unsigned char __start_sframe[], __end_sframe[];

static long write_out(const char *b, unsigned long n) {
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "0"(1L), "D"(1L), "S"(b), "d"(n) : "rcx", "r11", "memory");
	return r;
}

static void print(const char *what, uint64_t n) {
	char line[64];
	unsigned len = 0;
	while (*what)
		line[len++] = *what++;
	for (int shift = 60; shift >= 0; shift -= 4)
		line[len++] = "0123456789abcdef"[n >> shift & 15];
	line[len++] = '\n';
	write_out(line, len);
}

static int read_memory(void *context, uint64_t address, unsigned char bytes[8]) {
	(void)context;
	for (int i = 0; i < 8; i++)
		bytes[i] = ((const unsigned char *)address)[i];
	return 1;
}

static enum sfw_how find_section(void *context, uint64_t pc, struct sfw_section *s) {
	(void)context, (void)pc;
	return sfw_open(s, __start_sframe, (size_t)(__end_sframe - __start_sframe), (uint64_t)__start_sframe);
}

__attribute__((noinline)) void walk(void) {
	struct sfw_space space = {.read = read_memory, .section = find_section, .abi = SFW_AMD64};
	struct sfw_regs regs = {.interrupted = 1};
	struct sfw_frame frames[16];
	enum sfw_how end;
	__asm__ volatile("lea 0(%%rip), %0" : "=r"(regs.pc));
	__asm__ volatile("mov %%rsp, %0\n\tmov %%rbp, %1" : "=r"(regs.r[7]), "=r"(regs.r[6]));
	regs.valid = 1 << 7 | 1 << 6;
	size_t n = sfw_walk(&space, &regs, frames, 16, &end);
	for (size_t i = 0; i < n; i++)
		print("frame ", frames[i].pc);
	print("end ", end);
}

/* Frames of several sizes; one with a frame pointer, as variable-length arrays need. */
__attribute__((noinline)) int small(int x) {
	walk();
	return x + 1;
}

__attribute__((noinline)) int array(int n) {
	volatile char b[n];
	b[n - 1] = 1;
	return small(n) + b[n - 1];
}

__attribute__((noinline)) int large(int x) {
	volatile char b[5000];
	b[x] = 2;
	return array(x) + b[x];
}

/* A kernel frees this code after boot, so it gets no rows: a walk ends here. */
__attribute__((noinline, section(".init.text"))) int initialize(int x) { return small(x) + 1; }

__attribute__((used, noreturn)) static void run(void) {
	large(24);
	initialize(3);
	__asm__ volatile("syscall" : : "a"(60L), "D"(0L));
	__builtin_unreachable();
}

__asm__(".globl _start\n"
	"_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	"	call run\n"
	"	ud2\n"
	"	.cfi_endproc\n"
	".cfi_sections .debug_frame\n");
