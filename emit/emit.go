// Package emit writes SFrame sections: model in, bytes out.
//
// A Builder takes functions one at a time and encodes their rows at once, since
// rows do not depend on where the section will lie. Function start addresses do;
// they are filled in by Encode, once the size is known and an address was found
// for it.
//
// The result is as small as the format allows a function by function encoding to
// be: the width of start addresses follows from the last row's start rather than
// from the function's size, each row takes the smallest data words that hold its
// offsets, and equal neighbouring rows are merged.
package emit

import (
	"fmt"
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// Options say what to write.
type Options struct {
	Version sframe.Version
	ABI     sframe.ABI
	// PCRel makes function start addresses count from their own field (flag 0x4,
	// errata 1) rather than from the start of the section.
	PCRel bool
}

// A Builder collects functions.
type Builder struct {
	opt    Options
	order  sframe.Order
	layout sframe.Layout
	fdes   []fde
	fres   []byte
	num    uint64 // of FREs
	row    []sframe.FRE
}

// An fde is what is known of a function before the section's address is.
type fde struct {
	sframe.FDE
	off, num uint32 // of its FREs in the sub-section: bytes and count
	typ      sframe.FREType
}

// NewBuilder returns a Builder for an empty section.
func NewBuilder(opt Options) (*Builder, error) {
	l, ok := opt.Version.Layout()
	if !ok {
		return nil, fmt.Errorf("%v cannot be written", opt.Version)
	}
	order := opt.ABI.Order()
	if order == nil {
		return nil, fmt.Errorf("%v cannot be written", opt.ABI)
	}
	return &Builder{opt: opt, order: order, layout: l}, nil
}

// Add adds a function. Its FREs are sorted by start address, and the first one
// starts at 0. Neither argument is kept. Functions may come in any order.
func (b *Builder) Add(d sframe.FDE, fres []sframe.FRE) error {
	if len(b.fres) > math.MaxUint32 {
		return fmt.Errorf("FREs of more than 2^32 bytes: %v has no room for them", b.opt.Version)
	}
	b.row = merge(b.row[:0], fres)
	fres = b.row
	f := fde{FDE: d, off: uint32(len(b.fres)), num: uint32(len(fres))}
	switch last := fres[len(fres)-1].Start; {
	case last <= math.MaxUint8:
		f.typ = sframe.Addr1
	case last <= math.MaxUint16:
		f.typ = sframe.Addr2
	default:
		f.typ = sframe.Addr4
	}
	for i := range fres {
		if err := b.encodeFRE(f.typ, &fres[i]); err != nil {
			return fmt.Errorf("function at %#x: %w", d.Start, err)
		}
	}
	b.fdes = append(b.fdes, f)
	b.num += uint64(f.num)
	return nil
}

// merge appends to out the rows that differ from the one before them.
func merge(out, rows []sframe.FRE) []sframe.FRE {
	for i := range rows {
		if n := len(out); n == 0 || !sframe.SameRow(&out[n-1], &rows[i]) {
			out = append(out, rows[i])
		}
	}
	return out
}

// encodeFRE appends a row of a default FDE (section "SFrame FRE").
func (b *Builder) encodeFRE(typ sframe.FREType, e *sframe.FRE) error {
	b.fres = b.putUint(b.fres, uint64(e.Start), typ.Size())
	if e.Outermost {
		b.fres = append(b.fres, 0)
		return nil
	}
	var words [3]int32
	count := 0
	word := func(r sframe.Rule) error {
		if r.Base != sframe.CFA || !r.Deref {
			return fmt.Errorf("rule %v is not a slot at an offset from the CFA", r)
		}
		words[count] = r.Offset
		count++
		return nil
	}
	info := byte(0)
	switch {
	case e.CFA.Base == sframe.SP && !e.CFA.Deref:
		info = sframe.FREInfoSP
	case e.CFA.Base == sframe.FP && !e.CFA.Deref:
	default:
		return fmt.Errorf("CFA rule %v is not based on SP or FP", e.CFA)
	}
	words[0], count = e.CFA.Offset, 1
	if e.RA.Base != sframe.None {
		if err := word(e.RA); err != nil {
			return err
		}
	}
	if e.FP.Base != sframe.None {
		if b.opt.ABI.FixedRA() == 0 && e.RA.Base == sframe.None {
			return fmt.Errorf("FP without RA has no form")
		}
		if err := word(e.FP); err != nil {
			return err
		}
	}
	logSize := 0
	for _, w := range words[:count] {
		switch {
		case w == int32(int8(w)):
		case w == int32(int16(w)):
			logSize = max(logSize, 1)
		default:
			logSize = 2
		}
	}
	info |= byte(count)<<sframe.FREInfoCount | byte(logSize)<<sframe.FREInfoSize
	if e.Signed {
		info |= sframe.FREInfoMangledRA
	}
	b.fres = append(b.fres, info)
	for _, w := range words[:count] {
		b.fres = b.putUint(b.fres, uint64(w), 1<<logSize)
	}
	return nil
}

// putUint appends the low size bytes of v.
func (b *Builder) putUint(out []byte, v uint64, size int) []byte {
	switch size {
	case 1:
		return append(out, byte(v))
	case 2:
		return b.order.AppendUint16(out, uint16(v))
	default:
		return b.order.AppendUint32(out, uint32(v))
	}
}

// Size returns the size of the section in bytes.
func (b *Builder) Size() uint64 {
	return uint64(b.layout.HeaderSize) + uint64(len(b.fdes))*uint64(b.layout.FDESize) + uint64(len(b.fres))
}

// NumFDEs and NumFREs return how many there are so far.
func (b *Builder) NumFDEs() int { return len(b.fdes) }

// NumFREs returns the number of rows after merging.
func (b *Builder) NumFREs() uint64 { return b.num }

// Encode returns the section for the address it will have, Size bytes.
func (b *Builder) Encode(addr uint64) ([]byte, error) {
	if len(b.fdes) > math.MaxUint32 || b.num > math.MaxUint32 || len(b.fres) > math.MaxUint32 {
		return nil, fmt.Errorf("%d functions with %d rows of %d bytes: more than the header can count", len(b.fdes), b.num, len(b.fres))
	}
	byStart := func(a, b fde) int {
		switch {
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	}
	if !slices.IsSortedFunc(b.fdes, byStart) {
		slices.SortFunc(b.fdes, byStart)
	}
	flags := sframe.FDESorted
	if b.opt.PCRel {
		flags |= sframe.FDEFuncStartPCRel
	}
	o := b.order
	out := make([]byte, 0, b.Size())
	out = o.AppendUint16(out, sframe.Magic)
	out = append(out, byte(b.opt.Version), byte(flags), byte(b.opt.ABI), 0, byte(b.opt.ABI.FixedRA()), 0)
	for _, v := range []uint32{
		uint32(len(b.fdes)), uint32(b.num), uint32(len(b.fres)),
		0, uint32(len(b.fdes) * b.layout.FDESize),
	} {
		out = o.AppendUint32(out, v)
	}
	for i := range b.fdes {
		d := &b.fdes[i]
		from := addr
		if b.opt.PCRel {
			from += uint64(len(out))
		}
		start := int64(d.Start - from)
		if start != int64(int32(start)) {
			return nil, fmt.Errorf("function at %#x is more than 2 GiB away from .sframe at %#x", d.Start, addr)
		}
		out = o.AppendUint32(out, uint32(start))
		out = o.AppendUint32(out, d.Size)
		out = o.AppendUint32(out, d.off)
		out = o.AppendUint32(out, d.num)
		info := byte(d.typ)
		if d.RepSize > 0 {
			info |= sframe.FDEInfoPCMask
		}
		if d.KeyB {
			info |= sframe.FDEInfoKeyB
		}
		out = append(out, info, d.RepSize, 0, 0)
	}
	return append(out, b.fres...), nil
}
