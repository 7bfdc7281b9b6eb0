package code

import (
	"debug/elf"

	"cfi2sframe/internal/insn"
)

// A machine has the facts of an ABI. Registers have their numbers in instructions.
type machine struct {
	decode  func(code []byte, pc uint64) (insn.Inst, bool)
	dwarf   []uint64 // the DWARF numbers of the registers
	sp, fp  int
	ra      int    // the register that a call leaves the return address in; None if it is on the stack
	scratch uint32 // registers that functions may change
	holders []int  // registers that may hold the frame, the preferred ones first
	atEntry int32  // SP from the CFA, in bytes
	redZone int32  // bytes below SP that signals do not overwrite
	entry   state  // at the entry of a function
}

// maxRegs is the largest number of registers of a machine.
const maxRegs = 16

// wordSize is the size of registers and addresses in bytes.
const wordSize = 8

func newMachine(m machine) *machine {
	m.entry.machine = &m
	for i := range m.dwarf {
		m.entry.reg[i] = value{kind: entryValue, reg: uint8(i)}
	}
	m.entry.reg[m.sp] = value{kind: frame, off: m.atEntry}
	return &m
}

func machineOf(m elf.Machine) *machine {
	switch m {
	case elf.EM_X86_64:
		return amd64
	}
	return nil
}

// loadsFP reports whether an instruction loads SP from FP.
func (m *machine) loadsFP(in *insn.Inst) bool {
	switch in.Op {
	case insn.Leave:
		return true
	case insn.Move:
		return in.Reg == m.sp && in.Src == m.fp
	case insn.Address:
		return in.Reg == m.sp && in.Mem.Base == m.fp && in.Mem.Index == insn.None
	}
	return false
}
