// Package emit writes SFrame sections: model in, bytes out.
//
// A Builder takes functions one at a time and encodes their rows at once, since
// rows do not depend on where the section will lie. Function start addresses do;
// they are filled in by Encode, once the size is known and an address was found
// for it.
//
// The width of start addresses follows from the last row's start rather than from the
// function's size, each row takes the smallest data words that hold its offsets, and
// equal neighbouring rows are merged. If rows are shared, functions are divided where that
// makes the section smaller, and FDEs with the same rows have them together; see Join.
//
// Builders for parts of a program may be filled at the same time. Joined, they give the
// same bytes as one.
package emit

import (
	"encoding/binary"
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
	// Align makes the size of the section a multiple of it, with zeros behind the
	// last row. 0 stands for 1.
	Align uint64
	// Share stores rows that several FDEs have only once, and divides functions into several
	// FDEs where parts of them can be shared then.
	Share bool
}

// A Builder collects functions.
type Builder struct {
	opt      Options
	order    sframe.Order
	little   bool // order is little-endian
	layout   sframe.Layout
	raw      []byte // the rows of all units, see appendRaw
	units    []unit
	clusters []cluster // of all units, if rows are shared
	uses     []use
	added    []added // of the calls of Add

	// Once all functions are there:
	joined bool
	pieces []piece
	lists  lists
	parts  []*Builder // with the functions; the lists are all here
	to     []uint32   // from the lists of this part to all; nil for the first part
	fdes   int
	num    uint64 // of FREs, counted for each FDE

	rows  []row      // of the function at hand
	known []known    // by hash; the length is a power of two
	from  [][2]uint8 // of each row and type: the type before it that costs least
}

// A unit is the rows of a function, or of a part of one where the version or the type of FDE
// needs parts. Functions with the same instructions have the same one.
type unit struct {
	base     uint32 // where it starts in its function
	raw      uint32 // where its rows are in Builder.raw
	num      uint32 // of rows
	uses     uint32
	first, n uint32 // its pieces
	info     byte   // the info word of its FDEs, without the type of the FREs
	rep      uint8  // the repetition size
	flexible bool   // the type of its FDEs
	whole    bool   // it becomes one FDE

	cluster, clusters uint32 // its clusters: the first one, and how many there are
}

// A use is a range of code that has the rows of a unit.
type use struct {
	start uint64
	size  uint32
	unit  uint32
}

// A piece is what of a unit becomes one FDE, up to the next piece.
type piece struct {
	start uint32 // of its code, from the start of the unit
	list  uint32 // index of its rows
}

// An added is the units of a function: the first one, and how many there are.
type added struct{ first, n uint32 }

// NewBuilder returns a Builder for an empty section.
func NewBuilder(opt Options) (*Builder, error) {
	l, ok := opt.Version.Layout()
	if !ok {
		return nil, fmt.Errorf("%v cannot be written", opt.Version)
	}
	if !slices.Contains(l.ABIs, opt.ABI) {
		return nil, fmt.Errorf("%v does not know the ABI %v", opt.Version, opt.ABI)
	}
	if opt.PCRel && l.Flags&sframe.FDEFuncStartPCRel == 0 {
		return nil, fmt.Errorf("%v has no start addresses relative to their own field", opt.Version)
	}
	return &Builder{opt: opt, order: opt.ABI.Order(), little: opt.ABI.Order() == binary.LittleEndian, layout: l, known: make([]known, 1)}, nil
}

// Grow makes room for n more functions of usual size, so that none is made one by one. About as
// many as added come by Add, the others by Repeat.
func (b *Builder) Grow(n, added int) {
	b.uses = slices.Grow(b.uses, n)
	b.units = slices.Grow(b.units, added)
	b.added = slices.Grow(b.added, added)
	b.raw = slices.Grow(b.raw, 80*added)
	if b.opt.Share {
		b.clusters = slices.Grow(b.clusters, 5*added/2)
	}
	b.known = make([]known, knownRows(n))
}

