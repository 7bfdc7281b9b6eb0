package bench

import (
	"testing"

	"cfi2sframe/emit"
	"cfi2sframe/sframe"
)

// TestBound holds bounds against the best there is, which is known for so few functions.
func TestBound(t *testing.T) {
	var many []int32
	for i := range int32(20) {
		many = append(many, 4*i)
	}
	for _, test := range []struct {
		name      string
		gap       uint64    // after each function
		functions [][]int32 // the CFA's offsets from SP
		first     []uint32  // how long the first row of each function is, or 4
		fdes      int
		attrs     int    // of FDEs with rows of their own, in V3
		rows      [2]int // in V2 and in V3, of 3 bytes each
		exact     bool
	}{
		{"one", 8, [][]int32{{8, 16, 24}}, nil, 1, 1, [2]int{3, 3}, true},
		{"different", 8, [][]int32{{8, 16, 24}, {32, 40, 48}}, nil, 2, 2, [2]int{6, 6}, true},
		{"equal", 8, [][]int32{{8, 16, 24}, {8, 16, 24}, {8, 16, 24}}, nil, 3, 1, [2]int{3, 3}, true},
		{"without gap", 0, [][]int32{{8, 16, 24}, {32, 40, 48}}, nil, 1, 1, [2]int{6, 6}, true},
		{"without gap, with a row in common", 0, [][]int32{{8, 16, 24}, {24, 32}}, nil, 1, 1, [2]int{4, 4}, true},
		// The second function begins with an FDE of its own in the middle of the first row.
		{"later", 8, [][]int32{many, many}, []uint32{4, 9}, 3, 2, [2]int{20, 21}, false},
		{"beginning", 8, [][]int32{{8, 16, 24}, {8, 16}}, nil, 2, 2, [2]int{3, 5}, false},
	} {
		for i, v := range []sframe.Version{sframe.V2, sframe.V3} {
			l, _ := v.Layout()
			out, err := emit.NewBuilder(emit.Options{Version: v, ABI: sframe.AMD64Little})
			if err != nil {
				t.Fatal(err)
			}
			at := uint64(0x1000)
			for k, offsets := range test.functions {
				var fres []sframe.FRE
				start, step := uint32(0), uint32(4)
				if test.first != nil {
					step = test.first[k]
				}
				for _, o := range offsets {
					fres = append(fres, sframe.FRE{Start: start, Row: sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: o}}})
					start, step = start+step, 4
				}
				if _, err := out.Add(sframe.FDE{Start: at, Size: start}, out.Refs(fres)); err != nil {
					t.Fatal(err)
				}
				at += uint64(start) + test.gap
			}
			data, err := emit.Join([]*emit.Builder{out}).Encode(0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := sframe.Decode(data, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := bound(s)
			if err != nil {
				t.Fatal(err)
			}
			want := l.HeaderSize + test.fdes*l.FDESize + test.attrs*l.AttrSize + 3*test.rows[i]
			if got > uint64(want) || test.exact && got != uint64(want) {
				t.Errorf("%s, %v: bound is %d; the best has %d", test.name, v, got, want)
			}
		}
	}
}
