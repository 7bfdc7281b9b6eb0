package cfi

import (
	"debug/elf"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/internal/arch"
)

// Inferred is the section name of functions whose rows are inferred from their instructions.
const Inferred = "instructions"

// An Inference holds rows for code without CFI.
type Inference struct {
	Functions []InferredFunction // sorted by address; they overlap neither each other nor functions of the table
	// Jumps maps the address of an indirect jump in Functions to its targets. A jump that is missing here leaves its
	// function: it is a tail call.
	Jumps map[uint64][]uint64
	// NoReturn holds the addresses of calls and system calls that do not return.
	NoReturn map[uint64]bool
	// From maps the start of code to which other code with rows jumps, such as a linker's veneer, to the address of one
	// such jump. The row at the start is that of the table at the jump.
	From map[uint64]uint64
}

// An InferredFunction is contiguous code whose rows are inferred from its instructions.
type InferredFunction struct {
	Begin, End uint64 // addresses; End is exclusive
	// Component identifies a set of functions connected by jumps. Either all of them have rows, or none.
	Component int
	Rows      []InferredRow // the first has Off 0
}

// An InferredRow describes the frame from an instruction to the next row. Registers are DWARF numbers.
type InferredRow struct {
	Off    uint32 // from the start of the function in bytes; ascending
	Offset int32  // the CFA is Reg + Offset, in bytes
	// FP is the offset of the saved frame pointer from the CFA in bytes. If it is 0, the frame pointer is in its
	// register, unless Lost is set.
	FP int32
	// On machines whose calls leave the return address in a register, RA is the offset of its save slot from the CFA in
	// bytes, or 0 if it is in register RAReg. Kept is set if the return address is saved but is also still in the link
	// register. Signed is set if the return address is signed with the CFA as the modifier.
	RA           int32
	Reg, RAReg   uint8
	Lost         bool
	Kept, Signed bool
	Outermost    bool // there is no caller: the return address is undefined
}

// A Refusal is code whose rows cannot be inferred.
type Refusal struct {
	Begin, End uint64 // addresses; End is exclusive
	Reason     string // as named in reports
}

// Infer adds the functions of an Inference to the table.
func (t *Table) Infer(inf *Inference) {
	fns := inf.Functions
	a := arch.Of(t.Machine)
	regs := registers{sp: a.SP, fp: a.FP, raState: a.RAState}
	s := &section{name: Inferred, order: t.Order, programs: t.programs, regs: regs}
	d := &cie{sec: s, number: t.exec.cies, codeAlign: 1, dataAlign: 1, raReg: a.RA, initial: noState}
	t.exec.cies++
	d.initial.raReg = a.RA
	d.initial.cfa = rule{kind: RuleCFA, reg: a.SP, offset: int64(a.EntryCFA)}
	if a.FixedRA != 0 {
		d.initial.ra = rule{kind: RuleOffset, offset: a.FixedRA}
	}
	added := make([]Function, 0, len(fns))
	for i := range fns {
		begin := uint32(len(s.data))
		s.infer(a, &fns[i])
		limit := uint32(len(s.data))
		added = append(added, Function{Begin: fns[i].Begin, End: fns[i].End, code: begin, limit: limit, cie: d})
	}
	x := t.exec
	x.grow(max(1<<bits.Len(uint(len(added)/2)), len(x.slots)))
	for part := range slices.Chunk(added, batch) {
		x.addPrograms(part)
	}
	t.programs.rules = x.numbering.rules
	t.functions = t.fill(t.functions, added)
	t.Sources = append(t.Sources, SourceInfo{s.name, 0, len(added)})
}

// Inferred reports whether the rows of the function are inferred from its instructions.
func (fn *Function) Inferred() bool { return fn.cie.sec.name == Inferred }

// infer appends the CFI instructions for a function whose rows are inferred.
func (s *section) infer(a *arch.Arch, fn *InferredFunction) {
	at, signed := uint32(0), false
	for _, r := range fn.Rows {
		if r.Off > at {
			s.data = s.order.(binary.AppendByteOrder).AppendUint32(append(s.data, frame.DW_CFA_advance_loc4), r.Off-at)
			at = r.Off
		}
		s.data = binary.AppendUvarint(append(s.data, frame.DW_CFA_def_cfa, r.Reg), uint64(r.Offset))
		if r.Lost {
			s.data = append(s.data, frame.DW_CFA_undefined, byte(a.FP))
		} else {
			s.appendSave(a.FP, int64(r.FP))
		}
		switch {
		case r.Outermost:
			s.data = append(s.data, frame.DW_CFA_undefined, byte(a.RA))
		case a.FixedRA != 0:
		case r.RA == 0 && uint64(r.RAReg) != a.RA:
			s.data = append(s.data, frame.DW_CFA_register, byte(a.RA), r.RAReg)
		default:
			s.appendSave(a.RA, int64(r.RA))
		}
		if r.Signed != signed {
			s.data = append(s.data, cfaAArch64NegateRAState)
			signed = r.Signed
		}
	}
}

// appendSave appends the instruction for a register that is saved at an offset from the CFA, or unchanged if the
// offset is 0.
func (s *section) appendSave(reg uint64, offset int64) {
	if offset == 0 {
		s.data = append(s.data, frame.DW_CFA_restore|byte(reg))
		return
	}
	s.data = append(s.data, cfaGNUNegativeOffsetExtended, byte(reg))
	s.data = binary.AppendUvarint(s.data, uint64(-offset))
}

// InferredFrom returns the inferred row that is equal to a row of the table, and whether there is one.
func InferredFrom(m elf.Machine, r *Rules) (row InferredRow, ok bool) {
	a := arch.Of(m)
	at := func(r *Rule) (int32, bool) {
		kept := r.Rule == RuleArchitectural || r.Rule == RuleSameVal
		saved := r.Rule == RuleOffset && r.Offset != 0 && r.Offset == int64(int32(r.Offset))
		return int32(r.Offset), kept && r.Offset == 0 || saved
	}
	if r.CFA.Rule != RuleCFA || r.CFA.Offset != int64(int32(r.CFA.Offset)) || r.CFA.Reg > 255 || r.Sign > Signed {
		return row, false
	}
	row.Reg, row.Offset, row.Signed = uint8(r.CFA.Reg), int32(r.CFA.Offset), r.Sign == Signed
	if row.FP, ok = at(&r.FP); !ok {
		return row, false
	}
	switch {
	case a.FixedRA != 0:
		return row, r.RA.Rule == RuleOffset && r.RA.Offset == a.FixedRA
	case r.RA.Rule == RuleRegister && r.RA.Reg < 256:
		row.RAReg = uint8(r.RA.Reg)
		return row, true
	}
	row.RAReg = uint8(a.RA)
	row.RA, ok = at(&r.RA)
	return row, ok
}
