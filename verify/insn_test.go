package verify

import (
	"debug/elf"
	"testing"

	"cfi2sframe/internal/insn"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/peer"
)

// TestDecoders compares the decoder with that of package insn, whose tests compare it with objdump: sizes, jump targets
// and written registers of all instructions of libc.
func TestDecoders(t *testing.T) {
	f := must.Get(elf.Open(peer.File(t, "/lib/x86_64-linux-gnu/libc.so.6")))(t)
	defer f.Close()
	compared, unknown, wrong := 0, 0, 0
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR == 0 {
			continue
		}
		code := must.Get(s.Data())(t)
		for at := 0; at < len(code); {
			pc := s.Addr + uint64(at)
			want, known := insn.DecodeAMD64(code[at:], pc)
			if !known {
				at++
				continue
			}
			in, ok := decodeAMD64(code[at:])
			got, least := in.written(), writtenBy(&want)
			most := least | 1<<rax | 1<<rcx | 1<<rdx | 1<<rbx // opcodes without operands may also write these
			switch {
			case !ok:
				unknown++
			case in.size != want.Size || want.Target != 0 && in.target(pc) != want.Target || got&least != least ||
				got|most != most:
				if wrong++; wrong < 20 {
					t.Errorf("%#x: % x: %+v, target %#x, writes %#x; want %+v, writes %#x", pc, code[at:][:want.Size],
						in, in.target(pc), got, want, least)
				}
			}
			compared++
			at += want.Size
		}
	}
	t.Logf("%d instructions, %d unknown, %d wrong", compared, unknown, wrong)
	if compared < 100_000 || unknown > compared/1000 {
		t.Errorf("%d instructions compared, %d unknown", compared, unknown)
	}
}

// writtenBy returns the bit set of the general registers that an instruction writes.
func writtenBy(in *insn.Inst) (mask uint32) {
	mask = in.Writes
	switch in.Op {
	case insn.Push, insn.PushMem, insn.PopMem, insn.Call, insn.CallReg, insn.CallMem, insn.Return:
		return mask | 1<<rsp
	case insn.Leave:
		return mask | 1<<rsp | 1<<rbp
	case insn.JumpReg:
		return mask
	case insn.Swap:
		mask |= 1 << in.Src
	case insn.Pop:
		mask |= 1 << rsp
	}
	if in.Reg != insn.None {
		mask |= 1 << in.Reg
	}
	return mask
}
