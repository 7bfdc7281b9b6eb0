package emit_test

import (
	"slices"
	"testing"

	"cfi2sframe/emit"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// A function holds the arguments for a call to Add. Its FREs are also the rows that lookups must return.
type function struct {
	d    sframe.FDE
	fres []sframe.FRE
}

// abis lists all ABIs.
var abis = []sframe.ABI{sframe.AMD64Little, sframe.AArch64Little, sframe.S390XBig, sframe.AArch64Big}

// rowOf generates a row that some versions can express.
func rowOf(s *choice.Source, abi sframe.ABI, flexible bool) sframe.Row {
	offset := func() int32 {
		v := []int32{16, 8, 24, 32, 160, 1016, 1024, 127, 128, 32760, 1 << 16, 1 << 20, -8, -16, -24, -48,
			-4096, -1 << 20}
		return v[s.N(len(v))]
	}
	r := sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: 160 + 8*int32(s.N(20))}}
	if s.N(2) == 1 {
		r.CFA.Base = sframe.FP
	}
	switch s.N(4) {
	case 1:
		r.FP = sframe.Rule{Base: sframe.CFA, Offset: -16 - 8*int32(s.N(4)), Deref: true}
	case 2:
		r.FP = sframe.Rule{Base: sframe.CFA, Offset: offset() &^ 7, Deref: true}
	}
	if abi.FixedRA() == 0 && (r.FP.Base != sframe.None || s.N(3) > 0) {
		r.RA = sframe.Rule{Base: sframe.CFA, Offset: -8 - 8*int32(s.N(16)), Deref: true}
	}
	if abi == sframe.AArch64Little || abi == sframe.AArch64Big {
		r.Signed = s.Rarely(4)
	}
	if flexible {
		r.CFA = sframe.Rule{Base: sframe.Register, Reg: uint16(s.N(16)), Offset: offset(), Deref: s.N(2) == 1}
		if s.N(2) == 1 {
			r.FP = sframe.Rule{Base: sframe.CFA, Offset: offset(), Deref: s.N(2) == 1}
		}
		if r.RA.Base == sframe.None && abi.FixedRA() == 0 && r.FP.Base != sframe.None {
			r.RA = sframe.Rule{Base: sframe.CFA, Offset: -8, Deref: true}
		}
	}
	return r
}

