package sframe

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/internal/testkit/must"
)

func codec(t testing.TB, v Version, a ABI) *Codec {
	t.Helper()
	return must.Get(NewCodec(v, a))(t)
}

func slot(off int32) Rule            { return Rule{Base: CFA, Offset: off, Deref: true} }
func reg(n uint16) Rule              { return Rule{Base: Register, Reg: n} }
func sp(off int32) Rule              { return Rule{Base: SP, Offset: off} }
func fp(off int32) Rule              { return Rule{Base: FP, Offset: off} }
func at(n uint16, off int32) Rule    { return Rule{Base: Register, Reg: n, Offset: off} }
func deref(n uint16, off int32) Rule { return Rule{Base: Register, Reg: n, Offset: off, Deref: true} }

// TestRows encodes rows as the format document specifies, and decodes them again.
func TestRows(t *testing.T) {
	const no = "" // cannot be encoded
	for _, tt := range []struct {
		version  Version
		abi      ABI
		row      Row
		flexible bool
		want     string // starting with the info word
	}{
		{V2, AMD64Little, Row{CFA: sp(8)}, false, "\x03\x08"},
		{V2, AMD64Little, Row{CFA: fp(16), FP: slot(-16)}, false, "\x04\x10\xf0"},
		{V2, AMD64Little, Row{CFA: sp(127)}, false, "\x03\x7f"},
		{V2, AMD64Little, Row{CFA: sp(128)}, false, "\x23\x80\x00"},
		{V2, AMD64Little, Row{CFA: sp(-128)}, false, "\x03\x80"},
		{V2, AMD64Little, Row{CFA: sp(-129)}, false, "\x23\x7f\xff"},
		{V2, AMD64Little, Row{CFA: sp(math.MaxInt16)}, false, "\x23\xff\x7f"},
		{V2, AMD64Little, Row{CFA: sp(math.MinInt16)}, false, "\x23\x00\x80"},
		{V2, AMD64Little, Row{CFA: sp(math.MinInt16 - 1)}, false, "\x43\xff\x7f\xff\xff"},
		{V2, AMD64Little, Row{CFA: sp(math.MaxInt16 + 1)}, false, "\x43\x00\x80\x00\x00"},
		{V2, AMD64Little, Row{CFA: sp(math.MinInt32)}, false, "\x43\x00\x00\x00\x80"},
		{V2, AMD64Little, Row{CFA: sp(8), FP: slot(math.MinInt16)}, false, "\x25\x08\x00\x00\x80"},
		{V2, AMD64Little, Row{Outermost: true}, false, "\x00"},
		{V2, AMD64Little, Row{CFA: sp(8), RA: slot(-16)}, false, no}, // the header gives a fixed RA offset
		{V2, AMD64Little, Row{CFA: at(10, 0)}, false, no},
		{V2, AMD64Little, Row{CFA: deref(6, -8)}, false, no},
		{V2, AMD64Little, Row{CFA: sp(8), FP: reg(3)}, false, no},
		{V2, AMD64Little, Row{CFA: sp(8), FP: Rule{Base: CFA, Offset: -16}}, false, no},
		{V2, AMD64Little, Row{CFA: sp(8), FP: Rule{Base: SP, Offset: -16, Deref: true}}, false, no},
		{V2, AMD64Little, Row{CFA: sp(8)}, true, no},
		{V1, AArch64Little, Row{CFA: sp(32), RA: slot(-8), FP: slot(-16), Signed: true}, false, "\x87\x20\xf8\xf0"},
		{V2, AArch64Little, Row{CFA: sp(0)}, false, "\x03\x00"},
		{V2, AArch64Little, Row{CFA: sp(32), FP: slot(-16)}, false, no}, // FP without RA
		{V2, AArch64Little, Row{CFA: sp(32), RA: slot(0)}, false, no},   // decodes as no rule
		{V2, AArch64Big, Row{CFA: sp(0x120), RA: slot(-8)}, false, "\x25\x01\x20\xff\xf8"},
		{V2, S390XBig, Row{CFA: sp(160)}, false, "\x03\x00"},
		{V2, S390XBig, Row{CFA: sp(320), RA: slot(-48), FP: slot(-72)}, false, "\x07\x14\xd0\xb8"},
		{V2, S390XBig, Row{CFA: sp(160), FP: slot(-72)}, false, "\x07\x00\x00\xb8"},
		{V2, S390XBig, Row{CFA: sp(160), RA: reg(17), FP: reg(16)}, false, "\x07\x00\x23\x21"},
		{V2, S390XBig, Row{CFA: sp(160), RA: reg(math.MaxUint16), FP: reg(16)}, false,
			"\x47\x00\x00\x00\x00\x00\x01\xff\xff\x00\x00\x00\x21"},
		{V2, S390XBig, Row{CFA: sp(160 + 8*128)}, false, "\x23\x00\x80"},
		{V2, S390XBig, Row{CFA: sp(164)}, false, no},
		{V2, S390XBig, Row{CFA: sp(160), RA: slot(-47)}, false, no},
		{V3, S390XBig, Row{CFA: sp(160), RA: reg(17)}, false, no},
		{V3, S390XBig, Row{CFA: at(15, 160), RA: reg(17)}, true, "\x08\x79\x00\x89\x00"},
		// Rows of a function with a realigned stack (DRAP).
		{V3, AMD64Little, Row{CFA: at(10, 0)}, true, "\x04\x51\x00"},
		{V3, AMD64Little, Row{CFA: at(10, 0), FP: deref(6, 0)}, true, "\x0a\x51\x00\x00\x33\x00"},
		{V3, AMD64Little, Row{CFA: deref(6, -8), FP: deref(6, 0)}, true, "\x0a\x33\xf8\x00\x33\x00"},
		{V3, AMD64Little, Row{CFA: at(7, 8), RA: slot(-8), FP: slot(-16)}, true, "\x0c\x39\x08\x02\xf8\x02\xf0"},
		{V3, AMD64Little, Row{CFA: at(7, 200)}, true, "\x24\x39\x00\xc8\x00"},
		{V3, AMD64Little, Row{CFA: at(32, 0)}, true, "\x24\x01\x01\x00\x00"}, // a control word of 9 bits
		{V3, AMD64Little, Row{CFA: at(math.MaxUint16, 8)}, true, "\x44\xf9\xff\x07\x00\x08\x00\x00\x00"},
		{V3, AMD64Little, Row{CFA: at(7, 1<<20), RA: slot(-8), FP: slot(-1 << 20)}, true,
			"\x4c\x39\x00\x00\x00\x00\x00\x10\x00\x02\x00\x00\x00\xf8\xff\xff\xff\x02\x00\x00\x00\x00\x00\xf0\xff"},
		{V3, AMD64Little, Row{Outermost: true}, true, "\x00"},
		{V3, AMD64Little, Row{CFA: at(7, 8), RA: Rule{Base: CFA}}, true, no}, // decodes as no rule
		{V3, AMD64Little, Row{CFA: Rule{Base: CFA, Offset: 8}}, true, no},
		{V3, AMD64Little, Row{CFA: slot(8)}, true, no},
		{V3, AMD64Little, Row{}, true, no},
	} {
		c := codec(t, tt.version, tt.abi)
		got, ok := c.AppendRow([]byte("x"), &tt.row, tt.flexible)
		if want := "x" + tt.want; string(got) != want || ok != (tt.want != no) {
			t.Errorf("%v, %v: %+v, flexible %t: % x, %t; want % x", tt.version, tt.abi, tt.row, tt.flexible,
				got, ok, want)
		}
		form := c.Default
		if tt.flexible {
			form = c.Flexible
		}
		if form(&tt.row) != ok {
			t.Errorf("%v, %v: %+v, flexible %t: reported encodable: %t, encoded: %t", tt.version, tt.abi, tt.row,
				tt.flexible, !ok, ok)
		}
		if !ok {
			continue
		}
		// Bytes after the row are ignored; a truncated row is an error.
		row, size, wrong := c.row(append([]byte(tt.want), 1, 2, 3), tt.flexible)
		if row != tt.row || size != len(tt.want) || size != RowSize(tt.want[0]) || wrong != "" {
			t.Errorf("%v, %v: % x, flexible %t, is read as %+v, %d bytes, %s; want %+v", tt.version, tt.abi,
				tt.want, tt.flexible, row, size, wrong, tt.row)
		}
		for n := range len(tt.want) {
			if _, _, wrong := c.row([]byte(tt.want)[:n], tt.flexible); wrong == "" {
				t.Errorf("%v, %v: % x, flexible %t, is read", tt.version, tt.abi, tt.want[:n], tt.flexible)
			}
		}
	}
}

