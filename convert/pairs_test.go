package convert

import (
	"fmt"
	"hash/maphash"
	"slices"
	"testing"

	"cfi2sframe/sframe"
)

// TestMatchNames matches functions of two files by their names, which are given with the row that they have.
func TestMatchNames(t *testing.T) {
	type fn struct {
		name string
		row  uint32
	}
	for _, tt := range []struct {
		what     string
		old, new []fn
		want     string // for each of the new file the index of the old file's, or -1
	}{
		{"moved", []fn{{"a", 1}, {"b", 2}}, []fn{{"b", 2}, {"a", 1}}, "[1 0]"},
		{"changed", []fn{{"a", 1}, {"b", 2}}, []fn{{"b", 3}, {"c", 1}}, "[1 -1]"},
		{"several of a name, by their rows", []fn{{"a", 1}, {"a", 2}, {"a", 3}}, []fn{{"a", 3}, {"a", 4}, {"a", 1}}, "[2 1 0]"},
		{"several of a name, more of them", []fn{{"a", 1}}, []fn{{"a", 2}, {"a", 3}}, "[0 -1]"},
		{"a variant", []fn{{"a", 1}}, []fn{{"a.constprop.0", 2}}, "[0]"},
		{"a variant in C++", []fn{{"n::a(int) [clone .isra.0]", 1}}, []fn{{"n::a(int)", 2}}, "[0]"},
		{"a variant beside the function", []fn{{"a.isra.0", 1}, {"a", 2}}, []fn{{"a", 3}, {"a.isra.0", 4}}, "[1 0]"},
		{"a part is no variant", []fn{{"a", 1}}, []fn{{"a.cold", 2}, {"a.part.0", 3}}, "[-1 -1]"},
		{"without names, by their rows", []fn{{".text", 1}, {".text", 2}}, []fn{{".text", 2}, {".text", 3}, {".text", 4}}, "[1 -1 -1]"},
		{"without names, as many", []fn{{".text", 1}, {".text", 2}}, []fn{{".text", 2}, {".text", 3}}, "[1 0]"},
		{"without sections, too", []fn{{"", 1}, {"", 2}}, []fn{{"", 3}}, "[-1]"},
		{"in other sections", []fn{{".plt", 1}}, []fn{{".text", 2}}, "[-1]"},
	} {
		d := &differ{seed: maphash.MakeSeed()}
		for i, fns := range [][]fn{tt.old, tt.new} {
			s := &d.sides[i]
			for j, f := range fns {
				s.pieces = append(s.pieces, piece{begin: uint64(j) * 16, end: uint64(j)*16 + 16, first: uint32(j), last: uint32(j) + 1, name: f.name})
				s.tokens = append(s.tokens, token{0, f.row})
			}
		}
		got := make([]int, len(tt.new))
		for i := range got {
			got[i] = -1
		}
		pairs := d.pairs(false)
		for i, p := range pairs[:len(tt.new)] {
			if p[0] != nil {
				got[i] = slices.IndexFunc(d.sides[0].pieces, func(q piece) bool { return q.begin == p[0].begin })
			}
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%s: %v; %s was expected", tt.what, got, tt.want)
		}
		if n := len(tt.old) + len(tt.new); len(pairs) > n || len(pairs) < max(len(tt.old), len(tt.new)) {
			t.Errorf("%s: %d pairs", tt.what, len(pairs))
		}
	}
}

// TestRowNumbers gives rows that say the same one number, whatever type their FDEs have.
func TestRowNumbers(t *testing.T) {
	d := &differ{rows: make(map[diffRow]uint32), words: []string{""}}
	r := &sideReader{differ: d, sec: &sframe.Section{Header: sframe.Header{ABI: sframe.AMD64Little}}, numbers: make(map[uint32]uint32)}
	rule := func(b sframe.Base, reg uint16, offset int32, deref bool) sframe.Rule {
		return sframe.Rule{Base: b, Reg: reg, Offset: offset, Deref: deref}
	}
	sp, fp := rule(sframe.SP, 0, 16, false), rule(sframe.CFA, 0, -16, true)
	reader := &sframe.Reader{Rows: []sframe.Row{
		{CFA: sp, FP: fp},
		{CFA: rule(sframe.Register, 7, 16, false), FP: fp},                                    // SP has number 7
		{CFA: rule(sframe.Register, 7, 16, false), RA: rule(sframe.CFA, 0, -8, true), FP: fp}, // where the return address always is
		{CFA: rule(sframe.Register, 6, 16, false), FP: fp},
		{CFA: sp, RA: rule(sframe.CFA, 0, -8, false), FP: fp},
		{CFA: sp, RA: rule(sframe.CFA, 0, -24, true), FP: fp},
		{Outermost: true},
	}}
	var got []uint32
	for i := range reader.Rows {
		got = append(got, r.number(reader, uint32(i), false, false))
	}
	got = append(got, r.number(reader, 0, true, false), r.number(reader, 0, false, true), r.number(reader, 0, false, false))
	if want := []uint32{1, 1, 1, 2, 3, 4, 5, 6, 7, 1}; !slices.Equal(got, want) {
		t.Errorf("numbers are %v; %v were expected", got, want)
	}
	if d.words[1] != "CFA sp+16, RA u, FP *(c-16)" || d.words[2] != "CFA fp+16, RA u, FP *(c-16)" || d.words[5] != "no caller" || d.words[6] != d.words[1]+", signal frame" {
		t.Errorf("in words they are %q", d.words)
	}
}
