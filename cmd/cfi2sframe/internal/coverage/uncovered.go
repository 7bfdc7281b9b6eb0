package coverage

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/convert"
	"cfi2sframe/elffile"
	"cfi2sframe/internal/padding"
	"cfi2sframe/internal/plt"
)

// Uncovered is code that no CFI describes. Sizes are in bytes.
type Uncovered struct {
	Bytes     uint64              `json:"bytes"`   // without Padding and Startup
	Padding   uint64              `json:"padding"` // recognized by its instructions
	Startup   uint64              `json:"startup"` // start-up code of the C library
	Sections  []UncoveredSection  `json:"sections"`
	Refused   []RefusedCode       `json:"refused,omitempty"` // with --infer: why code has no rows
	Functions []UncoveredFunction `json:"functions"`         // by function symbol, largest first
	Omitted   int                 `json:"functions_omitted"`

	Code uint64 `json:"-"` // of the file: Amounts.Code
}

// None returns a value with empty lists, because nil lists become null in JSON.
func None() Uncovered {
	return Uncovered{Sections: []UncoveredSection{}, Functions: []UncoveredFunction{}}
}

// RefusedCode totals the code whose instructions yield no rows for the same reason.
type RefusedCode struct {
	Reason string `json:"reason"`
	Ranges int    `json:"ranges"`
	Bytes  uint64 `json:"bytes"`
}

// refusedCode sums refusals by reason, largest first. Only code in the set counts.
func refusedCode(list []cfi.Refusal, counted *rangeSet) []RefusedCode {
	var sums []RefusedCode
	for _, r := range list {
		size := counted.bytesIn(r.Begin, r.End)
		if size == 0 {
			continue
		}
		i := slices.IndexFunc(sums, func(s RefusedCode) bool { return s.Reason == r.Reason })
		if i < 0 {
			i, sums = len(sums), append(sums, RefusedCode{Reason: r.Reason})
		}
		sums[i].Ranges++
		sums[i].Bytes += size
	}
	slices.SortFunc(sums, func(a, b RefusedCode) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Reason, b.Reason))
	})
	return sums
}

// An UncoveredSection is an executable section, or in a file without section headers an
// executable segment.
type UncoveredSection struct {
	Name    string `json:"name"`
	Begin   uint64 `json:"begin"` // address; 0 in a relocatable object
	Size    uint64 `json:"size"`
	Bytes   uint64 `json:"bytes"`   // without CFI; without Padding and Startup
	Padding uint64 `json:"padding"` // without CFI
	Startup uint64 `json:"startup"` // without CFI
}

// An UncoveredFunction is a function that CFI does not describe completely.
type UncoveredFunction struct {
	Function string `json:"function"`
	Symbol   string `json:"symbol,omitempty"` // the mangled name, if different
	Section  string `json:"section,omitempty"`
	Begin    uint64 `json:"begin"` // address
	Size     uint64 `json:"size"`
	Bytes    uint64 `json:"bytes"`            // without CFI
	Reason   string `json:"reason,omitempty"` // with --infer: why its instructions yield no rows
}

// maxUncovered is the maximum number of functions without CFI to list.
const maxUncovered = 10000

// A rangeSet is a sorted set of disjoint ranges, with prefix sums of their sizes.
type rangeSet struct {
	ranges []elffile.Span
	before []uint64
}

func newRangeSet(ranges []elffile.Span) *rangeSet {
	s := &rangeSet{ranges, make([]uint64, len(ranges))}
	n := uint64(0)
	for i, r := range ranges {
		s.before[i] = n
		n += r.Size()
	}
	return s
}

// bytesIn returns the number of bytes from begin to end that are in the set.
func (s *rangeSet) bytesIn(begin, end uint64) uint64 {
	upTo := func(addr uint64) uint64 {
		i := sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].Begin >= addr }) - 1
		if i < 0 {
			return 0
		}
		return s.before[i] + min(s.ranges[i].End, addr) - s.ranges[i].Begin
	}
	return upTo(end) - upTo(begin)
}

// Uncovered returns the code without CFI. Recognized PLT stubs count as described.
func (n *Names) Uncovered(d *convert.Details) Uncovered {
	u, free := uncoveredSections(d.File, d.Table, d.Stubs, d.Pads)
	u.addFunctions(d, free, n)
	u.Refused = refusedCode(d.Table.Refused, newRangeSet(free))
	for i := range u.Sections {
		if d.File.IsObject() { // addresses are relative to the section
			u.Sections[i].Begin = 0
		}
	}
	return u
}

// MeasureCode returns the size of the code and the size of the code without CFI, both excluding padding and start-up
// code.
func MeasureCode(f *elffile.File, t *cfi.Table, stubs []plt.Stub) (code, withoutCFI uint64) {
	u, _ := uncoveredSections(f, t, stubs, nil)
	return u.Code, u.Bytes
}

