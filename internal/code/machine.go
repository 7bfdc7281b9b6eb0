package code

import (
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/insn"
)

// A machine holds facts about an ABI. Registers are numbered as in instruction encodings.
type machine struct {
	decode     func(code []byte, pc uint64) (insn.Inst, bool)
	dwarf      []uint64 // DWARF numbers of the registers
	sp, fp     insn.Reg
	ra         insn.Reg   // register with the return address after a call; None if it is on the stack
	scratch    uint32     // caller-saved registers
	holders    []insn.Reg // registers that may locate the frame, in order of preference
	atEntry    int32      // SP - CFA at function entry in bytes
	redZone    int32      // number of bytes below SP that signals do not overwrite
	entry      state      // state at function entry
	back       value      // the return address
	convention effect     // of functions that obey the ABI
	align      int        // of instructions in bytes
	number     insn.Reg   // register with the number of a system call
	leaving    []int32    // numbers of system calls that do not return
	spawns     []int32    // numbers of system calls whose child returns with another stack
}

// maxRegs is the maximum number of registers of a machine.
const maxRegs = 32

// wordSize is the size of registers and addresses in bytes.
const wordSize = 8

func newMachine(m machine) *machine {
	m.entry.machine = &m
	m.convention.lost = m.scratch
	for i := range m.dwarf {
		m.entry.reg[i] = value{kind: entryValue, reg: uint8(i)}
	}
	m.entry.reg[m.sp] = value{kind: frame, off: m.atEntry}
	if m.back = (value{kind: entryValue, reg: uint8(m.ra)}); m.ra == insn.None {
		m.back.reg = uint8(len(m.dwarf))
		m.entry.slots = []slot{{m.entry.reg[m.sp], m.back}}
	}
	return &m
}

// machines holds nil for a machine whose code is not analysed.
var machines = arch.PerMachine(amd64, aarch64, nil)

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
