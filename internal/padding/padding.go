// Package padding finds the no-ops, traps and zeros that assemblers and linkers insert between functions to align them.
//
// CFI does not describe padding. But if a function ends with a call that does not return (abort), the return address is
// in the padding after the function. Readers that look up the return address itself need a row at that address, so
// padding gets the last row of the preceding function.
//
// Padding is recognized instruction by instruction, up to the next function. Apart from padding, code without CFI is
// never described. Padding that a symbol, a relocation or anything else refers to may be code, so it is not described.
// No-ops fall through into the next function. If the rows before and after them differ, the no-ops must be unreachable:
// no code falls into them, and no nearby code jumps to them.
//
// The first byte of a function without a caller can also be a return address: makecontext makes the function of a
// coroutine return to such code. Readers look up the byte before a return address, so the last byte of padding before a
// function without a caller has no row.
package padding

import (
	"bytes"
	"cmp"
	"debug/elf"
	"math"
	"math/bits"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/internal/insn"
	"cfi2sframe/internal/panics"
	"cfi2sframe/internal/plt"
)

// Limit is the size in bytes at which a gap is too large to be padding. Larger function alignments are rare.
const Limit = 64

// An instructionSet recognizes instructions of a machine.
type instructionSet struct {
	// pad returns the size in bytes of the no-op, trap or zeros at the start of b, and whether execution continues
	// after it. For other code, the size is 0.
	pad func(b []byte) (size int, runs bool)
	// minNoOp is the minimum size in bytes of no-ops in padding from assemblers; one no-op may be smaller.
	minNoOp int
	// mayEnd reports whether the instruction at the end of b may end a function: a jump, a call that may not return, a
	// return or a trap.
	mayEnd func(b []byte) bool
	// switchesStack reports whether the instruction at the start of b sets the stack pointer from another register,
	// which means that the code has no caller. switchesStack is nil if the CFI of the machine's C libraries marks code
	// without a caller.
	switchesStack func(b []byte) bool
	// mayJump reports whether an instruction in b, the code at pc, may jump into the range, which does not overlap b.
	// The first and the last instruction of b may be truncated.
	mayJump func(b []byte, pc uint64, to elffile.Span) bool
}

var machines = arch.PerMachine(amd64, aarch64, s390x)

// mayLeave reports whether an instruction may be the last that a function executes.
func mayLeave(op insn.Op) bool { return op.Leaves() || op.Calls() }

// Gaps holds the gaps between the functions of a file that may be padding.
type Gaps struct {
	instructionSet
	file  *elffile.File
	table *cfi.Table
	sizes []uint8 // by function: size of the gap after it, or 0

	// The code starting at the first function is divided into blocks of 1<<shift bytes, about one per function. For
	// each block, index contains the first gap that ends after the start of the block.
	shift int
	index []int32
}

// Find returns the gaps after the functions of the table. Stubs are the PLT stubs without CFI. Find returns nil for
// objects, because linkers may extend their padding.
func Find(f *elffile.File, t *cfi.Table, stubs []plt.Stub) *Gaps {
	m, ok := machines[elf.Machine(f.Machine)]
	if !ok || f.IsObject() || t.Len() == 0 {
		return nil
	}
	x := &Gaps{instructionSet: m, file: f, table: t, sizes: make([]uint8, t.Len())}
	x.find(allCode(f), stubs)
	x.makeIndex()
	return x
}

// Refer removes the gaps that contain any of the addresses first to last, because something refers to these addresses.
func (x *Gaps) Refer(first, last uint64) {
	if x == nil {
		return
	}
	begin := x.table.At(0).Begin
	block := min((max(first, begin)-begin)>>x.shift, uint64(len(x.index)-2))
	at, end := int(x.index[block]), int(x.index[block+1])
	at += sort.Search(end-at, func(i int) bool { return x.gap(at+i).End > first })
	for ; at < len(x.sizes) && x.table.At(at).End <= last; at++ {
		x.sizes[at] = 0
	}
}

// makeIndex builds the index, whose last entry is the number of functions.
func (x *Gaps) makeIndex() {
	n := len(x.sizes)
	begin := x.table.At(0).Begin
	size := x.table.At(n-1).End - begin
	x.shift = bits.Len64(size / uint64(n))
	x.index = make([]int32, size>>x.shift+2)
	at := 0
	for block := range uint64(len(x.index) - 1) {
		for at < n && x.gap(at).End-begin <= block<<x.shift {
			at++
		}
		x.index[block] = int32(at)
	}
	x.index[len(x.index)-1] = int32(n)
}

