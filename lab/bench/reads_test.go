package bench

import (
	"testing"

	"cfi2sframe/emit"
	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

// TestReads counts the rows that linear readers read in a function and in the blocks of a PLT.
func TestReads(t *testing.T) {
	b := must.Get(emit.NewBuilder(emit.Options{Version: sframe.V3, ABI: sframe.AMD64Little}))(t)
	row := func(start uint32, cfa int32) sframe.FRE {
		return sframe.FRE{Start: start, Row: sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: cfa}}}
	}
	must.Get(b.Add(sframe.FDE{Start: 0x1000, Size: 10}, b.Refs([]sframe.FRE{row(0, 8), row(1, 16), row(9, 8)})))(t)
	must.Get(b.Add(sframe.FDE{Start: 0x1010, Size: 32, PCMask: true, RepSize: 16},
		b.Refs([]sframe.FRE{row(0, 8), row(11, 16)})))(t)
	s := must.Get(sframe.Decode(must.Get(emit.Join([]*emit.Builder{b}).Encode(0x2000))(t), 0x2000))(t)
	code, rows, err := reads(s)
	if want := uint64(1 + 8*2 + 1*3 + 2*(11*1+5*2)); err != nil || code != 10+32 || rows != want {
		t.Errorf("%d rows for %d bytes, error %v; want %d for 42", rows, code, err, want)
	}
}
