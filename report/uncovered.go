package report

import (
	"cmp"
	"debug/elf"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
	"cfi2sframe/plt"
)

// Uncovered is code that no CFI describes, the padding between functions among it. Sizes are
// in bytes.
type Uncovered struct {
	Bytes     uint64              `json:"bytes"`
	Sections  []UncoveredSection  `json:"sections"`
	Functions []UncoveredFunction `json:"functions"` // by function symbol, the largest first
	Omitted   int                 `json:"functions_omitted"`
}

// An UncoveredSection is an executable section, or in a file without section headers an
// executable segment.
type UncoveredSection struct {
	Name   string           `json:"name"`
	Begin  uint64           `json:"begin"` // address; 0 in a relocatable object
	Size   uint64           `json:"size"`
	Bytes  uint64           `json:"bytes"`  // of that, without CFI
	Ranges []UncoveredRange `json:"ranges"` // where these are, by address; at most maxRanges, of which some then stand for several
}

// An UncoveredRange is a range of code in which Bytes are without CFI: all, unless it stands for
// several ranges.
type UncoveredRange struct {
	Begin uint64 `json:"begin"` // address; in a relocatable object, from the section's start
	End   uint64 `json:"end"`   // address after the last byte
	Bytes uint64 `json:"bytes"`
}

// An UncoveredFunction is a function of which no CFI describes a part.
type UncoveredFunction struct {
	Function string `json:"function"`
	Symbol   string `json:"symbol,omitempty"` // the mangled name, if it is another
	Section  string `json:"section,omitempty"`
	Begin    uint64 `json:"begin"` // address
	Size     uint64 `json:"size"`
	Bytes    uint64 `json:"bytes"` // of that, without CFI
}

// maxUncovered bounds the functions without CFI that are listed.
const maxUncovered = 10000

// maxRanges bounds the ranges that are listed of a section. A library has padding after every
// other function, and for a picture a few hundred are enough.
const maxRanges = 256

// A span is a range of addresses, end excluded.
type span struct{ begin, end uint64 }

// bytesIn returns how much of from begin to end lies in the spans, which are sorted and
// disjoint.
func bytesIn(spans []span, begin, end uint64) uint64 {
	var n uint64
	for i := sort.Search(len(spans), func(i int) bool { return spans[i].end > begin }); i < len(spans) && spans[i].begin < end; i++ {
		n += min(spans[i].end, end) - max(spans[i].begin, begin)
	}
	return n
}

// sums are spans, sorted and disjoint, with how many bytes lie in those before each.
type sums struct {
	spans  []span
	before []uint64
}

func newSums(spans []span) *sums {
	s := &sums{spans, make([]uint64, len(spans))}
	n := uint64(0)
	for i := range spans {
		s.before[i] = n
		n += spans[i].end - spans[i].begin
	}
	return s
}

// bytesIn returns how much of from begin to end lies in the spans. Unlike the function, it does not go
// through them.
func (s *sums) bytesIn(begin, end uint64) uint64 {
	upTo := func(addr uint64) uint64 {
		i := sort.Search(len(s.spans), func(i int) bool { return s.spans[i].begin >= addr }) - 1
		if i < 0 {
			return 0
		}
		return s.before[i] + min(s.spans[i].end, addr) - s.spans[i].begin
	}
	return upTo(end) - upTo(begin)
}

// findUncovered returns what no CFI describes. PLT stubs that were recognised count as described.
func findUncovered(f *elffile.File, files []*elffile.File, t *cfi.Table, stubs []plt.Stub, names *namer) Uncovered {
	u, free := uncoveredSections(f, t, stubs)
	u.functions(f, files, free, names)
	if f.IsObject() {
		for i := range u.Sections {
			u.Sections[i].fromStart()
		}
	}
	return u
}

// BytesWithoutCFI returns how much code no CFI describes, as Uncovered counts it.
func BytesWithoutCFI(f *elffile.File, t *cfi.Table, stubs []plt.Stub) uint64 {
	u, _ := uncoveredSections(f, t, stubs)
	return u.Bytes
}

