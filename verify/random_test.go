package verify

import (
	"debug/elf"
	"math/rand/v2"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/emit"
	"cfi2sframe/sframe"
)

// TestRandom has functions of a few kinds that occur again and again, described rightly or nearly so, and
// looks up each pc on both sides by itself.
func TestRandom(t *testing.T) {
	right, wrong := 0, 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		version := []sframe.Version{sframe.V2, sframe.V3}[r.IntN(2)]
		var kinds [][]sframe.FRE
		for range 3 {
			rows := spRows(0, 8)
			for range r.IntN(5) {
				rows = append(rows, spRows(int32(rows[len(rows)-1].Start)+1+int32(r.IntN(4)), 8*int32(1+r.IntN(4)))...)
			}
			kinds = append(kinds, rows)
		}
		var fns []function
		var fdes []fde
		end := uint64(0x1000)
		for range 8 {
			rows := kinds[r.IntN(len(kinds))]
			begin := end + uint64(r.IntN(2)*r.IntN(8))
			size := uint32(1 + r.IntN(20))
			end = begin + uint64(size)
			fn := function{begin: begin, end: end}
			signal := version == sframe.V3 && r.IntN(4) == 0
			if signal != (r.IntN(40) == 0) { // sometimes the section says something else
				fn.letters = "S"
			}
			for i, row := range rows {
				if i > 0 {
					fn.code = append(fn.code, 0x40|byte(row.Start-rows[i-1].Start), 0x0e, byte(row.CFA.Offset))
				}
			}
			fns = append(fns, fn)
			fdes = append(fdes, near(r, sframe.FDE{Start: begin, Size: size, Signal: signal}, rows)...)
		}
		table := amd64.cfi(t, fns...)
		data := build(t, emit.Options{Version: version, ABI: amd64.abi, Share: r.IntN(2) == 0}, fdes)
		s := decodeSection(t, data)
		f := bareFile(elf.ET_DYN)
		f.Progs = []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Vaddr: 0x1000, Filesz: 0x1000}}
		res, err := Check(table, s, f, Options{Keep: 1, Workers: 1 + r.IntN(3)})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		covered, sound := lookUp(t, table, s, end+64)
		if res.Covered != covered || (res.Total == 0) != sound {
			t.Errorf("seed %d: %d bytes covered, %d mismatches; pc by pc %d bytes, and all right: %t", seed, res.Covered,
				res.Total, covered, sound)
		}
		if sound {
			right++
		} else {
			wrong++
		}
	}
	if right < 300 || wrong < 300 {
		t.Errorf("%d sections are right and %d wrong", right, wrong)
	}
}

// near returns FDEs for a function that has the given rows, in one or two parts, and sometimes something else.
func near(r *rand.Rand, d sframe.FDE, rows []sframe.FRE) (fdes []fde) {
	var in []sframe.FRE // the rows that are in the function
	for _, row := range rows {
		if row.Start < d.Size {
			in = append(in, row)
		}
	}
	if cut := 1 + r.IntN(len(in)); cut < len(in) { // from there on another FDE
		first, second := d, d
		first.Size = in[cut].Start
		second.Start, second.Size = d.Start+uint64(first.Size), d.Size-first.Size
		rest := append([]sframe.FRE(nil), in[cut:]...)
		for i := range rest {
			rest[i].Start -= first.Size
		}
		fdes = append(fdes, fde{first, append([]sframe.FRE(nil), in[:cut]...)}, fde{second, rest})
	} else {
		fdes = append(fdes, fde{d, append([]sframe.FRE(nil), in...)})
	}
	x := &fdes[r.IntN(len(fdes))]
	last := &x.rows[len(x.rows)-1]
	switch r.IntN(60) {
	case 0:
		last.CFA.Offset += 8
	case 1:
		x.rows[0].CFA.Offset += 8
	case 2:
		if last.Start+1 < x.Size {
			last.Start++
		}
	case 3:
		if x.Size > last.Start+1 {
			x.Size--
		}
	case 4:
		fdes = fdes[:len(fdes)-1]
	case 5:
		if len(x.rows) > 1 {
			x.rows = x.rows[:len(x.rows)-1]
		}
	case 6:
		last.FP = slot(sframe.CFA, -16)
	}
	return fdes
}

// lookUp returns how many addresses up to end both sides describe and agree on, and whether they agree on all
// that the section describes.
func lookUp(t *testing.T, table *cfi.Table, s *sframe.Section, end uint64) (covered uint64, sound bool) {
	sound = true
	for pc := uint64(0x1000); pc < end; pc++ {
		e, ok, err := s.Lookup(pc)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		row, has := table.Lookup(pc)
		if !has || row.CFA.Offset != int64(e.CFA.Offset) || e.FP.Base != sframe.None ||
			e.FDE.Signal != table.Find(pc).Signal() {
			sound = false
			continue
		}
		covered++
	}
	return covered, sound
}
