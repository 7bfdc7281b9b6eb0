package elffile

import (
	"cmp"
	"debug/elf"
	"iter"
	"math"
	"slices"
)

// A Span is a range of addresses or file offsets. End is exclusive.
type Span struct{ Begin, End uint64 }

// Size returns the size of s in bytes.
func (s Span) Size() uint64 { return s.End - s.Begin }

// Has reports whether s contains an address or offset.
func (s Span) Has(at uint64) bool { return s.Begin <= at && at < s.End }

// Overlaps reports whether s and t share bytes.
func (s Span) Overlaps(t Span) bool { return s.Begin < t.End && t.Begin < s.End }

// Contains reports whether t is within s.
func (s Span) Contains(t Span) bool { return s.Begin <= t.Begin && t.End <= s.End }

// Each returns an iterator over pointers to the elements of a list of headers.
func Each[T any](headers []T) iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := range headers {
			if !yield(i, &headers[i]) {
				return
			}
		}
	}
}

// A CodeRange is a code section or, in a file without section headers, an executable segment.
type CodeRange struct {
	Span          // addresses; see Section.Base
	Name   string // name of the section, or "PT_LOAD"
	Off    uint64 // file offset
	Filesz uint64 // size in the file: 0 in debug files; excludes the zero-fill of segments
}

// Code returns the ranges of code in the file, sorted by address. Empty sections are not code.
func (f *File) Code() []CodeRange {
	isCode := func(s *Section) bool {
		return s.Alloc() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 && (!f.IsObject() || s.Base != 0)
	}
	n := len(f.Progs)
	for i := range f.Sections {
		if isCode(&f.Sections[i]) {
			n++
		}
	}
	all := make([]CodeRange, 0, n)
	add := func(name string, addr, size, off, filesz uint64) {
		if size > 0 && size <= math.MaxUint64-addr {
			all = append(all, CodeRange{Span{addr, addr + size}, name, off, filesz})
		}
	}
	for _, s := range Each(f.Sections) {
		switch {
		case !isCode(s):
		case s.HasBytes():
			add(s.Name, s.Base, s.Size, s.Off, s.Size)
		default:
			add(s.Name, s.Base, s.Size, s.Off, 0)
		}
	}
	for _, h := range Each(f.Progs) {
		if len(f.Sections) == 0 && elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
			add("PT_LOAD", h.Vaddr, h.Memsz, h.Off, h.Filesz)
		}
	}
	slices.SortStableFunc(all, func(a, b CodeRange) int { return cmp.Compare(a.Begin, b.Begin) })
	return all
}
