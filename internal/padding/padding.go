// Package padding finds what assemblers and linkers put between functions so that these begin at multiples of
// their alignment: no-ops, traps and zeros.
//
// CFI does not describe padding. But if a function ends with a call that does not return (abort), the return address
// lies in the padding after it. Readers that look up the return address itself need a row there, so padding gets the
// last row of the function before it.
//
// Padding is recognised instruction by instruction, up to the next function. Other code without CFI is never described.
// Padding to which a symbol, a relocation or anything else refers may be code, and is not described. No-ops run into
// the next function. If the rows before and after them differ, they must be unreachable: no code runs into them, or
// jumps to them from nearby.
//
// The first byte of a function without a caller can be a return address as well: makecontext makes the function of a
// coroutine return to such code. Readers then look up the byte before it, so the last byte of that padding has no row.
package padding

import (
	"cmp"
	"debug/elf"
	"math"
	"math/bits"
	"slices"
	"sort"
	"sync"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/plt"
)

// Limit is the size in bytes from which on padding is not described. Functions are rarely aligned to more.
const Limit = 64

// An instructionSet recognises instructions of a machine.
type instructionSet struct {
	// pad returns the size in bytes of the no-op, trap or zeros at the start of b, and whether control continues after
	// it. For other code the size is 0.
	pad func(b []byte) (size int, runs bool)
	// long is the size in bytes that all no-ops but one have at least in padding by assemblers.
	long int
	// leaves reports whether the instruction at the end of b leaves the function: a jump, a call that may not
	// return, or a trap.
	leaves func(b []byte) bool
	// switches reports whether the instruction at the start of b sets the stack pointer to another register: code
	// without a caller. Nil if the machine's C libraries say so in CFI.
	switches func(b []byte) bool
	// jumps reports whether an instruction in b, which lies at pc, may jump to the range, which does not overlap b. The
	// first and the last instruction may be incomplete.
	jumps func(b []byte, pc uint64, to elffile.Span) bool
}

// machines are the supported machines. Each machine's file adds one.
var machines = make(map[elf.Machine]instructionSet)

// Gaps are the gaps between the functions of a file that may be padding.
type Gaps struct {
	instructionSet
	file  *elffile.File
	table *cfi.Table
	sizes []uint8 // by functions: of the gap after it, or 0

	// Blocks of 1<<shift bytes from the first function on have about one function each. The index has the first gap that
	// ends after the start of each block.
	shift int
	index []int32
}

// Find returns the gaps after the functions of the table. Stubs are the PLT stubs without CFI. It returns nil for
// objects, as linkers may add to their padding.
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

// Refer removes gaps with any of the addresses from first to last: something refers to one of them.
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

// makeIndex makes the index, which ends with the number of functions.
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

// Sizes returns for each function how many bytes of padding after it get its last row. All references have to be known.
// The result does not depend on the number of workers. It is nil if x is.
func (x *Gaps) Sizes(workers int) []uint8 {
	if x == nil {
		return nil
	}
	n := len(x.sizes)
	parts := max(1, min(workers, n))
	var all sync.WaitGroup
	for i := range parts {
		all.Go(func() { x.read(i*n/parts, (i+1)*n/parts) })
	}
	all.Wait()
	return x.sizes
}

// A code is a section of code except PLTs, or a segment without section headers.
type code struct {
	elffile.Span
	fill uint64 // end of the bytes after it that belong to no section: the linker's
}

// allCode returns the code of a file, by address.
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

// fill sets where the bytes after sections of code end: at the next section, or at the end of the segment. It finds
// none after a section that another one overlaps.
func fill(all []code, f *elffile.File) {
	var loaded, segments []elffile.Span // sections, and the bytes of executable segments in the file
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Alloc() && s.Size > 0 {
			loaded = append(loaded, elffile.Span{Begin: s.Addr, End: s.Addr + s.Size})
		}
	}
	for i := range f.Progs {
		if h := &f.Progs[i]; elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
			segments = append(segments, elffile.Span{Begin: h.Vaddr, End: h.Vaddr + h.Filesz})
		}
	}
	byBegin := func(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) }
	slices.SortFunc(loaded, byBegin)
	slices.SortFunc(segments, byBegin)
	last := uint64(0) // end of the sections that begin before the current section's end
	for i := range all {
		c := &all[i]
		for len(loaded) > 0 && loaded[0].Begin < c.End {
			last = max(last, loaded[0].End)
			loaded = loaded[1:]
		}
		c.fill = c.End
		s := sort.Search(len(segments), func(i int) bool { return segments[i].Begin > c.Begin }) - 1
		if last > c.End || s < 0 {
			continue
		}
		if c.fill = max(c.End, segments[s].End); len(loaded) > 0 {
			c.fill = min(c.fill, loaded[0].Begin)
		}
	}
}

