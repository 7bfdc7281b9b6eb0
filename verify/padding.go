package verify

import (
	"cmp"
	"debug/elf"
	"slices"
	"sort"

	"cfi2sframe/cfi"
	"cfi2sframe/elffile"
)

// maxPadding is the size in bytes from which on what lies between functions is no padding.
const maxPadding = 64

// A codeRange is a section of code that has no PLT stubs, or a segment if there are no section headers.
type codeRange struct{ begin, end uint64 }

// codeRanges returns them by address. There are none in objects, in which padding is not final.
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

// A gap is what lies after a function, up to the next one or the end of the section.
type gap struct {
	fn      *cfi.Function
	end     uint64
	padding bool // and nothing else
}

// gapAfter returns what lies after the function, of which the next one begins at next.
func (c *checker) gapAfter(fn *cfi.Function, next uint64) *gap {
	g := &c.gap
	if g.fn == fn {
		return g
	}
	*g = gap{fn: fn, end: next}
	if fn.End > c.code.end || fn.End <= c.code.begin {
		i := sort.Search(len(c.ranges), func(i int) bool { return c.ranges[i].end >= fn.End })
		if i == len(c.ranges) || c.ranges[i].begin >= fn.End {
			return g
		}
		c.code = c.ranges[i]
	}
	g.end = min(next, c.code.end)
	if size := g.end - fn.End; size > 0 && size < maxPadding && !fn.Signal() && fn.Program() >= 0 {
		g.padding = c.isPadding(fn.End, size)
	}
	return g
}

// isPadding reports whether the n bytes at an address are instructions that do nothing, or trap, or zeros.
func (c *checker) isPadding(addr, n uint64) bool {
	const window, kept = 64 << 10, 1 << 12
	if off := addr - c.textAt; off > uint64(len(c.text)) || n > uint64(len(c.text))-off {
		size := uint64(window)
		off, ok := c.file.FileOffset(addr, size)
		for ; !ok && size > n; off, ok = c.file.FileOffset(addr, size) { // where the segment ends
			size = max(size/2, n)
		}
		if !ok {
			return false
		}
		if c.buffer == nil {
			c.buffer = make([]byte, window)
		}
		c.textAt, c.text = addr, c.buffer[:size]
		if c.file.ReadInto("code", c.text, off) != nil {
			c.text = nil
			return false
		}
	}
	b := c.text[addr-c.textAt:][:n]
	is, ok := c.paddings[string(b)]
	if !ok {
		is = true
		for rest := b; len(rest) > 0 && is; {
			n := c.abi.padding(rest)
			is = n > 0
			rest = rest[n:]
		}
		if len(c.paddings) < kept {
			c.paddings[string(b)] = is
		}
	}
	return is
}

// padding compares the current segment up to end, which no CFI describes, with the last row of the function before it
// if it is in the padding after that, and reports whether it is.
func (c *checker) padding(end uint64) (bool, error) {
	if c.before == nil {
		return false, nil
	}
	g := c.gapAfter(c.before, c.next)
	if !g.padding || c.segs.begin < c.before.End || end > g.end {
		return false, nil
	}
	fn, row, read := c.fn, c.row, c.pcRead
	c.fn, c.row = c.before, cfi.Row{}
	for r := range c.before.Rows() {
		c.row = r
	}
	same, err := c.compare(c.segs.begin, end)
	if same {
		c.res.Padding += end - c.segs.begin
	}
	c.fn, c.row, c.pcRead = fn, row, read
	return true, err
}
