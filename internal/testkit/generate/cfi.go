// Package generate makes CFI, and ELF files that contain it, as a choice.Source decides. The results are well-formed.
// The package also returns the rules for every pc, computed in the simplest way.
package generate

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"cfi2sframe/cfi"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
)

// Pointer encodings (LSB Core, "DWARF Exception Header Encoding").
const (
	encAbs, encULEB, encU2, encU4, encU8    = 0, 1, 2, 3, 4
	encSigned, encSLEB, encS2, encS4, encS8 = 8, 9, 0xa, 0xb, 0xc
	encPC, encText, encData                 = 0x10, 0x20, 0x30
	encOmit                                 = 0xff
)

// Pointer encodings that can represent any address in a generated file. All addresses are below 2^31. Two-byte
// encodings can reach code only relative to its start. Unsigned 4-byte encodings cannot represent a negative distance.
var (
	encodings = []byte{
		encPC | encS4, encPC | encS4, encPC | encS4, encPC | encS8, encPC | encSLEB, encPC | encU8, encPC | encULEB,
		encAbs, encULEB, encU4, encU8, encSigned, encSLEB, encS4, encS8, encText | encU2, encText | encS2,
		encText | encU4, encText | encS4, encText | encSLEB, encText, encData | encS4, encData | encSLEB,
		encData | encU8,
	}
	debugEncodings = []byte{encAbs, encULEB, encU4, encU8, encSigned, encSLEB, encS4, encS8}
)

// A CFI is a section of call frame information.
type CFI struct {
	Machine *Machine
	Debug   bool // .debug_frame
	Code    []Range
	CIEs    []CIE
	FDEs    []FDE
}

// A Range is a range of addresses.
type Range struct{ Begin, End uint64 }

// A CIE contains properties that several FDEs share.
type CIE struct {
	Version  int
	Wide     bool   // 64-bit DWARF
	Letters  string // the augmentation
	Code     uint64 // alignment factors
	Data     int64
	RA       uint64
	Encoding byte // of addresses
	LSDA     byte // encodings of pointers that unwinding does not need
	Handler  byte
	Initial  []Instruction
}

// Signal and KeyB report properties that the augmentation gives to all FDEs of the CIE.
func (c *CIE) Signal() bool { return strings.Contains(c.Letters, "S") }
func (c *CIE) KeyB() bool   { return strings.Contains(c.Letters, "B") }

// An FDE describes a function.
type FDE struct {
	CIE          int
	Wide         bool
	Start, Size  uint64
	Padding      int // additional bytes of augmentation data
	Instructions []Instruction
	Broken       bool // its instructions are invalid
}

// A Layout holds the addresses to which pointer encodings are relative.
type Layout struct {
	Addr uint64 // the section
	Text uint64 // base of text-relative pointers
	GOT  uint64 // base of data-relative pointers
}

// An encoder writes a section of CFI. The current record's contents are in b; complete records are in Frames.
type encoder struct {
	*CFI
	Layout
	elftest.Frames
	b []byte
}

// Encode returns the section's contents at an address.
func (c *CFI) Encode(l Layout) []byte {
	e := encoder{CFI: c, Layout: l, Frames: elftest.Frames{Order: c.Machine.Order, Debug: c.Debug}}
	at := make([]int, len(c.CIEs))
	for i := range at {
		at[i] = -1
	}
	for i := range c.FDEs {
		f := &c.FDEs[i]
		if at[f.CIE] < 0 { // each FDE follows its CIE, not necessarily directly
			at[f.CIE] = e.cie(&c.CIEs[f.CIE])
		}
		e.fde(f, &c.CIEs[f.CIE], at[f.CIE])
	}
	for i := range c.CIEs {
		if at[i] < 0 {
			e.cie(&c.CIEs[i])
		}
	}
	return e.B
}

// body returns the contents of a record, padded with DW_CFA_nop.
func (e *encoder) body() []byte {
	for (e.Next()+len(e.b))%4 != 0 {
		e.b = append(e.b, 0)
	}
	return e.b
}

func (e *encoder) cie(c *CIE) int {
	e.Wide = c.Wide
	e.b = append([]byte{byte(c.Version)}, c.Letters+"\x00"...)
	if c.Version == 4 {
		e.b = append(e.b, 8, 0)
	}
	if c.Letters == "eh" {
		e.b = append(e.b, 1, 2, 3, 4, 5, 6, 7, 8)
	}
	e.b = uleb(e.b, c.Code)
	e.b = sleb(e.b, c.Data)
	if c.Version == 1 {
		e.b = append(e.b, byte(c.RA))
	} else {
		e.b = uleb(e.b, c.RA)
	}
	if strings.HasPrefix(c.Letters, "z") {
		e.augmented(func() {
			for _, l := range c.Letters[1:] {
				switch l {
				case 'R':
					e.b = append(e.b, c.Encoding)
				case 'L':
					e.b = append(e.b, c.LSDA)
				case 'P':
					e.b = append(e.b, c.Handler)
					e.unusedPointer(c.Handler)
				}
			}
		})
	}
	e.instructions(c.Initial, c)
	return e.Shared(e.body())
}

// augmented writes augmentation data, shorter than 128 bytes, after its size.
func (e *encoder) augmented(fill func()) {
	at := len(e.b)
	e.b = append(e.b, 0)
	fill()
	e.b[at] = byte(len(e.b) - at - 1)
}

