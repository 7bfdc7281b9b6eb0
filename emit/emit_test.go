package emit

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
	"cfi2sframe/sframe"
)

func build(t *testing.T, opt Options) *Builder {
	t.Helper()
	opt.Version, opt.ABI = sframe.V2, sframe.AMD64Little
	return must.Get(NewBuilder(opt))(t)
}

// addTo adds a function whose rows have no numbers yet.
func addTo(b *Builder, d sframe.FDE, fres []sframe.FRE) error {
	_, err := b.Add(d, b.Refs(fres))
	return err
}

// join returns the section of a single Builder.
func join(b *Builder) *Section { return Join([]*Builder{b}) }

func sp(start uint32, off int32) sframe.FRE {
	return sframe.FRE{Start: start, Row: sframe.Row{CFA: sframe.Rule{Base: sframe.SP, Offset: off}}}
}

func fp(start uint32, off, saved int32) sframe.FRE {
	return sframe.FRE{Start: start, Row: sframe.Row{
		CFA: sframe.Rule{Base: sframe.FP, Offset: off}, FP: sframe.Rule{Base: sframe.CFA, Offset: saved, Deref: true},
	}}
}

// TestWidths checks that start addresses and data words have the smallest sufficient size.
func TestWidths(t *testing.T) {
	for _, tt := range []struct {
		rows []sframe.FRE
		size uint64 // size of the FREs in bytes
	}{
		{[]sframe.FRE{sp(0, 127)}, 3},
		{[]sframe.FRE{sp(0, 128)}, 4},
		{[]sframe.FRE{sp(0, -128)}, 3},
		{[]sframe.FRE{sp(0, -129)}, 4},
		{[]sframe.FRE{sp(0, math.MaxInt16)}, 4},
		{[]sframe.FRE{sp(0, math.MaxInt16+1)}, 6},
		{[]sframe.FRE{sp(0, math.MinInt32)}, 6},
		{[]sframe.FRE{fp(0, 16, -16)}, 4},
		{[]sframe.FRE{fp(0, 16, -200)}, 6},
		{[]sframe.FRE{fp(0, 1<<20, -16)}, 10},
		{[]sframe.FRE{sp(0, 8), sp(255, 16)}, 6},
		{[]sframe.FRE{sp(0, 8), sp(256, 16)}, 8},
		{[]sframe.FRE{sp(0, 8), sp(65535, 16)}, 8},
		{[]sframe.FRE{sp(0, 8), sp(65536, 16)}, 12},
	} {
		b := build(t, Options{})
		// The width depends on the start of the last row, not on the size of the function.
		must.Do(t, addTo(b, sframe.FDE{Start: 0x1000, Size: 1 << 24}, tt.rows))
		section := join(b)
		if got := section.Size() - 28 - 20; got != tt.size {
			t.Errorf("%+v take %d bytes, want %d", tt.rows, got, tt.size)
		}
		data := must.Get(section.Encode(0x1000))(t)
		s := must.Get(sframe.Decode(data, 0x1000))(t)
		if rows, err := s.FREs(0, nil); err != nil || !slices.Equal(rows, tt.rows) {
			t.Errorf("%+v decode as %+v, error %v", tt.rows, rows, err)
		}
	}
}

// TestObject encodes the FDEs of an object like GNU as: unsorted, and without start addresses. The size is aligned.
func TestObject(t *testing.T) {
	for _, pcrel := range []bool{false, true} {
		b := build(t, Options{Align: 8, PCRel: pcrel})
		for _, start := range []uint64{0x2000, 0x1000} {
			d := sframe.FDE{Start: start, Size: 16, PCMask: true, RepSize: 16}
			must.Do(t, addTo(b, d, []sframe.FRE{sp(0, 8)}))
		}
		section := join(b)
		data, starts, err := section.EncodeObject()
		flags := sframe.Flags(0)
		if pcrel {
			flags = sframe.FDEFuncStartPCRel
		}
		if err != nil || !slices.Equal(starts, []Start{{28, 0x2000}, {48, 0x1000}}) || data[3] != byte(flags) ||
			!bytes.Equal(data[28:32], make([]byte, 4)) || !bytes.Equal(data[48:52], make([]byte, 4)) ||
			!bytes.Equal(data[44:48], []byte{0x10, 16, 0, 0}) { // 1-byte start addresses, PC-mask
			t.Errorf("pcrel %t: starts %+v, error %v, section % x", pcrel, starts, err, data)
		}
		const want = 28 + 2*20 + 2*3 + 6 // 6 for the alignment
		if section.Size() != want || len(data) != want {
			t.Errorf("pcrel %t: %d bytes, size %d, want %d", pcrel, len(data), section.Size(), want)
		}
	}
	opt := Options{Version: sframe.V1, ABI: sframe.AMD64Little, PCRel: true}
	if _, err := NewBuilder(opt); err == nil || !strings.Contains(err.Error(), "does not support start addresses") {
		t.Errorf("V1 with start addresses relative to their fields: error %v", err)
	}
}

