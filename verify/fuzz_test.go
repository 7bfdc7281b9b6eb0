package verify_test

import (
	"bytes"
	"testing"

	"cfi2sframe/convert"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/generate"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/internal/testkit/readback"
	"cfi2sframe/sframe"
	"cfi2sframe/verify"
)

// FuzzCheck changes a valid section and checks it. The result must agree with that of a stack tracer that knows the
// generated CFI and looks up each pc in the section.
func FuzzCheck(f *testing.F) {
	for seed := range uint64(80) {
		f.Add(choice.Seeded(seed, 200), uint8(seed), uint64(0))
		f.Add(choice.Seeded(seed, 200), uint8(seed), generate.Damage(seed))
		f.Add(choice.Seeded(seed, 200), uint8(seed), generate.Damage(seed+100))
	}
	f.Fuzz(func(t *testing.T, choices []byte, kind uint8, damage uint64) {
		if len(choices) > 4096 {
			return
		}
		file := generate.NewFile(choice.From(choices))
		in := converted(t, file.Bytes, convert.Options{Version: sframe.V1 + sframe.Version(kind%3)})
		if in == nil {
			return
		}
		data := in.data
		// The header is not changed, because the decoder rejects most changes to it.
		if damage != 0 && len(data) > 28 {
			data = append(bytes.Clone(data[:28]), changed(data[28:], damage)...)
		}
		s, err := sframe.Decode(data, in.addr)
		if err != nil {
			if damage == 0 {
				t.Fatal(err)
			}
			return
		}
		res, err := verify.Check(in.table, s, in.file, verify.Options{Keep: 10, Workers: 1 + int(kind>>7)})
		if err != nil {
			if damage == 0 {
				t.Fatal(err)
			}
			return
		}
		if damage == 0 && res.Total > 0 {
			t.Fatalf("mismatches %v", res.Mismatches)
		}
		r := must.Get(readback.New(file.Machine.Elf, file.Machine.Order, s))(t)
		covered, wrong := uint64(0), error(nil)
		for _, w := range file.Rows() {
			fact := &readback.Fact{Rules: w.Rules, Signal: w.Signal, KeyB: w.KeyB}
			for pc := w.Begin; pc < w.End; pc++ {
				ok, err := r.Row(pc, fact)
				if err != nil {
					wrong = err
				} else if ok {
					covered++
				}
			}
		}
		if wrong != nil && res.Total == 0 {
			t.Errorf("%v; the check finds no mismatch", wrong)
		}
		if res.Total == 0 && covered != res.Covered {
			t.Errorf("the check finds %d bytes covered; there are %d", res.Covered, covered)
		}
		if wrong == nil && res.Total > 0 && !coversMore(s, file.Rows()) && !hasOverlap(s) {
			t.Errorf("the check finds %v; a stack tracer reads nothing wrong", res.Mismatches)
		}
	})
}

// changed returns a copy of b with a bit flipped in one or two bytes.
func changed(b []byte, damage uint64) []byte {
	b = bytes.Clone(b)
	for range 1 + damage>>1&1 {
		damage = damage*6364136223846793005 + 1442695040888963407
		b[int(damage>>33)%len(b)] ^= byte(1 << (damage >> 20 & 7))
	}
	return b
}

// coversMore reports whether a section covers code without CFI, or more code than can be checked.
func coversMore(s *sframe.Section, rows []generate.Row) bool {
	for _, d := range s.FDEs() {
		if d.Size > 1<<20 || d.PCMask {
			return true
		}
		for pc := d.Start; pc < d.End(); pc++ {
			if generate.At(rows, pc) == nil {
				return true
			}
		}
	}
	return false
}

// hasOverlap reports whether FDEs of a section overlap. Readers use only one FDE at each pc.
func hasOverlap(s *sframe.Section) bool {
	end := uint64(0)
	for _, d := range s.Sorted().FDEs() {
		if d.Start < end || d.Size == 0 {
			return true
		}
		end = d.End()
	}
	return false
}
