package insn

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestDecodeAMD64 checks what the comparisons with objdump do not: the number of bytes stored, the values pushed, and
// instructions that are unknown on purpose or truncated.
func TestDecodeAMD64(t *testing.T) {
	const pc = 0x1000
	mem := func(base Reg, disp int64) Mem { return Mem{Base: base, Index: None, Disp: disp} }
	for _, tt := range []struct {
		code, text string
		stores     int32
		mem        Mem
	}{
		{"895df8", "mov %ebx,-8(%rbp)", 4, mem(rbp, -8)},
		{"0f1105f9ff0f00", "movups %xmm0,0xffff9(%rip)", 16,
			Mem{Base: None, Index: None, Disp: pc + 7 + 0xffff9, Relative: true}},
		{"c5fe7f4424e0", "vmovdqu %ymm0,-32(%rsp)", 32, Mem{Base: rsp, Index: None, Scale: 1, Disp: -32}},
		{"62f17f487f45ff", "vmovdqu8 %zmm0,-64(%rbp)", 64, Mem{Base: rbp, Index: None, Disp: -1, Vague: true}},
		{"62f1fe487f45ff", "vmovdqu64 %zmm0,-64(%rbp)", 64, Mem{Base: rbp, Index: None, Disp: -1, Vague: true}},
		{"62f1fd487f45ff", "vmovdqa64 %zmm0,-64(%rbp)", 64, mem(rbp, -64)},
	} {
		want := Inst{Size: len(tt.code) / 2, Reg: None, Src: None, Pair: None, Stores: tt.stores, Mem: tt.mem}
		got, ok := DecodeAMD64(must.Get(hex.DecodeString(tt.code))(t), pc)
		if got.Imm = 0; !ok || got != want {
			t.Errorf("%s, %s:\n%+v; want\n%+v", tt.code, tt.text, got, want)
		}
	}
	if in, ok := DecodeAMD64([]byte{0x6a, 8}, pc); !ok || in.Op != Push || in.Src != None || in.Imm != 8 {
		t.Errorf("push $8: %+v, %t", in, ok)
	}
	nop := append(bytes.Repeat([]byte{0x66}, longest-1), 0x90)
	if in, ok := DecodeAMD64(nop, pc); !ok || in.Op != Nop || in.Size != longest || in.Writes != 0 {
		t.Errorf("nop of 15 bytes: %+v, %t", in, ok)
	}
	if in, ok := DecodeAMD64([]byte{0xcd, 3}, pc); !ok || in.Op != Trap || in.Writes != 0 {
		t.Errorf("int $3: %+v, %t", in, ok)
	}
	if in, ok := DecodeAMD64([]byte{0xc2, 8, 0}, pc); !ok || in.Op != Return || in.Mem.Step != 8 {
		t.Errorf("ret $8: %+v, %t", in, ok)
	}
	for code, text := range map[string]string{
		"665d": "pop %bp", "66e900000000": "jmp with a prefix that processors disagree about",
		"c8100000": "enter $16,$0", "d5004889e5": "REX2", "06": "undefined", "0f04": "undefined",
		"660fff00": "undefined", "f30f3800c0": "undefined with this prefix", "": "nothing", "48": "a part",
		"488b": "a part", "e8000000": "a part", "66666666666666666666666666666690": "16 bytes",
	} {
		if in, ok := DecodeAMD64(must.Get(hex.DecodeString(code))(t), pc); ok {
			t.Errorf("%s, %s: %+v", code, text, in)
		}
	}
}

// TestPrefixesAMD64 decodes each opcode of each map after up to 14 prefixes, with the longest operands. Instructions of
// more than 15 bytes are not known.
func TestPrefixesAMD64(t *testing.T) {
	maps := []string{"", "0f", "0f38", "0f3a", "48", "480f", "480f38", "c5f8", "c4e1f8", "c4e2f8", "62f17c48", "8fe878"}
	for _, start := range maps {
		for opcode := range 256 {
			for _, mod := range []string{"8484", "0425", "4484", "c0"} {
				for prefixes := range longest {
					b := bytes.Repeat([]byte{0x2e}, prefixes)
					b = append(append(b, must.Get(hex.DecodeString(start))(t)...), byte(opcode))
					b = append(b, must.Get(hex.DecodeString(mod))(t)...)
					for _, rest := range []int{0, 5, 8, 40} {
						in, ok := DecodeAMD64(append(slices.Clip(b), make([]byte, rest)...), 0)
						if ok && in.Size > longest {
							t.Fatalf("% x: %+v", b, in)
						}
					}
				}
			}
		}
	}
}

// FuzzDecodeAMD64 decodes each instruction by itself, and again with other bytes after it.
func FuzzDecodeAMD64(f *testing.F) {
	for _, s := range []string{"4883ec18", "62f1fe487f45ff", "c4e2fbf6da", "8fe97801c9", "0f8400000000",
		"660f3a0fc108"} {
		b := must.Get(hex.DecodeString(s))(f)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in, ok := DecodeAMD64(b, 0)
		if !ok {
			return
		}
		if in.Size < 1 || in.Size > min(longest, len(b)) {
			t.Fatalf("% x has %d bytes", b, in.Size)
		}
		if in.Reg < None || in.Reg > 15 || in.Src < None || in.Src > 15 || in.Writes>>16 != 0 {
			t.Fatalf("% x: %+v", b, in)
		}
		code := b[:in.Size:in.Size]
		for _, rest := range []string{"", "\x00\x00", "\xff\xff\xff"} {
			if again, ok := DecodeAMD64(append(code, rest...), 0); !ok || again != in {
				t.Fatalf("% x: %+v; before % x %+v", code, in, rest, again)
			}
		}
		if _, ok := DecodeAMD64(code[:in.Size-1], 0); ok {
			t.Fatalf("% x is known without its last byte", code)
		}
	})
}
