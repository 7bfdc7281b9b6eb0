package sframe

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestReaderTypes reads equal bytes as rows of a default and of a flexible FDE.
func TestReaderTypes(t *testing.T) {
	rows := []Row{{CFA: fp(0x39), FP: slot(8)}, {CFA: at(7, 8)}}
	data := section(t, codec(t, V3, AMD64Little), FDESorted|FDEFuncStartPCRel, 0,
		entry{FDE{Start: 0x1000, Size: 8}, []FRE{{0, rows[0]}}},
		entry{FDE{Start: 0x1008, Size: 8, Flexible: true}, []FRE{{0, rows[1]}}})
	reader := must.Get(Decode(data, 0))(t).NewReader()
	for i, want := range rows {
		if _, refs, err := reader.Refs(i); err != nil || len(refs) != 1 || reader.Rows[refs[0].Row] != want {
			t.Errorf("%v, error %v, want %v", reader.Rows, err, want)
		}
	}
}

// TestNumber numbers rows that differ in one bit, as rows of both FDE types. No number may refer to a different row.
func TestNumber(t *testing.T) {
	c := codec(t, V3, AArch64Little)
	reader := must.Get(Decode(section(t, c, FDESorted|FDEFuncStartPCRel, 0), 0))(t).NewReader()
	for _, row := range []uint64{0, 0xfff0fff8003026} { // no words; 3 words of two bytes
		for range 2 { // numbers of the second round come from the cache
			for bit := range 65 { // the first row is unchanged
				for _, flexible := range []bool{true, false} {
					b := binary.LittleEndian.AppendUint64(nil, row^1<<(64-bit))
					want, _, invalid := c.row(b, flexible)
					n, wrong := reader.number(b, flexible)
					if wrong != invalid || wrong == "" && reader.Rows[n] != want {
						t.Fatalf("% x, flexible %t: number %d of %+v, %q; want %+v, %q", b, flexible, n, reader.Rows,
							wrong, want, invalid)
					}
				}
			}
		}
	}
}

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
