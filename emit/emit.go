// Package emit writes SFrame sections: rows of functions in, bytes out.
//
// It works in three phases, each with a type:
//
//   - A Builder collects functions. Each distinct row gets a number and is encoded once. Builders for parts of a program
//     may be filled at the same time.
//   - Join decides which code each FDE describes and which FDEs share their rows. It returns a Section, whose size is
//     known. The bytes do not depend on the number of Builders.
//   - Section.Encode returns the bytes for an address. FREs do not depend on the address of the section; start addresses
//     of FDEs do.
//
// An FDE describes a range of code, not a function. Without Options.Join each function gets an FDE. With it, all rows in
// address order form one sequence, and Join divides this sequence into FDEs at the least cost; divide.go explains how. A
// width of start addresses follows from the start of the last row, each row takes the smallest data words that hold its
// offsets, and equal neighbouring rows are merged.
//
// Not in this package: which rows a function has (package translate), and where the section lies in the file (package
// elfwrite).
package emit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// Options say what to write.
type Options struct {
	Version sframe.Version
	ABI     sframe.ABI
	// PCRel makes start addresses of FDEs count from their own field (flag 0x4, errata 1), not from the section's start.
	PCRel bool
	// Align makes the size of the section a multiple of it, with zeros after the last row. 0 means 1.
	Align uint64
	// Join divides code into FDEs without regard to functions: an FDE may describe several functions that follow each
	// other, or a part of one. Otherwise each function gets one FDE, as far as the version allows.
	Join bool
	// Share, with Join, stores equal FRE lists only once.
	Share bool
}

// A Builder collects functions.
type Builder struct {
	opt    Options
	codec  *sframe.Codec
	layout *sframe.Layout

	numbers  map[sframe.Row]uint32 // indexes in formsOf
	formsOf  [2][]uint32           // of each row, in default and in flexible FDEs
	forms    []string              // distinct encoded rows without start addresses; the first one is empty: no form
	formAt   map[string]uint32     // their indexes
	clusters []cluster             // distinct ones; the first one has no rows
	refs     []sframe.Ref          // their rows: the form, and the distance from the first row of the cluster
	hashes   map[uint64]uint32     // indexes of clusters
	classes  []sframe.FDE          // distinct ones without Start and Size

	places []place // of all runs
	runs   []run
	uses   []use
	rows   []sframe.Ref // of the function that is added
}

// A run is the rows of a function, or of a part of one if the function needs FDEs of several types.
type run struct {
	base   uint32 // offset of the run in its function
	first  uint32 // index in Builder.places
	places uint32 // their number
	rows   uint32 // their number
	class  uint16 // index in Builder.classes
	next   bool   // the next run belongs to the same function
}

// A use is a range of code that has the rows of a run.
type use struct {
	start uint64
	size  uint32
	run   uint32
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
	return &Builder{
		opt: opt, codec: c, layout: l, numbers: make(map[sframe.Row]uint32),
		forms: []string{""}, formAt: map[string]uint32{"": 0},
		clusters: make([]cluster, 1), hashes: make(map[uint64]uint32),
	}, nil
}

// Grow reserves memory for n more functions: about added calls of Add. The others are calls of Repeat.
func (b *Builder) Grow(n, added int) {
	const places = 4 // of a function; about 3 on amd64
	b.uses = slices.Grow(b.uses, n)
	b.runs = slices.Grow(b.runs, added)
	b.places = slices.Grow(b.places, places*added)
}

// Row returns the number of a row, for Add. Equal rows have the same number. Add returns an error for rows without a
// form in the version.
func (b *Builder) Row(r sframe.Row) uint32 {
	n, ok := b.numbers[r]
	if !ok {
		n = uint32(len(b.numbers))
		b.numbers[r] = n
		b.addForms(&r)
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

// Add adds a function. Its rows have numbers from Row, are sorted by start address, and the first one starts at 0. Add
// does not keep the argument. Functions may come in any order, but must not overlap. Repeat takes the number that Add
// returns.
//
// A function becomes several FDEs if the version limits the number of rows, or if that is smaller than one flexible FDE.
func (b *Builder) Add(d sframe.FDE, rows []sframe.Ref) (int, error) {
	n := len(b.runs)
	if len(b.places) > math.MaxUint32/2 {
		return 0, fmt.Errorf("more than 2^31 FREs do not fit %v", b.opt.Version)
	}
	b.rows = slices.Grow(b.rows[:0], len(rows))
	simple, last, forms, added := true, uint32(math.MaxUint32), b.formsOf[0], b.rows
	for _, e := range rows {
		if e.Row != last {
			last = e.Row
			e.Row = forms[e.Row]
			simple = simple && e.Row > 0
			added = append(added, e)
		}
	}
	b.rows = added
	if simple && uint64(len(b.rows)) <= uint64(b.layout.MaxFREs) {
		b.addRun(&d, b.rows, false)
	} else if err := b.addTypes(&d, rows); err != nil {
		return 0, fmt.Errorf("function at %#x: %w", d.Start, err)
	}
	b.runs[len(b.runs)-1].next = false
	b.Repeat(d, n)
	return n, nil
}

// addTypes adds the rows of a function as runs for FDEs of both types.
func (b *Builder) addTypes(d *sframe.FDE, rows []sframe.Ref) error {
	rows = slices.CompactFunc(slices.Clone(rows), func(a, b sframe.Ref) bool { return a.Row == b.Row })
	types, err := b.chooseTypes(rows)
	if err != nil {
		return err
	}
	for begin := 0; begin < len(types); {
		end := begin
		for end < len(types) && types[end] == types[begin] && uint64(end-begin) < uint64(b.layout.MaxFREs) {
			rows[end].Row = b.formsOf[typeIndex(types[end])][rows[end].Row]
			end++
		}
		if d.PCMask && end-begin < len(types) { // starts count from the block's
			return errors.New("its rows need several FDEs, and one with a PC mask cannot be divided")
		}
		b.addRun(d, rows[begin:end], types[begin])
		begin = end
	}
	return nil
}

// addRun adds rows as a run for FDEs of the given type. It changes the rows, which have the numbers of forms.
func (b *Builder) addRun(d *sframe.FDE, rows []sframe.Ref, flexible bool) {
	r := run{
		base: rows[0].Start, first: uint32(len(b.places)), rows: uint32(len(rows)), class: b.class(*d, flexible),
		next: true,
	}
	together := d.PCMask || !b.opt.Join
	for before := r.base; len(rows) > 0; {
		p := place{gap: rows[0].Start - before}
		before = rows[0].Start
		n := align(rows, together)
		p.cluster = b.cluster(rows[:n])
		if len(b.places) == int(r.first) && !together {
			b.addRest(p.cluster)
		}
		b.places = append(b.places, p)
		rows = rows[n:]
	}
	r.places = uint32(len(b.places)) - r.first
	b.runs = append(b.runs, r)
}

// class returns the index of the class of an FDE of the given type.
func (b *Builder) class(d sframe.FDE, flexible bool) uint16 {
	d.Start, d.Size, d.Flexible = 0, 0, flexible
	i := slices.Index(b.classes, d)
	if i < 0 {
		i = len(b.classes)
		b.classes = append(b.classes, d)
	}
	return uint16(i)
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
