package verify

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/arch/x86/x86asm"
)

// TestAMD64 decodes random instructions, and compares the results with those of the decoder in golang.org/x/arch.
func TestAMD64(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	known := 0
	for range 200_000 {
		b := make([]byte, 15)
		for i := range b {
			b[i] = byte(r.Uint32() & r.Uint32()) // mostly small numbers, so that SP and FP are common
		}
		switch b[0] = byte(r.Uint32()); r.IntN(4) {
		case 0:
			b[0], b[1] = 0x0f, byte(r.Uint32())
		case 1:
			b[0], b[1] = []byte{0x48, 0x41, 0x44, 0x66, 0xf3}[r.IntN(5)], byte(r.Uint32())
		}
		in, ok := decodeAMD64(b)
		want, err := x86asm.Decode(b, 64)
		if err != nil || want.Op == 0 { // Op is 0 if the opcode has no instruction
			continue
		}
		if !ok {
			if want.Op != x86asm.MOV && want.DataSize != 16 && b[0] != 0x62 { // control registers, jumps, EVEX
				t.Fatalf("% x: %v is unknown", b, want)
			}
			continue
		}
		known++
		if in.size != want.Len {
			t.Fatalf("% x: %d bytes; want %v, %d bytes", b, in.size, want, want.Len)
		}
		if nop := want.Op == x86asm.NOP || want.Op == x86asm.XCHG && b[want.Len-1] == 0x90 && in.rm == 0; in.isNop() &&
			!nop {
			t.Fatalf("% x: %v is not a no-op", b, want)
		}
		if e := stackAMD64(b); e != wantEffect(want, e) {
			t.Fatalf("% x: %v: %+v; want %+v", b, want, e, wantEffect(want, e))
		}
	}
	if known < 60_000 {
		t.Errorf("only %d instructions are known to both decoders", known)
	}
}

// wantEffect returns e with the values that the other decoder implies. It cannot require pushesFP, because push has a
// second encoding.
func wantEffect(in x86asm.Inst, e stackEffect) stackEffect {
	to, from := in.Args[0], in.Args[1]
	rel, isRel := to.(x86asm.Rel)
	mem, isMem := from.(x86asm.Mem)
	e.size, e.jumps = in.Len, isRel && in.Op != x86asm.CALL
	e.ends = slices.Contains([]x86asm.Op{x86asm.RET, x86asm.JMP, x86asm.INT, x86asm.UD2, x86asm.HLT}, in.Op)
	if e.jumps {
		e.skip = int64(rel)
	}
	system, _ := from.(x86asm.Reg)
	mov := in.Op == x86asm.MOV && system < x86asm.ES // not from a segment or control register
	e.pushesFP = e.pushesFP && in.Op == x86asm.PUSH && to == x86asm.RBP
	e.popsFP = in.Op == x86asm.POP && to == x86asm.RBP
	e.copiesSP = mov && to == x86asm.RBP && from == x86asm.RSP
	fp := to == x86asm.RBP || to == x86asm.EBP
	e.clearsFP = fp && (mov && from == x86asm.Imm(0) || in.Op == x86asm.XOR && to == from)
	e.loadsSP = mov && (to == x86asm.RSP || to == x86asm.ESP || to == x86asm.SP)
	e.fromMemory = e.loadsSP && isMem && (mem.Base != x86asm.RSP || mem.Index != 0)
	_, isImm := from.(x86asm.Imm)
	e.alignsSP = in.Op == x86asm.AND && isImm && (to == x86asm.RSP || to == x86asm.ESP || to == x86asm.SP)
	return e
}
