package code

import (
	"debug/elf"
	"fmt"
	"testing"
)

// TestFindA64 checks rows against the Procedure Call Standard for the Arm 64-bit Architecture: at entry, the CFA is SP,
// and the return address is in x30.
func TestFindA64(t *testing.T) {
	sources := []source{
		{"leaf", "add x0, x0, x1; ret", "0-8: sp+0"},
		{"frame", "stp x29, x30, [sp, #-32]!; mov x29, sp; bl f@; ldp x29, x30, [sp], #32; ret; f@: ret",
			"0-20: sp+0, 4 sp+32 fp-32 ra-24 kept, 12 sp+32 fp-32 ra-24, 16 sp+0; 20-24: sp+0"},
		{"RA is not loaded", "stp x29, x30, [sp, #-16]!; ldr x29, [sp], #16; ret",
			"0-12: sp+0, 4 sp+16 fp-16 ra-8 kept, 8 sp+0"},
		{"signed", "paciasp; stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16; autiasp; ret",
			"0-20: sp+0, 4 sp+0 signed, 8 sp+16 fp-16 ra-8 kept signed, 12 sp+0 signed, 16 sp+0"},
		{"return by a signed address", ".arch armv8.3-a; paciasp; retaa", "0-8: sp+0, 4 sp+0 signed"},
		{"signed at the return", "paciasp; ret", "0-8 unbalanced"},
		{"signed by another SP", "sub sp, sp, #16; paciasp; add sp, sp, #16; ret", "0-16 unknown-stack"},
		{"key B", ".arch armv8.3-a; pacibsp; ret", "0-8 unknown-stack"},
		{"RA in another register", "mov x15, x30; bl f@; ret x15; f@: ret", "0-12: sp+0, 8 sp+0 ra x15; 12-16: sp+0"},
		{"sum with RA", "add x30, x30, #1; ret", "0-8 unknown-stack"},
		{"RA is lost", "bl f@; ret; f@: ret", "0-8 unknown-stack; 8-12: sp+0"},
		{"constant size", "mov x9, #4096; sub sp, sp, x9; add sp, sp, x9; ret", "0-16: sp+0, 8 sp+4096, 12 sp+0"},
		{"size in pages", "sub sp, sp, #1, lsl #12; add sp, sp, #1, lsl #12; ret", "0-12: sp+0, 4 sp+4096, 8 sp+0"},
		{"frame in FP", "mov x29, sp; and sp, x29, #0xffffffffffffffe0; mov sp, x29; ret", "0-16: sp+0, 4 fp+0 lost"},
		{"copy", "mov x9, sp; sub sp, sp, #64; mov sp, x9; ret", "0-16: sp+0, 8 sp+64, 12 sp+0"},
		{"vectors", "stp d8, d9, [sp, #-32]!; str x19, [sp, #16]; ldr x19, [sp, #16]; ldp d8, d9, [sp], #32; ret",
			"0-20: sp+0, 4 sp+32, 16 sp+0"},
		{"a vector overwrites FP", "str x29, [sp, #-16]!; mov x29, #0; str q0, [sp]; ldr x29, [sp], #16; ret",
			"0-20: sp+0, 4 sp+16 fp-16, 12 sp+16 lost, 16 sp+0 lost"},
		{"below SP, a signal overwrites FP", "str x29, [sp, #-8]; mov x29, #0; ret", "0-12: sp+0, 8 sp+0 lost"},
		{"structures with SP", "sub sp, sp, #16; ld1 {v0.2d}, [sp], #16; ret", "0-12: sp+0, 4 sp+16, 8 sp+0"},
		{"above the CFA", "add sp, sp, #16; sub sp, sp, #16; ret", "0-12 unbalanced"},
		{"SVE", ".arch armv8-a+sve; addvl sp, sp, #-1; ret", "0-1 overlap; 1-8 unreached"},
		{"tail call", "stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16; b f@; f@: ret",
			"0-12: sp+0, 4 sp+16 fp-16 ra-8 kept, 8 sp+0; 12-16: sp+0"},
		{"call that does not return, before another function", `stp x29, x30, [sp, #-16]!; cbz x0, 1f
			ldp x29, x30, [sp], #16; ret; 1: blr x1; stp x29, x30, [sp, #-16]!; 2: b 2b`,
			"0-20: sp+0, 4 sp+16 fp-16 ra-8 kept, 12 sp+0, 16 sp+16 fp-16 ra-8 kept; 20-28 unreached"},
		{"address of a page", ".inst 0x90000000; add x0, x0, #12; ret; 1: ret", "0-12: sp+0; 12-16: sp+0"},
		{"table before which the code is", `adr x5, 3f; ldrh w3, [x5, w3, uxtw #1]; sub x5, x5, w3, uxtw; br x5
			1: sub sp, sp, #16; add sp, sp, #16; ret; 2: ret; 3: .hword 3b-1b, 3b-2b; f@: ret`,
			"0-32: sp+0, 20 sp+16, 24 sp+0; 32-36 unreached; 36-40: sp+0; 12 to 16 28"},
		{"labels after a jump by 2-byte distances", `sub sp, sp, #16; adr x5, 1f; ldrh w3, [x5, w3, uxtw #1]
			adr x19, g@; add x0, x19, w3, sxth #2; br x0
			g@: mov x0, #1; b 2f; 2: add sp, sp, #16; ret; 1: .hword 0, 2`,
			"0-24 indirect; 24-44 unreached"},
		{"table of 4 bytes", `adr x5, 3f; ldrsw x3, [x5, w3, uxtw #2]; add x5, x5, x3; br x5
			1: ret; 2: ret; 3: .word 1b-3b, 2b-3b; f@: ret`, "0-24: sp+0; 24-32 unreached; 32-36: sp+0; 12 to 16 20"},
	}
	for _, change := range []string{"ldp x0, x19, [x1]", "ldp x19, x0, [x1]", "ldr x0, [x19], #8", "add x19, x19, #8"} {
		sources = append(sources, source{"call of code with " + change,
			"mov x20, x30; mov x19, sp; and sp, x19, #0xffffffffffffffe0; bl f@; mov sp, x19; ret x20; f@: " + change +
				"; ret", "0-24 unknown-stack; 24-32: sp+0"})
	}
	for i := range 29 {
		want := fmt.Sprintf("0-16: sp+0, 8 x%d+0, 12 sp+0", i)
		if i == 18 { // the platform register
			want = "0-16 unknown-stack"
		}
		sources = append(sources, source{fmt.Sprintf("frame in x%d", i),
			fmt.Sprintf("mov x%d, sp; and sp, x%[1]d, #0xffffffffffffffe0; mov sp, x%[1]d; ret", i), want})
	}
	checkRows(t, assembleFor(t, elf.EM_AARCH64, sources, "aarch64-linux-gnu-as"), sources)
}
