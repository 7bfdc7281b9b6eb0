package elfwrite

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/arch"
	"cfi2sframe/sframe"
)

// A Program is a linked file and the facts that layouts depend on. Plans do not influence each other.
type Program struct {
	f             *elffile.File
	page          uint64
	tags          []dynTag
	marks         []uint64 // file offsets of the values of tags, in a file without section headers
	isInterpreter bool
	near          bool // Options.Near
	loadAddrs     loadAddrs
	head          *elf.Prog64              // the PT_LOAD that contains the program header table, or nil
	old           *old                     // existing .sframe, or nil
	own           *elf.Prog64              // PT_LOAD added by an earlier run, to be replaced, or nil
	returned      []*unit                  // units that an earlier run moved to that segment
	loadEnd       uint64                   // end of the contents of the other PT_LOADs
	addrEnd       uint64                   // end of their addresses
	refs          *references              // references to parts of the file, after a scan
	refers        func(first, last uint64) // Options.Refers
}

// NewProgram rejects unsupported files, and files with an .sframe unless opt.Force is set.
func NewProgram(f *elffile.File, opt Options) (p *Program, err error) {
	defer readWhole(f, &p, &err)
	p = &Program{f: f, refers: opt.Refers, near: opt.Near}
	if p.page, err = pageOf(f); err != nil {
		return nil, err
	}
	if err := p.checkTables(); err != nil {
		return nil, err
	}
	p.loadAddrs = loadAddrsOf(f)
	if p.tags, err = dynamicTags(f); err != nil {
		return nil, err
	}
	if p.isInterpreter, err = isInterpreter(f); err != nil {
		return nil, err
	}
	if err := checkSections(f); err != nil {
		return nil, err
	}
	for _, t := range p.tags {
		if off, ok := f.FileOffset(t.value, 0); ok && len(f.Sections) == 0 {
			p.marks = append(p.marks, off)
		}
	}
	if p.old, err = findOld(f); err != nil {
		return nil, err
	}
	if p.old != nil && !opt.Force {
		return nil, ErrExists
	}
	if err := p.checkOld(); err != nil {
		return nil, err
	}
	p.own, p.returned = p.ownSegment()
	for _, h := range elffile.Each(f.Progs) {
		if elf.ProgType(h.Type) == elf.PT_LOAD && h != p.own {
			p.loadEnd = max(p.loadEnd, min(h.Off+h.Filesz, f.Size)) // a segment without contents may have any offset
			p.addrEnd = max(p.addrEnd, h.Vaddr+h.Memsz)
		}
	}
	return p, nil
}

// pageOf returns the largest page size of the machine. It rejects files other than programs and libraries for a
// supported machine.
func pageOf(f *elffile.File) (uint64, error) {
	switch t := elf.Type(f.Type); t {
	case elf.ET_EXEC, elf.ET_DYN:
	default:
		return 0, fmt.Errorf("ELF type %v is neither an executable nor a shared library", t)
	}
	a := arch.Of(elf.Machine(f.Machine))
	if a == nil {
		return 0, fmt.Errorf("machine %v is not supported", elf.Machine(f.Machine))
	}
	return a.MaxPage, nil
}

// checkTables rejects unsupported headers, and sets p.head to the segment that contains the program headers.
func (p *Program) checkTables() error {
	f := p.f
	if len(f.Progs)+newHeaders+1 >= math.MaxUint16 && len(f.Sections) == 0 {
		return fmt.Errorf("%d program headers: storing the number of two more requires a section header", len(f.Progs))
	}
	if len(f.Sections) > 0 && f.Shstrndx == 0 {
		return errors.New("no section name table (e_shstrndx is 0)")
	}
	for i, h := range elffile.Each(f.Progs) {
		if h.Filesz > 0 && (h.Off > f.Size || h.Filesz > f.Size-h.Off) {
			return fmt.Errorf("program header %d: %d bytes at file offset %#x do not fit in the file of %d bytes",
				i, h.Filesz, h.Off, f.Size)
		}
		if elf.ProgType(h.Type) == elf.PT_PHDR && h.Off != f.Phoff {
			return fmt.Errorf("program header %d: PT_PHDR at file offset %#x, but the program headers are at %#x",
				i, h.Off, f.Phoff)
		}
		if elf.ProgType(h.Type) == elf.PT_LOAD && fileSpan(h).Contains(p.oldTable()) && p.head == nil {
			p.head = h
		}
	}
	return checkOrder(f)
}

