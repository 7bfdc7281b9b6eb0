package verify

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// maxPadding is the size in bytes at which code between functions is too large to be padding.
const maxPadding = 64

// A codeRange is a code section without PLT stubs, or a segment if there are no section headers.
type codeRange struct{ begin, end uint64 }

// codeRanges returns the ranges in address order. It returns none for objects, whose padding is not final.
func codeRanges(f *elffile.File) []codeRange {
	var all []codeRange
	for _, s := range elffile.Each(f.Sections) {
		code := s.HasBytes() && s.Alloc() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0 && s.Size > 0
		if code && !f.IsObject() && !slices.Contains(pltNames, s.Name) {
			all = append(all, codeRange{s.Addr, s.Addr + s.Size})
		}
	}
	for _, h := range elffile.Each(f.Progs) {
		if len(f.Sections) == 0 && elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
			all = append(all, codeRange{h.Vaddr, h.Vaddr + h.Filesz})
		}
	}
	slices.SortFunc(all, func(a, b codeRange) int { return cmp.Compare(a.end, b.end) })
	return all
}

// sectionStarts returns the start addresses of sections in ascending order.
func sectionStarts(f *elffile.File) (all []uint64) {
	for _, s := range elffile.Each(f.Sections) {
		if s.Alloc() && s.Size > 0 {
			all = append(all, s.Addr)
		}
	}
	slices.Sort(all)
	return all
}

// paddings finds the padding after functions.
type paddings struct {
	code    codeReader
	size    func(b []byte) int // abi.padding
	ranges  []codeRange        // all of them
	current codeRange
	starts  []uint64           // of sections
	known   [maxPadding][]byte // by size: the bytes most recently found to be padding
}

// paddingEnd returns the end of the padding after a function: the next function, the next section, or the end of the
// current section or segment. It reports whether all bytes up to that address are padding.
func (p *paddings) paddingEnd(fn *cfi.Function, next uint64) (end uint64, ok bool) {
	if fn.End > p.current.end || fn.End <= p.current.begin {
		i := sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].end >= fn.End })
		if i == len(p.ranges) || p.ranges[i].begin >= fn.End {
			return 0, false
		}
		p.current = p.ranges[i]
	}
	if fn.Signal() || fn.Program() < 0 {
		return 0, false
	}
	if next > p.current.end { // the section may be followed by padding
		end = min(next, fn.End+maxPadding)
		if i, _ := slices.BinarySearch(p.starts, p.current.end); i < len(p.starts) {
			end = min(end, p.starts[i])
		}
		for ; end > p.current.end; end-- { // to the end of the segment
			if _, ok := p.code.file.FileOffset(fn.End, end-fn.End); ok {
				break
			}
		}
		if end > p.current.end && p.isPadding(fn.End, end-fn.End) {
			return end, true
		}
	}
	end = min(next, p.current.end)
	return end, end > fn.End && p.isPadding(fn.End, end-fn.End)
}

// isPadding reports whether the n bytes at an address are no-ops, traps or zeros, and n is less than maxPadding.
func (p *paddings) isPadding(addr, n uint64) bool {
	if n >= maxPadding {
		return false
	}
	b := p.code.read(addr, n)
	if b != nil && bytes.Equal(b, p.known[n]) {
		return true
	}
	for rest := b; len(rest) > 0; {
		size := p.size(rest)
		if size == 0 {
			return false
		}
		rest = rest[size:]
	}
	p.known[n] = append(p.known[n][:0], b...)
	return b != nil
}