// Sizes returns, for each function, the number of bytes of padding after it that its last row covers, or nil if x is
// nil. Refer must not be called after Sizes. The result does not depend on the number of workers.
func (x *Gaps) Sizes(workers int) []uint8 {
	if x == nil {
		return nil
	}
	n := len(x.sizes)
	parts := max(1, min(workers, n))
	var all panics.Group
	for i := range parts {
		all.Go(func() { x.read(i*n/parts, (i+1)*n/parts) })
	}
	all.Wait()
	return x.sizes
}

// A code describes a code section other than a PLT or, if the file has no section headers, an executable segment.
type code struct {
	elffile.Span
	fill uint64 // end of the linker's fill: bytes after the code that belong to no section
}

// allCode returns the code of a file, sorted by address.
func allCode(f *elffile.File) []code {
	var all []code
	for _, c := range f.Code() {
		if plt.IsSection(c.Name) {
			continue
		}
		if off, ok := f.FileOffset(c.Begin, c.Filesz); ok && off == c.Off && c.Filesz > 0 {
			end := c.Begin + c.Filesz
			all = append(all, code{elffile.Span{Begin: c.Begin, End: end}, end})
		}
	}
	if len(f.Sections) > 0 {
		fill(all, f)
	}
	return all
}

// fill sets the end of the fill after each code section: the next section, or the end of the segment. If another
// section overlaps the section's end, there is no fill.
func fill(all []code, f *elffile.File) {
	var loaded, segments []elffile.Span // sections; segments without their zero-fill
	for _, s := range elffile.Each(f.Sections) {
		if s.Alloc() && s.Size > 0 {
			loaded = append(loaded, elffile.Span{Begin: s.Addr, End: s.Addr + s.Size})
		}
	}
	for _, h := range elffile.Each(f.Progs) {
		if elf.ProgType(h.Type) == elf.PT_LOAD {
			segments = append(segments, elffile.Span{Begin: h.Vaddr, End: h.Vaddr + h.Filesz})
		}
	}
	byBegin := func(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) }
	slices.SortFunc(loaded, byBegin)
	slices.SortFunc(segments, byBegin)
	last := uint64(0) // largest end of the sections that start before the current section's end
	for i := range all {
		c := &all[i]
		for len(loaded) > 0 && loaded[0].Begin < c.End {
			last = max(last, loaded[0].End)
			loaded = loaded[1:]
		}
		s := sort.Search(len(segments), func(i int) bool { return segments[i].Begin > c.Begin }) - 1
		if last > c.End {
			continue
		}
		if c.fill = max(c.End, segments[s].End); len(loaded) > 0 {
			c.fill = min(c.fill, loaded[0].Begin)
		}
	}
}

// find sets sizes to the size of the gap after each function, if that is below Limit.
func (x *Gaps) find(all []code, stubs []plt.Stub) {
	for i := range x.sizes {
		fn := x.table.At(i)
		for len(all) > 0 && all[0].End < fn.End {
			all = all[1:]
		}
		if len(all) == 0 {
			return
		}
		next := uint64(math.MaxUint64)
		if i+1 < len(x.sizes) {
			next = x.table.At(i + 1).Begin
		}
		end := min(next, all[0].fill)
		if end-fn.End >= Limit {
			end = min(next, all[0].End)
		}
		for len(stubs) > 0 && stubs[0].End <= fn.End {
			stubs = stubs[1:]
		}
		stub := len(stubs) > 0 && stubs[0].Begin < end
		if size := end - fn.End; all[0].Begin < fn.End && size < Limit && !stub && !fn.Signal() && fn.Program() >= 0 {
			x.sizes[i] = uint8(size)
		}
	}
}

// gap returns the range after function i that may be padding.
func (x *Gaps) gap(i int) elffile.Span {
	end := x.table.At(i).End
	return elffile.Span{Begin: end, End: end + uint64(x.sizes[i])}
}