// TestFlexibleNames encodes SP and FP by register number.
func TestFlexibleNames(t *testing.T) {
	for _, abi := range []ABI{AMD64Little, AArch64Little, AArch64Big, S390XBig} {
		c := codec(t, V3, abi)
		named := Row{CFA: sp(160), RA: slot(-8), FP: Rule{Base: FP, Offset: 8, Deref: true}}
		numbered := Row{CFA: at(abi.SP(), 160), RA: slot(-8), FP: deref(abi.FP(), 8)}
		a, ok := c.AppendRow(nil, &named, true)
		b, ok2 := c.AppendRow(nil, &numbered, true)
		if !ok || !ok2 || !bytes.Equal(a, b) {
			t.Errorf("%v: % x and % x", abi, a, b)
		}
		if named == numbered || !abi.SameRow(named, numbered) || abi.SameRow(named, Row{CFA: named.CFA}) {
			t.Errorf("%v: SameRow is wrong", abi)
		}
	}
}

// TestNoRow decodes words that are not a valid row.
func TestNoRow(t *testing.T) {
	for _, tt := range []struct {
		version  Version
		abi      ABI
		flexible bool
		row      string
		want     string
	}{
		{V2, AMD64Little, false, "", "ends inside"},
		{V2, AMD64Little, false, "\x63\x08\x00\x00\x00\x00\x00\x00\x00",
			"info word 0x63 encodes the undefined data word size 3"},
		{V2, AMD64Little, false, "\x07\x08\xf0\x00", "3 data words of an FRE are invalid"},
		{V2, S390XBig, false, "\x43\x7f\xff\xff\xff", "1 data words"}, // overflows if multiplied by 8
		{V2, S390XBig, false, "\x45\x00\x00\x00\x00\xff\xff\xff\xff", "2 data words"},
		{V2, S390XBig, false, "\x45\x00\x00\x00\x00\x00\x02\x00\x01", "2 data words"}, // register 65536
		{V3, AMD64Little, true, "\x02\x39", "1 data words"},                           // no offset
		{V3, AMD64Little, true, "\x04\x02\x00", "2 data words"},                       // a CFA relative to the CFA
		{V3, AMD64Little, true, "\x04\x00\x00", "2 data words"},
		{V3, AMD64Little, true, "\x04\x3d\x00", "2 data words"},                         // bit 2
		{V3, AMD64Little, true, "\x08\x39\x08\x08\x00", "4 data words"},                 // register, but bit 0 is clear
		{V3, AMD64Little, true, "\x44\x01\x00\x08\x00\x00\x00\x00\x00", "2 data words"}, // register 65536
		{V3, AMD64Little, true, "\x0a\x39\x08\x02\xf8\x02", "5 data words"},
	} {
		c := codec(t, tt.version, tt.abi)
		if row, size, wrong := c.row([]byte(tt.row), tt.flexible); !strings.Contains(wrong, tt.want) || size != 0 ||
			row != (Row{}) && tt.row[0]&0xe != 0 && wrong == "" {
			t.Errorf("%v, %v: % x is read as %+v, %d bytes, %q; want %q", tt.version, tt.abi, tt.row, row, size,
				wrong, tt.want)
		}
	}
}

