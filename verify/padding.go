package verify

import (
	"bytes"
	"cmp"
	"debug/elf"
	"math"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// maxPadding is the size in bytes from which on code between functions is not padding.
const maxPadding = 64

// A codeRange is a section of code without PLT stubs, or a segment if there are no section headers.
type codeRange struct{ begin, end uint64 }

// codeRanges returns the ranges by address. It returns none for objects, whose padding is not final.
func codeRanges(f *elffile.File) []codeRange {
	var all []codeRange
	for i := range f.Sections {
		s := &f.Sections[i]
		code := s.HasBytes() && s.Alloc() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0
		if code && !f.IsObject() && !slices.Contains(pltNames, s.Name) {
			all = append(all, codeRange{s.Addr, s.Addr + s.Size})
		}
	}
	for i := range f.Progs {
		h := &f.Progs[i]
		if len(f.Sections) == 0 && elf.ProgType(h.Type) == elf.PT_LOAD && elf.ProgFlag(h.Flags)&elf.PF_X != 0 {
			all = append(all, codeRange{h.Vaddr, h.Vaddr + h.Filesz})
		}
	}
	slices.SortFunc(all, func(a, b codeRange) int { return cmp.Compare(a.end, b.end) })
	return all
}

// Borders are the addresses at which sections begin and end, each sorted.
type borders struct{ begins, ends []uint64 }

func bordersOf(f *elffile.File) (b borders) {
	for i := range f.Sections {
		if s := &f.Sections[i]; s.Alloc() && s.Size > 0 {
			b.begins, b.ends = append(b.begins, s.Addr), append(b.ends, s.Addr+s.Size)
		}
	}
	slices.Sort(b.begins)
	slices.Sort(b.ends)
	return b
}

// next returns where the next section begins, if no section has the bytes from addr to there.
func (b *borders) next(addr uint64) (next uint64, ok bool) {
	begun, _ := slices.BinarySearch(b.begins, addr)
	ended, _ := slices.BinarySearch(b.ends, addr+1) // all that end at addr or before
	if begun < len(b.begins) {
		return b.begins[begun], begun == ended
	}
	return math.MaxUint64, begun == ended && begun > 0
}

// paddingAfter returns the end of the padding after a function: the next function, the next section, or the end of the
// current section or segment. It reports whether only padding is there.
func (c *checker) paddingAfter(fn *cfi.Function, next uint64) (end uint64, ok bool) {
	if fn.End > c.code.end || fn.End <= c.code.begin {
		i := sort.Search(len(c.ranges), func(i int) bool { return c.ranges[i].end >= fn.End })
		if i == len(c.ranges) || c.ranges[i].begin >= fn.End {
			return 0, false
		}
		c.code = c.ranges[i]
	}
	if fn.Signal() || fn.Program() < 0 {
		return 0, false
	}
	if section, ok := c.borders.next(c.code.end); ok && next > c.code.end {
		end = min(next, section, fn.End+maxPadding)
		for ; end > c.code.end; end-- { // to the end of the segment
			if _, ok := c.file.FileOffset(fn.End, end-fn.End); ok {
				break
			}
		}
		if size := end - fn.End; end > c.code.end && size < maxPadding && c.isPadding(fn.End, size) {
			return end, true
		}
	}
	end = min(next, c.code.end)
	size := end - fn.End
	return end, size > 0 && size < maxPadding && c.isPadding(fn.End, size)
}

// isPadding reports whether the n bytes at an address are no-ops, traps, or zeros.
func (c *checker) isPadding(addr, n uint64) bool {
	if off := addr - c.textAt; off > uint64(len(c.text)) || n > uint64(len(c.text))-off {
		if size := min(window, c.code.end-addr); (size < n || !c.read(addr, size)) && !c.read(addr, n) {
			return false
		}
	}
	b := c.text[addr-c.textAt:][:n]
	if bytes.Equal(b, c.paddings[n]) {
		return true
	}
	for rest := b; len(rest) > 0; {
		size := c.abi.padding(rest)
		if size == 0 {
			return false
		}
		rest = rest[size:]
	}
	c.paddings[n] = append(c.paddings[n][:0], b...)
	return true
}

// window is the size in bytes of the code that is read at once. It fits the processor's cache.
const window = 64 << 10

// read reads up to window bytes of code, and reports whether the file contains them.
func (c *checker) read(addr, size uint64) bool {
	off, ok := c.file.FileOffset(addr, size)
	if !ok {
		return false
	}
	if c.buffer == nil {
		c.buffer = make([]byte, window)
	}
	c.textAt, c.text = addr, c.buffer[:size]
	if c.file.ReadInto("code", c.text, off) != nil {
		c.text = nil
	}
	return c.text != nil
}
