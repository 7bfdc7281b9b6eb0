package verify

import (
	"math/rand/v2"
	"testing"
)

// TestFrequent compares what is known of frequent instructions with what the decoder says, for random
// operands.
func TestFrequent(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, code := range [][]byte{{0x90}, {0x66, 0x90}, {0xcc}, {0x68}, {0xe9}, {0xff, 0x25}} {
		for range 1000 {
			b := make([]byte, 8)
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			copy(b, code)
			pc := r.Uint64()
			got, ok := frequentAMD64(b, pc)
			want, err := anyAMD64(b, pc)
			if !ok || err != nil || got != want {
				t.Fatalf("% x at %#x: %+v, %t; the decoder says %+v, error %v", b, pc, got, ok, want, err)
			}
		}
	}
	for range 100000 {
		b := make([]byte, r.IntN(8))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if got, ok := frequentAMD64(b, 0); ok {
			if want, err := anyAMD64(b, 0); err != nil || got != want {
				t.Fatalf("% x: %+v; the decoder says %+v, error %v", b, got, want, err)
			}
		}
	}
}

// TestInstructions decodes instructions of PLT stubs, and others that do something to the registers
// that a stack trace needs.
func TestInstructions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		decode func([]byte, uint64) (effect, error)
		code   []byte
		want   effect // of no size for an error
	}{
		{"push $n", decodeAMD64, []byte{0x68, 1, 0, 0, 0, 0}, effect{size: 5, push: 8}},
		{"push $n, 16 bits", decodeAMD64, []byte{0x66, 0x68, 1, 0, 0, 0}, effect{}},
		{"push %ax", decodeAMD64, []byte{0x66, 0x50}, effect{}},
		{"push x(%rip)", decodeAMD64, []byte{0xff, 0x35, 0, 0, 0, 0}, effect{size: 6, push: 8}},
		{"push %r11", decodeAMD64, []byte{0x41, 0x53}, effect{size: 2, push: 8}},
		{"pop %r11", decodeAMD64, []byte{0x41, 0x5b}, effect{}},
		{"int3", decodeAMD64, []byte{0xcc}, effect{size: 1, pad: true, ends: true}},
		{"int $0x80", decodeAMD64, []byte{0xcd, 0x80}, effect{}},
		{"bnd jmp x", decodeAMD64, []byte{0xf2, 0xe9, 10, 0, 0, 0}, effect{size: 6, ends: true, target: 0x1010}},
		{"jmp x, short", decodeAMD64, []byte{0xeb, 0xfe}, effect{size: 2, ends: true, target: 0x1000}},
		{"jmp x, 16 bits", decodeAMD64, []byte{0x66, 0xe9, 0, 0, 0, 0}, effect{}},
		{"je x", decodeAMD64, []byte{0x74, 0}, effect{}},
		{"mov $n,%r11d", decodeAMD64, []byte{0x41, 0xbb, 0, 0, 0, 0}, effect{size: 6}},
		{"mov $n,%ebp", decodeAMD64, []byte{0xbd, 0, 0, 0, 0}, effect{}},
		{"endbr64", decodeAMD64, []byte{0xf3, 0x0f, 0x1e, 0xfa}, effect{size: 4}},

		{"stp x16,x30,[sp,#-16]!", decodeAArch64, []byte{0xf0, 0x7b, 0xbf, 0xa9}, effect{size: 4, push: 16, saveRA: 8}},
		{"stp x2,x3,[sp,#-16]!", decodeAArch64, []byte{0xe2, 0x0f, 0xbf, 0xa9}, effect{size: 4, push: 16}},
		{"stp x16,x30,[sp,#-32]!", decodeAArch64, []byte{0xf0, 0x7b, 0xbe, 0xa9}, effect{}},
		{"adrp x16,x", decodeAArch64, []byte{0x10, 0, 0, 0x90}, effect{size: 4}},
		{"adrp x30,x", decodeAArch64, []byte{0x1e, 0, 0, 0x90}, effect{}},
		{"add x16,x16,#0", decodeAArch64, []byte{0x10, 2, 0, 0x91}, effect{size: 4}},
		{"add sp,sp,#16", decodeAArch64, []byte{0xff, 0x43, 0, 0x91}, effect{}},
		{"add x29,sp,#0", decodeAArch64, []byte{0xfd, 3, 0, 0x91}, effect{}},
		{"ldr x17,[x16]", decodeAArch64, []byte{0x11, 2, 0x40, 0xf9}, effect{size: 4}},
		{"ldr x30,[x16]", decodeAArch64, []byte{0x1e, 2, 0x40, 0xf9}, effect{}},
		{"ldr x17,[sp],#16", decodeAArch64, []byte{0xf1, 0x07, 0x41, 0xf8}, effect{}},
		{"paciasp", decodeAArch64, []byte{0x3f, 0x23, 0x03, 0xd5}, effect{}},
		{"autia1716", decodeAArch64, []byte{0x9f, 0x21, 0x03, 0xd5}, effect{size: 4}},
		{"bti c", decodeAArch64, []byte{0x5f, 0x24, 0x03, 0xd5}, effect{size: 4}},
		{"nop", decodeAArch64, []byte{0x1f, 0x20, 0x03, 0xd5}, effect{size: 4, pad: true}},
		{"brk #0", decodeAArch64, []byte{0, 0, 0x20, 0xd4}, effect{size: 4, pad: true, ends: true}},
		{"br x17", decodeAArch64, []byte{0x20, 2, 0x1f, 0xd6}, effect{size: 4, ends: true}},
		{"blr x17", decodeAArch64, []byte{0x20, 2, 0x3f, 0xd6}, effect{}},

		{"br %r1", decodeS390X, []byte{0x07, 0xf1}, effect{size: 2, ends: true}},
		{"nopr", decodeS390X, []byte{0x07, 0}, effect{size: 2, pad: true}},
		{"basr %r14,%r1", decodeS390X, []byte{0x0d, 0xe1}, effect{}},
		{"lg %r1,0(%r1)", decodeS390X, []byte{0xe3, 0x10, 0x10, 0, 0, 0x04}, effect{size: 6}},
		{"lg %r15,0(%r1)", decodeS390X, []byte{0xe3, 0xf0, 0x10, 0, 0, 0x04}, effect{}},
		{"lay %r15,-16(%r15)", decodeS390X, []byte{0xe3, 0xf0, 0xff, 0xf0, 0xff, 0x71}, effect{}},
	} {
		got, err := tt.decode(append(tt.code, 0, 0, 0, 0, 0, 0, 0, 0)[:max(len(tt.code), 6)], 0x1000)
		if (err != nil) != (tt.want.size == 0) || err == nil && got != tt.want {
			t.Errorf("%s: %+v, error %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}
