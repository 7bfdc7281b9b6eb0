package readers

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/op"

	"cfi2sframe/cfi"
)

// An abi holds what the documents of a processor fix, by DWARF register numbers. It is written down once more here, so that
// a mistake in the packages which write sections cannot hide.
type abi struct {
	name       string
	machine    elf.Machine
	order      binary.ByteOrder
	sp, fp, ra uint64
	pc         uint64 // the register that expressions find the pc in, or noReg
	fixedRA    int8   // where a call leaves the return address, in bytes from the CFA; 0: in ra
	caller     int64  // the caller's stack pointer, in bytes from the CFA
	saved      bool   // a rule for the stack pointer may say where it is saved: it is that of caller all the same
}

const noReg = ^uint64(0)

// System V ABI for AMD64; DWARF for the Arm 64-bit Architecture; zSeries ELF ABI supplement.
var abis = []abi{
	{name: "amd64", machine: elf.EM_X86_64, order: binary.LittleEndian, sp: 7, fp: 6, ra: noReg, pc: 16, fixedRA: -8},
	{name: "aarch64", machine: elf.EM_AARCH64, order: binary.LittleEndian, sp: 31, fp: 29, ra: 30, pc: 32},
	{name: "aarch64_be", machine: elf.EM_AARCH64, order: binary.BigEndian, sp: 31, fp: 29, ra: 30, pc: 32},
	{name: "s390x", machine: elf.EM_S390, order: binary.BigEndian, sp: 15, fp: 11, ra: 14, pc: noReg, caller: -160, saved: true},
}

// findABI returns what is known of the machine that a table is for.
func findABI(t *cfi.Table) (*abi, error) {
	for i := range abis {
		if a := &abis[i]; a.machine == t.Machine && a.order == t.Order {
			return a, nil
		}
	}
	return nil, fmt.Errorf("machine %v, %v is none that is known here", t.Machine, t.Order)
}

// A frame is what one step of a stack trace finds out.
type frame struct{ cfa, ra, fp, sp uint64 }

// differs says what is not the same in two frames, or "".
func (f frame) differs(g frame) string {
	switch {
	case f.cfa != g.cfa:
		return "CFA"
	case f.ra != g.ra:
		return "return address"
	case f.fp != g.fp:
		return "frame pointer"
	case f.sp != g.sp:
		return "stack pointer"
	}
	return ""
}

// scatter is the finalizer of MurmurHash3: numbers that differ make others that look arbitrary.
func scatter(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// reg and load are a machine of arbitrary registers and memory, always the same.
func reg(n uint64) uint64     { return scatter(n + 0x1f83d9abfb41bd6b) }
func load(addr uint64) uint64 { return scatter(addr*0x9e3779b97f4a7c15 + 0x5be0cd19137e2179) }

// truth evaluates rules of CFI at a pc, as a debugger would. An error says what cannot be.
func (a *abi) truth(r *cfi.Rules, pc uint64) (f frame, err error) {
	switch r.CFA.Rule {
	case cfi.RuleCFA:
		f.cfa = reg(r.CFA.Reg) + uint64(r.CFA.Offset)
	case cfi.RuleExpression:
		if f.cfa, err = a.run(r.CFA.Expression, pc); err != nil {
			return f, err
		}
	default:
		return f, errors.New("CFI gives no CFA")
	}
	if f.ra, err = a.value(&r.RA, pc, f.cfa, reg(r.RAReg)); err != nil {
		return f, fmt.Errorf("return address: %w", err)
	}
	if f.fp, err = a.value(&r.FP, pc, f.cfa, reg(a.fp)); err != nil {
		return f, fmt.Errorf("frame pointer: %w", err)
	}
	f.sp = f.cfa + uint64(a.caller)
	if r.SP.Rule != cfi.RuleArchitectural && !a.saved {
		if f.sp, err = a.value(&r.SP, pc, f.cfa, reg(a.sp)); err != nil {
			return f, fmt.Errorf("stack pointer: %w", err)
		}
	}
	return f, nil
}

// value is that of a register by its rule; same is the one it has.
func (a *abi) value(r *cfi.Rule, pc, cfa, same uint64) (uint64, error) {
	switch r.Rule {
	case cfi.RuleArchitectural, cfi.RuleSameVal:
		return same, nil
	case cfi.RuleOffset:
		return load(cfa + uint64(r.Offset)), nil
	case cfi.RuleValOffset:
		return cfa + uint64(r.Offset), nil
	case cfi.RuleRegister:
		return reg(r.Reg), nil
	case cfi.RuleExpression, cfi.RuleValExpression:
		// The CFA is on the stack when they begin.
		code := binary.LittleEndian.AppendUint64([]byte{byte(op.DW_OP_const8u)}, cfa)
		v, err := a.run(append(code, r.Expression...), pc)
		if r.Rule == cfi.RuleExpression {
			v = load(v)
		}
		return v, err
	}
	return 0, errors.New("CFI leaves it undefined")
}

// registers are as many as expressions name.
var registers = func() (regs []*op.DwarfRegister) {
	for n := range uint64(128) {
		regs = append(regs, op.DwarfRegisterFromUint64(reg(n)))
	}
	return regs
}()

// run runs an expression.
func (a *abi) run(code []byte, pc uint64) (uint64, error) {
	regs := slices.Clone(registers)
	if a.pc != noReg {
		regs[a.pc] = op.DwarfRegisterFromUint64(pc)
	}
	r := op.NewDwarfRegisters(0, regs, a.order, 0, 0, 0, 0)
	v, _, err := op.ExecuteStackProgram(*r, code, 8, func(b []byte, addr uint64) (int, error) {
		binary.LittleEndian.PutUint64(b, load(addr)) // delve takes the bytes so on all machines
		return len(b), nil
	})
	if err != nil {
		return 0, fmt.Errorf("expression % x: %w", code, err)
	}
	return uint64(v), nil
}
