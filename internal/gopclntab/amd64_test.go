package gopclntab

import (
	"testing"

	"cfi2sframe/internal/insn"
)

// TestEffects checks the effects of instructions on the frame pointer and on control flow, from the Intel SDM.
func TestEffects(t *testing.T) {
	type effects struct{ ends, jumps, clears, pops, writes, loads bool }
	for _, tt := range []struct {
		code string
		want effects
	}{
		{"\xc3", effects{ends: true}},                                 // ret
		{"\xf4", effects{ends: true}},                                 // hlt
		{"\xff\xe0", effects{ends: true}},                             // jmp *%rax
		{"\xff\x20", effects{ends: true}},                             // jmp *(%rax)
		{"\xeb\x00", effects{ends: true, jumps: true}},                // jmp
		{"\x74\x00", effects{jumps: true}},                            // je
		{"\xe8\x00\x00\x00\x00", effects{}},                           // call
		{"\x31\xed", effects{clears: true, writes: true}},             // xor %ebp,%ebp
		{"\xbd\x00\x00\x00\x00", effects{clears: true, writes: true}}, // mov $0,%ebp
		{"\xbd\x01\x00\x00\x00", effects{writes: true}},               // mov $1,%ebp
		{"\x66\xbd\x00\x00", effects{writes: true}},                   // mov $0,%bp
		{"\x5d", effects{pops: true, writes: true}},                   // pop %rbp
		{"\xc9", effects{writes: true}},                               // leave
		{"\x48\x95", effects{writes: true}},                           // xchg %rax,%rbp
		{"\x48\x89\xe5", effects{writes: true}},                       // mov %rsp,%rbp
		{"\x0f\xb6\xe8", effects{writes: true}},                       // movzbl %al,%ebp
		{"\x48\x89\xec", effects{loads: true}},                        // mov %rbp,%rsp
		{"\x48\x8b\x23", effects{loads: true}},                        // mov (%rbx),%rsp
		{"\x48\x83\xec\x08", effects{}},                               // sub $8,%rsp
		{"\x48\x39\xc5", effects{}},                                   // cmp %rax,%rbp
	} {
		in, ok := insn.DecodeAMD64([]byte(tt.code), 0)
		got := effects{in.Op.Leaves(), mayJump(&in), clearsFP(&in), popsFP(&in), writesFP(&in), loadsSP(&in)}
		if !ok || in.Size != len(tt.code) || got != tt.want {
			t.Errorf("% x: %+v; want %+v", tt.code, got, tt.want)
		}
	}
}