func (e *encoder) fde(f *FDE, c *CIE, cie int) {
	e.Wide, e.b = f.Wide, nil
	e.pointer(c.Encoding, f.Start)
	e.form(c.Encoding, f.Size)
	if strings.HasPrefix(c.Letters, "z") {
		e.augmented(func() {
			if strings.Contains(c.Letters, "L") && c.LSDA != encOmit {
				e.unusedPointer(c.LSDA)
			}
			e.b = append(e.b, make([]byte, f.Padding)...)
		})
	}
	e.instructions(f.Instructions, c)
	e.Entry(cie, e.body())
}

// unusedPointer writes a pointer whose value does not matter.
func (e *encoder) unusedPointer(enc byte) {
	if enc != encOmit {
		e.form(enc, 0x71)
	}
}

// pointer writes an address.
func (e *encoder) pointer(enc byte, v uint64) {
	switch enc & 0x70 {
	case encPC:
		v -= e.Addr + uint64(e.Next()+len(e.b))
	case encText:
		v -= e.Text
	case encData:
		v -= e.GOT
	}
	e.form(enc, v)
}

// form writes a value in the format that a pointer encoding specifies.
func (e *encoder) form(enc byte, v uint64) {
	o := e.Order
	switch enc & 0xf {
	case encULEB:
		e.b = uleb(e.b, v)
	case encSLEB:
		e.b = sleb(e.b, int64(v))
	case encU2, encS2:
		e.b = o.AppendUint16(e.b, uint16(v))
	case encU4, encS4:
		e.b = o.AppendUint32(e.b, uint32(v))
	default:
		e.b = o.AppendUint64(e.b, v)
	}
}

func uleb(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func sleb(b []byte, v int64) []byte {
	for v < -0x40 || v >= 0x40 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

// NewCFI makes a section for code in the given ranges, which are sorted, and each at least 64 bytes long.
func NewCFI(s *choice.Source, m *Machine, debug bool, text []Range) *CFI {
	c := &CFI{Machine: m, Debug: debug, Code: text}
	for range 1 + s.N(3) {
		c.CIEs = append(c.CIEs, c.newCIE(s))
	}
	at, in := text[0].Begin, 0
	for n := 1 + s.N(8); n > 0; n-- {
		f := FDE{CIE: s.N(len(c.CIEs)), Wide: s.Rarely(8), Padding: s.N(3)}
		d := &c.CIEs[f.CIE]
		if s.Rarely(4) && in+1 < len(text) {
			in++
			at = text[in].Begin
		}
		r := text[in]
		switch n := uint64(s.N(256)); s.N(8) {
		case 6, 7: // part of the range is described twice
			at = max(r.Begin, at-min(at, n))
		case 5: // a gap
			at += n
		}
		if at >= r.End {
			break
		}
		f.Start = at
		end := c.program(s, &f, d)
		// The last row covers several bytes, one byte or none, or some rows start after the end of the function.
		n, rest := uint64(s.N(32)), r.End-f.Start
		f.Size = choice.Of(s, end+1+n, end+1+n, end+1, end, end-min(end, n), n%3, rest)
		f.Size = min(f.Size, rest)
		if enc := d.Encoding & 0xf; enc == encS2 {
			f.Size = min(f.Size, math.MaxInt16)
		} else if enc == encU2 {
			f.Size = min(f.Size, math.MaxUint16)
		}
		at = f.Start + f.Size
		c.FDEs = append(c.FDEs, f)
		if s.Rarely(3) { // unsorted
			slices.Reverse(c.FDEs[max(0, len(c.FDEs)-2):])
		}
	}
	return c
}

func (c *CFI) newCIE(s *choice.Source) CIE {
	m := c.Machine
	d := CIE{
		Version: choice.Of(s, 1, 3, 4), Wide: s.Rarely(8),
		Code: choice.Of[uint64](s, 1, 1, 4, 2, 8), Data: choice.Of[int64](s, -8, -8, -4, 8, 1, -1, -16),
		RA: m.RA, LSDA: encOmit,
	}
	if s.Rarely(24) {
		d.RA = choice.Of[uint64](s, 3, m.SP, m.FP, 17)
	}
	switch s.N(8) {
	case 0:
		d.Letters = choice.Of(s, "", "z")
	case 1:
		if !c.Debug {
			d.Letters = "eh"
		}
	default:
		letters := []byte("R")
		for _, l := range []byte("PLSBG") {
			if s.Rarely(4) {
				letters = slices.Insert(letters, s.N(len(letters)+1), l)
			}
		}
		d.Letters = "z" + string(letters)
		encodings := encodings
		if c.Debug {
			encodings = debugEncodings
		}
		d.Encoding = choice.Of(s, encodings...)
		d.LSDA = choice.Of[byte](s, encOmit, encPC|encS4, encAbs, encULEB, encU2|encData)
		d.Handler = choice.Of[byte](s, encPC|encS4, encAbs, encU2, encOmit, encSLEB)
	}
	c.initial(s, &d)
	return d
}

// Described returns a table of amd64 functions whose FDEs contain no instructions.
func Described(t testing.TB, functions ...Range) *cfi.Table {
	t.Helper()
	c := CFI{Machine: &Machines[0], CIEs: []CIE{{Version: 1, Code: 1, Data: -8, RA: 16}}}
	for _, r := range functions {
		c.FDEs = append(c.FDEs, FDE{Start: r.Begin, Size: r.End - r.Begin})
	}
	table, err := cfi.Parse(c.Machine.Elf, c.Machine.Order, cfi.Section{Source: cfi.EHFrame, Data: c.Encode(Layout{})})
	if err != nil || table.Len() != len(functions) || table.NumErrors > 0 {
		t.Fatalf("errors %v, %v", err, table)
	}
	return table
}