// TestErrors adds functions that cannot be encoded.
func TestErrors(t *testing.T) {
	reg := sp(4, 8)
	reg.CFA = sframe.Rule{Base: sframe.Register, Reg: 10}
	drap := sp(4, -8)
	drap.CFA = sframe.Rule{Base: sframe.FP, Offset: -8, Deref: true}
	saved := sp(4, 8)
	saved.FP = sframe.Rule{Base: sframe.Register, Reg: 3}
	for _, tt := range []struct {
		row  sframe.FRE
		want string
	}{
		{reg, "row at 0x4 cannot be expressed in SFRAME_VERSION_2"},
		{drap, "function at 0x1000"},
		{saved, "cannot be expressed"},
	} {
		err := addTo(build(t, Options{}), sframe.FDE{Start: 0x1000, Size: 16}, []sframe.FRE{sp(0, 8), tt.row})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
	// A PC-mask function that has a row for a flexible FDE, and so many default rows that two FDEs would be smaller.
	rows := []sframe.FRE{r10(0)}
	for i := range uint32(30) {
		rows = append(rows, sp(1+i, int32(8*i)))
	}
	err := addTo(v3(t), sframe.FDE{Start: 0x1000, Size: 64, PCMask: true, RepSize: 32}, rows)
	if err == nil || !strings.Contains(err.Error(), "cannot be split") {
		t.Errorf("error %v for a PC-mask function of two types", err)
	}
	must.Do(t, addTo(v3(t), sframe.FDE{Start: 0x1000, Size: 64, PCMask: true, RepSize: 32}, rows[:1]))
	b := build(t, Options{})
	must.Do(t, addTo(b, sframe.FDE{Start: 0x1000, Size: 16}, []sframe.FRE{sp(0, 8)}))
	s := join(b)
	if _, err := s.Encode(1 << 32); err == nil || !strings.Contains(err.Error(), "more than 2 GiB from") {
		t.Errorf("error %v for a function 4 GiB away", err)
	}
	s.num = math.MaxUint32
	if _, err := s.Encode(0); err != nil {
		t.Errorf("error %v for 2^32-1 rows", err)
	}
	for _, n := range []struct{ rows, size uint64 }{{1 << 32, 0}, {0, 1 << 32}} {
		s.num, s.lists.size = n.rows, n.size
		_, err := s.Encode(0)
		_, _, ofObject := s.EncodeObject()
		if err == nil || ofObject == nil || !strings.Contains(err.Error(), "exceed the fields of the header") {
			t.Errorf("error %v for %d rows in %d bytes", err, s.num, s.Size())
		}
	}
	if _, err := NewBuilder(Options{Version: 9, ABI: sframe.AMD64Little}); err == nil {
		t.Error("version 9 is accepted")
	}
	if _, err := NewBuilder(Options{Version: sframe.V2, ABI: 9}); err == nil {
		t.Error("ABI 9 is accepted")
	}
}

func v3(t *testing.T) *Builder {
	t.Helper()
	return must.Get(NewBuilder(Options{Version: sframe.V3, ABI: sframe.AMD64Little}))(t)
}

func r10(start uint32) sframe.FRE {
	return sframe.FRE{Start: start, Row: sframe.Row{CFA: sframe.Rule{Base: sframe.Register, Reg: 10}}}
}

// TestBytesV3 compares a section with the bytes that GNU as 2.47 emits for a DRAP function.
func TestBytesV3(t *testing.T) {
	b := v3(t)
	slot := sframe.Rule{Base: sframe.FP, Deref: true}
	rows := []sframe.FRE{
		sp(0, 8), r10(5),
		{Start: 0x11, Row: sframe.Row{CFA: sframe.Rule{Base: sframe.Register, Reg: 10}, FP: slot}},
		{Start: 0x13, Row: sframe.Row{CFA: sframe.Rule{Base: sframe.FP, Offset: -8, Deref: true}, FP: slot}},
	}
	must.Do(t, addTo(b, sframe.FDE{Start: 0x1033, Size: 0x32}, rows))
	got := must.Get(join(b).Encode(0x2000))(t)
	want := slices.Concat(
		[]byte{0xe2, 0xde, 3, 5, 3, 0, 0xf8, 0, 1, 0, 0, 0, 4, 0, 0, 0, 27, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0},
		[]byte{0x17, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x32, 0, 0, 0, 0, 0, 0, 0}, // 0x1033 - 0x201c
		[]byte{4, 0, 0, 1, 0}, // 4 FREs, 1-byte start addresses, flexible, no blocks
		[]byte{0x00, 0x04, 0x39, 0x08},
		[]byte{0x05, 0x04, 0x51, 0x00},
		[]byte{0x11, 0x0a, 0x51, 0x00, 0x00, 0x33, 0x00},
		[]byte{0x13, 0x0a, 0x33, 0xf8, 0x00, 0x33, 0x00},
	)
	if !bytes.Equal(got, want) {
		t.Errorf("section\n got % x\nwant % x", got, want)
	}
}

// decode returns the FDEs of a section and their rows.
func decode(t *testing.T, section *Section) (fdes []sframe.FDE, rows [][]sframe.FRE) {
	t.Helper()
	data := must.Get(section.Encode(0x10000000))(t)
	s := must.Get(sframe.Decode(data, 0x10000000))(t)
	for i, d := range s.FDEs() {
		fres := must.Get(s.FREs(i, nil))(t)
		fdes, rows = append(fdes, d), append(rows, fres)
	}
	return fdes, rows
}

// TestManyRows checks that functions are split if they have more rows than V3 can count.
func TestManyRows(t *testing.T) {
	const n = 2*65535 + 10
	rows := make([]sframe.FRE, n)
	for i := range rows {
		rows[i] = sp(uint32(4*i), int32(8+8*(i%2)))
	}
	b := v3(t)
	must.Do(t, addTo(b, sframe.FDE{Start: 0x1000, Size: 4 * n}, rows))
	fdes, fres := decode(t, join(b))
	if len(fdes) != 3 || len(fres[0]) != 65535 || len(fres[1]) != 65535 || len(fres[2]) != 10 {
		t.Fatalf("%d FDEs", len(fdes))
	}
	at := uint64(0x1000)
	for i, d := range fdes {
		if d.Start != at || fres[i][0].Start != 0 || d.Size != uint32(4*len(fres[i])) {
			t.Errorf("FDE %d is at %#x, %#x bytes, want %#x, %#x bytes", i, d.Start, d.Size, at, 4*len(fres[i]))
		}
		at = d.End()
	}
	if at != 0x1000+4*n {
		t.Errorf("FDEs end at %#x", at)
	}
}

// TestSplit checks that a function becomes one flexible FDE or several FDEs, whichever is smaller.
func TestSplit(t *testing.T) {
	long := func(from, to uint32) (rows []sframe.FRE) {
		for i := from; i < to; i++ {
			rows = append(rows, fp(4*i, int32(16+8*(i%2)), -16))
		}
		return rows
	}
	for _, tt := range []struct {
		name string
		rows []sframe.FRE
		want []bool // by FDE: flexible
	}{
		{"few default rows", slices.Concat(long(0, 6), []sframe.FRE{r10(24)}), []bool{true}},
		{"many default rows before", slices.Concat(long(0, 8), []sframe.FRE{r10(32)}), []bool{false, true}},
		{"many before, few after", slices.Concat(long(0, 30), []sframe.FRE{r10(120)}, long(31, 34)),
			[]bool{false, true}},
		{"many after", slices.Concat([]sframe.FRE{r10(0)}, long(1, 60)), []bool{true, false}},
		{"many on both sides", slices.Concat(long(0, 30), []sframe.FRE{r10(120)}, long(31, 60)),
			[]bool{false, true, false}},
		{"none flexible", long(0, 60), []bool{false}},
	} {
		b := v3(t)
		must.Do(t, addTo(b, sframe.FDE{Start: 0x1000, Size: 0x1000}, tt.rows))
		section := join(b)
		fdes, _ := decode(t, section)
		var got []bool
		for _, d := range fdes {
			got = append(got, d.Flexible)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: flexible %v, want %v", tt.name, got, tt.want)
		}
		// No other choice of types is smaller.
		for one := range 2 {
			size := 28 + 21
			for j := range tt.rows {
				row, ok := b.codec.AppendRow(nil, &tt.rows[j].Row, one == 1)
				if !ok {
					size = math.MaxInt32
				}
				size += 1 + len(row)
			}
			if section.Size() > uint64(size) {
				t.Errorf("%s: %d bytes, but one FDE has %d", tt.name, section.Size(), size)
			}
		}
	}
}
