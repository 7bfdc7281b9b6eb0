package sframe

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

// TestTypeFor checks that start addresses are unsigned and have the smallest sufficient size: 1, 2 or 4 bytes.
func TestTypeFor(t *testing.T) {
	for _, tt := range []struct {
		last uint32
		typ  FREType
		size int
	}{{0, Addr1, 1}, {0xff, Addr1, 1}, {0x100, Addr2, 2}, {0xffff, Addr2, 2}, {0x10000, Addr4, 4},
		{math.MaxUint32, Addr4, 4}} {
		if got := TypeFor(tt.last); got != tt.typ || got.Size() != tt.size {
			t.Errorf("%#x: type %d of %d bytes, want %d of %d", tt.last, got, got.Size(), tt.typ, tt.size)
		}
	}
	for _, a := range []ABI{AMD64Little, S390XBig} {
		c := codec(t, V2, a)
		for typ, want := range map[FREType]string{Addr1: "04", Addr2: "0304", Addr4: "01020304"} {
			got := c.AppendStart(nil, 0x01020304, typ)
			if c.Start(got, typ) != 0x01020304&(1<<(8*typ.Size())-1) {
				t.Errorf("%v: % x is read as %#x", a, got, c.Start(got, typ))
			}
			if a == AMD64Little {
				slices.Reverse(got)
			}
			if fmt.Sprintf("%x", got) != want {
				t.Errorf("%v: a start of %d bytes is %x, want %s", a, typ.Size(), got, want)
			}
		}
	}
}

// TestIsSection checks that IsSection examines only the magic number.
func TestIsSection(t *testing.T) {
	for b, want := range map[string]bool{"": false, "\xe2": false, "\xe2\xde": true, "\xde\xe2": true,
		"\xe2\xde\xff": true, "\xe2\xe2": false, "\xde\xde": false} {
		if IsSection([]byte(b)) != want {
			t.Errorf("% x: %t", b, !want)
		}
	}
}

// TestFindSection finds the only section with the name or type; the first header is reserved.
func TestFindSection(t *testing.T) {
	for _, tt := range []struct {
		names string // S: .sframe
		want  int
		err   string
	}{{"", 0, ""}, {"S", 0, ""}, {"--", 0, ""}, {"SS-", 1, ""}, {"--S", 2, ""},
		{"-SS", 0, "sections 1 and 2 are both"}} {
		got, err := FindSection(len(tt.names), func(i int) (string, uint32) {
			return map[byte]string{'S': SectionName, '-': ".text"}[tt.names[i]], 1
		})
		if got != tt.want || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: section %d, error %v", tt.names, got, err)
		}
	}
}

// TestNoFREs decodes FDEs without FREs: in V3 the function has no caller; in other versions it has no rows.
func TestNoFREs(t *testing.T) {
	for _, tt := range []struct {
		v        Version
		flexible bool
		want     []FRE
	}{{V2, false, nil}, {V3, false, []FRE{{0, Row{Outermost: true}}}}, {V3, true, nil}} {
		flags := FDESorted
		if tt.v == V3 {
			flags |= FDEFuncStartPCRel
		}
		s := must.Get(Decode(section(t, codec(t, tt.v, AMD64Little), flags, 0,
			entry{FDE{Start: 0x1000, Size: 8, Flexible: tt.flexible}, nil}), 0))(t)
		fres, err := s.FREs(0, nil)
		if err != nil || !slices.Equal(fres, tt.want) {
			t.Errorf("%v, flexible %t: %v, error %v, want %v", tt.v, tt.flexible, fres, err, tt.want)
		}
		reader, got := s.NewReader(), []FRE{}
		_, refs, err := reader.Refs(0)
		for _, ref := range refs {
			got = append(got, FRE{ref.Start, reader.Rows[ref.Row]})
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%v, flexible %t: Reader finds %v, error %v", tt.v, tt.flexible, got, err)
		}
	}
	// A row of one byte at the end of the section.
	last := []FRE{{0, Row{Outermost: true}}}
	data := section(t, codec(t, V2, AMD64Little), FDESorted, 0, entry{FDE{Start: 0x1000, Size: 8}, last})
	if fres, err := must.Get(Decode(data, 0))(t).FREs(0, nil); err != nil || !slices.Equal(fres, last) {
		t.Errorf("a row without data words: %v, error %v", fres, err)
	}
}

// TestRuleNames prints rules in the usual notation.
func TestRuleNames(t *testing.T) {
	for want, r := range map[string]Rule{"none": {}, "sp+8": sp(8), "fp-16": fp(-16), "*(c-16)": slot(-16),
		"r10+0": at(10, 0), "*(r6-8)": deref(6, -8)} {
		if r.String() != want {
			t.Errorf("%#v is printed as %s, want %s", r, r, want)
		}
	}
	for want, r := range map[string]Row{"outermost": {Outermost: true}, "CFA sp+16, RA none, FP none": {CFA: sp(16)},
		"CFA sp+16, RA *(c-8), FP *(c-16), signed": {CFA: sp(16), RA: slot(-8), FP: slot(-16), Signed: true}} {
		if r.String() != want {
			t.Errorf("%#v is printed as %s, want %s", r, r, want)
		}
	}
}

