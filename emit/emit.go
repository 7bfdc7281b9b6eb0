// Package emit writes SFrame sections: rows of functions in, bytes out.
//
// It works in three phases, each with a type of its own:
//
//   - A Builder collects functions. Their rows come as numbers: each row that differs is
//     numbered, and encoded, once. Builders for parts of a program may be filled at the same time.
//   - Join divides functions into FDEs, finds the lists of rows that FDEs share, and gives a
//     Section, of which the size is known. Joined parts give the same bytes as one Builder.
//   - Section.Encode gives the bytes for an address: rows do not depend on where the section will
//     lie, start addresses of functions do.
//
// The width of start addresses follows from the last row's start rather than from the
// function's size, each row takes the smallest data words that hold its offsets, and
// equal neighbouring rows are merged. If rows are shared, functions are divided where that
// makes the section smaller, and FDEs with the same rows have them together; see Join.
//
// Words: a run is the rows of a function, or of a part of one where the version or the type of FDE
// needs parts; functions with the same instructions have the same one, and each of them is a use of
// it. A piece is what of a run becomes one FDE, and consists of clusters, between which runs may be
// divided. A list is the rows of a piece as they are encoded. With Options.Best, runs are divided without regard to
// clusters: at a place, which is any row of a run. A stem of a place is the first rows of pieces that could begin there.
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
	// Align makes the size of the section a multiple of it, with zeros after the
	// last row. 0 stands for 1.
	Align uint64
	// Share stores rows that several FDEs have only once, and divides functions into several
	// FDEs where parts of them can be shared then.
	Share bool
	// Best, with Share, divides functions so that the section is about as small as it can be, which takes many times as
	// long. Functions that nothing lies between may be one FDE then.
	Best bool
}

// A Builder collects functions.
type Builder struct {
	opt      Options
	codec    *sframe.Codec
	layout   *sframe.Layout
	forms    [2][]form             // of each row, in FDEs of the default type, and of the flexible one
	long     [2][][]byte           // the bytes of those that are longer than a number
	numbers  map[sframe.Row]uint32 // of the forms
	rows     []sframe.Ref          // of all runs; starts count from the function's
	runs     []run
	uses     []use
	clusters []cluster // of all runs, if rows are shared

	// By Join:
	pieces []piece
	lists  lists // of this part

	// Of the function at hand:
	merged   []sframe.Ref
	flexible []bool     // of each row, the type that was chosen
	from     [][2]uint8 // of each row and type: the type before it that costs least
}

// A form is a row as it is encoded, without its start address, as FDEs of one type hold it.
type form struct {
	hash uint64 // of the bytes; of 8 or less, these themselves, the first one lowest
	size uint32 // in bytes; 0: there is no such form
}

// A run is the rows of a function or of a part of one.
type run struct {
	base     uint32 // where it starts in its function
	row, num uint32 // its rows: the first one in Builder.rows, and how many there are
	uses     uint32
	next     bool // the run after it belongs to the same function
	whole    bool // it becomes one FDE

	cluster, clusters uint32 // its clusters: the first one, and how many there are
	piece, pieces     uint32 // its pieces
	twice             uint32 // how many of its rows are in two pieces

	// As in sframe.FDE:
	pcMask, keyB, signal, flexible bool
	repSize                        uint8
}

// fde returns the FDE of size bytes at start that has rows of the run.
func (r *run) fde(start uint64, size uint32) sframe.FDE {
	return sframe.FDE{Start: start, Size: size, PCMask: r.pcMask, RepSize: r.repSize, KeyB: r.keyB, Signal: r.signal, Flexible: r.flexible}
}

// A use is a range of code that has the rows of a run.
type use struct {
	start uint64
	size  uint32
	run   uint32
}

