package cfi

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/gopclntab"
)

// goTable finds the .gopclntab of a Go program. Its functions get call frame instructions, as if they had FDEs. It
// returns nil if the file has no table or the table is malformed.
func (t *Table) goTable(f *elffile.File) (*goSection, error) {
	g, err := gopclntab.Find(f)
	if e, ok := errors.AsType[*gopclntab.Error](err); ok {
		t.report(&Error{gopclntab.Name, e.Off, e.Msg})
		return nil, nil
	}
	if g == nil || err != nil {
		return nil, err
	}
	return &goSection{table: g}, nil
}

// A goSection presents the table of a Go program as a CFI section.
type goSection struct {
	section
	table *gopclntab.Table
	fns   []Function
}

// parse creates the functions with the rows that Go's linker emits in .debug_frame (writeframes in
// cmd/link/internal/ld/dwarf.go), but with the CFA as the machine's ABI defines it.
func (s *goSection) parse(t *Table, x *executor, code []elffile.Span, cies int) {
	a := arch.Of(t.Machine)
	s.name, s.source, s.order, s.programs = gopclntab.Name, GoPCLNTab, t.Order, t.programs
	s.regs = registers{sp: a.SP, fp: a.FP, raState: a.RAState}
	var kinds [gopclntab.NumKinds]*cie
	for k := range kinds {
		d := &cie{sec: &s.section, number: uint32(cies + k), codeAlign: 1, dataAlign: 1, raReg: a.RA, initial: noState}
		d.initial.raReg = a.RA
		d.initial.cfa = rule{kind: RuleCFA, reg: a.SP, offset: int64(a.EntryCFA)}
		if a.FixedRA != 0 {
			d.initial.ra = rule{kind: RuleOffset, offset: a.FixedRA}
		}
		switch gopclntab.Kind(k) {
		case gopclntab.Outermost:
			d.initial.ra = rule{kind: RuleUndefined}
		case gopclntab.Switches:
			d.initial.cfa, d.switches = rule{}, true
		case gopclntab.Injected:
			d.initial.cfa, d.switches, d.signal = rule{}, true, true
		case gopclntab.SigReturn:
			d.signal = true
		}
		kinds[k] = d
	}
	n := 0
	for fn, err := range s.table.Functions() {
		if err != nil {
			t.report(&Error{s.name, err.Off, err.Msg})
			continue
		}
		n++
		if in, ok := find(code, fn.Begin); fn.Begin == fn.End {
			t.Dropped.ZeroLength++
			continue
		} else if !ok || fn.End > in.End {
			t.Dropped.Discarded++
			continue
		}
		begin := uint32(len(s.data))
		switch fn.Kind {
		case gopclntab.Framed:
			s.appendInstructions(a, fn)
		case gopclntab.Switches, gopclntab.Injected:
			s.stackSwitch(a, fn)
		case gopclntab.SigReturn:
			s.sigreturn(a)
		}
		s.fns = append(s.fns, Function{Begin: fn.Begin, End: fn.End, off: fn.Off, code: begin,
			limit: uint32(len(s.data)), cie: kinds[fn.Kind]})
	}
	x.grow(max(1<<bits.Len(uint(len(s.fns)/2)), len(x.slots)))
	for part := range slices.Chunk(s.fns, batch) {
		x.addPrograms(part)
	}
	t.Sources = append(t.Sources, SourceInfo{s.name, s.table.Size, n})
	s.table = nil // no longer needed
}

