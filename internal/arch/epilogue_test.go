package arch

import (
	"encoding/hex"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestEpilogue decodes the epilogues that GCC 12 and 16 generate for functions with a realigned stack (from objdump),
// and other code.
func TestEpilogue(t *testing.T) {
	for _, tt := range []struct {
		code string // "/" marks the end of the instruction that restores rsp
		reg  uint64
		last int // 0: no epilogue
	}{
		{"415d415e415f5d498d62f8/c3", 10, 12},         // pop %r13 ... pop %rbp; lea -8(%r10),%rsp; ret
		{"c9498d62f8/c3", 10, 6},                      // leave; lea; ret
		{"c9498d62f8/c3662e0f1f840000000000", 10, 16}, // and a no-op
		{"c9498d62f8/c30f1f0090e8", 10, 10},           // no-ops, then other code
		// All no-ops of GNU as, then one with another operand.
		{"c9498d62f8/c36690900f1f000f1f40000f1f4400000f1f80000000000f1f8400000000000f1f44", 10, 36},
		{"c9498d62f8/c30f1f840000000000660f1fc0", 10, 18},
		{"c9498d62f8/c30f1f8000000000", 10, 13},
		{"c9498d62f8/c390", 10, 7},
		{"c9498d62f8/c30f1f", 10, 6},                  // truncated
		{"5d498d68f8/c3", 16, 0},                      // lea -8(%r8),%rbp
		{"5d498d62f8/ffe1", 10, 7},                    // jmp *%rcx
		{"5d498d62f8/ffe8", 10, 0},                    // not an instruction
		{"5d498d62f8/41ffe8", 10, 0},                  // the same
		{"5d498d62f8/90ffe0", 10, 0},                  // a no-op first
		{"5d498d62f8/ff3500000000", 10, 0},            // push x(%rip)
		{"5d498d62f8/4d8be8c3", 10, 9},                // mov %r8,%r13
		{"5d498d62f8/89c5c3", 10, 0},                  // mov %eax,%ebp
		{"5d498d62f8/0f28c189c0c3", 10, 11},           // movaps %xmm1,%xmm0; mov %eax,%eax
		{"5d498d62f8/0f2801c3", 10, 0},                // movaps (%rcx),%xmm0
		{"5d498d62f8/0f11c1c3", 10, 0},                // movups %xmm0,%xmm1
		{"5d498d60f8/c3", 8, 6},                       // lea -8(%r8),%rsp
		{"5d498d67f8/c3", 15, 6},                      // lea -8(%r15),%rsp
		{"5d498d62f8/f3c3", 10, 7},                    // rep ret
		{"5d498d62f8/e9000100000f1f00", 10, 13},       // jmp to another function
		{"5d498d62f8/e9f6ffffff", 10, 10},             // jmp to the function's start
		{"5d498d62f8/ebf9", 10, 7},                    // the same
		{"5d498d62f8/ffe0", 10, 7},                    // jmp *%rax
		{"5d498d62f8/41ffe3", 10, 8},                  // jmp *%r11
		{"5d498d62f8/3effe0", 10, 8},                  // notrack jmp *%rax
		{"5d498d62f8/ff2500000000", 10, 11},           // jmp *x(%rip)
		{"5d498d65f0/415dc3", 13, 8},                  // pop %rbp; lea -16(%r13),%rsp; pop %r13; ret
		{"c9498d65f0/415de900010000", 13, 12},         // with a jump
		{"5d498d65f0/415d660f28c1e954820aff", 13, 16}, // movapd %xmm1,%xmm0 before the jump (Mesa 22.3)
		{"5d498d62f8/4889c789c6c3", 10, 11},           // mov %rax,%rdi; mov %eax,%esi
		{"5d498d62f8/4489edc3", 10, 0},                // mov %r13d,%ebp
		{"5d498d62f8/488be8c3", 10, 0},                // mov %rax,%rbp
		{"5d498d62f8/668be8c3", 10, 0},                // mov %ax,%bp
		{"5d498d62f8/4989edc3", 10, 9},                // mov %rbp,%r13
		{"5d498d62f8/4c8be8c3", 10, 9},                // mov %rax,%r13
		{"5d498d62f8/4889cdc3", 10, 0},                // mov %rcx,%rbp
		{"5d498d62f8/4889450089c0c3", 10, 0},          // a store
		{"5d498d62f8/488b07c3", 10, 0},                // a load
		{"5d498d62f8/eb00", 10, 0},                    // jmp within the function
		{"5d498d62f8/415dc3", 10, 0},                  // pop of another register
		{"5d498d62f8/5dc3", 10, 0},                    // pop %rbp only here
		{"5d498d62f8/e8000100000f0b", 10, 0},          // call
		{"5d498d62f8/7410", 10, 0},                    // je
		{"5d498d62f8/c2", 10, 0},                      // ret n, which compilers do not emit
		{"5d498d62f8/e900", 10, 0},                    // truncated instruction
		{"5d498d62f8/", 10, 0},                        //
		{"5b498d62f8/c3", 10, 0},                      // pop %rbx
		{"5d498d62f8/c3", 13, 0},                      // another register
		{"5d488d65f8/c3", 10, 0},                      // lea -8(%rbp),%rsp
		{"5d498d6af8/c3", 10, 0},                      // lea -8(%r10),%rbp
		{"5d498d62f8/c3", 7, 0},                       // SP
		{"498d62f8/c3", 10, 0},                        // nothing before it
		{"/c3", 10, 0},                                //
	} {
		before, after, _ := strings.Cut(tt.code, "/")
		code := must.Get(hex.DecodeString(before + after))(t)
		const begin = 0x1000
		end := begin + uint64(len(code))
		first, last := amd64.Epilogue(code, begin, len(before)/2, tt.reg, func(pc uint64) bool {
			return begin < pc && pc < end+0x10
		})
		if last != tt.last || last > 0 && first != len(before)/2-4 || last == 0 && first != 0 {
			t.Errorf("%s: from %d to %d, want %d", tt.code, first, last, tt.last)
		}
	}
}
