package verify

import (
	"encoding/hex"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// bytesOf decodes hexadecimal numbers.
func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	return must.Get(hex.DecodeString(strings.ReplaceAll(text, " ", "")))(t)
}

// TestStubs decodes single instructions, as encoded by GNU as, at 0x1000.
func TestStubs(t *testing.T) {
	type decoder = func([]byte, uint64) (effect, bool)
	for _, machine := range []struct {
		decode decoder
		right  map[string]effect
		wrong  []string
	}{
		{stubAMD64, map[string]effect{
			"ff 35 08 00 00 00":    {size: 6, push: 8},                          // push 8(%rip)
			"6a 03":                {size: 2, push: 8},                          // push $3
			"68 80 00 00 00 00":    {size: 5, push: 8},                          // push $128
			"55":                   {size: 1, push: 8},                          // push %rbp
			"ff 34 24":             {size: 3, push: 8},                          // push (%rsp)
			"ff 25 10 00 00 00":    {size: 6, ends: true},                       // jmp *16(%rip)
			"f2 ff 25 08 00 00 00": {size: 7, ends: true},                       // bnd jmp *8(%rip)
			"ff e0":                {size: 2, ends: true},                       // jmp *%rax
			"41 ff e3":             {size: 3, ends: true},                       // jmp *%r11
			"eb fe":                {size: 2, ends: true, target: 0x1000},       // jmp .
			"e9 10 00 00 00 90":    {size: 5, ends: true, target: 0x1015},       // jmp .+0x15
			"e9 f0 ff ff ff":       {size: 5, ends: true, target: 0x1000 - 0xb}, // jmp .-0xb
			"f3 0f 1e fa":          {size: 4},                                   // endbr64
			"41 bb 05 00 00 00":    {size: 6},                                   // mov $5,%r11d
			"0f 1f 00":             {size: 3, pad: true},                        // nopl (%rax)
			"2e 66 0f 1f 04 00":    {size: 6, pad: true},                        // cs nopw (%rax,%rax,1)
			"66 90":                {size: 2, pad: true},                        // xchg %ax,%ax
			"90":                   {size: 1, pad: true},                        // nop
			"cc":                   {size: 1, pad: true, ends: true},            // int3
			"c3":                   {size: 1, ret: true, ends: true},            // ret
			"e8 fb ff ff ff":       {size: 5, call: true, target: 0x1000},       // call .
			"4c 8b 1d 08 00 00 00": {size: 7},                                   // mov 8(%rip),%r11
			"4c 89 1c 24":          {size: 4, loses: true},                      // mov %r11,(%rsp)
			"f3 90":                {size: 2},                                   // pause
			"0f ae e8":             {size: 3},                                   // lfence
		}, []string{
			"",
			"ff 35 08 00",          // a part of push 8(%rip)
			"48 93",                // xchg %rax,%rbx
			"4d 87 c0",             // xchg %r8,%r8
			"49 c7 c3 05 00 00 00", // mov $5,%r11
			"b8 05 00 00 00",       // mov $5,%eax
			"c8 08 00 00",          // enter $8,$0
			"48 8d 64 24 f8",       // lea -8(%rsp),%rsp
			"48 83 ec 08",          // sub $8,%rsp
			"5d",                   // pop %rbp
			"c2 08 00",             // ret $8
			"ff d0",                // call *%rax
			"4c 89 1c 04",          // mov %r11,(%rsp,%rax,1)
			"4c 89 5c 24 08",       // mov %r11,8(%rsp)
			"4c 89 14 24",          // mov %r10,(%rsp)
			"4c 8b 1c 24",          // mov (%rsp),%r11
			"4c 8b 15 00 00 00 00", // mov 0(%rip),%r10
			"66 ff e0",             // jmp *%ax
			"66 6a 01",             // pushw $1
			"f1",                   // int1
			"cd 04",                // int $4
			"0f 0b",                // ud2
			"f4",                   // hlt
			"e2 fe",                // loop .
			"0f 84 00 00 00 00",    // je .+6
		}},
		{stubAArch64, map[string]effect{
			"f0 7b bf a9": {size: 4, push: 16, saveRA: 8},   // stp x16,x30,[sp,#-16]!
			"e2 0f bf a9": {size: 4, push: 16},              // stp x2,x3,[sp,#-16]!
			"f0 7f bf a9": {size: 4, push: 16},              // stp x16,xzr,[sp,#-16]!
			"fe 43 bf a9": {size: 4, push: 16},              // stp x30,x16,[sp,#-16]!; x30 is unchanged
			"10 00 00 90": {size: 4},                        // adrp x16,.
			"11 06 40 f9": {size: 4},                        // ldr x17,[x16,#8]
			"b0 fc ff 58": {size: 4},                        // ldr x16,.-0x6c
			"10 22 00 91": {size: 4},                        // add x16,x16,#8
			"63 00 02 8b": {size: 4},                        // add x3,x3,x2
			"5f 24 03 d5": {size: 4},                        // bti c
			"9f 21 03 d5": {size: 4},                        // autia1716
			"20 02 1f d6": {size: 4, ends: true},            // br x17
			"1f 20 03 d5": {size: 4, pad: true},             // nop
			"20 00 20 d4": {size: 4, ends: true, pad: true}, // brk #1
		}, []string{
			"",
			"5f 24 03",    // a part of bti c
			"f0 7b be 29", // stp w16,w30,[sp,#-16]!, which saves half of x30
			"f0 7b 01 a9", // stp x16,x30,[sp,#16]
			"30 7a bf a9", // stp x16,x30,[x17,#-16]!
			"f0 47 c1 a8", // ldp x16,x17,[sp],#16
			"30 8e 40 f8", // ldr x16,[x17,#8]!
			"01 02 1f d6", // not an instruction
			"30 86 40 f8", // ldr x16,[x17],#8
			"1d 00 00 90", // adrp x29,.
			"21 00 00 91", // add x1,x1,#0
			"1f 02 00 91", // mov sp,x16
			"eb ff ff 17", // b .-0x54
			"c0 03 5f d6", // ret
			"20 02 3f d6", // blr x17
			"3f 23 03 d5", // paciasp
			"bf 23 03 d5", // autiasp
			"00 00 00 00", // udf #0
		}},
		{stubS390X, map[string]effect{
			"e3 10 f0 38 00 24":             {size: 6},                              // stg %r1,56(%r15)
			"d2 07 f0 30 10 08":             {size: 6},                              // mvc 48(8,%r15),8(%r1)
			"c0 10 00 00 00 00":             {size: 6},                              // larl %r1,.
			"e3 10 10 10 00 04":             {size: 6},                              // lg %r1,16(%r1)
			"e3 10 10 0c 00 14":             {size: 6},                              // lgf %r1,12(%r1)
			"b9 09 00 01":                   {size: 4},                              // sgr %r0,%r1
			"b9 08 00 01":                   {size: 4},                              // agr %r0,%r1
			"a7 0b ff f8":                   {size: 4},                              // aghi %r0,-8
			"eb 10 00 01 00 0c":             {size: 6},                              // srlg %r1,%r0,1
			"0d 10":                         {size: 2},                              // basr %r1,%r0
			"0d 01":                         {size: 2, ends: true},                  // basr %r0,%r1
			"07 f1":                         {size: 2, ends: true},                  // br %r1
			"c0 f4 00 00 00 10 00 00 00 18": {size: 10, ends: true, target: 0x1020}, // jg .+0x20; .long 24
			"c0 f4 ff ff ff f0 00 00 00 18": {size: 10, ends: true, target: 0x0fe0}, // jg .-0x20; .long 24
			"07 00":                         {size: 2, pad: true},                   // nopr
			"07 07":                         {size: 2, pad: true},                   // nopr %r7
			"00 00":                         {size: 2, pad: true, ends: true},       // not an instruction
		}, []string{
			"",
			"07",                            // a part of a two-byte instruction
			"b9 09 00",                      // of sgr %r0,%r1
			"a7 0b",                         // of aghi %r0,-8
			"c0 10 00 00 00",                // of larl %r1,.
			"c0 f4 00 00 00 00",             // jg ., with nothing after it
			"c0 f4 00 00 00 00 00 00 00",    // jg ., with a part of a word after it
			"c0 84 00 00 00 10 00 00 00 18", // jge .+0x20
			"c0 04 00 00 00 10 00 00 00 18", // jgnop .+0x20
			"07 81",                         // ber %r1
			"07 f0",                         // bcr 15,%r0
			"07 e0",                         // bcr 14,%r0
			"0d e1",                         // basr %r14,%r1
			"0d b0",                         // basr %r11,%r0
			"c0 e0 00 00 00 00",             // larl %r14,.
			"e3 f0 10 0c 00 14",             // lgf %r15,12(%r1)
			"e3 e0 10 00 00 04",             // lg %r14,0(%r1)
			"a7 fb ff f8",                   // aghi %r15,-8
			"b9 08 00 e1",                   // agr %r14,%r1
			"b9 09 00 f1",                   // sgr %r15,%r1
			"eb f0 00 01 00 0c",             // srlg %r15,%r0,1
			"b9 04 00 f1",                   // lgr %r15,%r1
			"eb 6f f0 30 00 24",             // stmg %r6,%r15,48(%r15)
			"eb 6f f0 30 00 04",             // lmg %r6,%r15,48(%r15)
			"c0 e5 00 00 00 00",             // brasl %r14,.
			"a7 f4 00 00",                   // j .
			"ff ff ff ff ff ff",             // not an instruction
		}},
	} {
		for text, want := range machine.right {
			if got, ok := machine.decode(bytesOf(t, text), 0x1000); !ok || got != want {
				t.Errorf("%s: %+v, %t, want %+v", text, got, ok, want)
			}
		}
		for _, text := range machine.wrong {
			if got, ok := machine.decode(bytesOf(t, text), 0x1000); ok {
				t.Errorf("%s: %+v; it must not occur in stubs", text, got)
			}
		}
	}
}
