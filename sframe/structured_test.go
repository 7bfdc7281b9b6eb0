package sframe_test

import (
	"errors"
	"io"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// FuzzStructured builds sections record by record, as other tools may write them: with unsorted FDEs, an auxiliary
// header, FRE lists in any order, shared lists, unused bytes between lists, and PC-mask FDEs with blocks of various
// sizes. At every pc, Lookup must return the expected row.
func FuzzStructured(f *testing.F) {
	for seed := range uint64(120) {
		f.Add(choice.Seeded(seed, 80+4*int(seed)))
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 4096 {
			return
		}
		const addr = 0x5000000
		s := choice.From(choices)
		abi := []sframe.ABI{sframe.AMD64Little, sframe.AArch64Little, sframe.S390XBig, sframe.AArch64Big}[s.N(4)]
		c, err := sframe.NewCodec(sframe.V1+sframe.Version(s.N(3)), abi)
		if err != nil {
			return // V1 does not support s390x
		}
		l := c.Layout()
		var all []function
		var rows []byte
		at := uint64(0x10000)
		for range 1 + s.N(12) {
			e := function{d: sframe.FDE{Start: at, Size: 1 + uint32(s.N(300))}}
			if l.RepSize && s.Rarely(4) {
				e.d.PCMask, e.d.RepSize = true, []uint8{8, 16, 1, 3, 24, 255}[s.N(6)]
				e.d.Start += uint64(e.d.RepSize) - e.d.Start%uint64(e.d.RepSize) // blocks are aligned with the function
			}
			e.d.Signal = l.Signal && s.Rarely(5)
			e.d.Flexible = l.Flexible && s.Rarely(3)
			limit := e.d.Size
			if e.d.PCMask {
				limit = uint32(e.d.RepSize)
			}
			e.list.Type = sframe.FREType(s.N(3))
			for start := uint32(0); start < limit && len(e.fres) < 10; start += 1 + uint32(s.N(60)) {
				if e.list.Type == sframe.Addr1 && start > 255 {
					break
				}
				e.fres = append(e.fres, sframe.FRE{Start: start, Row: anyRow(s, c, e.d.Flexible)})
			}
			rows = append(rows, s.Bytes(s.N(3))...) // not referenced
			e.list.Off, e.list.Num = uint32(len(rows)), uint32(len(e.fres))
			rows = c.AppendAttr(rows, &e.d, &e.list)
			for i := range e.fres {
				rows = c.AppendStart(rows, e.fres[i].Start, e.list.Type)
				var ok bool
				if rows, ok = c.AppendRow(rows, &e.fres[i].Row, e.d.Flexible); !ok {
					t.Fatalf("%+v cannot be encoded, but should be", e.fres[i])
				}
			}
			all = append(all, e)
			at = e.d.End() + uint64([]int{0, 1, 16, 4096}[s.N(4)])
			if n := len(all); n > 0 && s.Rarely(4) && !e.d.PCMask { // the same rows for another function
				e.d.Start = at
				all = append(all, e)
				at = e.d.End()
			}
		}
		order := make([]int, len(all))
		for i := range order {
			order[i] = i
		}
		h := sframe.Header{NumFDEs: uint32(len(all)), AuxLen: uint8(s.N(9)), FRELen: uint32(len(rows))}
		if s.N(2) == 1 {
			for i := range order {
				j := s.N(i + 1)
				order[i], order[j] = order[j], order[i]
			}
		} else {
			h.Flags |= sframe.FDESorted
		}
		if l.PCRel || l.Flags&sframe.FDEFuncStartPCRel != 0 && s.N(2) == 1 {
			h.Flags |= sframe.FDEFuncStartPCRel
		}
		gap := uint32(s.N(5))
		h.FDEOff = gap
		h.FREOff = gap + uint32(len(all)*l.FDESize) + uint32(s.N(5))
		for i := range all {
			h.NumFREs += all[i].list.Num
		}
		data := c.AppendHeader(nil, &h)
		data = append(data, make([]byte, int(h.AuxLen)+int(gap))...)
		for _, i := range order {
			start := all[i].d.Start - addr
			if h.Flags&sframe.FDEFuncStartPCRel != 0 {
				start -= uint64(len(data))
			}
			data = c.AppendFDE(data, &all[i].d, start, &all[i].list)
		}
		data = append(data, make([]byte, l.HeaderSize+int(h.AuxLen)+int(h.FREOff)-len(data))...)
		data = append(data, rows...)
		out := must.Get(sframe.Decode(data, addr))(t)
		if err := out.Dump(io.Discard, nil); err != nil {
			t.Errorf("Dump: %v", err)
		}
		if err := out.Dump(failingWriter{}, nil); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("Dump to a writer that takes nothing: %v", err)
		}
		sorted := out.Sorted()
		if starts := startsOf(sorted); !slices.IsSorted(starts) || sorted.Flags != h.Flags|sframe.FDESorted {
			t.Errorf("sorted, flags are %#x, and FDEs start at %#x", sorted.Flags, starts)
		}
		for _, x := range []*sframe.Section{out, sorted, sorted.Sorted()} {
			for _, e := range all {
				for pc := e.d.Start - 1; pc <= e.d.End(); pc++ {
					want, row := expectedRow(pc, all)
					got, ok, err := x.Lookup(pc)
					if err != nil || ok != want || ok != (x.Find(pc) >= 0) || ok &&
						(got.Start != row.Start || !abi.SameRow(got.Row, out.Complete(row.Row))) {
						t.Fatalf("%v: at %#x %+v, %t, error %v; want %+v, %t", c.Version(), pc, got, ok, err, row, want)
					}
				}
			}
			r, distinct := x.NewReader(), make(map[sframe.Row]bool)
			for i, d := range x.FDEs() {
				e := all[slices.IndexFunc(all, func(e function) bool { return e.d.Start == d.Start })]
				_, refs, err := r.Refs(i)
				if err != nil || len(refs) != len(e.fres) {
					t.Fatalf("FDE at %#x: %d rows, error %v; want %d", d.Start, len(refs), err, len(e.fres))
				}
				for j, fre := range e.fres {
					if refs[j].Start != fre.Start || r.Rows[refs[j].Row] != fre.Row {
						t.Errorf("FDE at %#x, row %d is %+v; want %+v", d.Start, j, r.Rows[refs[j].Row], fre)
					}
					distinct[fre.Row] = true
				}
			}
			if len(r.Rows) != len(distinct) {
				t.Errorf("%d rows are numbered; want %d", len(r.Rows), len(distinct))
			}
		}
	})
}

