package gopclntab

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/arch/x86/x86asm"
)

// TestDecodeAMD64 compares what is known of random instructions with another decoder.
func TestDecodeAMD64(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	known := 0
	for range 200_000 {
		b := make([]byte, 15)
		for i := range b {
			b[i] = byte(r.Uint32() & r.Uint32() & r.Uint32()) // small numbers: SP and FP are frequent
		}
		b[0] = byte(r.Uint32())
		if opcode := byte(r.Uint32()); r.IntN(2) == 0 {
			b[r.IntN(2)], b[2], b[3] = byte([]int{0x0f, 0x48, 0x4c, 0x66}[r.IntN(4)]), opcode, byte(r.Uint32())
		}
		in := decodeAMD64(b)
		want, err := x86asm.Decode(b, 64)
		if in.size == 0 || err != nil || want.Op == 0 { // the latter is an opcode without an instruction
			continue
		}
		known++
		to, from := want.Args[0], want.Args[1]
		rel, jumps := to.(x86asm.Rel)
		wantIn := instruction{
			size: want.Len, jumps: jumps && want.Op != x86asm.CALL,
			ends:   slices.Contains([]x86asm.Op{x86asm.RET, x86asm.UD2, x86asm.HLT, x86asm.INT, x86asm.JMP}, want.Op),
			popsFP: want.Op == x86asm.POP && (to == x86asm.RBP || to == x86asm.BP),
			clearsFP: want.Op == x86asm.MOV && (to == x86asm.RBP || to == x86asm.EBP) && from == x86asm.Imm(0) ||
				want.Op == x86asm.XOR && (to == x86asm.RBP || to == x86asm.EBP) && to == from,
			loadsSP: want.Op == x86asm.MOV && slices.Contains([]x86asm.Arg{x86asm.RSP, x86asm.ESP, x86asm.SP}, to),
		}
		if wantIn.jumps {
			wantIn.jump = int32(rel)
		}
		wantIn.writesFP = in.writesFP // also of some that only read it
		if in != wantIn || writesFP(want) && !in.writesFP {
			t.Fatalf("% x: %+v; want %v, %+v", b, in, want, wantIn)
		}
	}
	if known < 60_000 {
		t.Errorf("%d instructions are known; want more", known)
	}
}

func isFP(a x86asm.Arg) bool {
	return slices.Contains([]x86asm.Arg{x86asm.RBP, x86asm.EBP, x86asm.BP, x86asm.BPB}, a)
}

// writesFP reports whether the first operand, which instructions write, is the frame pointer, or both are exchanged.
func writesFP(in x86asm.Inst) bool {
	switch in.Op {
	case x86asm.PUSH, x86asm.CMP, x86asm.TEST, x86asm.JMP, x86asm.CALL, x86asm.MUL, x86asm.DIV, x86asm.IDIV:
		return false
	case x86asm.LEAVE:
		return true
	case x86asm.XCHG, x86asm.XADD:
		return isFP(in.Args[0]) || isFP(in.Args[1])
	}
	return isFP(in.Args[0])
}