// appendInstructions appends the instructions for a function.
func (s *goSection) appendInstructions(a *arch.Arch, fn *gopclntab.Function) {
	at, saved := uint32(0), uint32(0)
	for _, r := range fn.Rows {
		s.advance(&at, r.Off)
		s.data = append(s.data, frame.DW_CFA_def_cfa_offset)
		s.data = binary.AppendUvarint(s.data, uint64(a.EntryCFA)+uint64(r.Frame))
		switch {
		case a.FixedRA != 0:
		case r.Frame > 0:
			s.appendSave(a.RA, uint64(a.EntryCFA)+uint64(r.Frame))
		default:
			s.data = append(s.data, frame.DW_CFA_restore|byte(a.RA))
		}
		if r.Saved > 0 {
			s.appendSave(a.FP, uint64(a.EntryCFA)+uint64(r.Saved))
		} else if saved > 0 {
			s.data = append(s.data, frame.DW_CFA_restore|byte(a.FP))
		}
		saved = r.Saved
	}
}

// stackSwitch appends the instructions for a function that switches stacks. Each row starts from the initial rules of
// the CIE, which has no CFA rule.
func (s *goSection) stackSwitch(a *arch.Arch, fn *gopclntab.Function) {
	at := uint32(0)
	for i, r := range fn.Rows {
		if i > 0 {
			s.advance(&at, r.Off)
			s.data = append(s.data, frame.DW_CFA_restore_state)
		}
		s.data = append(s.data, frame.DW_CFA_remember_state)
		switch entry := uint64(a.EntryCFA) + uint64(fn.Pushed); r.Base {
		case gopclntab.OfSP:
			below := entry + uint64(r.Frame)
			s.data = binary.AppendUvarint(append(s.data, frame.DW_CFA_def_cfa, byte(a.SP)), below)
			if a.FixedRA == 0 && r.Frame > 0 {
				s.appendSave(a.RA, below)
			}
			if r.Saved > 0 {
				s.appendSave(a.FP, entry+uint64(r.Saved))
			}
		case gopclntab.OfFP:
			const slots = 2 // frame pointer and return address
			s.data = append(s.data, frame.DW_CFA_def_cfa, byte(a.FP), 8*slots)
			s.appendSave(a.FP, 8*slots)
		case gopclntab.NoCaller:
			s.data = append(s.data, frame.DW_CFA_def_cfa, byte(a.SP), byte(a.EntryCFA), frame.DW_CFA_undefined,
				byte(a.RA))
		}
	}
}

// sigreturn appends the instructions for the code to which signal handlers return on amd64. SP points to the ucontext,
// which contains the registers of the interrupted code (arch/x86/include/uapi/asm/ucontext.h and sigcontext.h).
func (s *goSection) sigreturn(a *arch.Arch) {
	s.data = append(s.data,
		frame.DW_CFA_def_cfa_expression, 4, 0x77, 0xa0, 0x01, 0x06, // breg7 (rsp) 160; deref
		frame.DW_CFA_expression, byte(a.RA), 3, 0x77, 0xa8, 0x01, // breg7 168
		frame.DW_CFA_expression, byte(a.FP), 3, 0x77, 0xf8, 0x00) // breg7 120
}

// advance appends the instruction that advances to an offset in the function.
func (s *goSection) advance(at *uint32, to uint32) {
	if to > *at {
		s.data = s.order.(binary.AppendByteOrder).AppendUint32(append(s.data, frame.DW_CFA_advance_loc4), to-*at)
		*at = to
	}
}

// appendSave appends the instruction for a register that is saved below the CFA.
func (s *goSection) appendSave(reg, below uint64) {
	s.data = append(s.data, cfaGNUNegativeOffsetExtended, byte(reg))
	s.data = binary.AppendUvarint(s.data, below)
}

// SwitchesStack reports whether the function switches to another stack, so some of its rows have no CFA (Go's
// systemstack).
func (fn *Function) SwitchesStack() bool { return fn.cie.switches }

// Withdraw removes the rows of a function of .gopclntab. Afterwards, fn.Err reports why.
func (t *Table) Withdraw(fn *Function, why string) {
	p := t.programs
	n := uint32(len(p.all))
	p.errs[n] = &Error{fn.Section(), fn.Offset() - uint64(fn.code), why}
	p.all = append(p.all, program{})
	fn.program = n | fn.program&cut
}
