package cfi

import (
	"errors"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/gopclntab"
)

// goTable finds the .gopclntab of a Go program. It returns nil if the file has no table or the table is malformed.
func (t *Table) goTable(f *elffile.File) (*gopclntab.Table, error) {
	g, err := gopclntab.Find(f)
	if e, ok := errors.AsType[*gopclntab.Error](err); ok {
		t.report(&Error{gopclntab.Name, e.Off, e.Msg})
		return nil, nil
	}
	return g, err
}

// A goRow is a row of a kind of function in .gopclntab.
type goRow struct {
	kind   gopclntab.Kind
	pushed uint32
	row    gopclntab.Row // without Off
}

// goFunctions returns the functions of a Go program, with the rows that Go's linker emits in .debug_frame (writeframes
// in cmd/link/internal/ld/dwarf.go), but with the CFA as the machine's ABI defines it.
func (t *Table) goFunctions(g *gopclntab.Table, x *executor, code []elffile.Span) (fns []Function) {
	a := arch.Of(t.Machine)
	s := &section{name: gopclntab.Name, source: GoPCLNTab, programs: t.programs}
	var kinds [gopclntab.NumKinds]cie
	for k := range kinds {
		kind := gopclntab.Kind(k)
		kinds[k] = cie{sec: s, number: uint32(k),
			signal:   kind == gopclntab.Injected || kind == gopclntab.SigReturn,
			switches: kind == gopclntab.Injected || kind == gopclntab.Switches}
	}
	b := newBuilder(x, func(r goRow) state { return r.rules(a, x) })
	n := 0
	for fn, err := range g.Functions() {
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
		if fn.Kind == gopclntab.Outermost || fn.Kind == gopclntab.SigReturn {
			b.row(0, goRow{kind: fn.Kind})
		} else {
			for _, r := range fn.Rows {
				off := r.Off
				r.Off = 0
				b.row(off, goRow{fn.Kind, fn.Pushed, r})
			}
		}
		fns = append(fns, b.function(fn.Begin, fn.End, fn.Off, &kinds[fn.Kind]))
	}
	t.Sources = append(t.Sources, SourceInfo{s.name, g.Size, n})
	return fns
}

// rules returns the rules of a row.
func (r *goRow) rules(a *arch.Arch, x *executor) state {
	s := entry(a)
	switch r.kind {
	case gopclntab.Outermost:
		s.ra = rule{kind: RuleUndefined}
		return s
	case gopclntab.SigReturn:
		// SP points to the ucontext, which contains the registers of the interrupted code
		// (arch/x86/include/uapi/asm/ucontext.h and sigcontext.h).
		at := func(code ...byte) rule { return rule{kind: RuleExpression, expression: x.expression(code)} }
		s.cfa = at(0x77, 0xa0, 0x01, 0x06) // breg7 (rsp) 160; deref
		s.cfa.offset = int64(a.EntryCFA)
		s.ra = at(0x77, 0xa8, 0x01) // breg7 168
		s.fp = at(0x77, 0xf8, 0x00) // breg7 120
		return s
	}
	base := int64(a.EntryCFA) + int64(r.pushed)
	switch frame := base + int64(r.row.Frame); r.row.Base {
	case gopclntab.OfSP:
		s.cfa.offset = frame
		if a.FixedRA == 0 && r.row.Frame > 0 {
			s.ra = saved(-frame)
		}
		if r.row.Saved > 0 {
			s.fp = saved(-base - int64(r.row.Saved))
		}
	case gopclntab.OfFP:
		const slots = 2 // frame pointer and return address
		s.cfa = rule{kind: RuleCFA, reg: a.FP, offset: 8 * slots}
		s.fp = saved(-8 * slots)
	case gopclntab.NoCaller:
		s.ra = rule{kind: RuleUndefined}
	default:
		s.cfa = rule{}
	}
	return s
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
