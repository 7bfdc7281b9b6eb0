// Package emit writes SFrame sections: model in, bytes out.
//
// A Builder takes functions one at a time and encodes their rows at once, since
// rows do not depend on where the section will lie. Function start addresses do;
// they are filled in by Encode, once the size is known and an address was found
// for it.
//
// The width of start addresses follows from the last row's start rather than from the
// function's size, each row takes the smallest data words that hold its offsets, and
// equal neighbouring rows are merged. Functions with the same rows share them, and so do
// those whose rows are the first ones of another function; see Join.
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
	// Share stores rows that several functions have only once.
	Share bool
}

// A Builder collects functions.
type Builder struct {
	opt    Options
	order  sframe.Order
	layout sframe.Layout
	fdes   []fde
	lists  lists
	num    uint64  // of FREs, counted for each function
	added  []added // of the calls of Add

	rows  []row      // of the function at hand
	known []known    // by hash; the length is a power of two
	from  [][2]uint8 // of each row and type: the type before it that costs least
}

// An fde is what is known of a function before the section's address is.
type fde struct {
	start uint64
	size  uint32
	list  uint32 // index of its FREs
	info  byte   // the info word, without the type of the FREs
	rep   uint8  // the repetition size
}

// An added is the FDEs that a function became: the first one, and how many there are.
type added struct{ first, num uint32 }

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
	return &Builder{opt: opt, order: opt.ABI.Order(), layout: l, lists: lists{pools: make([][]byte, 1)}, known: make([]known, 1)}, nil
}

// Grow makes room for n more functions of usual size, so that none is made one by one.
func (b *Builder) Grow(n int) {
	b.fdes = slices.Grow(b.fdes, n)
	b.added = slices.Grow(b.added, n/2)
	b.lists.grow(n / 2)
	b.known = make([]known, knownRows(n))
}

// Add adds a function. Its FREs are sorted by start address, and the first one
// starts at 0. Neither argument is kept. Functions may come in any order.
//
// It becomes several FDEs where the version limits the number of rows, or where
// that is smaller than one FDE of the flexible type.
func (b *Builder) Add(d sframe.FDE, fres []sframe.FRE) error {
	if len(b.lists.pools[0]) > math.MaxUint32/2 {
		return fmt.Errorf("FREs of more than 2^31 bytes: %v has no room for them", b.opt.Version)
	}
	b.merge(fres)
	if err := b.chooseForms(); err != nil {
		return fmt.Errorf("function at %#x: %w", d.Start, err)
	}
	before := len(b.fdes)
	for first := 0; first < len(b.rows); {
		last, flexible := b.part(first)
		b.add(d, first, last, flexible)
		first = last
	}
	b.added = append(b.added, added{uint32(before), uint32(len(b.fdes) - before)})
	return nil
}

// Repeat adds the function d with the rows that the n-th call of Add had, counted from 0. The
// last of them is one of d, too, wherever that ends; it is not a PC-mask FDE.
func (b *Builder) Repeat(d sframe.FDE, n int) {
	r := b.added[n]
	shift := d.Start - b.fdes[r.first].start
	for _, f := range b.fdes[r.first : r.first+r.num] {
		f.start += shift
		if !b.opt.Share {
			f.list = b.lists.repeat(f.list)
		}
		b.fdes = append(b.fdes, f)
		b.num += uint64(b.lists.all[f.list].num)
	}
	last := &b.fdes[len(b.fdes)-1]
	last.size = uint32(d.End() - last.start)
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

// add adds the part of the function d that the rows from first to last describe.
func (b *Builder) add(d sframe.FDE, first, last int, flexible bool) {
	rows := b.rows[first:last]
	base := rows[0].start
	end := d.Size
	if last < len(b.rows) {
		end = b.rows[last].start
	}
	d.Flexible = flexible
	f := fde{start: d.Start + uint64(base), size: end - base, info: info(&d), rep: d.RepSize}
	l := list{num: uint32(len(rows)), off: uint32(len(b.lists.pools[0])), typ: freType(rows[len(rows)-1].start - base)}
	h := newHash()
	pool := b.lists.pools[0]
	if b.layout.AttrSize > 0 {
		fdeType := byte(sframe.FDETypeDefault)
		if flexible {
			fdeType = sframe.FDETypeFlexible
		}
		pool = b.order.AppendUint16(pool, uint16(l.num))
		pool = append(pool, f.info|byte(l.typ), fdeType, f.rep)
		h = h.row(pool[l.off:])
	}
	if flexible {
		for i := range rows {
			at := len(pool)
			pool = putUint(b.order, pool, uint64(rows[i].start-base), l.typ.Size())
			w, _ := b.opt.Version.Flexible(b.opt.ABI, rows[i].FRE)
			pool = b.appendBody(pool, rows[i].FRE, &w)
			h = h.row(pool[at:])
		}
	} else {
		pool, h = b.encodeRows(pool, rows, base, l.typ, h)
	}
	l.size, l.hash = uint32(len(pool))-l.off, uint32(h)
	b.lists.pools[0] = pool
	f.list = b.lists.end(l, b.opt.Share)
	b.fdes = append(b.fdes, f)
	b.num += uint64(l.num)
}

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

// encodeRows appends rows of the default form to the pool. Start addresses count from base.
func (b *Builder) encodeRows(pool []byte, rows []row, base uint32, typ sframe.FREType, h hash) ([]byte, hash) {
	width, at := typ.Size(), len(pool)
	// Whole bodies are written, and what is too much is overwritten.
	pool = slices.Grow(pool, (len(rows)+1)*(4+len(body{})))
	pool = pool[:cap(pool)]
	for i := range rows {
		r := &rows[i]
		p := pool[at : at+4+len(body{})]
		switch start := r.start - base; typ {
		case sframe.Addr1:
			p[0] = byte(start)
		case sframe.Addr2:
			b.order.PutUint16(p, uint16(start))
		default:
			b.order.PutUint32(p, start)
		}
		*(*body)(p[width:]) = r.body
		n := width + int(r.size[0])
		if n <= 8 {
			h = h.short(p, n)
		} else {
			h = h.row(p[:n])
		}
		at += n
	}
	return pool[:at], h
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