// find sets sizes to the distances between functions that are small enough.
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

// The sizes in bytes of the code before and after padding that is searched for jumps to it. Nearly all functions are
// smaller than reachBefore.
const (
	reachBefore = windowSize / 2
	reachAfter  = 128
)

// read reads the code around the gaps of functions first to before last, and removes gaps that are not padding.
func (x *Gaps) read(first, last int) {
	w := window{file: x.file, offset: x.file.FileOffset, size: windowSize}
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
		b := w.at(before.Begin, after.End-before.Begin)
		if b == nil {
			x.sizes[i] = 0
			continue
		}
		code, rest := b[:before.Size()], b[before.Size():]
		jump := func(to elffile.Span) bool {
			return x.jumps(code, before.Begin, to) || x.jumps(rest[gap.Size():], after.Begin, to)
		}
		switch is := x.decode(rest[:gap.Size()]); {
		case is == traps:
		case is == other,
			x.differs(i) && (is == pieces || !x.leaves(code) || jump(gap) ||
				is == two && jump(elffile.Span{Begin: gap.Begin + 1, End: gap.End})):
			x.sizes[i] = 0
		case i+1 < len(x.sizes) && gap.End == x.table.At(i+1).Begin && x.begins(x.table.At(i+1), rest[gap.Size():]):
			x.sizes[i]--
		}
	}
}

// begins reports whether a function has no caller where it begins.
func (x *Gaps) begins(fn *cfi.Function, code []byte) bool {
	if x.switches != nil && x.switches(code) {
		return true
	}
	steps := fn.Steps()
	return len(steps) > 0 && x.table.Rules(steps[0].Number).RA.Rule == cfi.RuleUndefined
}

// differs reports whether the row after the padding of function i may differ from the function's last row.
func (x *Gaps) differs(i int) bool {
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

// A kind is the contents of a gap.
type kind uint8

const (
	other  kind = iota // not only padding
	traps              // padding that does not run: traps and zeros
	filled             // no-ops as assemblers write them
	two                // the same, after a no-op of one byte: GCC aligns methods to 2 bytes first
	pieces             // other no-ops, among which there may be labels
)

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
			if n == 1 && len(rest) == len(b) && len(b) > 1 && n < x.long {
				is, short = two, short-1
			}
		case runs && is == two && n == 1:
			is = pieces
		}
		if runs && n < x.long {
			if short++; short > 1 {
				is = pieces
			}
		}
		rest = rest[n:]
	}
	return is
}

// A window is a part of a file's code.
type window struct {
	file      *elffile.File
	offset    func(addr, n uint64) (uint64, bool) // of n bytes in the file, as File.FileOffset returns it
	size      uint64                              // that is read at once
	addr      uint64                              // of b
	b, buffer []byte
}

// windowSize is the size in bytes of the code that is read at once. It fits the processor's cache.
const windowSize = 128 << 10

// at returns n bytes at an address, or nil if the file does not contain them.
func (w *window) at(addr, n uint64) []byte {
	if off := addr - w.addr; off <= uint64(len(w.b)) && n <= uint64(len(w.b))-off {
		return w.b[off:][:n]
	}
	for size := w.size; size > n/2; size /= 2 { // where the segment ends, there are fewer
		size = max(size, n)
		if off, ok := w.offset(addr, size); ok {
			if w.buffer == nil {
				w.buffer = make([]byte, w.size)
			}
			w.addr, w.b = addr, w.buffer[:size]
			if w.file.ReadInto("code", w.b, off) != nil {
				w.b = nil
			}
			return w.b[:min(n, uint64(len(w.b)))]
		}
	}
	return nil
}