// oldTable returns the range of the program headers.
func (p *Program) oldTable() elffile.Span {
	return span(p.f.Phoff, p.f.Phoff+uint64(len(p.f.Progs))*elffile.ProgSize)
}

// oldHeaders returns the range of the section headers.
func oldHeaders(f *elffile.File) elffile.Span {
	return span(f.Shoff, f.Shoff+uint64(len(f.Sections))*elffile.SectionSize)
}

// checkOrder rejects segments that overlap or are not in address order. In kernels, any order is accepted, because
// per-CPU data is linked at unrelated addresses.
func checkOrder(f *elffile.File) error {
	loads := loadsOf(f.Progs)
	if elf.Type(f.Type) == elf.ET_EXEC && f.Prog(elf.PT_INTERP) == nil {
		slices.SortStableFunc(loads, func(i, j int) int { return cmp.Compare(f.Progs[i].Vaddr, f.Progs[j].Vaddr) })
	}
	var end uint64
	for _, i := range loads {
		h := &f.Progs[i]
		if h.Vaddr < end {
			return fmt.Errorf("program header %d: segment at %#x overlaps the previous segment or is out of order",
				i, h.Vaddr)
		}
		end = h.Vaddr + h.Memsz
	}
	if end == 0 {
		return errNoLoad
	}
	return nil
}

var errNoLoad = errors.New("no loaded segment (PT_LOAD)")

// loadsOf returns the indexes of the PT_LOADs.
func loadsOf(progs []elf.Prog64) []int {
	var loads []int
	for i := range progs {
		if elf.ProgType(progs[i].Type) == elf.PT_LOAD {
			loads = append(loads, i)
		}
	}
	return loads
}

// checkSections rejects files with a section that does not fit in the file.
func checkSections(f *elffile.File) error {
	for i, s := range elffile.Each(f.Sections) {
		if s.HasBytes() && (s.Off > f.Size || s.Size > f.Size-s.Off) {
			return fmt.Errorf("section %d (%s): %d bytes at file offset %#x do not fit in the file of %d bytes",
				i, s.Name, s.Size, s.Off, f.Size)
		}
	}
	return nil
}

// checkEnd rejects files with a table, section or segment that crosses the file offset where the new segment is
// inserted.
func (p *Program) checkEnd() error {
	if table := p.oldTable(); table.End > p.loadEnd {
		return fmt.Errorf("program header table at file offset %#x is after %#x, where loaded bytes end",
			table.Begin, p.loadEnd)
	}
	across := func(s elffile.Span) bool { return s.Begin < p.loadEnd && p.loadEnd < s.End }
	for i, s := range elffile.Each(p.f.Sections) {
		if s.HasBytes() && !p.isOld(i) && across(sectionSpan(s)) {
			return fmt.Errorf("section %d (%s) at file offset %#x, %d bytes, crosses %#x, "+
				"where loaded bytes end", i, s.Name, s.Off, s.Size, p.loadEnd)
		}
	}
	for i, h := range elffile.Each(p.f.Progs) {
		if h.Type != sframe.PTGNUSFrame && across(fileSpan(h)) {
			return fmt.Errorf("program header %d at file offset %#x, %d bytes, crosses %#x, "+
				"where loaded bytes end", i, h.Off, h.Filesz, p.loadEnd)
		}
	}
	return nil
}

