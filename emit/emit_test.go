package emit

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/sframe"
)

func build(t *testing.T, opt Options) *Builder {
	t.Helper()
	opt.Version, opt.ABI = sframe.V2, sframe.AMD64Little
	b, err := NewBuilder(opt)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sp(start uint32, off int32) sframe.FRE {
	return sframe.FRE{Start: start, CFA: sframe.Rule{Base: sframe.SP, Offset: off}}
}

func fp(start uint32, off, saved int32) sframe.FRE {
	return sframe.FRE{Start: start, CFA: sframe.Rule{Base: sframe.FP, Offset: off}, FP: sframe.Rule{Base: sframe.CFA, Offset: saved, Deref: true}}
}

// TestBytes spells a section out by the structures of the format document.
func TestBytes(t *testing.T) {
	b := build(t, Options{})
	add := func(d sframe.FDE, fres ...sframe.FRE) {
		t.Helper()
		if err := b.Add(d, fres); err != nil {
			t.Fatal(err)
		}
	}
	// The second function first: Encode sorts.
	add(sframe.FDE{Start: 0x2020, Size: 0x40, PCMask: true, RepSize: 16}, sp(0, 8), sp(11, 16))
	add(sframe.FDE{Start: 0x1000, Size: 0x200}, sp(0, 8), sp(1, 8), fp(4, 16, -16), sframe.FRE{Start: 0x1ff, Outermost: true})
	got, err := b.Encode(0x10000)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(
		[]byte{0xe2, 0xde, 2, 1}, // magic, version, flags: sorted
		[]byte{3, 0, 0xf8, 0},    // amd64, fixed FP and RA offsets, auxiliary header
		[]byte{2, 0, 0, 0},       // FDEs
		[]byte{5, 0, 0, 0},       // FREs
		[]byte{18, 0, 0, 0},      // bytes of FREs
		[]byte{0, 0, 0, 0},       // FDEs behind the header
		[]byte{40, 0, 0, 0},      // FREs behind the header

		[]byte{0x00, 0x10, 0xff, 0xff}, // 0x1000 - 0x10000
		[]byte{0, 2, 0, 0},             // size
		[]byte{6, 0, 0, 0},             // FREs at
		[]byte{3, 0, 0, 0},             // number of FREs
		[]byte{1, 0, 0, 0},             // info: 2-byte start addresses
		[]byte{0x20, 0x20, 0xff, 0xff},
		[]byte{0x40, 0, 0, 0},
		[]byte{0, 0, 0, 0},
		[]byte{2, 0, 0, 0},
		[]byte{0x10, 16, 0, 0}, // info: PC mask; blocks of 16 bytes

		[]byte{0, 1<<1 | 1, 8}, // SP-based, one word
		[]byte{11, 1<<1 | 1, 16},
		[]byte{0, 0, 1<<1 | 1, 8}, // the equal row at 1 is merged
		[]byte{4, 0, 2 << 1, 16, 0xf0},
		[]byte{0xff, 1, 0}, // no words: outermost
	)
	if !bytes.Equal(got, want) {
		t.Errorf("section\n got % x\nwant % x", got, want)
	}
	if b.Size() != uint64(len(want)) {
		t.Errorf("Size is %d, the section has %d bytes", b.Size(), len(want))
	}
}

// TestPCRel checks start addresses that count from their own field.
func TestPCRel(t *testing.T) {
	b := build(t, Options{PCRel: true})
	for _, start := range []uint64{0x1000, 0x3000} {
		if err := b.Add(sframe.FDE{Start: start, Size: 16}, []sframe.FRE{sp(0, 8)}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Encode(0x2000)
	if err != nil {
		t.Fatal(err)
	}
	if got[3] != 5 {
		t.Errorf("flags %#x, want 5", got[3])
	}
	// The fields are at 28 and 48.
	if want := []byte{0xe4, 0xef, 0xff, 0xff}; !bytes.Equal(got[28:32], want) {
		t.Errorf("first start address % x, want % x", got[28:32], want)
	}
	if want := []byte{0xd0, 0x0f, 0, 0}; !bytes.Equal(got[48:52], want) {
		t.Errorf("second start address % x, want % x", got[48:52], want)
	}
}

// TestWidths checks that rows take the smallest widths.
func TestWidths(t *testing.T) {
	for _, tt := range []struct {
		rows []sframe.FRE
		size uint64 // of the FREs in bytes
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
		// The function is large in every case: only the last row counts.
		if err := b.Add(sframe.FDE{Start: 0x1000, Size: 1 << 24}, tt.rows); err != nil {
			t.Fatal(err)
		}
		if got := b.Size() - 28 - 20; got != tt.size {
			t.Errorf("%+v take %d bytes, want %d", tt.rows, got, tt.size)
		}
		data, err := b.Encode(0x1000)
		if err != nil {
			t.Fatal(err)
		}
		s, err := sframe.Decode(data, 0x1000)
		if err != nil {
			t.Fatal(err)
		}
		if rows, err := s.FREs(0, nil); err != nil || !slices.Equal(rows, tt.rows) {
			t.Errorf("%+v are read back as %+v, error %v", tt.rows, rows, err)
		}
	}
}

// TestErrors checks what cannot be written.
func TestErrors(t *testing.T) {
	reg := sp(0, 8)
	reg.CFA = sframe.Rule{Base: sframe.Register, Reg: 10}
	drap := sp(0, -8)
	drap.CFA = sframe.Rule{Base: sframe.FP, Offset: -8, Deref: true}
	saved := sp(0, 8)
	saved.FP = sframe.Rule{Base: sframe.Register, Reg: 3}
	for _, tt := range []struct {
		row  sframe.FRE
		want string
	}{
		{reg, "row with CFA r10+0, RA u, FP u has no form in SFRAME_VERSION_2"},
		{drap, "CFA *(fp-8)"},
		{saved, "FP r3+0"},
	} {
		err := build(t, Options{}).Add(sframe.FDE{Start: 0x1000, Size: 16}, []sframe.FRE{tt.row})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
	b := build(t, Options{})
	if err := b.Add(sframe.FDE{Start: 0x1000, Size: 16}, []sframe.FRE{sp(0, 8)}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Encode(1 << 32); err == nil || !strings.Contains(err.Error(), "more than 2 GiB away") {
		t.Errorf("error %v for a function 4 GiB away", err)
	}
	if _, err := NewBuilder(Options{Version: 9, ABI: sframe.AMD64Little}); err == nil {
		t.Error("version 9 is accepted")
	}
	if _, err := NewBuilder(Options{Version: sframe.V2, ABI: 9}); err == nil {
		t.Error("ABI 9 is accepted")
	}
}
