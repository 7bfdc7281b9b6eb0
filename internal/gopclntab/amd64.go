package gopclntab

import "cfi2sframe/internal/insn"

// Register numbers as encoded in amd64 instructions.
const (
	numberSP = 4
	numberFP = 5
)

// mayJump reports whether the instruction may jump to its target.
func mayJump(in *insn.Inst) bool { return in.Op == insn.Jump || in.Op == insn.Branch }

// clearsFP reports whether the instruction sets the frame pointer to 0.
func clearsFP(in *insn.Inst) bool { return in.Op == insn.Const && in.Reg == numberFP && in.Imm == 0 }

// popsFP reports whether the instruction pops the frame pointer.
func popsFP(in *insn.Inst) bool { return in.Op == insn.Pop && in.Reg == numberFP }

// writesFP reports whether the instruction changes the frame pointer.
func writesFP(in *insn.Inst) bool {
	return in.Reg == numberFP && in.Op != insn.CallReg || in.Op == insn.Swap && in.Src == numberFP ||
		in.Op == insn.Leave || in.Writes>>numberFP&1 != 0
}

// loadsSP reports whether the instruction sets the stack pointer to a value that is not SP plus a constant.
func loadsSP(in *insn.Inst) bool {
	switch in.Op {
	case insn.Move, insn.Load, insn.Const:
		return in.Reg == numberSP
	}
	return false
}