// Add adds a function. Its FREs are sorted by start address, and the first one
// starts at 0. Neither argument is kept. Functions may come in any order, but must
// not overlap.
//
// It becomes several FDEs where the version limits the number of rows, or where
// that is smaller than one FDE of the flexible type.
func (b *Builder) Add(d sframe.FDE, fres []sframe.FRE) error {
	if len(b.raw) > math.MaxUint32/2 {
		return fmt.Errorf("FREs of more than 2^31 bytes: %v has no room for them", b.opt.Version)
	}
	b.merge(fres)
	if err := b.chooseForms(); err != nil {
		return fmt.Errorf("function at %#x: %w", d.Start, err)
	}
	before := len(b.units)
	for first := 0; first < len(b.rows); {
		last, flexible := b.part(first)
		if d.PCMask && last-first < len(b.rows) { // starts count from each block's
			return fmt.Errorf("function at %#x: its rows need several FDEs, and one with a PC mask cannot be divided", d.Start)
		}
		u := unit{
			base: b.rows[first].start, raw: uint32(len(b.raw)), num: uint32(last - first),
			info: info(&d), rep: d.RepSize, flexible: flexible, cluster: uint32(len(b.clusters)),
		}
		b.appendRaw(&u, b.rows[first:last])
		// To divide a unit cannot save more than its rows, and costs an FDE at least.
		u.whole = d.PCMask || len(b.raw)-int(u.raw) <= b.layout.FDESize
		b.units = append(b.units, u)
		first = last
	}
	b.added = append(b.added, added{uint32(before), uint32(len(b.units) - before)})
	b.Repeat(d, len(b.added)-1)
	return nil
}

// Repeat adds a function of d.Size bytes at d.Start, which has the rows and all the rest from the
// n-th call of Add, counted from 0. All of these rows begin in it. It is not a PC-mask FDE.
func (b *Builder) Repeat(d sframe.FDE, n int) {
	a := b.added[n]
	for i := a.first; i < a.first+a.n; i++ {
		u := &b.units[i]
		u.uses++
		end := d.Size
		if i+1 < a.first+a.n {
			end = b.units[i+1].base
		}
		b.uses = append(b.uses, use{d.Start + uint64(u.base), end - u.base, i})
	}
}

// merge makes rows of the FREs that differ from the one before them.
func (b *Builder) merge(fres []sframe.FRE) {
	b.rows = slices.Grow(b.rows[:0], len(fres))
	for i := range fres {
		e := &fres[i]
		if n := len(b.rows); n > 0 && sframe.SameRow(b.rows[n-1].FRE, e) {
			continue
		}
		b.rows = append(b.rows, row{FRE: e, start: e.Start})
	}
}

// part returns the end of the rows from first on that one FDE can hold, and its type.
func (b *Builder) part(first int) (last int, flexible bool) {
	flexible = b.rows[first].flexible
	for last = first; last < len(b.rows); last++ {
		if b.rows[last].flexible != flexible || uint64(last-first) == uint64(b.layout.MaxFREs) {
			break
		}
	}
	return last, flexible
}

// appendRaw appends the rows of a unit to Builder.raw: a start address of four bytes,
// little-endian, that counts from that of the unit, and the row as it will be in the section.
func (b *Builder) appendRaw(u *unit, rows []row) {
	// Whole bodies are written, and what is too much is overwritten.
	raw, at := slices.Grow(b.raw, len(rows)*maxRow+slack), len(b.raw)
	raw = raw[:cap(raw)]
	for i := range rows {
		r := &rows[i]
		binary.LittleEndian.PutUint32(raw[at:], r.start-u.base)
		at += 4
		size := int(r.size[0])
		if r.flexible {
			w, _ := b.opt.Version.Flexible(b.opt.ABI, r.FRE)
			size = len(b.appendBody(raw[at:at], r.FRE, &w))
		} else {
			*(*body)(raw[at:]) = r.body
		}
		if b.opt.Share {
			b.addRow(u, r.start-u.base, raw[at:], size)
		}
		at += size
	}
	b.raw = raw[:at]
}

// maxRow is how large a row is at most: a start address of four bytes, the info word, and six
// data words. There are slack bytes at least behind the last one of Builder.raw.
const (
	maxRow = 4 + 1 + 6*4
	slack  = len(body{})
)

// rawSize returns the size of the row that raw begins with, in bytes.
func rawSize(raw []byte) int { return 4 + sframe.RowSize(raw[4]) }

// freType returns the narrowest type for FREs of which the last one starts at the given
// offset.
func freType(last uint32) sframe.FREType {
	switch {
	case last <= math.MaxUint8:
		return sframe.Addr1
	case last <= math.MaxUint16:
		return sframe.Addr2
	}
	return sframe.Addr4
}

// info returns the FDE info word, without the type of the FREs.
func info(d *sframe.FDE) byte {
	info := byte(0)
	if d.PCMask {
		info |= sframe.FDEInfoPCMask
	}
	if d.KeyB {
		info |= sframe.FDEInfoKeyB
	}
	if d.Signal {
		info |= sframe.FDEInfoSignal
	}
	return info
}

// putUint appends the low size bytes of v.
func putUint(o binary.AppendByteOrder, out []byte, v uint64, size int) []byte {
	switch size {
	case 1:
		return append(out, byte(v))
	case 2:
		return o.AppendUint16(out, uint16(v))
	default:
		return o.AppendUint32(out, uint32(v))
	}
}
