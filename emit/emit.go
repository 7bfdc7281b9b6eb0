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
	"cmp"
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
	num    uint64 // of FREs, counted for each function
	rows   []row  // of the function at hand
	known  [knownRows]known
	from   [][2]uint8 // of each row and type: the type before it that costs least
}

// An fde is what is known of a function before the section's address is.
type fde struct {
	sframe.FDE
	list uint32 // index of its FREs
	num  uint32 // how many there are
	typ  sframe.FREType
}

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
	return &Builder{opt: opt, order: opt.ABI.Order(), layout: l}, nil
}

// Grow makes room for n more functions of usual size, so that none is made one by one.
func (b *Builder) Grow(n int) {
	b.fdes = slices.Grow(b.fdes, n)
	b.lists.all = slices.Grow(b.lists.all, n/2)
	b.lists.pool = slices.Grow(b.lists.pool, 24*n)
}

// Add adds a function. Its FREs are sorted by start address, and the first one
// starts at 0. Neither argument is kept. Functions may come in any order.
//
// It becomes several FDEs where the version limits the number of rows, or where
// that is smaller than one FDE of the flexible type.
func (b *Builder) Add(d sframe.FDE, fres []sframe.FRE) error {
	if len(b.lists.pool) > math.MaxUint32 {
		return fmt.Errorf("FREs of more than 2^32 bytes: %v has no room for them", b.opt.Version)
	}
	b.rows = merge(b.rows[:0], fres)
	if err := b.chooseForms(); err != nil {
		return fmt.Errorf("function at %#x: %w", d.Start, err)
	}
	for first := 0; first < len(b.rows); {
		last, flexible := b.part(first)
		b.add(d, first, last, flexible)
		first = last
	}
	return nil
}

// merge appends to out the rows that differ from the one before them.
func merge(out []row, fres []sframe.FRE) []row {
	for i := range fres {
		if n := len(out); n == 0 || !sframe.SameRow(&out[n-1].FRE, &fres[i]) {
			out = append(out, row{FRE: fres[i]})
		}
	}
	return out
}

// A row is an FRE and what is known of its two forms: in a default and in a flexible
// FDE.
type row struct {
	sframe.FRE
	size     [2]uint8 // in bytes, without the start address; 0: there is no such form
	flexible bool     // of the two, the one chosen
	body     body     // of the default form
}

// A body is a row as it is encoded (section "SFrame FRE"), without its start address: the info
// word, and the data words of a default FDE.
type body [13]byte

// A known is a row whose default form was looked up before.
type known struct {
	fre  sframe.FRE
	body body
	size uint8
	set  bool
}

// knownRows is how many rows are remembered, a power of two: but for where they start, the rows
// of a program are few.
const knownRows = 512

// defaultForm finds the default form of a row.
func (b *Builder) defaultForm(r *row) {
	e := &r.FRE
	h := uint32(e.CFA.Offset)*0x9e3779b1 ^ uint32(e.FP.Offset)*0x85ebca6b ^ uint32(e.RA.Offset)*0xc2b2ae35 ^ uint32(e.CFA.Base)<<13
	k := &b.known[h>>8%knownRows]
	if !k.set || !sframe.SameRow(&k.fre, e) {
		k.fre, k.set, k.size = *e, true, 0
		if w, ok := b.opt.Version.Default(b.opt.ABI, e); ok {
			k.size = uint8(len(b.appendBody(k.body[:0], e, &w)))
		}
	}
	r.body, r.size[0] = k.body, k.size
}

// appendBody appends the info word and the data words of a row.
func (b *Builder) appendBody(out []byte, e *sframe.FRE, w *sframe.Words) []byte {
	size := logSize(w)
	info := byte(w.Count)<<sframe.FREInfoCount | byte(size)<<sframe.FREInfoSize
	if w.SP {
		info |= sframe.FREInfoSP
	}
	if e.Signed && !e.Outermost {
		info |= sframe.FREInfoMangledRA
	}
	out = append(out, info)
	for _, v := range w.Word[:w.Count] {
		out = b.putUint(out, uint64(v), 1<<size)
	}
	return out
}

// chooseForms finds the forms of the rows, and chooses for each the type of its FDE.
func (b *Builder) chooseForms() error {
	mixed := false
	for i := range b.rows {
		r := &b.rows[i]
		b.defaultForm(r)
		mixed = mixed || r.size[0] == 0
	}
	if !mixed {
		return nil
	}
	for i := range b.rows {
		r := &b.rows[i]
		if w, ok := b.opt.Version.Flexible(b.opt.ABI, &r.FRE); ok {
			r.size[1] = uint8(1 + w.Count<<logSize(&w))
		}
		if r.size == [2]uint8{} {
			return fmt.Errorf("row with CFA %v, RA %v, FP %v has no form in %v", r.CFA, r.RA, r.FP, b.opt.Version)
		}
	}
	b.chooseTypes()
	return nil
}