// An entry is an FDE and its rows.
type entry struct {
	fde  FDE
	fres []FRE
}

// section encodes a section. Fields that the Codec does not encode are written as the format document says.
func section(t testing.TB, c *Codec, flags Flags, addr uint64, parts ...entry) []byte {
	t.Helper()
	var fdes, fres []byte
	l, num := c.Layout(), 0
	for _, p := range parts {
		off := l.HeaderSize + len(fdes)
		start := p.fde.Start - addr
		if flags&FDEFuncStartPCRel != 0 {
			start -= uint64(off)
		}
		list := List{Off: uint32(len(fres)), Num: uint32(len(p.fres)), Type: Addr1}
		if len(p.fres) > 0 {
			list.Type = TypeFor(p.fres[len(p.fres)-1].Start)
		}
		fdes = c.AppendFDE(fdes, &p.fde, start, &list)
		fres = c.AppendAttr(fres, &p.fde, &list)
		for _, e := range p.fres {
			var ok bool
			fres = c.AppendStart(fres, e.Start, list.Type)
			if fres, ok = c.AppendRow(fres, &e.Row, p.fde.Flexible); !ok {
				t.Fatalf("%+v cannot be encoded", e)
			}
		}
		num += len(p.fres)
	}
	h := c.AppendHeader(nil, &Header{
		Flags: flags, NumFDEs: uint32(len(parts)), NumFREs: uint32(num), FRELen: uint32(len(fres)),
		FREOff: uint32(len(fdes)),
	})
	return slices.Concat(h, fdes, fres)
}

