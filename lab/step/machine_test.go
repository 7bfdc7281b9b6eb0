package step

import (
	"encoding/hex"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestClassify decodes instructions, and expects the correct length and class of each. The text is objdump's.
func TestClassify(t *testing.T) {
	for _, c := range []struct {
		machine, code, text string
		want                insn
	}{
		{"amd64", "e8 00 00 00 00", "call", insn{class: call}},
		{"amd64", "67 e8 00 00 00 00", "addr32 call, to which ld relaxes other calls", insn{class: call}},
		{"amd64", "ff d0", "call *%rax", insn{class: call}},
		{"amd64", "ff 15 00 00 00 00", "call *x(%rip)", insn{class: call}},
		{"amd64", "ff 54 24 08", "call *8(%rsp)", insn{class: call}},
		{"amd64", "c3", "ret", insn{class: ret}},
		{"amd64", "f3 c3", "repz ret", insn{class: ret}},
		{"amd64", "c2 08 00", "ret $8", insn{class: ret}},
		{"amd64", "ff e0", "jmp *%rax", insn{class: indirect}},
		{"amd64", "f2 ff 25 00 00 00 00", "bnd jmp *x(%rip)", insn{class: indirect}},
		{"amd64", "0f 05", "syscall", insn{class: kernel}},
		{"amd64", "cc", "int3", insn{class: trap}},
		{"amd64", "48 89 ec", "mov %rbp,%rsp", insn{loads: true}},
		{"amd64", "48 8b a7 a0 00 00 00", "mov 0xa0(%rdi),%rsp", insn{loads: true}},
		{"amd64", "48 87 e0", "xchg %rsp,%rax", insn{loads: true}},
		{"amd64", "5c", "pop %rsp", insn{loads: true}},
		{"amd64", "41 5c", "pop %r12", insn{}},
		{"amd64", "c9", "leave", insn{loads: true}},
		{"amd64", "48 83 ec 18", "sub $0x18,%rsp", insn{}},
		{"amd64", "e9 00 00 00 00", "jmp", insn{}},
		{"aarch64", "00 00 00 94", "bl", insn{class: call}},
		{"aarch64", "20 00 3f d6", "blr x1", insn{class: call}},
		{"aarch64", "3f 08 3f d6", "blraaz x1", insn{class: call}},
		{"aarch64", "c0 03 5f d6", "ret", insn{class: ret}},
		{"aarch64", "ff 0b 5f d6", "retaa", insn{class: ret}},
		{"aarch64", "20 02 1f d6", "br x17", insn{class: indirect}},
		{"aarch64", "01 00 00 d4", "svc #0", insn{class: kernel}},
		{"aarch64", "bf 00 00 91", "mov sp, x5", insn{loads: true}},
		{"aarch64", "ff 43 00 d1", "sub sp, sp, #16", insn{}},
		{"aarch64", "fd 03 00 91", "mov x29, sp", insn{}},
		{"s390x", "c0 e5 00 00 00 00", "brasl %r14", insn{class: call}},
		{"s390x", "c0 f5 00 00 00 00", "brasl %r15", insn{}},
		{"s390x", "a7 e5 00 02", "bras %r14", insn{class: call}},
		{"s390x", "0d e1", "basr %r14,%r1", insn{class: call}},
		{"s390x", "0d e0", "basr %r14,0", insn{}},
		{"s390x", "07 fe", "br %r14", insn{class: ret}},
		{"s390x", "07 f1", "br %r1", insn{class: indirect}},
		{"s390x", "07 07", "nopr %r7", insn{}},
		{"s390x", "0a 01", "svc 1", insn{class: kernel}},
		{"s390x", "b9 04 00 f1", "lgr %r15,%r1", insn{loads: true}},
		{"s390x", "eb 6f f0 d0 00 04", "lmg %r6,%r15,208(%r15)", insn{loads: true}},
		{"s390x", "e3 f0 f1 10 00 04", "lg %r15,272(%r15)", insn{loads: true}},
		{"s390x", "e3 f0 ff 60 ff 71", "lay %r15,-160(%r15)", insn{}},
		{"s390x", "a7 fb ff 60", "aghi %r15,-160", insn{}},
	} {
		code := must.Get(hex.DecodeString(strings.ReplaceAll(c.code, " ", "")))(t)
		c.want.size = uint8(len(code))
		code = append(code, make([]byte, 16-len(code))...)
		if got := classifiers[c.machine](code); got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.machine, c.text, got, c.want)
		}
	}
}
