// Has libgcc unwind through functions whose call frame information is unusual, and prints
// for each one its name, the address that it calls the unwinder from, and where its caller's
// rbp is: "ra", where the return address is, or "same", unchanged.
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

// A function of this name, with these directives at its start.
#define FUNCTION(name, directives) \
	void name(void (*)(void)); \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n" directives \
		"sub $8, %rsp\n.cfi_adjust_cfa_offset 8\ncall *%rdi\nadd $8, %rsp\n.cfi_adjust_cfa_offset -8\nret\n" \
		".cfi_endproc\n.size " #name ", .-" #name "\n")

// GNU as moves the directives into the CIE, unless it has made one without them before.
FUNCTION(restored, ".cfi_restore rbp\n.cfi_restore rbx\n");
FUNCTION(restored_rule, ".cfi_offset rbp, -8\n.cfi_restore rbp\n");
FUNCTION(fp_column, ".cfi_return_column rbp\n.cfi_offset rbp, -8\n");
FUNCTION(plain, "");

static const char *name;
static int depth;
static unsigned long before, at; // rbp, and the pc in the function

static _Unwind_Reason_Code frame(struct _Unwind_Context *c, void *arg) {
	// Frames are trace, the function, and its caller.
	unsigned long ip = _Unwind_GetIP(c), rbp = _Unwind_GetGR(c, 6);
	switch (depth++) {
	case 1:
		at = ip, before = rbp;
		break;
	case 2:
		printf("%s %lx %s\n", name, at, rbp == ip ? "ra" : rbp == before ? "same" : "lost");
		return _URC_END_OF_STACK;
	}
	return _URC_NO_REASON;
}

__attribute__((noinline)) static void trace(void) {
	depth = 0;
	_Unwind_Backtrace(frame, NULL);
}

int main(void) {
	name = "plain", plain(trace);
	name = "fp_column", fp_column(trace);
	name = "restored", restored(trace);
	name = "restored_rule", restored_rule(trace);
	return 0;
}