// tail returns the start of the bytes that are not loaded, excluding padding that an earlier run inserted before them.
func (p *Program) tail() uint64 {
	if p.head != nil {
		for i := range p.f.Progs {
			// An earlier run inserted a page before the head and moved the head to the end.
			h := &p.f.Progs[i]
			if elf.ProgType(h.Type) == elf.PT_LOAD && h.Filesz > 0 && fileSpan(h).End == p.loadEnd &&
				(h.Vaddr == p.head.Vaddr+p.page || h.Flags == p.head.Flags && h.Vaddr+h.Memsz < p.addrEnd) {
				return p.alignedTail()
			}
		}
	}
	if p.own == nil {
		return p.loadEnd
	}
	end := fileSpan(p.own).End
	tail := p.loadEnd + elffile.AlignUp(end-p.loadEnd, p.tailAlign(end))
	if p.next(end) < tail {
		return end
	}
	return min(tail, p.f.Size)
}

// alignedTail returns the start of the bytes that are not loaded, excluding padding before them. After a page has been
// inserted, a different segment is last in the file, and the padding after either segment would accumulate.
func (p *Program) alignedTail() uint64 {
	from := p.loadEnd
	if p.own != nil {
		from = fileSpan(p.own).End
	}
	if next := p.next(from); next-from < p.tailAlign(from) && p.unused(span(from, next)) {
		return next
	}
	return from
}

// tailAlign returns the largest alignment of the sections at or after a file offset. None of them is loaded.
func (p *Program) tailAlign(from uint64) uint64 {
	if len(p.f.Sections) == 0 {
		return 1
	}
	align := uint64(sectionAlign)
	for _, s := range elffile.Each(p.f.Sections) {
		if s.HasBytes() && s.Off >= from {
			align = max(align, min(elffile.ValidAlign(s.Addralign), p.page))
		}
	}
	return align
}

// unused reports whether the bytes in s, except for those in the given spans, are padding: zeros, the old section
// headers, the old .sframe, or the byte that patchelf writes over moved sections: X until version 0.14, then Z.
func (p *Program) unused(s elffile.Span, but ...elffile.Span) bool {
	b, err := p.f.ReadAt("padding", s.Begin, s.Size())
	if err != nil {
		return false
	}
	but = append(but, oldHeaders(p.f))
	if p.old != nil {
		but = append(but, p.old.Span)
	}
	for _, t := range but {
		if t.Overlaps(s) {
			clear(b[max(t.Begin, s.Begin)-s.Begin : min(t.End, s.End)-s.Begin])
		}
	}
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 && c != 'X' && c != 'Z' })
}

// next returns the lowest file offset, at or after off, that is in a section, at the start of a segment, or at the end
// of the segment that contains the table. Without section headers, addresses in dynamic entries count as well. The old
// .sframe is ignored.
func (p *Program) next(off uint64) uint64 {
	n := p.f.Size
	if p.head != nil && fileSpan(p.head).End > off {
		n = fileSpan(p.head).End
	}
	for i, s := range elffile.Each(p.f.Sections) {
		if s.HasBytes() && s.Size > 0 && s.Off+s.Size > off && !p.isOld(i) {
			n = min(n, max(s.Off, off))
		}
	}
	for _, h := range elffile.Each(p.f.Progs) {
		if t := elf.ProgType(h.Type); t != elf.PT_PHDR && h.Type != sframe.PTGNUSFrame && h.Filesz > 0 &&
			h.Off >= off && h != p.own {
			n = min(n, h.Off)
		}
	}
	for _, mark := range p.marks {
		if mark >= off {
			n = min(n, mark)
		}
	}
	return n
}

// headerAt returns the index of the section at a file offset, or -1.
func (p *Program) headerAt(off uint64) int {
	return slices.IndexFunc(p.f.Sections, func(s elffile.Section) bool {
		return s.Off == off && s.HasBytes() && s.Size > 0
	})
}