// A piece is what of a run becomes one FDE, up to the next piece.
type piece struct {
	start uint32 // of its code, from the start of the run
	list  uint32 // index of its rows
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

// Grow makes room for n functions more, so that none is made one by one. About as many as added, with so many
// rows together, come by Add, the others by Repeat.
func (b *Builder) Grow(n, added, rows int) {
	const clusters = 3 // of a function; libLLVM has 2.8 for each that differs
	b.uses = slices.Grow(b.uses, n)
	b.runs = slices.Grow(b.runs, added)
	b.rows = slices.Grow(b.rows, rows)
	if b.opt.Share {
		b.clusters = slices.Grow(b.clusters, clusters*added)
	}
}

// Row returns the number of a row, for Add. Equal rows have the same number, and a row that has no
// form in the version is an error of Add.
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

// Add adds a function. Its rows have the numbers that Row gave, they are sorted by start address,
// and the first one starts at 0. The argument is not kept. Functions may come in any order, but
// must not overlap. The number that Add returns is for Repeat.
//
// It becomes several FDEs where the version limits the number of rows, or where
// that is smaller than one FDE of the flexible type.
func (b *Builder) Add(d sframe.FDE, rows []sframe.Ref) (int, error) {
	if len(b.rows) > math.MaxUint32/2 {
		return 0, fmt.Errorf("more than 2^31 FREs: %v has no room for them", b.opt.Version)
	}
	n := len(b.runs)
	if b.addRun(&d, rows, false) {
		b.Repeat(d, n)
		return n, nil
	}
	b.merge(rows)
	if err := b.chooseTypes(); err != nil {
		return 0, fmt.Errorf("function at %#x: %w", d.Start, err)
	}
	for first := 0; first < len(b.merged); {
		last := b.part(first)
		if d.PCMask && last-first < len(b.merged) { // starts count from each block's
			return 0, fmt.Errorf("function at %#x: its rows need several FDEs, and one with a PC mask cannot be divided", d.Start)
		}
		b.addRun(&d, b.merged[first:last], b.flexible[first])
		b.runs[len(b.runs)-1].next = last < len(b.merged)
		first = last
	}
	b.Repeat(d, n)
	return n, nil
}

// addRun adds rows of a function, those that differ from the one before them, as a run for FDEs of the given
// type. It reports whether these can hold them.
func (b *Builder) addRun(d *sframe.FDE, rows []sframe.Ref, flexible bool) bool {
	r := run{
		base: rows[0].Start, row: uint32(len(b.rows)), cluster: uint32(len(b.clusters)),
		pcMask: d.PCMask, repSize: d.RepSize, keyB: d.KeyB, signal: d.Signal, flexible: flexible,
	}
	forms, out, clusters := b.forms[typeIndex(flexible)], b.rows, b.clusters
	size, last := uint32(0), uint32(math.MaxUint32) // which is the number of no row
	var c cluster
	for _, e := range rows {
		if e.Row == last {
			continue
		}
		last = e.Row
		f := forms[e.Row]
		if f.size == 0 {
			return false
		}
		out = append(out, e)
		size += uint32(sframe.Addr4.Size()) + f.size
		if start := e.Start - r.base; c.rows > 0 && start-c.last < minGap {
			c.add(start, f)
		} else {
			if c.rows > 0 && b.opt.Share {
				clusters = append(clusters, c)
			}
			c = newCluster(start, f)
		}
	}
	r.num = uint32(len(out)) - r.row
	if r.num > b.layout.MaxFREs {
		return false
	}
	b.rows = out
	if b.opt.Share {
		b.clusters = append(clusters, c)
		r.clusters = uint32(len(b.clusters)) - r.cluster
	}
	// To divide a run cannot save more than its rows, and costs an FDE at least.
	r.whole = d.PCMask || int(size) <= b.layout.FDESize || r.num > maxDivided
	b.runs = append(b.runs, r)
	return true
}

// Repeat adds a function of d.Size bytes at d.Start, which has the rows and all the rest from the
// call of Add that returned n. All of these rows begin in it. It is not a PC-mask FDE.
func (b *Builder) Repeat(d sframe.FDE, n int) {
	for i := n; ; i++ {
		r := &b.runs[i]
		r.uses++
		end := d.Size
		if r.next {
			end = b.runs[i+1].base
		}
		b.uses = append(b.uses, use{d.Start + uint64(r.base), end - r.base, uint32(i)})
		if !r.next {
			return
		}
	}
}

// merge keeps the rows that differ from the one before them.
func (b *Builder) merge(rows []sframe.Ref) {
	b.merged = b.merged[:0]
	for _, e := range rows {
		if n := len(b.merged); n == 0 || b.merged[n-1].Row != e.Row {
			b.merged = append(b.merged, e)
		}
	}
}

// part returns the end of the rows from first on that one FDE can hold.
func (b *Builder) part(first int) int {
	last := first
	for last < len(b.merged) && b.flexible[last] == b.flexible[first] && uint64(last-first) < uint64(b.layout.MaxFREs) {
		last++
	}
	return last
}