// Sizes in bytes: of one read, which fits in the processor's cache; of the code that is searched for jumps to padding,
// before the padding and after it. Almost all functions are smaller than reachBefore.
const (
	windowSize  = 128 << 10
	reachBefore = windowSize / 2
	reachAfter  = 128
)

// read examines the gaps after functions first to last-1, and removes those that are not padding.
func (x *Gaps) read(first, last int) {
	w := elffile.Window{Size: windowSize}
	var known [Limit]contents // by size: assemblers fill most gaps of a size with the same no-ops
	for i := first; i < last; i++ {
		gap := x.gap(i)
		if gap.Begin == gap.End {
			continue
		}
		before := elffile.Span{Begin: gap.Begin - min(gap.Begin-x.table.At(i).Begin, reachBefore), End: gap.Begin}
		after := elffile.Span{Begin: gap.End, End: gap.End}
		if i+1 < len(x.sizes) && x.table.At(i+1).Begin == gap.End {
			after.End += min(x.table.At(i+1).End-gap.End, reachAfter)
		}
		b := w.Read(x.file, before.Begin, after.End-before.Begin)
		if b == nil {
			x.sizes[i] = 0
			continue
		}
		code, rest := b[:before.Size()], b[before.Size():]
		jump := func(to elffile.Span) bool {
			return x.mayJump(code, before.Begin, to) || x.mayJump(rest[gap.Size():], after.Begin, to)
		}
		c := &known[gap.Size()]
		if pad := rest[:gap.Size()]; !bytes.Equal(c.b, pad) {
			*c = contents{append(c.b[:0], pad...), x.decode(pad)}
		}
		switch is := c.kind; {
		case is == traps:
		case is == other,
			x.mayDiffer(i) && (is == pieces || !x.mayEnd(code) || jump(gap) ||
				is == two && jump(elffile.Span{Begin: gap.Begin + 1, End: gap.End})):
			x.sizes[i] = 0
		case i+1 < len(x.sizes) && gap.End == x.table.At(i+1).Begin && x.noCaller(x.table.At(i+1), rest[gap.Size():]):
			x.sizes[i]--
		}
	}
}

// noCaller reports whether a function has no caller at its start.
func (x *Gaps) noCaller(fn *cfi.Function, code []byte) bool {
	if x.switchesStack != nil && x.switchesStack(code) {
		return true
	}
	steps := fn.Steps()
	return len(steps) > 0 && x.table.Rules(steps[0].Number).RA.Rule == cfi.RuleUndefined
}

// mayDiffer reports whether the row after the padding of function i may differ from the function's last row.
func (x *Gaps) mayDiffer(i int) bool {
	if i+1 == len(x.sizes) {
		return true
	}
	fn, next := x.table.At(i), x.table.At(i+1)
	if x.gap(i).End != next.Begin || next.Program() < 0 || next.Signal() || fn.KeyB() != next.KeyB() {
		return true
	}
	steps, after := fn.Steps(), next.Steps()
	for len(steps) > 0 && uint64(steps[len(steps)-1].Off) >= fn.End-fn.Begin {
		steps = steps[:len(steps)-1]
	}
	return len(steps) == 0 || len(after) == 0 || steps[len(steps)-1].Number != after[0].Number
}

// A kind classifies the contents of a gap.
type kind uint8

const (
	other  kind = iota // not only padding
	traps              // padding that is never executed: traps and zeros
	filled             // no-ops as emitted by assemblers
	two                // a one-byte no-op, then no-ops as in filled; GCC aligns methods to 2 bytes first
	pieces             // other no-ops, possibly with labels between them
)

// A contents holds the bytes of a gap, and their kind.
type contents struct {
	b []byte
	kind
}

// decode returns the kind of b.
func (x *Gaps) decode(b []byte) kind {
	is, short := traps, 0
	if len(b) == 0 {
		return other
	}
	for rest := b; len(rest) > 0; {
		n, runs := x.pad(rest)
		switch {
		case n == 0:
			return other
		case runs && is == traps:
			is = filled
			if n == 1 && len(rest) == len(b) && len(b) > 1 {
				is, short = two, short-1
			}
		case runs && is == two && n == 1:
			is = pieces
		}
		if runs && n < x.minNoOp {
			if short++; short > 1 {
				is = pieces
			}
		}
		rest = rest[n:]
	}
	return is
}
