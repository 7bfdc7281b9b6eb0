package sframe

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestReaderLists reads FDEs that share a list, a part of a list, or bytes of a list with a different FRE type.
func TestReaderLists(t *testing.T) {
	c, r := codec(t, V2, AMD64Little), rand.New(rand.NewPCG(1, 2))
	var fres []FRE
	for i := range uint32(60) {
		fres = append(fres, FRE{i, Row{CFA: sp(int32(i))}})
	}
	data := section(t, c, 0, 0, slices.Repeat([]entry{{FDE{Size: 60}, fres}}, 100)...)
	total := uint32(0)
	for i := range 100 {
		d, num := data[28+20*i:], []uint32{0, 1, 52, 55, 57}[r.IntN(5)]
		binary.LittleEndian.PutUint32(d[4:], 50+r.Uint32N(11))
		binary.LittleEndian.PutUint32(d[8:], 3*r.Uint32N(3)) // offset of the list
		binary.LittleEndian.PutUint32(d[12:], num)
		if total += num; r.IntN(8) == 0 {
			d[16] = byte(Addr2)
		}
	}
	binary.LittleEndian.PutUint32(data[12:], total)
	s := must.Get(Decode(data, 0))(t)
	reader := s.NewReader()
	for n := range 5000 { // more rows than the section has bytes
		i := r.IntN(100)
		if n < 200 {
			i = n / 2
		}
		want, wantErr := s.FREs(i, nil)
		_, refs, err := reader.Refs(i)
		var got []FRE
		for _, ref := range refs {
			got = append(got, FRE{ref.Start, reader.Rows[ref.Row]})
		}
		if !slices.Equal(got, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Fatalf("FDE %d: %v, error %v; want %v, error %v", i, got, err, want, wantErr)
		}
	}
	if most := 2 * len(data); cap(reader.refs) > most || len(reader.lists) > most {
		t.Errorf("%d bytes need %d FREs and %d lists", cap(reader.refs), len(reader.lists), len(data))
	}
}
