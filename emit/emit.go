// Package emit builds SFrame sections from functions and their rows.
//
//	section := emit.Join([]*emit.Builder{builder}) // the builder has functions from translate.Translate
//	encoded, err := section.Encode(0x2000)         // the address that the section will have
//	if err != nil {
//		return err
//	}
//	fmt.Println(section.NumFDEs(), "FDEs,", len(encoded), "bytes")
//
// It works in three phases, each with its own type:
//
//   - A Builder collects functions. Each distinct row gets a number and is encoded once. Builders for parts of a
//     program can be filled concurrently.
//   - Join decides which code each FDE describes and which FDEs share their rows. It returns a Section, whose size is
//     final. Its bytes do not depend on the number of Builders.
//   - Section.Encode returns the bytes for an address. FREs do not depend on the address of the section; start
//     addresses of FDEs do.
//
// With Options.Join, all rows in address order form one sequence, and Join divides this sequence into FDEs at minimum
// cost, as divide.go explains. The start of the last row determines the width of an FDE's start addresses, each row
// uses the smallest data words that hold its offsets, and adjacent equal rows are merged.
package emit

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/sframe"
)

// Options describe the section.
type Options struct {
	Version sframe.Version
	ABI     sframe.ABI
	// PCRel makes start addresses of FDEs relative to their own field (flag 0x4, errata 1) instead of the start of the
	// section.
	PCRel bool
	// Align is the alignment of the section's size in bytes; the section is padded with zeros. 0 means 1.
	Align uint64
	// Join divides code into FDEs regardless of functions: an FDE may describe several adjacent functions, or a part of
	// a function. Otherwise each function gets one FDE, or more if the version cannot express it in one.
	Join bool
	// Breaks lists addresses that FDEs do not cross with Join, in ascending order: starts of executable segments, since
	// Linux rejects the section if it finds an FDE of another segment at a pc.
	Breaks []uint64
	// Share, together with Join, stores equal FRE lists only once.
	Share bool
}

// A Builder collects functions.
type Builder struct {
	opt    Options
	codec  *sframe.Codec
	layout *sframe.Layout

	numbers  map[sframe.Row]uint32 // indexes in formsOf
	formsOf  [2][]uint32           // indexes in forms by row number, for default and flexible FDEs
	forms    []string              // distinct encoded rows without start addresses; the first is empty: no encoding
	formAt   map[string]uint32     // indexes in forms
	clusters []cluster             // distinct clusters; the first has no rows
	refs     []sframe.Ref          // rows of clusters: form, and distance from the first row of the cluster
	hashes   map[uint64]uint32     // indexes in clusters by hash
	classes  []sframe.FDE          // distinct FDEs without Start and Size

	places []place // of all runs
	runs   []run
	uses   []use
	rows   []sframe.Ref // of the current function
}

// A run holds the rows of a function, or of a part of it if the function needs FDEs of several types.
type run struct {
	base   uint32 // offset of the run in its function
	first  uint32 // index of the first place in Builder.places
	places uint32 // number of places
	rows   uint32 // number of rows
	class  uint16 // index in Builder.classes
	next   bool   // the next run belongs to the same function
}

// A use is a range of code with the rows of a run.
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
		return nil, fmt.Errorf("%v does not support start addresses relative to their own field", opt.Version)
	}
	return &Builder{
		opt: opt, codec: c, layout: l, numbers: make(map[sframe.Row]uint32),
		forms: []string{""}, formAt: map[string]uint32{"": 0},
		clusters: make([]cluster, 1), hashes: make(map[uint64]uint32),
	}, nil
}

// Grow reserves memory for n more functions: about nAdd will be passed to Add, and the rest to Repeat.
func (b *Builder) Grow(n, nAdd int) {
	const places = 4 // per function; about 3 on amd64
	b.uses = slices.Grow(b.uses, n)
	b.runs = slices.Grow(b.runs, nAdd)
	b.places = slices.Grow(b.places, places*nAdd)
}

// Row returns the number of a row, for Add. Equal rows have the same number. If the version cannot express the row, Add
// returns an error.
func (b *Builder) Row(r sframe.Row) uint32 {
	n, ok := b.numbers[r]
	if !ok {
		n = uint32(len(b.numbers))
		b.numbers[r] = n
		b.addForms(&r)
	}
	return n
}

// Refs returns the row numbers of FREs, for Add.
func (b *Builder) Refs(fres []sframe.FRE) []sframe.Ref {
	refs := make([]sframe.Ref, len(fres))
	for i := range fres {
		refs[i] = sframe.Ref{Start: fres[i].Start, Row: b.Row(fres[i].Row)}
	}
	return refs
}

// Add adds a function. Its rows have numbers returned by Row and are sorted by start address; the first starts at 0.
// Add does not keep its arguments. Functions may be added in any order, but must not overlap. Add returns a handle for
// Repeat.
//
// A function is split into several FDEs if it has more rows than the version allows in one, or if several FDEs take
// less space than one flexible FDE.
func (b *Builder) Add(d sframe.FDE, rows []sframe.Ref) (int, error) {
	n := len(b.runs)
	if len(b.places) > math.MaxUint32/2 {
		return 0, fmt.Errorf("more than 2^31 FREs; %v does not support them", b.opt.Version)
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
		if d.PCMask && end-begin < len(types) { // starts are relative to the block, not to the function
			return errors.New("rows need several FDEs, but a PC-mask FDE cannot be split")
		}
		b.addRun(d, rows[begin:end], types[begin])
		begin = end
	}
	return nil
}

// addRun adds rows, which refer to forms, as a run for FDEs of the given type. It overwrites the rows.
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

// Repeat adds a function of d.Size bytes at d.Start that otherwise equals the function for which Add returned n. All
// its rows must start within it, and d must not be a PC-mask FDE.
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
