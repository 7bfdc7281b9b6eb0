package cfi

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/internal/arch"
)

// Inferred is the name of the section of functions whose rows come from their instructions.
const Inferred = "instructions"

// An Inference has rows for code without CFI.
type Inference struct {
	Functions []InferredFunction // sorted by address, disjoint, and without overlap with functions of the table
	// Jumps has the targets of the indirect jumps in them, by the address of the jump. One that is not here leaves its
	// function, as a tail call.
	Jumps map[uint64][]uint64
}

// An InferredFunction is contiguous code whose rows are known from its instructions.
type InferredFunction struct {
	Begin, End uint64 // addresses, End excluded
	// Component is a number. Functions with the same one are connected by jumps: either all of them have rows, or none.
	Component int
	Rows      []InferredRow // the first one has Off 0
}

// An InferredRow says where the frame is from an instruction on. Registers are DWARF numbers.
type InferredRow struct {
	Off    uint32 // from the start of the function, in bytes; ascending
	Reg    uint64 // the CFA is this register
	Offset int64  // plus this, in bytes
	// FP is where the caller's frame pointer is saved, from the CFA in bytes. If it is 0, the register has it, unless
	// Lost is set.
	FP   int64
	Lost bool
}

// A Refusal is code for which no rows can be inferred.
type Refusal struct {
	Begin, End uint64 // addresses, End excluded
	Reason     string // its name in reports
}

// Infer adds functions to the table.
func (t *Table) Infer(inf *Inference) {
	fns := inf.Functions
	a := arch.Of(t.Machine)
	s := &section{name: Inferred, order: t.Order, programs: t.programs, regs: registers{sp: a.SP, fp: a.FP, raState: a.RAState}}
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
		added = append(added, Function{Begin: fns[i].Begin, End: fns[i].End, code: begin, limit: uint32(len(s.data)), cie: d})
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

// Inferred reports whether the rows of the function come from its instructions.
func (fn *Function) Inferred() bool { return fn.cie.sec.name == Inferred }

// infer appends the instructions for a function.
func (s *section) infer(a *arch.Arch, fn *InferredFunction) {
	at := uint32(0)
	for _, r := range fn.Rows {
		if r.Off > at {
			s.data = s.order.(binary.AppendByteOrder).AppendUint32(append(s.data, frame.DW_CFA_advance_loc4), r.Off-at)
			at = r.Off
		}
		s.data = binary.AppendUvarint(append(s.data, frame.DW_CFA_def_cfa, byte(r.Reg)), uint64(r.Offset))
		switch {
		case r.Lost:
			s.data = append(s.data, frame.DW_CFA_undefined, byte(a.FP))
		case r.FP != 0:
			s.data = append(s.data, cfaGNUNegativeOffsetExtended, byte(a.FP))
			s.data = binary.AppendUvarint(s.data, uint64(-r.FP))
		default:
			s.data = append(s.data, frame.DW_CFA_restore|byte(a.FP))
		}
	}
}
