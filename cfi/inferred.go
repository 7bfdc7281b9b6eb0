package cfi

import (
	"debug/elf"

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
	a := arch.Of(t.Machine)
	d := &cie{sec: &section{name: Inferred, programs: t.programs}}
	b := newBuilder(t.exec, func(r InferredRow) state { return r.rules(a) })
	added := make([]Function, 0, len(inf.Functions))
	for i := range inf.Functions {
		fn := &inf.Functions[i]
		for _, r := range fn.Rows {
			off := r.Off
			r.Off = 0
			b.row(off, r)
		}
		added = append(added, b.function(fn.Begin, fn.End, 0, d))
	}
	t.programs.rules = t.exec.numbering.rules
	t.functions = t.fill(t.functions, added)
	t.Sources = append(t.Sources, SourceInfo{d.sec.name, 0, len(added)})
}

// Inferred reports whether the rows of the function are inferred from its instructions.
func (fn *Function) Inferred() bool { return fn.cie.sec.name == Inferred }

// rules returns the rules of an inferred row.
func (r *InferredRow) rules(a *arch.Arch) state {
	s := entry(a)
	s.cfa = rule{kind: RuleCFA, reg: uint64(r.Reg), offset: int64(r.Offset)}
	if r.Lost {
		s.fp = rule{kind: RuleUndefined}
	} else if r.FP != 0 {
		s.fp = saved(int64(r.FP))
	}
	switch {
	case r.Outermost:
		s.ra = rule{kind: RuleUndefined}
	case a.FixedRA != 0:
	case r.RA != 0:
		s.ra = saved(int64(r.RA))
	case uint64(r.RAReg) != a.RA:
		s.ra = rule{kind: RuleRegister, reg: uint64(r.RAReg)}
	}
	if r.Signed {
		s.sign = Signed
	}
	return s
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
