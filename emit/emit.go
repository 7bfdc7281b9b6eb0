// Package emit writes SFrame sections: rows of functions in, bytes out.
//
// It works in three phases, each with a type:
//
//   - A Builder collects functions. Each distinct row gets a number and is encoded once. Builders for
//     parts of a program may be filled at the same time.
//   - Join decides which code each FDE describes and which FDEs share their rows. It returns a Section,
//     whose size is known. The bytes do not depend on the number of Builders.
//   - Section.Encode returns the bytes for an address. FREs do not depend on the address of the
//     section; start addresses of FDEs do.
//
// An FDE describes a range of code, not a function. Without Options.Join each function gets an FDE. With
// it, all rows in address order form one sequence, and Join divides this sequence into FDEs at the
// least cost; divide.go explains how. A width of start addresses follows from the start of the last row, each row takes
// the smallest data words that hold its offsets, and equal neighbouring rows are merged.
//
// Not in this package: which rows a function has (package translate), and where the section lies in
// the file (package elfwrite).
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
	// PCRel makes start addresses of FDEs count from their own field (flag 0x4, errata 1) instead of
	// from the start of the section.
	PCRel bool
	// Align makes the size of the section a multiple of it, with zeros after the last row. 0 means 1.
	Align uint64
	// Join divides code into FDEs without regard to functions: an FDE may describe several functions
	// that follow each other, or a part of one. Otherwise each function gets one FDE, as far as the
	// version allows.
	Join bool
	// Share, with Join, stores equal FRE lists only once.
	Share bool
}

// A Builder collects functions.
type Builder struct {
	opt     Options
	codec   *sframe.Codec
	layout  *sframe.Layout
	forms   [2][]form             // of each row, in default and in flexible FDEs
	long    [2][][]byte           // the bytes of forms that do not fit an integer
	numbers map[sframe.Row]uint32 // index in forms
	rows    []sframe.Ref          // of all runs; starts count from the function's start
	runs    []run
	uses    []use
}

// A form is an encoded row without its start address, for one type of FDE.
type form struct {
	bytes uint64 // the first byte lowest; a hash if there are more than 8
	size  uint32 // in bytes; 0: the type cannot hold the row
}

// A run is the rows of a function, or of a part of one if the function needs FDEs of several types.
type run struct {
	fde      sframe.FDE // without Start and Size
	base     uint32     // offset of the run in its function
	row, num uint32     // its rows: index of the first one in Builder.rows, and their number
	next     bool       // the next run belongs to the same function
	class    uint16     // of fde
	clusters uint32     // their number, with Options.Join
}

// classOf returns a number that is equal for FDEs that differ only in Start and Size.
func classOf(d *sframe.FDE) uint16 {
	c := uint16(d.RepSize)
	for i, is := range [...]bool{d.PCMask, d.KeyB, d.Signal, d.Flexible} {
		if is {
			c |= 0x100 << i
		}
	}
	return c
}

// A use is a range of code that has the rows of a run.
type use struct {
	start uint64
	size  uint32
	run   uint32
	part  uint32 // index of the Builder, set by Join
}

// NewBuilder returns a Builder for an empty section.
func NewBuilder(opt Options) (*Builder, error) {
	c, err := sframe.NewCodec(opt.Version, opt.ABI)
	if err != nil {
		return nil, err
	}
	l := c.Layout()
	if opt.PCRel && l.Flags&sframe.FDEFuncStartPCRel == 0 {
		return nil, fmt.Errorf("%v has no start addresses relative to their own field", opt.Version)
	}
	return &Builder{opt: opt, codec: c, layout: l, numbers: make(map[sframe.Row]uint32)}, nil
}

// Grow reserves memory for n more functions: about added calls of Add. The others are calls of Repeat.
func (b *Builder) Grow(n, added int) {
	const rows = 16 // of a function; 11 to 14 on amd64
	b.uses = slices.Grow(b.uses, n)
	b.runs = slices.Grow(b.runs, added)
	b.rows = slices.Grow(b.rows, rows*added)
}

// Row returns the number of a row, for Add. Equal rows have the same number. Add returns an error for rows without a
// form in the version.
func (b *Builder) Row(r sframe.Row) uint32 {
	n, ok := b.numbers[r]
	if !ok {
		n = uint32(len(b.numbers))
		b.numbers[r] = n
		b.encode(&r)
	}
	return n
}

// Refs returns the rows of FREs by their numbers, for Add.
func (b *Builder) Refs(fres []sframe.FRE) []sframe.Ref {
	refs := make([]sframe.Ref, len(fres))
	for i := range fres {
		refs[i] = sframe.Ref{Start: fres[i].Start, Row: b.Row(fres[i].Row)}
	}
	return refs
}

// Add adds a function. Its rows have numbers from Row, are sorted by start address, and the first
// one starts at 0. Add does not keep the argument. Functions may come in any order, but must not overlap. Repeat
// takes the number that Add returns.
//
// A function becomes several FDEs if the version limits the number of rows, or if that is smaller than
// one flexible FDE.
func (b *Builder) Add(d sframe.FDE, rows []sframe.Ref) (int, error) {
	n, first := len(b.runs), len(b.rows)
	if first > math.MaxUint32/2 {
		return 0, fmt.Errorf("more than 2^31 FREs do not fit %v", b.opt.Version)
	}
	simple := true
	for _, e := range rows {
		if k := len(b.rows); k == first || b.rows[k-1].Row != e.Row {
			b.rows = append(b.rows, e)
			simple = simple && b.forms[0][e.Row].size > 0
		}
	}
	if simple && uint64(len(b.rows)-first) <= uint64(b.layout.MaxFREs) {
		b.addRun(&d, first, len(b.rows), false)
		b.Repeat(d, n)
		return n, nil
	}
	types, err := b.chooseTypes(b.rows[first:])
	if err != nil {
		b.rows = b.rows[:first]
		return 0, fmt.Errorf("function at %#x: %w", d.Start, err)
	}
	for begin := 0; begin < len(types); {
		end := begin
		for end < len(types) && types[end] == types[begin] && uint64(end-begin) < uint64(b.layout.MaxFREs) {
			end++
		}
		if d.PCMask && end-begin < len(types) { // starts count from the block's
			const msg = "function at %#x: its rows need several FDEs, and one with a PC mask cannot be divided"
			return 0, fmt.Errorf(msg, d.Start)
		}
		b.addRun(&d, first+begin, first+end, types[begin])
		begin = end
	}
	b.Repeat(d, n)
	return n, nil
}

// addRun adds the rows from first to before end as a run for FDEs of the given type.
func (b *Builder) addRun(d *sframe.FDE, first, end int, flexible bool) {
	r := run{fde: *d, base: b.rows[first].Start, row: uint32(first), num: uint32(end - first), next: end < len(b.rows)}
	r.fde.Start, r.fde.Size, r.fde.Flexible = 0, 0, flexible
	r.class = classOf(&r.fde)
	if b.opt.Join {
		r.clusters = numClusters(b.rows[first:end], r.fde.PCMask)
	}
	b.runs = append(b.runs, r)
}

// Repeat adds a function of d.Size bytes at d.Start, otherwise equal to the function for which Add returned n. All its
// rows begin inside of it. It is not a PC-mask FDE.
func (b *Builder) Repeat(d sframe.FDE, n int) {
	for i := n; ; i++ {
		r := &b.runs[i]
		end := d.Size
		if r.next {
			end = b.runs[i+1].base
		}
		b.uses = append(b.uses, use{start: d.Start + uint64(r.base), size: end - r.base, run: uint32(i)})
		if !r.next {
			return
		}
	}
}
