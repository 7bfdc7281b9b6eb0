package gopclntab

import "cfi2sframe/internal/insn"

// Numbers of registers in instructions of amd64.
const (
	numberSP = 4
	numberFP = 5
)

// jumps reports whether control can go to the instruction's target.
func jumps(in *insn.Inst) bool { return in.Op == insn.Jump || in.Op == insn.Branch }

// clearsFP reports whether the frame pointer becomes 0.
func clearsFP(in *insn.Inst) bool { return in.Op == insn.Const && in.Reg == numberFP && in.Imm == 0 }

// popsFP reports whether the frame pointer is popped.
func popsFP(in *insn.Inst) bool { return in.Op == insn.Pop && in.Reg == numberFP }

// writesFP reports whether the frame pointer changes.
func writesFP(in *insn.Inst) bool {
	switch in.Op {
	case insn.Move, insn.Add, insn.AddReg, insn.SubReg, insn.And, insn.Const, insn.Address, insn.Load, insn.Extend,
		insn.Short, insn.Pop:
		return in.Reg == numberFP
	case insn.Swap:
		return in.Reg == numberFP || in.Src == numberFP
	case insn.Leave:
		return true
	}
	return in.Writes>>numberFP&1 != 0
}

// loadsSP reports whether the stack pointer gets another value than a sum of it and a number.
func loadsSP(in *insn.Inst) bool {
	switch in.Op {
	case insn.Move, insn.Load, insn.Const:
		return in.Reg == numberSP
	}
	return false
}
