package elfwrite

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
)

// Code tells which bytes of a file's code something refers to.
type Code struct {
	first, size uint64
	referred    []uint64 // a bit for each byte
}

// errCode is the error for code that has no common range of addresses.
var errCode = errors.New("the sections with code are too far from each other")

// codeOf returns the addresses of the code of f that is in the file.
func codeOf(f *elffile.File) []elffile.Span {
	var all []elffile.Span
	for _, c := range f.Code() {
		if c.Filesz > 0 {
			all = append(all, span(c.Begin, c.Begin+c.Filesz))
		}
	}
	return all
}

// newCode returns the code of f, to which nothing refers.
func newCode(f *elffile.File) (Code, error) {
	first, end := uint64(math.MaxUint64), uint64(0)
	for _, s := range codeOf(f) {
		first, end = min(first, s.Begin), max(end, s.End)
	}
	if first >= end {
		return Code{}, nil
	}
	const between = 16 << 20 // segments of small files
	if end-first > 2*f.Size+between {
		return Code{}, errCode
	}
	return Code{first, end - first, make([]uint64, (end-first)/64+1)}, nil
}

// Referred reports whether something refers to one of the addresses from begin to end, the latter excluded.
func (c *Code) Referred(begin, end uint64) bool {
	for at := max(begin, c.first); at < end && at-c.first < c.size; at++ {
		if off := at - c.first; c.referred[off/64]>>(off%64)&1 != 0 {
			return true
		}
	}
	return false
}

// mark notes references to the addresses from first to last, which are few.
func (c *Code) mark(first, last uint64) {
	for at := max(first, c.first); at <= last && at-c.first < c.size; at++ {
		off := at - c.first
		c.referred[off/64] |= 1 << (off % 64)
	}
}

// Code returns the references to the code of the old file: of symbols, of relocations, and of the start and the end of
// the program. It is an error if they cannot all be found.
func (l *Layout) Code() (*Code, error) {
	if l.program == nil || l.program.refs == nil {
		return CodeOf(l.f)
	}
	return l.program.refs.ofCode(l.f)
}

// CodeOf is Layout.Code for a file without a layout.
func CodeOf(f *elffile.File) (*Code, error) {
	return newReferences(f, nil).ofCode(f)
}

// ofCode adds references of the start and the end of the program to those to code.
func (r *references) ofCode(f *elffile.File) (*Code, error) {
	if err := cmp.Or(r.err, r.codeErr); err != nil {
		return nil, err
	}
	c := &r.code
	c.mark(f.Entry, f.Entry)
	tags, err := dynamicValues(f)
	if err != nil {
		return nil, err
	}
	for _, tag := range []elf.DynTag{elf.DT_INIT, elf.DT_FINI} {
		if addr, ok := tags[tag]; ok {
			c.mark(addr, addr)
		}
	}
	for tag, size := range arrays {
		addr, n := tags[tag], tags[size]
		if n == 0 {
			continue
		}
		off, ok := f.FileOffset(addr, n)
		if !ok {
			return nil, fmt.Errorf("%v leads to %d bytes at address %#x, which no loaded segment holds", tag, n, addr)
		}
		if err := c.markPointers(f, tag.String(), off, n); err != nil {
			return nil, err
		}
	}
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.HasBytes() && slices.Contains(pointerSections, s.Name) {
			if err := c.markPointers(f, "section "+s.Name, s.Off, s.Size); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// markPointers notes references to the addresses in a part of the file.
func (c *Code) markPointers(f *elffile.File, name string, off, size uint64) error {
	const most = 16 << 20
	if size > most {
		return fmt.Errorf("%s has %d bytes; at most %d are accepted", name, size, most)
	}
	b, err := f.ReadAt(name, off, size)
	for ; len(b) >= wordSize; b = b[wordSize:] {
		c.mark(f.Order.Uint64(b), f.Order.Uint64(b))
	}
	return err
}

// arrays are the dynamic tags of arrays of addresses, and of their sizes.
var arrays = map[elf.DynTag]elf.DynTag{
	elf.DT_INIT_ARRAY:    elf.DT_INIT_ARRAYSZ,
	elf.DT_FINI_ARRAY:    elf.DT_FINI_ARRAYSZ,
	elf.DT_PREINIT_ARRAY: elf.DT_PREINIT_ARRAYSZ,
}

// pointerSections hold addresses of code, which no relocation repeats in programs with a fixed address.
var pointerSections = []string{
	"__patchable_function_entries", ".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors",
}
