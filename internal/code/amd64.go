package code

import "cfi2sframe/internal/insn"

// Registers of amd64, by their numbers in instructions. System V ABI for AMD64, 3.2: a call leaves the return address
// on top of the stack, and a function may change the scratch registers.
const (
	rax = iota
	rcx
	rdx
	rbx
	rsp
	rbp
	rsi
	rdi
	r8

	numRegs = 16
	scratch = 1<<rax | 1<<rcx | 1<<rdx | 1<<rsi | 1<<rdi | 0xf<<r8

	wordSize = 8
	atEntry  = -wordSize // of SP, from the CFA
	redZone  = 128       // bytes below SP that signals do not overwrite (3.2.2)
)

// dwarf has the DWARF numbers of registers (3.6.2).
var dwarf = [numRegs]uint64{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}

// holders are the registers that may hold the frame, the preferred ones first.
var holders = [numRegs]int{rsp, rbp, rbx, 12, 13, 14, 15, rax, rcx, rdx, rsi, rdi, 8, 9, 10, 11}

// loadsFP reports whether an instruction loads SP from FP.
func loadsFP(in *insn.Inst) bool {
	switch in.Op {
	case insn.Leave:
		return true
	case insn.Move:
		return in.Reg == rsp && in.Src == rbp
	case insn.Address:
		return in.Reg == rsp && in.Mem.Base == rbp && in.Mem.Index == insn.None
	}
	return false
}