// chooseTypes makes the whole as small as it can be: each change of type from one
// row to the next costs an FDE.
func (b *Builder) chooseTypes() {
	const none = math.MaxInt / 2
	cost := [2]int{}
	change := b.layout.FDESize + b.layout.AttrSize
	b.from = b.from[:0]
	for i := range b.rows {
		r := &b.rows[i]
		var next [2]int
		var from [2]uint8
		for t := range 2 {
			from[t] = uint8(t)
			next[t] = cost[t]
			if i > 0 && cost[1-t]+change < next[t] {
				next[t], from[t] = cost[1-t]+change, uint8(1-t)
			}
			if next[t] += int(r.size[t]); r.size[t] == 0 {
				next[t] = none
			}
		}
		cost = next
		b.from = append(b.from, from)
	}
	t := uint8(0)
	if cost[1] < cost[0] {
		t = 1
	}
	for i := len(b.rows) - 1; i >= 0; i-- {
		b.rows[i].flexible = t == 1
		t = b.from[i][t]
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
	base := rows[0].Start
	end := d.Size
	if last < len(b.rows) {
		end = b.rows[last].Start
	}
	f := fde{FDE: d, num: uint32(len(rows))}
	f.Start, f.Size, f.Flexible = d.Start+uint64(base), end-base, flexible
	switch start := rows[len(rows)-1].Start - base; {
	case start <= math.MaxUint8:
		f.typ = sframe.Addr1
	case start <= math.MaxUint16:
		f.typ = sframe.Addr2
	default:
		f.typ = sframe.Addr4
	}
	begin := len(b.lists.pool)
	if b.layout.AttrSize > 0 {
		b.lists.pool = b.order.AppendUint16(b.lists.pool, uint16(f.num))
		fdeType := byte(sframe.FDETypeDefault)
		if flexible {
			fdeType = sframe.FDETypeFlexible
		}
		b.lists.pool = append(b.lists.pool, f.info(), fdeType, f.RepSize)
	}
	at := begin
	h := newHash()
	if len(b.lists.pool) > begin {
		h, at = h.row(b.lists.pool[begin:]), len(b.lists.pool)
	}
	for i := range rows {
		b.encodeFRE(f.typ, &rows[i], base)
		h, at = h.row(b.lists.pool[at:]), len(b.lists.pool)
	}
	if b.opt.Share {
		f.list = b.lists.share(begin, f.typ, h)
	} else {
		f.list = b.lists.end(begin, f.typ)
	}
	b.fdes = append(b.fdes, f)
	b.num += uint64(f.num)
}

// info returns the FDE info word.
func (f *fde) info() byte {
	info := byte(f.typ)
	if f.PCMask {
		info |= sframe.FDEInfoPCMask
	}
	if f.KeyB {
		info |= sframe.FDEInfoKeyB
	}
	if f.Signal {
		info |= sframe.FDEInfoSignal
	}
	return info
}

// encodeFRE appends a row. Start addresses count from base.
func (b *Builder) encodeFRE(typ sframe.FREType, r *row, base uint32) {
	out := b.putUint(b.lists.pool, uint64(r.Start-base), typ.Size())
	if r.flexible {
		w, _ := b.opt.Version.Flexible(b.opt.ABI, &r.FRE)
		b.lists.pool = b.appendBody(out, &r.FRE, &w)
		return
	}
	b.lists.pool = append(out, r.body[:r.size[0]]...)
}

// logSize returns the binary logarithm of the size in bytes that all words fit.
func logSize(w *sframe.Words) int {
	size := 0
	for i, v := range w.Word[:w.Count] {
		lo, hi := int32(math.MinInt8), int32(math.MaxInt8)
		lo2, hi2 := int32(math.MinInt16), int32(math.MaxInt16)
		if w.Unsigned[i] {
			lo, hi, lo2, hi2 = 0, math.MaxUint8, 0, math.MaxUint16
		}
		switch {
		case lo <= v && v <= hi:
		case lo2 <= v && v <= hi2:
			size = max(size, 1)
		default:
			return 2
		}
	}
	return size
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
	size := uint64(b.layout.HeaderSize) + uint64(len(b.fdes))*uint64(b.layout.FDESize) + uint64(len(b.lists.pool))
	return size + b.padding(size)
}

func (b *Builder) padding(size uint64) uint64 {
	if b.opt.Align == 0 {
		return 0
	}
	return -size % b.opt.Align
}

// NumFDEs and NumFREs return how many there are so far.
func (b *Builder) NumFDEs() int { return len(b.fdes) }

// NumFREs returns the number of rows after merging.
func (b *Builder) NumFREs() uint64 { return b.num }

// Encode returns the section for the address it will have, Size bytes.
func (b *Builder) Encode(addr uint64) ([]byte, error) {
	byStart := func(a, b fde) int { return cmp.Compare(a.Start, b.Start) }
	if !slices.IsSortedFunc(b.fdes, byStart) {
		slices.SortFunc(b.fdes, byStart)
	}
	flags, pcrel := sframe.FDESorted, b.opt.PCRel || b.layout.PCRel
	if pcrel {
		flags |= sframe.FDEFuncStartPCRel
	}
	return b.encode(flags, func(d *fde, off int) (uint64, error) {
		from := addr
		if pcrel {
			from += uint64(off)
		}
		start := d.Start - from
		if s := int64(start); b.layout.StartSize == 4 && s != int64(int32(s)) {
			return 0, fmt.Errorf("function at %#x is more than 2 GiB away from .sframe at %#x; format 3 has no such limit", d.Start, addr)
		}
		return start, nil
	})
}

// A Start is a start address that a linker fills in.
type Start struct {
	Off  uint64 // of the field in the section, in bytes
	Addr uint64 // of the function
}

// EncodeObject returns the section for a relocatable object, as GNU as writes it: not
// sorted, and with start addresses of zero. What belongs there is returned too, in the
// order of the FDEs, which linkers rely on.
func (b *Builder) EncodeObject() ([]byte, []Start, error) {
	var flags sframe.Flags
	if b.opt.PCRel || b.layout.PCRel {
		flags = sframe.FDEFuncStartPCRel
	}
	starts := make([]Start, 0, len(b.fdes))
	data, err := b.encode(flags, func(d *fde, off int) (uint64, error) {
		starts = append(starts, Start{uint64(off), d.Start})
		return 0, nil
	})
	return data, starts, err
}

// ABI returns the ABI of the section.
func (b *Builder) ABI() sframe.ABI { return b.opt.ABI }

// StartSize returns the size of a start address in bytes.
func (b *Builder) StartSize() int { return b.layout.StartSize }

// encode returns the section; start gives each FDE's start address, whose field is at
// the given offset.
func (b *Builder) encode(flags sframe.Flags, start func(d *fde, off int) (uint64, error)) ([]byte, error) {
	if len(b.fdes) > math.MaxUint32 || b.num > math.MaxUint32 || len(b.lists.pool) > math.MaxUint32 {
		return nil, fmt.Errorf("%d functions with %d rows of %d bytes: more than the header can count", len(b.fdes), b.num, len(b.lists.pool))
	}
	o := b.order
	freLen := b.Size() - uint64(b.layout.HeaderSize) - uint64(len(b.fdes))*uint64(b.layout.FDESize)
	out := make([]byte, 0, b.Size())
	out = o.AppendUint16(out, sframe.Magic)
	out = append(out, byte(b.opt.Version), byte(flags), byte(b.opt.ABI), 0, byte(b.opt.ABI.FixedRA()), 0)
	for _, v := range []uint32{
		uint32(len(b.fdes)), uint32(b.num), uint32(freLen),
		0, uint32(len(b.fdes) * b.layout.FDESize),
	} {
		out = o.AppendUint32(out, v)
	}
	for i := range b.fdes {
		d := &b.fdes[i]
		v, err := start(d, len(out))
		if err != nil {
			return nil, err
		}
		if b.layout.StartSize == 8 {
			out = o.AppendUint64(out, v)
		} else {
			out = o.AppendUint32(out, uint32(v))
		}
		out = o.AppendUint32(out, d.Size)
		out = o.AppendUint32(out, b.lists.all[d.list].off)
		if b.layout.AttrSize > 0 {
			continue // the rest is before the FREs
		}
		out = o.AppendUint32(out, d.num)
		out = append(out, d.info())
		if b.layout.RepSize {
			out = append(out, d.RepSize, 0, 0)
		}
	}
	out = append(out, b.lists.pool...)
	return append(out, make([]byte, b.padding(uint64(len(out))))...), nil
}
