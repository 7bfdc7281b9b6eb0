package verify

import (
	"testing"
)

// TestCompare compares inferred rows with CFI that the same source gives.
func TestCompare(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want Agreement // without Differences
	}{
		"equal": {".cfi_startproc \n sp+8 push %rbx \n .cfi_def_cfa_offset 16 \n sp+16 pop %rbx \n " +
			".cfi_def_cfa_offset 8 \n sp+8 ret \n " +
			".cfi_endproc", Agreement{Described: 3, Inferred: 3, ByRegister: 3, FP: 3}},
		"partly inferred": {".cfi_startproc \n sp+8 ret \n gap \n nop \n nop \n .cfi_endproc",
			Agreement{Described: 3, Inferred: 1, ByRegister: 1, FP: 1}},
		"CFA": {".cfi_startproc \n sp+8 push %rbx \n sp+16 pop %rbx \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 3, Inferred: 3, ByRegister: 3, FP: 2, Differ: [3]uint64{1}}},
		// mov %rsp,%rbp has 3 bytes.
		"CFA by value": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n .cfi_offset 6,-16 \n " +
			"sp+16 -16 mov %rsp,%rbp \n .cfi_def_cfa_register 6 \n push %rbx \n sp+24 -16 je 1f \n nop \n " +
			"1: nop \n pop %rbx \n sp+16 -16 pop %rbp \n .cfi_def_cfa 7,8 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 12, Inferred: 12, ByRegister: 5, ByValue: 7, FP: 12}},
		"CFA by value in a loop": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n " +
			".cfi_offset 6,-16 \n " +
			"sp+16 -16 mov %rsp,%rbp \n .cfi_def_cfa_register 6 \n jmp 2f \n 1: nop \n 2: dec %ecx \n jne 1b \n " +
			"pop %rbp \n .cfi_def_cfa 7,8 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 13, Inferred: 13, ByRegister: 5, ByValue: 8, FP: 13}},
		"CFA in a loop that probes the stack": {".cfi_startproc \n sp+8 lea -8192(%rsp),%r11 \n " +
			".cfi_def_cfa 11,8200 \n r11+8200 1: sub $4096,%rsp \n cmp %r11,%rsp \n jne 1b \n " +
			".cfi_def_cfa 7,8200 \n nop \n lea 8192(%r11),%rsp \n .cfi_def_cfa 7,8 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 29, Inferred: 29, ByRegister: 21, FP: 21}},
		"CFA differs by value": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n .cfi_offset 6,-16 \n " +
			"sp+16 -16 mov %rsp,%rbp \n .cfi_def_cfa 6,24 \n nop \n pop %rbp \n .cfi_def_cfa 7,8 \n sp+8 ret \n " +
			".cfi_endproc",
			Agreement{Described: 7, Inferred: 7, ByRegister: 5, ByValue: 2, FP: 5, Differ: [3]uint64{2}}},
		"CFA by an unknown register": {".cfi_startproc \n sp+8 nop \n .cfi_def_cfa 3,24 \n nop \n " +
			".cfi_def_cfa 7,8 \n " +
			"ret \n " +
			".cfi_endproc", Agreement{Described: 3, Inferred: 3, ByRegister: 2, FP: 2}},
		"RA": {".cfi_startproc \n .cfi_offset 16,-16 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 1, Inferred: 1, ByRegister: 1, FP: 1, Differ: [3]uint64{0, 1}}},
		"RA undefined": {".cfi_startproc \n .cfi_undefined 16 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 1, Inferred: 1, ByRegister: 1, Differ: [3]uint64{0, 1}}},
		"no caller": {"start: .cfi_startproc \n .cfi_undefined 16 \n sp+8 outermost hlt \n .cfi_endproc",
			Agreement{Described: 1, Inferred: 1, ByRegister: 1}},
		"no caller, but CFI": {"start: .cfi_startproc \n sp+8 outermost hlt \n .cfi_endproc",
			Agreement{Described: 1, Inferred: 1, ByRegister: 1, Differ: [3]uint64{0, 1}}},
		"FP in its register and in memory": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n " +
			"sp+16 -16 pop %rbp \n .cfi_def_cfa_offset 8 \n .cfi_offset 6,-16 \n sp+8 nop \n ret \n .cfi_endproc",
			Agreement{Described: 4, Inferred: 4, ByRegister: 4, FP: 4}},
		"FP overwritten in memory": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n " +
			".cfi_offset 6,-16 \n " +
			"sp+16 -16 pop %rbp \n .cfi_def_cfa_offset 8 \n sp+8 push %rax \n .cfi_def_cfa_offset 16 \n " +
			"sp+16 pop %rax \n " +
			".cfi_def_cfa_offset 8 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 5, Inferred: 5, ByRegister: 5, FP: 5, Differ: [3]uint64{0, 0, 2}}},
		"FP overwritten by a callee": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n " +
			".cfi_offset 6,-16 \n " +
			"sp+16 -16 pop %rbp \n .cfi_def_cfa_offset 8 \n sp+8 call *%rax \n ret \n .cfi_endproc",
			Agreement{Described: 5, Inferred: 5, ByRegister: 5, FP: 5, Differ: [3]uint64{0, 0, 1}}},
		"FP overwritten in its register": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n " +
			"sp+16 -16 xor %ebp,%ebp \n pop %rbp \n .cfi_def_cfa_offset 8 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 5, Inferred: 5, ByRegister: 5, FP: 5, Differ: [3]uint64{0, 0, 1}}},
		"FP in another slot": {".cfi_startproc \n sp+8 push %rbp \n .cfi_def_cfa_offset 16 \n .cfi_offset 6,-24 \n " +
			"sp+16 -16 xor %ebp,%ebp \n pop %rbp \n .cfi_restore 6 \n .cfi_def_cfa_offset 8 \n sp+8 ret \n " +
			".cfi_endproc",
			Agreement{Described: 5, Inferred: 5, ByRegister: 5, FP: 5, Differ: [3]uint64{0, 0, 3}}},
		"a part of a function": {".cfi_startproc \n .cfi_offset 6,-16 \n sp+8 hlt \n .cfi_endproc",
			Agreement{Described: 1, Inferred: 1, ByRegister: 1}},
		"FP lost": {".cfi_startproc \n sp+8 nop \n sp+8 lost xor %ebp,%ebp \n ret \n .cfi_endproc",
			Agreement{Described: 4, Inferred: 4, ByRegister: 4, FP: 1}},
		"FP undefined": {".cfi_startproc \n .cfi_undefined 6 \n sp+8 ret \n .cfi_endproc",
			Agreement{Described: 1, Inferred: 1, ByRegister: 1}},
	} {
		f, table, inf := claims(t, tt.text)
		a, err := Compare(f, table, inf)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sum := [3]uint64{}
		for _, d := range a.Differences {
			sum[d.Part] += d.End - d.Begin
		}
		if a.Differences = nil; a.Described != tt.want.Described || a.Inferred != tt.want.Inferred ||
			a.ByRegister != tt.want.ByRegister || a.ByValue != tt.want.ByValue || a.FP != tt.want.FP ||
			a.Differ != tt.want.Differ || sum != a.Differ {
			t.Errorf("%s: %+v, %v in the list; want %+v", name, *a, sum, tt.want)
		}
	}
}