// TestSection encodes a section of each version byte by byte, and decodes it again.
func TestSection(t *testing.T) {
	parts := []entry{
		{FDE{Start: 0x1000, Size: 0x20}, []FRE{{0, Row{CFA: sp(8)}}, {1, Row{CFA: sp(16)}}}},
		{FDE{Start: 0x2000, Size: 0x40, PCMask: true, RepSize: 16},
			[]FRE{{0, Row{CFA: sp(8)}}, {11, Row{CFA: sp(16)}}}},
	}
	for _, tt := range []struct {
		version Version
		flags   Flags
		addr    uint64
		want    string
	}{
		{V1, FDESorted, 0x10000, "\xe2\xde\x01\x01\x03\x00\xf8\x00\x02\x00\x00\x00\x04\x00\x00\x00" +
			"\x0c\x00\x00\x00\x00\x00\x00\x00\x22\x00\x00\x00" +
			"\x00\x10\xff\xff\x20\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00" +
			"\x00\x20\xff\xff\x40\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00\x00\x10" +
			"\x00\x03\x08\x01\x03\x10" + "\x00\x03\x08\x0b\x03\x10"},
		{V2, FDESorted, 0x10000, "\xe2\xde\x02\x01\x03\x00\xf8\x00\x02\x00\x00\x00\x04\x00\x00\x00" +
			"\x0c\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00" +
			"\x00\x10\xff\xff\x20\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00" +
			"\x00\x20\xff\xff\x40\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00\x00\x10\x10\x00\x00" +
			"\x00\x03\x08\x01\x03\x10" + "\x00\x03\x08\x0b\x03\x10"},
		{V2, FDESorted | FDEFuncStartPCRel, 0x10000,
			"\xe2\xde\x02\x05\x03\x00\xf8\x00\x02\x00\x00\x00\x04\x00\x00\x00" +
				"\x0c\x00\x00\x00\x00\x00\x00\x00\x28\x00\x00\x00" +
				"\xe4\x0f\xff\xff\x20\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00" +
				"\xd0\x1f\xff\xff\x40\x00\x00\x00\x06\x00\x00\x00\x02\x00\x00\x00\x10\x10\x00\x00" +
				"\x00\x03\x08\x01\x03\x10" + "\x00\x03\x08\x0b\x03\x10"},
		{V3, FDESorted | FDEFuncStartPCRel, 0x10000,
			"\xe2\xde\x03\x05\x03\x00\xf8\x00\x02\x00\x00\x00\x04\x00\x00\x00" +
				"\x16\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00\x00" +
				"\xe4\x0f\xff\xff\xff\xff\xff\xff\x20\x00\x00\x00\x00\x00\x00\x00" +
				"\xd4\x1f\xff\xff\xff\xff\xff\xff\x40\x00\x00\x00\x0b\x00\x00\x00" +
				"\x02\x00\x00\x00\x00" + "\x00\x03\x08\x01\x03\x10" +
				"\x02\x00\x10\x00\x10" + "\x00\x03\x08\x0b\x03\x10"},
	} {
		c := codec(t, tt.version, AMD64Little)
		parts := slices.Clone(parts)
		if !c.Layout().RepSize {
			parts[1].fde.RepSize = 0
		}
		got := section(t, c, tt.flags, tt.addr, parts...)
		if string(got) != tt.want {
			t.Errorf("%v, flags %#x:\n got % x\nwant % x", tt.version, tt.flags, got, tt.want)
		}
		s, err := Decode([]byte(tt.want), tt.addr)
		if err != nil {
			t.Errorf("%v, flags %#x: %v", tt.version, tt.flags, err)
			continue
		}
		if s.Version != tt.version || s.Flags != tt.flags || s.ABI != AMD64Little || s.FixedRA != -8 ||
			s.Codec().Version() != tt.version || s.Codec().ABI() != AMD64Little {
			t.Errorf("header %+v", s.Header)
		}
		for i, d := range s.FDEs() {
			fres, err := s.FREs(i, nil)
			if d != parts[i].fde || !slices.Equal(fres, parts[i].fres) || err != nil {
				t.Errorf("%v: FDE %d is %+v with %+v, error %v", tt.version, i, d, fres, err)
			}
		}
	}
}