// TestLayouts compares the Layout of each version with the format document: record sizes, flags, ABIs and features.
func TestLayouts(t *testing.T) {
	before := []ABI{AArch64Big, AArch64Little, AMD64Little}
	abis := append(slices.Clone(before), S390XBig)
	for v, want := range map[Version]Layout{
		V1: {HeaderSize: 28, FDESize: 17, StartSize: 4, Flags: 1 | 2, MaxFREs: 1<<32 - 1, ABIs: before},
		V2: {HeaderSize: 28, FDESize: 20, StartSize: 4, Flags: 1 | 2 | 4, MaxFREs: 1<<32 - 1, ABIs: abis,
			RepSize: true, Errata2: true, RegWords: true, Objects: true},
		V3: {HeaderSize: 28, FDESize: 16, AttrSize: 5, StartSize: 8, Flags: 1 | 4, MaxFREs: 1<<16 - 1, ABIs: abis,
			PCRel: true, RepSize: true, Signal: true, Flexible: true, Outermost: true, Errata2: true, Objects: true},
	} {
		if got, ok := v.Layout(); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, want %+v", v, got, want)
		}
		for a := range ABI(8) {
			_, err := NewCodec(v, a)
			if (err == nil) != slices.Contains(want.ABIs, a) || (a.Order() != nil) != slices.Contains(abis, a) {
				t.Errorf("%v, %v: byte order %v, error %v", v, a, a.Order(), err)
			}
		}
	}
	if got := Versions(); !slices.Equal(got, []Version{V1, V2, V3}) || V2.String() != "SFRAME_VERSION_2" {
		t.Errorf("versions %v", got)
	}
	for _, v := range []Version{0, 4, 255} {
		_, ok := v.Layout()
		if _, err := NewCodec(v, AMD64Little); ok || err == nil || !strings.HasSuffix(err.Error(), "is unknown") {
			t.Errorf("%v: known %t, error %v", v, ok, err)
		}
	}
	if got := ABI(9).String(); got != "ABI(9)" || ABI(9).Order() != nil {
		t.Errorf("ABI 9 is %s", got)
	}
	for abi, want := range map[ABI][3]int{AArch64Big: {31, 29, 0}, AArch64Little: {31, 29, 0}, AMD64Little: {7, 6, -8},
		S390XBig: {15, 11, 0}} {
		if got := [3]int{int(abi.SP()), int(abi.FP()), int(abi.FixedRA())}; got != want {
			t.Errorf("%v: registers and fixed RA %d, want %d", abi, got, want)
		}
	}
}

// TestLookupFixed looks up rows with the offsets that the header fixes for all functions (section "SFrame Header": FP
// and RA are the signed bytes 5 and 6). A row's own rules take precedence.
func TestLookupFixed(t *testing.T) {
	data := section(t, codec(t, V2, AArch64Little), FDESorted, 0x8000, entry{FDE{Start: 0x1000, Size: 16}, []FRE{
		{0, Row{CFA: sp(0)}}, {4, Row{CFA: sp(16), RA: slot(-8), FP: slot(-24)}},
	}})
	for _, tt := range []struct {
		fp, ra byte
		want   [2]Row
	}{
		{0, 0, [2]Row{{CFA: sp(0)}, {CFA: sp(16), RA: slot(-8), FP: slot(-24)}}},
		{0, 0xf8, [2]Row{{CFA: sp(0), RA: slot(-8)}, {CFA: sp(16), RA: slot(-8), FP: slot(-24)}}},
		{0xf0, 0, [2]Row{{CFA: sp(0), FP: slot(-16)}, {CFA: sp(16), RA: slot(-8), FP: slot(-24)}}},
	} {
		data[5], data[6] = tt.fp, tt.ra
		outermost := Row{Outermost: true}
		s := must.Get(Decode(data, 0x8000))(t)
		if got := s.Complete(outermost); got != outermost {
			t.Errorf("fixed %#x, %#x: a row without a caller becomes %v", tt.fp, tt.ra, got)
		}
		for i, want := range tt.want {
			m, ok, err := s.Lookup(0x1000 + uint64(4*i) + 1)
			if err != nil || !ok || m.Row != want || m.Start != uint32(4*i) || m.FDE.Start != 0x1000 ||
				m.FDE.Size != 16 {
				t.Errorf("fixed %#x, %#x: %+v, %+v, %t, error %v; want %v", tt.fp, tt.ra, m.FDE, m.Row, ok, err, want)
			}
		}
	}
}
