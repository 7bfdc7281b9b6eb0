package cfi

import (
	"encoding/binary"
	"math/bits"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"cfi2sframe/arch"
	"cfi2sframe/elffile"
	"cfi2sframe/gopclntab"
)

// goTable reads the table of a Go program as instructions of CFI: its functions have programs as those of FDEs. It
// returns nil if the file has no table, or one that is damaged.
func (t *Table) goTable(f *elffile.File) (*goSection, error) {
	g, err := gopclntab.Find(f)
	if e, ok := gopclntab.IsError(err); ok {
		t.report(&Error{gopclntab.Name, e.Off, e.Msg})
		return nil, nil
	}
	if g == nil || err != nil {
		return nil, err
	}
	return &goSection{table: g}, nil
}

// A goSection is the table of a Go program, as a section.
type goSection struct {
	section
	table *gopclntab.Table
	fns   []Function
}

// parse makes the functions. Their rows are those that Go's linker writes to .debug_frame (writeframes in
// cmd/link/internal/ld/dwarf.go), but CFAs count as the ABI of the machine defines.
func (s *goSection) parse(t *Table, x *executor, code []span, cies int) {
	a := arch.Of(t.Machine)
	s.name, s.source, s.order, s.programs = gopclntab.Name, GoPCLNTab, t.Order, t.programs
	s.mach = machine{sp: a.SP, fp: a.FP, raState: a.RAState}
	var kinds [3]*cie
	for k := range kinds {
		d := &cie{sec: &s.section, number: uint32(cies + k), codeAlign: 1, dataAlign: 1, raReg: a.RA, initial: noState}
		d.initial.raReg = a.RA
		d.initial.cfa = rule{kind: RuleCFA, reg: a.SP, offset: int64(a.EntryCFA)}
		switch {
		case gopclntab.Kind(k) == gopclntab.Outermost:
			d.initial.ra = rule{kind: RuleUndefined}
		case gopclntab.Kind(k) == gopclntab.Switches:
			d.initial.cfa, d.switches = rule{}, true
		case a.FixedRA != 0:
			d.initial.ra = rule{kind: RuleOffset, offset: a.FixedRA}
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
		} else if !ok || fn.End > in.end {
			t.Dropped.Discarded++
			continue
		}
		begin := uint32(len(s.data))
		if fn.Kind == gopclntab.Framed {
			s.instructions(a, fn)
		}
		s.fns = append(s.fns, Function{Begin: fn.Begin, End: fn.End, off: fn.Off, code: begin,
			limit: uint32(len(s.data)), cie: kinds[fn.Kind]})
	}
	x.grow(max(1<<bits.Len(uint(len(s.fns)/2)), len(x.slots)))
	for i := 0; i < len(s.fns); i += batch {
		x.addPrograms(s.fns[i:min(i+batch, len(s.fns))])
	}
	t.Sources = append(t.Sources, SourceInfo{s.name, s.table.Size, n})
	s.table = nil // rows do not need it
}

// instructions appends the instructions for a function.
func (s *goSection) instructions(a *arch.Arch, fn *gopclntab.Function) {
	at, saved := uint32(0), uint32(0)
	for _, r := range fn.Rows {
		if r.Off > at {
			s.data = s.order.(binary.AppendByteOrder).AppendUint32(append(s.data, frame.DW_CFA_advance_loc4), r.Off-at)
			at = r.Off
		}
		s.data = append(s.data, frame.DW_CFA_def_cfa_offset)
		s.data = binary.AppendUvarint(s.data, uint64(a.EntryCFA)+uint64(r.Frame))
		switch {
		case a.FixedRA != 0:
		case r.Frame > 0:
			s.saved(a.RA, uint64(a.EntryCFA)+uint64(r.Frame))
		default:
			s.data = append(s.data, frame.DW_CFA_restore|byte(a.RA))
		}
		if r.Saved > 0 {
			s.saved(a.FP, uint64(a.EntryCFA)+uint64(r.Saved))
		} else if saved > 0 {
			s.data = append(s.data, frame.DW_CFA_restore|byte(a.FP))
		}
		saved = r.Saved
	}
}

// saved appends the instruction for a register that is saved below the CFA.
func (s *goSection) saved(reg, below uint64) {
	s.data = append(s.data, cfaGNUNegativeOffsetExtended, byte(reg))
	s.data = binary.AppendUvarint(s.data, below)
}

// SwitchesStack reports whether the function goes to another stack, so that it has no rows that hold (Go's
// systemstack).
func (fn *Function) SwitchesStack() bool { return fn.cie.switches }