// TestLookup looks up rows like a stack tracer.
func TestLookup(t *testing.T) {
	rows := []FRE{{0, Row{CFA: sp(8)}}, {4, Row{CFA: sp(16)}}}
	for _, tt := range []struct {
		name  string
		v     Version
		parts []entry
		flags Flags
		pcs   map[uint64]string // the CFA; "" for no row
	}{
		{"plain", V2, []entry{{FDE{Start: 0x1000, Size: 8}, rows}, {FDE{Start: 0x1010, Size: 8}, rows[1:]}}, FDESorted,
			map[uint64]string{
				0xfff: "", 0x1000: "sp+8", 0x1003: "sp+8", 0x1004: "sp+16", 0x1007: "sp+16", 0x1008: "", 0x1010: "",
				0x1013: "", 0x1014: "sp+16", 0x1018: "",
			}},
		{"unsorted", V2, []entry{{FDE{Start: 0x1010, Size: 8}, rows}, {FDE{Start: 0x1000, Size: 8}, rows}}, 0,
			map[uint64]string{
				0xfff: "", 0x1000: "sp+8", 0x1007: "sp+16", 0x1008: "", 0x1010: "sp+8", 0x1017: "sp+16", 0x1018: "",
			}},
		{"blocks", V2, []entry{{FDE{Start: 0x1000, Size: 40, PCMask: true, RepSize: 16}, rows}}, FDESorted,
			map[uint64]string{
				0x1000: "sp+8", 0x1004: "sp+16", 0x100f: "sp+16", 0x1010: "sp+8", 0x1014: "sp+16", 0x1027: "sp+16",
				0x1028: "",
			}},
		{"blocks of V1", V1, []entry{{FDE{Start: 0x1000, Size: 40, PCMask: true}, rows}}, FDESorted,
			map[uint64]string{0x1000: "", 0x1010: ""}},
		{"blocks of V1 with one row", V1, []entry{{FDE{Start: 0x1001, Size: 40, PCMask: true}, rows[:1]}}, FDESorted,
			map[uint64]string{
				0x1000: "", 0x1001: "sp+8", 0x1028: "sp+8", 0x1029: "",
			}},
		{"blocks of V1 with one row after 0", V1, []entry{{FDE{Start: 0x1000, Size: 40, PCMask: true},
			[]FRE{{1, Row{CFA: sp(8)}}}}}, FDESorted, map[uint64]string{0x1000: "", 0x1001: "", 0x1004: ""}},
		{"empty FDE before", V2, []entry{{FDE{Start: 0x1000}, nil}, {FDE{Start: 0x1000, Size: 8}, rows}}, FDESorted,
			map[uint64]string{0xfff: "", 0x1000: "sp+8", 0x1007: "sp+16"}},
		{"empty FDE after", V2, []entry{{FDE{Start: 0x1000, Size: 8}, rows}, {FDE{Start: 0x1000}, nil},
			{FDE{Start: 0x1000}, nil}, {FDE{Start: 0x1008, Size: 1}, rows[:1]}},
			FDESorted, map[uint64]string{0xfff: "", 0x1000: "sp+8", 0x1007: "sp+16", 0x1008: "sp+8", 0x1009: ""}},
		{"empty FDEs before and after", V2, []entry{{FDE{Start: 0xf00}, nil}, {FDE{Start: 0x1000, Size: 8}, rows},
			{FDE{Start: 0x1000}, nil}},
			FDESorted, map[uint64]string{0xf00: "", 0x1000: "sp+8", 0x1007: "sp+16", 0x1008: ""}},
		{"unsorted, with empty FDEs", V2, []entry{{FDE{Start: 0x1010}, nil}, {FDE{Start: 0x1010, Size: 8}, rows},
			{FDE{Start: 0x1000, Size: 8}, rows}, {FDE{Start: 0x1000}, nil}}, 0,
			map[uint64]string{0xfff: "", 0x1000: "sp+8", 0x1008: "", 0x1010: "sp+8", 0x1017: "sp+16", 0x1018: ""}},
		{"unsorted, one at 0", V2, []entry{{FDE{Start: 0x1000, Size: 8}, rows}, {FDE{Size: 8}, rows}}, 0,
			map[uint64]string{0: "sp+8", 7: "sp+16", 8: "", 0xfff: "", 0x1000: "sp+8"}},
		{"outermost", V3, []entry{{FDE{Start: 0x1000, Size: 4}, nil}}, FDESorted | FDEFuncStartPCRel,
			map[uint64]string{0x1000: "outermost", 0x1003: "outermost", 0x1004: ""}},
		{"none", V2, nil, FDESorted, map[uint64]string{0: "", math.MaxUint64: ""}},
		{"no rows", V2, []entry{{FDE{Start: 0x1000, Size: 4}, nil}}, FDESorted, map[uint64]string{0x1000: ""}},
	} {
		data := section(t, codec(t, tt.v, AMD64Little), tt.flags, 0x8000, tt.parts...)
		s, err := Decode(data, 0x8000)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		encoded, err := Open(data, 0x8000)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for pc, want := range tt.pcs {
			inside := slices.ContainsFunc(tt.parts, func(p entry) bool { return pc-p.fde.Start < uint64(p.fde.Size) })
			if i := s.Find(pc); inside != (i != -1) || inside && pc-s.FDE(i).Start >= uint64(s.FDE(i).Size) {
				t.Errorf("%s: %#x is in FDE %d", tt.name, pc, i)
			}
			e, ok, err := s.Lookup(pc)
			if e2, ok2, err := encoded.Lookup(pc); e2 != e || ok2 != ok || err != nil {
				t.Errorf("%s: at %#x, Open finds %+v, %t, error %v; want %+v", tt.name, pc, e2, ok2, err, e)
			}
			got := ""
			switch {
			case ok && e.Outermost:
				got = "outermost"
			case ok:
				got = e.CFA.String()
			}
			if got != want || err != nil {
				t.Errorf("%s: at %#x the row is %q, error %v; want %q", tt.name, pc, got, err, want)
			}
		}
	}
}

// TestAmbiguous expects only FDEs that readers interpret differently to be ambiguous.
func TestAmbiguous(t *testing.T) {
	for _, tt := range []struct {
		fde  FDE
		want bool
	}{
		{FDE{Start: 0x1001, Size: 64}, false},
		{FDE{Start: 0x1000, Size: 64, PCMask: true, RepSize: 16}, false},
		{FDE{Start: 0x1008, Size: 64, PCMask: true, RepSize: 16}, true},
		{FDE{Start: 0x1000, Size: 64, PCMask: true}, true},
	} {
		if got := tt.fde.Ambiguous(); got != tt.want {
			t.Errorf("%+v: %t", tt.fde, got)
		}
	}
}