// uncoveredSections returns how much code without CFI each executable section contains, and the ranges of that code,
// excluding start-up code. known is the result of padding.Gaps.Sizes, or nil.
func uncoveredSections(f *elffile.File, t *cfi.Table, stubs []plt.Stub, known []uint8) (Uncovered, []elffile.Span) {
	described := make([]elffile.Span, 0, t.Len()+len(stubs))
	for fn := range t.Functions() {
		described = append(described, elffile.Span{Begin: fn.Begin, End: fn.End})
	}
	for _, s := range stubs {
		described = append(described, elffile.Span{Begin: s.Begin, End: s.End})
	}
	u := None()
	for _, r := range described {
		u.Code += r.Size()
	}
	slices.SortFunc(described, byBegin)
	var free, trimmed []elffile.Span // with and without padding
	var sections []int               // for each element of trimmed, the index of its section
	meter, measured := padding.NewMeter(f), uint64(0)
	before := 0                               // index of the function before the current range
	isKnown := func(begin, end uint64) bool { // must be called in ascending order of addresses
		for before < len(known)-1 && t.At(before).End < begin {
			before++
		}
		return before < len(known) && t.At(before).End == begin && uint64(known[before]) == end-begin
	}
	for _, code := range codeOf(f) {
		own := subtract(code.Span, described)
		s := UncoveredSection{Name: code.Name, Begin: code.Begin, Size: code.Size()}
		free = append(free, own...)
		// Overlapping sections, which no linker writes, could multiply the work.
		measured += s.Size
		meter.Enter(s.Begin, s.Size, code.Off)
		for _, r := range own {
			size := r.Size()
			switch {
			case measured > f.Size:
			case isKnown(r.Begin, r.End): // reading all code again would take 5 % of the conversion time
				r.End = r.Begin
			default:
				r.Begin, r.End = meter.Trim(r.Begin, r.End)
			}
			s.Padding += size - r.Size()
			s.Bytes += r.Size()
			if r.Begin < r.End {
				trimmed, sections = append(trimmed, r), append(sections, len(u.Sections))
			}
		}
		u.Bytes += s.Bytes
		u.Padding += s.Padding
		u.Sections = append(u.Sections, s)
	}
	startup := findStartup(f, trimmed)
	set := newRangeSet(startup)
	for i, r := range trimmed {
		n := set.bytesIn(r.Begin, r.End)
		s := &u.Sections[sections[i]]
		s.Startup, s.Bytes = s.Startup+n, s.Bytes-n
		u.Startup, u.Bytes = u.Startup+n, u.Bytes-n
	}
	u.Code += u.Bytes
	var others []elffile.Span
	for _, r := range free {
		others = append(others, subtract(r, startup)...)
	}
	return u, others
}

// codeOf returns the file's ranges of code in address order.
func codeOf(f *elffile.File) []elffile.CodeRange {
	all := f.Code()
	out, end := all[:0], uint64(0)
	for _, c := range all {
		// If sections overlap, which no linker writes, shared code belongs to the first.
		if c.Filesz > 0 && c.Begin >= end {
			end = c.Begin + c.Filesz
			c.End = end
			out = append(out, c)
		}
	}
	return out
}

// subtract returns the parts of r that are in none of the others, which must be sorted and disjoint.
func subtract(r elffile.Span, others []elffile.Span) []elffile.Span {
	var out []elffile.Span
	i := sort.Search(len(others), func(i int) bool { return others[i].End > r.Begin })
	for ; i < len(others) && others[i].Begin < r.End; i++ {
		if others[i].Begin > r.Begin {
			out = append(out, elffile.Span{Begin: r.Begin, End: others[i].Begin})
		}
		r.Begin = others[i].End
	}
	if r.Begin < r.End {
		out = append(out, r)
	}
	return out
}

// byBegin compares ranges by their start addresses.
func byBegin(a, b elffile.Span) int { return cmp.Compare(a.Begin, b.Begin) }

// addFunctions adds the functions in code without CFI.
func (u *Uncovered) addFunctions(d *convert.Details, free []elffile.Span, names *Names) {
	if len(free) == 0 {
		return
	}
	set := newRangeSet(free)
	type symbol struct {
		nameRef
		UncoveredFunction
	}
	largest := make(map[uint64]symbol) // by address
	functionSymbols(names.files, func(p nameRef, s elffile.Symbol) {
		if !isFunction(s) || s.Size == 0 || s.Value > ^uint64(0)-s.Size || largest[s.Value].Size >= s.Size {
			return
		}
		if n := set.bytesIn(s.Value, s.Value+s.Size); n > 0 && len(largest) < 8*maxUncovered {
			largest[s.Value] = symbol{p, UncoveredFunction{Begin: s.Value, Size: s.Size, Bytes: n}}
		}
	})
	all := slices.SortedFunc(maps.Values(largest), func(a, b symbol) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Begin, b.Begin))
	})
	names.unread = maxNameBytes
	for _, s := range all[:min(len(all), maxUncovered)] {
		name := names.name(s.nameRef)
		s.Function, s.Symbol = name.name, name.symbol
		s.Reason = refusal(d.Table.Refused, s.Begin, s.Begin+s.Size)
		s.Section, s.Begin = SectionRelative(d.File, s.Begin)
		u.Functions = append(u.Functions, s.UncoveredFunction)
	}
	u.Omitted = len(all) - len(u.Functions)
}

// refusal returns why the first refused code from begin to end has no rows, or "".
func refusal(refused []cfi.Refusal, begin, end uint64) string {
	i := sort.Search(len(refused), func(i int) bool { return refused[i].End > begin })
	if i == len(refused) || refused[i].Begin >= end {
		return ""
	}
	return refused[i].Reason
}

// SectionRelative converts an address in a relocatable object to a section and offset. For other files, it returns ""
// and the address.
func SectionRelative(f *elffile.File, addr uint64) (string, uint64) {
	if i := f.SectionAt(addr); i > 0 {
		return f.Sections[i].Name, addr - f.Sections[i].Base
	}
	return "", addr
}