// uncoveredSections returns the sections of code with what is not described in each, and where
// that is.
func uncoveredSections(f *elffile.File, t *cfi.Table, stubs []plt.Stub) (Uncovered, []span) {
	described := make([]span, 0, t.Len()+len(stubs))
	for fn := range t.Functions() {
		described = append(described, span{fn.Begin, fn.End})
	}
	for _, s := range stubs {
		described = append(described, span{s.Begin, s.End})
	}
	slices.SortFunc(described, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	u := Uncovered{Sections: []UncoveredSection{}, Functions: []UncoveredFunction{}}
	var free []span
	for _, s := range codeSections(f) {
		own := subtract([]span{{s.Begin, s.Begin + s.Size}}, described)
		free = append(free, own...)
		s.Ranges = ranges(own, s.Begin, s.Size)
		for _, r := range s.Ranges {
			s.Bytes += r.Bytes
		}
		u.Bytes += s.Bytes
		u.Sections = append(u.Sections, s)
	}
	return u, free
}

// fromStart makes the addresses count from the section's start.
func (s *UncoveredSection) fromStart() {
	for i := range s.Ranges {
		s.Ranges[i].Begin -= s.Begin
		s.Ranges[i].End -= s.Begin
	}
	s.Begin = 0
}

// ranges returns the spans, which are sorted, disjoint, and within the size bytes at begin; or, if
// they are more than maxRanges, for each of as many equal parts what lies in it, where neighbours
// that have nothing else in between are one.
func ranges(spans []span, begin, size uint64) []UncoveredRange {
	out := make([]UncoveredRange, 0, min(len(spans), maxRanges))
	if len(spans) <= maxRanges {
		for _, s := range spans {
			out = append(out, UncoveredRange{s.begin, s.end, s.end - s.begin})
		}
		return out
	}
	step := (size-1)/maxRanges + 1
	last := uint64(maxRanges) // the part that the last range lies in
	for _, s := range spans {
		for s.begin < s.end {
			part := (s.begin - begin) / step
			end := s.begin + min(s.end-s.begin, step-(s.begin-begin)%step)
			if part != last {
				out = append(out, UncoveredRange{Begin: s.begin})
				last = part
			}
			r := &out[len(out)-1]
			r.End = end
			r.Bytes += end - s.begin
			s.begin = end
		}
	}
	return joined(out)
}

// joined makes ranges that touch each other one, if all of both is meant.
func joined(rs []UncoveredRange) []UncoveredRange {
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && out[n-1].End == r.Begin && out[n-1].full() && r.full() {
			out[n-1].End = r.End
			out[n-1].Bytes += r.Bytes
			continue
		}
		out = append(out, r)
	}
	return out
}

// full reports whether the range stands for nothing but itself.
func (r *UncoveredRange) full() bool { return r.Bytes == r.End-r.Begin }

// codeSections returns where code is, by address.
func codeSections(f *elffile.File) []UncoveredSection {
	var out []UncoveredSection
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Alloc() && s.HasBytes() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 && s.Base <= ^uint64(0)-s.Size {
			out = append(out, UncoveredSection{Name: s.Name, Begin: s.Base, Size: s.Size})
		}
	}
	if len(f.Sections) == 0 {
		for i := range f.Progs {
			if p := &f.Progs[i]; elf.ProgType(p.Type) == elf.PT_LOAD && elf.ProgFlag(p.Flags)&elf.PF_X != 0 {
				out = append(out, UncoveredSection{Name: "PT_LOAD", Begin: p.Vaddr, Size: p.Filesz})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b UncoveredSection) int { return cmp.Compare(a.Begin, b.Begin) })
	// Code counts once: of sections that overlap, which no linker makes, the first one has it.
	end := uint64(0)
	return slices.DeleteFunc(out, func(s UncoveredSection) bool {
		if s.Size > 0 && s.Begin < end {
			return true
		}
		end = max(end, s.Begin+s.Size)
		return false
	})
}

// subtract returns the parts of a, sorted, that are in none of b, which are sorted and
// disjoint.
func subtract(a, b []span) []span {
	var out []span
	for _, s := range a {
		for i := sort.Search(len(b), func(i int) bool { return b[i].end > s.begin }); i < len(b) && b[i].begin < s.end; i++ {
			if b[i].begin > s.begin {
				out = append(out, span{s.begin, b[i].begin})
			}
			s.begin = b[i].end
		}
		if s.begin < s.end {
			out = append(out, s)
		}
	}
	return out
}

// functions lists the functions that lie in free code.
func (u *Uncovered) functions(f *elffile.File, files []*elffile.File, free []span, names *namer) {
	if len(free) == 0 {
		return
	}
	sums := newSums(free)
	type found struct {
		place
		size, bytes uint64
	}
	at := make(map[uint64]found)
	functionSymbols(files, func(p place, s elffile.Symbol) {
		if !isFunction(s) || s.Size == 0 || s.Value > ^uint64(0)-s.Size {
			return
		}
		if old, ok := at[s.Value]; ok && old.size >= s.Size {
			return
		}
		if n := sums.bytesIn(s.Value, s.Value+s.Size); n > 0 && len(at) < 8*maxUncovered {
			at[s.Value] = found{p, s.Size, n}
		}
	})
	for begin, s := range at {
		u.Functions = append(u.Functions, UncoveredFunction{Begin: begin, Size: s.size, Bytes: s.bytes})
	}
	slices.SortFunc(u.Functions, func(a, b UncoveredFunction) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Begin, b.Begin))
	})
	if n := len(u.Functions); n > maxUncovered {
		u.Functions, u.Omitted = u.Functions[:maxUncovered], n-maxUncovered
	}
	r := newNameReader()
	for i := range u.Functions {
		d := &u.Functions[i]
		d.Function, d.Symbol = names.names(r.read(at[d.Begin].place))
		d.Section, d.Begin = sectionRelative(f, d.Begin)
	}
	names.omitted += r.omitted
}

// sectionRelative returns the section of an address of a relocatable object, and the
// address counted from there: the object itself has no addresses. For other files the
// section is "".
func sectionRelative(f *elffile.File, addr uint64) (string, uint64) {
	if i := f.SectionAt(addr); i > 0 {
		return f.Sections[i].Name, addr - f.Sections[i].Base
	}
	return "", addr
}
