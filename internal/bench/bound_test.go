package main

import (
	"testing"

	"cfi2sframe/emit"
	"cfi2sframe/sframe"
)

// TestBound holds bounds against the best there is, which is known for so few functions.
func TestBound(t *testing.T) {
	for _, test := range []struct {
		name      string
		gap       uint64    // behind each function
		functions [][]int32 // the CFA's offsets from SP
		fdes      int
		attrs     int    // of FDEs with rows of their own, in V3
		rows      [2]int // in V2 and in V3, of 3 bytes each
		exact     bool
	}{
		{"one", 8, [][]int32{{8, 16, 24}}, 1, 1, [2]int{3, 3}, true},
		{"different", 8, [][]int32{{8, 16, 24}, {32, 40, 48}}, 2, 2, [2]int{6, 6}, true},
		{"equal", 8, [][]int32{{8, 16, 24}, {8, 16, 24}, {8, 16, 24}}, 3, 1, [2]int{3, 3}, true},
		{"without gap", 0, [][]int32{{8, 16, 24}, {32, 40, 48}}, 1, 1, [2]int{6, 6}, true},
		{"beginning", 8, [][]int32{{8, 16, 24}, {8, 16}}, 2, 2, [2]int{3, 5}, false},
	} {
		for i, v := range []sframe.Version{sframe.V2, sframe.V3} {
			l, _ := v.Layout()
			out, err := emit.NewBuilder(emit.Options{Version: v, ABI: sframe.AMD64Little})
			if err != nil {
				t.Fatal(err)
			}
			at := uint64(0x1000)
			for _, offsets := range test.functions {
				var fres []sframe.FRE
				for j, o := range offsets {
					fres = append(fres, sframe.FRE{Start: 4 * uint32(j), CFA: sframe.Rule{Base: sframe.SP, Offset: o}})
				}
				if err := out.Add(sframe.FDE{Start: at, Size: 32}, fres); err != nil {
					t.Fatal(err)
				}
				at += 32 + test.gap
			}
			data, err := out.Encode(0)
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