// failingWriter is a writer whose Write always fails.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// startsOf returns the start addresses of the FDEs of a section.
func startsOf(s *sframe.Section) (starts []uint64) {
	for _, d := range s.FDEs() {
		starts = append(starts, d.Start)
	}
	return starts
}

// A function is an FDE with its rows.
type function struct {
	d    sframe.FDE
	list sframe.List
	fres []sframe.FRE
}

// expectedRow finds the row for pc by linear search.
func expectedRow(pc uint64, all []function) (found bool, row sframe.FRE) {
	i := slices.IndexFunc(all, func(e function) bool { return e.d.Start <= pc && pc < e.d.End() })
	if i < 0 {
		return false, row
	}
	off := pc - all[i].d.Start
	if all[i].d.PCMask {
		off %= uint64(all[i].d.RepSize)
	}
	for _, f := range all[i].fres {
		if uint64(f.Start) <= off {
			found, row = true, f
		}
	}
	return found, row
}

// anyRow generates a row that FDEs of the given type can hold.
func anyRow(s *choice.Source, c *sframe.Codec, flexible bool) sframe.Row {
	for range 8 {
		n := func() int32 {
			v := []int32{16, 8, 160, 24, -8, -16, 1024, -1024, 32760, -32768, 1 << 20, -1 << 24, 127, 128, -129}
			return v[s.N(len(v))]
		}
		r := sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: n()}}
		if flexible {
			r.CFA = sframe.Rule{Base: sframe.Register, Reg: uint16(s.N(32)), Offset: n(), Deref: s.N(2) == 1}
		} else if s.N(2) == 1 {
			r.CFA.Base = sframe.FP
		}
		saved := func() sframe.Rule {
			if flexible && s.N(2) == 1 {
				return sframe.Rule{Base: sframe.Register, Reg: uint16(s.N(32)), Offset: n(), Deref: s.N(2) == 1}
			}
			return sframe.Rule{Base: sframe.CFA, Offset: n(), Deref: true}
		}
		if c.ABI().FixedRA() == 0 && s.N(3) > 0 {
			r.RA = saved()
		}
		if s.N(2) == 1 && (c.ABI().FixedRA() != 0 || r.RA.Base != sframe.None) {
			r.FP = saved()
		}
		if flexible && c.Flexible(&r) || !flexible && c.Default(&r) {
			return r
		}
	}
	if flexible {
		return sframe.Row{CFA: sframe.Rule{Base: sframe.Register, Reg: c.ABI().SP(), Offset: 160}}
	}
	return sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: 160}}
}
