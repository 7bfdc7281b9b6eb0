package code

import (
	"debug/elf"
	"fmt"
	"strings"
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
	// The tables that GCC and clang use, with a bound by either side of a branch.
	jump := "sub sp, sp, #16; cmp w3, #1; b.hi 9f; adr x5, 3f; %s; br x0; 8: add sp, sp, #16; ret; " +
		"9: add sp, sp, #16; ret; 3: %s; .p2align 2; f@: ret"
	for _, x := range [][2]string{
		{"ldrb w3, [x5, w3, uxtw]; adr x6, 8b; add x0, x6, w3, sxtb #2", ".byte 0, (9b-8b)/4, 1, 1"},
		{"ldrb w3, [x5, w3, uxtw]; adr x6, 9b; add x0, x6, w3, sxtb #2", ".byte (8b-9b)/4, 0"},
		{"ldrh w3, [x5, w3, uxtw #1]; adr x6, 9b; add x0, x6, w3, sxth #2", ".hword (8b-9b)/4, 0"},
		{"ldrb w3, [x5, x3]; adr x6, 8b; add x0, x6, x3, lsl #2", ".byte 0, (9b-8b)/4"},
		{"ldrh w3, [x5, x3, lsl #1]; adr x6, 8b; add x0, x6, x3, lsl #2", ".hword 0, (9b-8b)/4"},
		{"ldrsw x3, [x5, x3, lsl #2]; adr x6, 9b; add x0, x6, x3, lsl #2", ".word (8b-9b)/4, 0"},
		{"ldr w3, [x5, w3, uxtw #2]; adr x6, 9b; add x0, x6, w3, sxtw #2", ".word (8b-9b)/4, 0"},
	} {
		asm := strings.NewReplacer("8b", "8f", "9b", "9f").Replace(x[0])
		end := 52
		if strings.Contains(x[1], ".word") {
			end += 4
		}
		sources = append(sources, source{"table: " + x[0], fmt.Sprintf(jump, asm, x[1]), fmt.Sprintf("0-48: sp+0, "+
			"4 sp+16, 36 sp+0, 40 sp+16, 44 sp+0; 48-%d unreached; %[1]d-%d: sp+0; 28 to 32 40", end, end+4)})
	}
	bytes := "sub sp, sp, #16; %s; adr x5, 3f; ldrb w3, [x5, w3, uxtw]; adr x6, 8f; add x0, x6, w3, sxtb #2; br x0; " +
		"8: add sp, sp, #16; ret; 9: add sp, sp, #16; ret; 3: .byte 0, (9b-8b)/4, 0, 0"
	none := func(end int) string { // the code after the branch is not known to be reached
		return fmt.Sprintf("0-%d indirect; %[1]d-%d unreached; %[2]d-%d indirect; %[3]d-%d unreached", end, end+8,
			end+16, end+20)
	}
	sources = append(sources,
		source{"bound by a branch that is taken", fmt.Sprintf(bytes, "cmp w3, #1; b.ls 7f; b 9f; 7:"),
			"0-52: sp+0, 4 sp+16, 40 sp+0, 44 sp+16, 48 sp+0; 52-56 unreached; 32 to 36 44"},
		source{"bound by b.hs", fmt.Sprintf(bytes, "cmp w3, #2; b.hs 9f"),
			"0-48: sp+0, 4 sp+16, 36 sp+0, 40 sp+16, 44 sp+0; 48-52 unreached; 28 to 32 40"},
		source{"the greater of two bounds", fmt.Sprintf(bytes, "cbz x1, 6f; cmp w3, #0; b.ls 7f; b 9f; 6: cmp w3, #1; "+
			"b.hi 9f; 7:"), "0-64: sp+0, 4 sp+16, 52 sp+0, 56 sp+16, 60 sp+0; 64-68 unreached; 44 to 48 56"},
		source{"no bound", fmt.Sprintf(bytes, "cbz w3, 9f"), none(28)},
		source{"bound of another path", fmt.Sprintf(bytes, "cbz x1, 7f; cmp w3, #1; b.hi 9f; 7:"), none(36)},
		source{"bound of another value", fmt.Sprintf(bytes, "cmp w3, #1; sub w3, w3, #1; b.hi 9f"), none(36)},
		source{"bound by other flags", fmt.Sprintf(bytes, "cmp w3, #1; ccmp w4, #1, #0, hi; b.hi 9f"), none(36)},
		source{"bound of changed flags", fmt.Sprintf(bytes, "cmp w3, #1; fcmp d0, d1; b.hi 9f"), none(36)},
		source{"bound of a register that changes", fmt.Sprintf(bytes, "cmp w3, #1; b.hi 9f; sub w3, w3, #1"), none(36)},
		source{"bound that a call follows", fmt.Sprintf(bytes, "cmp w3, #1; b.hi 9f; str x30, [sp]; blr x9; "+
			"ldr x30, [sp]"), none(44)},
		source{"bound beyond the table", fmt.Sprintf(bytes, "cmp w3, #9; b.hi 9f"), none(32)},
		source{"address after adr, at a jump that is not understood", "adr x6, 8f; add x0, x6, x3, lsl #2; br x0; " +
			"8: mov x0, #1; ret", "0-12 indirect; 12-20 unreached"},
		source{"call before a no-op and the end of the function", "stp x29, x30, [sp, #-16]!; mov x29, sp; " +
			"blr x0; nop; ldp x29, x30, [sp], #16; ret",
			"0-24: sp+0, 4 sp+16 fp-16 ra-8 kept, 12 sp+16 fp-16 ra-8, 20 sp+0"},
		source{"address of code that saves the frame", "ret; g@: stp x29, x30, [sp, #-16]!; blr x0; " +
			"ldp x29, x30, [sp], #16; br x1; g2@: blr x0; br x1",
			"0-4: sp+0; 4-20: sp+0, 8 sp+16 fp-16 ra-8 kept, 12 sp+16 fp-16 ra-8, 16 sp+0; 20-28 unknown-stack"},
		source{"address of code that signs", "ret; g@: paciasp; autiasp; br x1; g2@: nop; br x1",
			"0-4: sp+0; 4-16: sp+0, 8 sp+0 signed, 12 sp+0; 16-24 not-called"},
		source{"signed address below SP", "paciasp; stp x29, x30, [sp, #-16]!; ldp x29, x30, [sp], #16; autiasp; " +
			"b 1f; f@: ret; 1: paciasp; sub sp, sp, #32; stp x29, x30, [sp, #16]; bl f@; ldp x29, x30, [sp, #16]; " +
			"add sp, sp, #32; autiasp; ret", "0-20: sp+0, 4 sp+0 signed, 8 sp+16 fp-16 ra-8 kept signed, " +
			"12 sp+0 signed, 16 sp+0; 20-24: sp+0; 24-56: sp+0, 28 sp+0 signed, 32 sp+32 signed, " +
			"36 sp+32 fp-16 ra-8 kept signed, 40 sp+32 fp-16 ra-8 signed, 44 sp+32 fp-16 ra-8 kept signed, " +
			"48 sp+0 signed, 52 sp+0"},
	)
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