// FuzzSection generates functions with repeated rows. The section must contain the row of every pc, regardless of how
// lists are shared and code is divided.
func FuzzSection(f *testing.F) {
	for seed := range uint64(120) {
		f.Add(choice.Seeded(seed, 64+8*int(seed)), uint8(seed))
	}
	f.Fuzz(func(t *testing.T, choices []byte, kind uint8) {
		if len(choices) > 4096 {
			return
		}
		s := choice.From(choices)
		opt := emit.Options{
			Version: sframe.V1 + sframe.Version(kind%3), ABI: abis[int(kind>>2)%len(abis)],
			Join: kind&16 != 0, Share: kind&48 == 48, PCRel: kind&64 != 0, Align: uint64(1 + kind>>7*7),
		}
		if opt.Version != sframe.V2 {
			opt.PCRel = false
		}
		codec, err := sframe.NewCodec(opt.Version, opt.ABI)
		if err != nil {
			return
		}
		b := must.Get(emit.NewBuilder(opt))(t)
		// Few distinct rows, as in programs.
		var alphabet []sframe.Row
		for range 2 + s.N(8) {
			if r := rowOf(s, opt.ABI, false); codec.Default(&r) {
				alphabet = append(alphabet, r)
			}
		}
		var wild []sframe.Row
		for range s.N(4) {
			if r := rowOf(s, opt.ABI, true); codec.Flexible(&r) {
				wild = append(wild, r)
			}
		}
		if len(alphabet) == 0 {
			return
		}
		type added struct {
			number int
			fn     function
		}
		var functions []function
		var before []added
		at := uint64(0x10000)
		for s.Left() > 0 && len(functions) < 200 {
			at += []uint64{0, 0, 16, 1, 4096}[s.N(5)]
			if len(before) > 0 && s.Rarely(3) {
				old := before[s.N(len(before))]
				fn := old.fn
				fn.d.Start = at
				fn.d.Size = max(fn.d.Size+uint32(s.N(8)), old.fn.fres[len(old.fn.fres)-1].Start+1)
				b.Repeat(fn.d, old.number)
				functions = append(functions, fn)
				at = fn.d.End()
				continue
			}
			fn := function{d: sframe.FDE{Start: at}}
			rows := alphabet
			if len(wild) > 0 && s.Rarely(4) {
				fn.d.Flexible, rows = true, wild
			}
			start := uint32(0)
			for range 1 + s.N(12) {
				if n := len(fn.fres); n == 0 || fn.fres[n-1].Row != rows[0] || len(rows) > 1 {
					r := rows[s.N(len(rows))]
					if n > 0 && opt.ABI.SameRow(fn.fres[n-1].Row, r) {
						continue
					}
					fn.fres = append(fn.fres, sframe.FRE{Start: start, Row: r})
				}
				start += 1 + uint32([]int{0, 3, 7, 1, 200, 255, 256, 60000, 65535}[s.N(9)])
			}
			fn.d.Size = fn.fres[len(fn.fres)-1].Start + 1 + uint32(s.N(16))
			fn.d.Signal = codec.Layout().Signal && s.Rarely(8)
			number, err := b.Add(fn.d, b.Refs(fn.fres))
			if err != nil {
				t.Fatalf("%+v: %v", fn, err)
			}
			before = append(before, added{number, fn})
			functions = append(functions, fn)
			at = fn.d.End()
		}
		if len(functions) == 0 {
			return
		}
		section := emit.Join([]*emit.Builder{b})
		const addr = 0x4000000
		data := must.Get(section.Encode(addr))(t)
		if uint64(len(data)) != section.Size() || uint64(len(data))%max(opt.Align, 1) != 0 {
			t.Fatalf("%d bytes; Size returned %d; alignment %d", len(data), section.Size(), opt.Align)
		}
		out := must.Get(sframe.Decode(data, addr))(t)
		if out.Len() != section.NumFDEs() || uint64(out.NumFREs) != section.NumFREs() {
			t.Errorf("%d FDEs and %d FREs; NumFDEs and NumFREs return %d and %d", out.Len(), out.NumFREs,
				section.NumFDEs(), section.NumFREs())
		}
		checkLookups(t, out, functions)
	})
}

// checkLookups looks up the first and last pc of every row, and the pcs adjacent to functions.
func checkLookups(t *testing.T, s *sframe.Section, functions []function) {
	t.Helper()
	described := func(pc uint64) bool {
		return slices.ContainsFunc(functions, func(f function) bool { return pc >= f.d.Start && pc < f.d.End() })
	}
	for _, fn := range functions {
		for i, want := range fn.fres {
			end := uint64(fn.d.Size)
			if i+1 < len(fn.fres) {
				end = uint64(fn.fres[i+1].Start)
			}
			for _, pc := range []uint64{fn.d.Start + uint64(want.Start), fn.d.Start + end - 1} {
				got, ok, err := s.Lookup(pc)
				if err != nil || !ok || !s.ABI.SameRow(got.Row, s.Complete(want.Row)) {
					t.Fatalf("at %#x: %+v, %t, error %v; want %+v", pc, got, ok, err, want)
				}
				if got.FDE.Signal != fn.d.Signal {
					t.Fatalf("at %#x: signal frame %t; want %t", pc, got.FDE.Signal, fn.d.Signal)
				}
			}
		}
		for _, pc := range []uint64{fn.d.Start - 1, fn.d.End()} {
			if got, ok, err := s.Lookup(pc); !described(pc) && (ok || err != nil) {
				t.Fatalf("at %#x, outside all functions: %+v, error %v", pc, got, err)
			}
		}
	}
}
