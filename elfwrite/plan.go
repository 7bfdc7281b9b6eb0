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

// sectionAlign is the alignment of .sframe, in bytes, as V3 demands.
const sectionAlign = 8

// tableAlign is the alignment of headers and relocations in the file, in bytes.
const tableAlign = 8

// firstPage is the part of the file that must have the build-id: kernels and core dumps look no further.
const firstPage = 4096

// ErrExists is returned for a file that has an .sframe section already.
var ErrExists = errors.New("the file has an .sframe section already")

// ErrNoRoom is returned for a file whose program header table cannot grow.
var ErrNoRoom = errors.New("no room")

// ErrNone is returned by PlanRemoval for a file without an .sframe section.
var ErrNone = errors.New("the file has no .sframe section")

// Options change what Plan accepts.
type Options struct {
	Force bool // replace an .sframe section that is there
}

// A Layout is a plan for the new file.
type Layout struct {
	Addr uint64 // of .sframe, when the program runs unrelocated
	Size uint64 // of .sframe, in bytes

	// MovedCode is how many bytes of code change their file offset.
	MovedCode uint64
	// StaleHeaders reports whether a page was inserted before the headers, so that __ehdr_start leads to the old ones.
	StaleHeaders bool

	f        *elffile.File
	opt      Options
	detached bool         // it is of PlanDetached
	into     elffile.Span // the addresses that PlanInto fills, or none
	refs     *references  // of the old file, if it was scanned
	phoff    uint64       // of the program header table
	progs    []elf.Prog64
	sections []elf.Section64   // in their new order
	index    []uint32          // from old section indexes to new ones
	values   map[uint32]uint64 // added to addresses in a section that moved, by its old index
	shoff    uint64            // of the section header table
	shstrndx uint32
	off      uint64 // of .sframe in the file
	copies   []extent
	moves    []extent       // copied after zeros was cleared
	zeros    []elffile.Span // of the new file
	patches  []patch
}

// An extent is a range of the old file that is copied to the new one.
type extent struct{ from, to, n uint64 }

// A patch overwrites bytes of the new file.
type patch struct {
	off  uint64
	data []byte
}

func span(begin, end uint64) elffile.Span { return elffile.Span{Begin: begin, End: end} }

func fileSpan(p *elf.Prog64) elffile.Span { return span(p.Off, p.Off+p.Filesz) }

func sectionSpan(s *elffile.Section) elffile.Span { return span(s.Off, s.Off+s.Size) }

// A planner makes the layout of a linked file.
type planner struct {
	*Layout
	remove        bool // there will be no .sframe
	tags          []dynTag
	isInterpreter bool
	page          uint64
	loadAddrs     loadAddrs
	loadEnd       uint64 // end of the bytes of the PT_LOADs that stay
	addrEnd       uint64 // end of their addresses
	head          int    // index of the PT_LOAD that holds the program header table, or -1
	old           *old   // the .sframe to replace or to remove, or nil
	own           int    // index of the PT_LOAD that an earlier run added, which is laid out anew, or -1
	shift         uint64 // bytes that are inserted at the start of the file
	headOff       uint64 // new file offset of the head, if a page takes its place, or 0
	pageEnd       uint64 // where the contents of that page end
	grown         uint64 // end of the head in the new file, if it grows into bytes after it, or 0
	tail          uint64 // offset in the old file of contents that are not loaded
	newTail       uint64 // the same in the new file
	units         []*unit
	marks         []uint64 // file offsets that dynamic entries locate, in files without section headers
	begin         uint64   // of the new segment in the file
	start         uint64   // its address
	startLoad     uint64   // its load address
	last          bool     // .sframe is the last thing in it, not the first
	// In an interpreter, the segment whose .bss is in the file, and the section that ends it.
	filled elf.Prog64
	bss    int
}

func newPlanner(f *elffile.File, size uint64, opt Options) *planner {
	return &planner{
		Layout: &Layout{f: f, Size: size, opt: opt, phoff: f.Phoff, progs: slices.Clone(f.Progs)},
		head:   -1, own: -1,
	}
}

// Plan finds the layout of f with an .sframe of size bytes.
func Plan(f *elffile.File, size uint64, opt Options) (*Layout, error) {
	return newPlanner(f, size, opt).plan()
}

// Resize is Plan for the same file and options with an .sframe of another size. It does not scan the file again.
func (l *Layout) Resize(size uint64) (*Layout, error) {
	switch {
	case l.detached:
		return PlanDetached(l.f, size, l.opt)
	case l.into.End > 0:
		return PlanInto(l.f, l.into.Begin, l.into.End, size, l.opt)
	}
	p := newPlanner(l.f, size, l.opt)
	p.refs = l.refs
	return p.plan()
}

// PlanRemoval finds the layout of f without its .sframe and without segments that hold nothing else. Write then takes
// an empty section.
func PlanRemoval(f *elffile.File) (*Layout, error) {
	if f.IsObject() {
		return planObjectRemoval(f)
	}
	p := newPlanner(f, 0, Options{Force: true})
	p.remove = true
	return p.plan()
}

func (p *planner) plan() (l *Layout, err error) {
	defer readWhole(p.f, &l, &err)
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := p.findOld(); err != nil {
		return nil, err
	}
	p.findSegment()
	if p.remove && p.old == nil {
		return nil, ErrNone
	}
	if !p.inPlace() {
		if err := p.place(); err != nil {
			return nil, err
		}
	}
	return p.Layout, nil
}

// readWhole makes the error of reading f that of the plan: parts that cannot be read may have been taken for damaged.
func readWhole(f *elffile.File, l **Layout, err *error) {
	if failed := f.ReadError(); failed != nil {
		*l, *err = nil, failed
	}
}

// kind refuses files that are no programs and libraries of a known machine.
func (p *planner) kind() error {
	f := p.f
	switch t := elf.Type(f.Type); t {
	case elf.ET_EXEC, elf.ET_DYN:
	default:
		return fmt.Errorf("ELF type %v is neither an executable nor a shared library", t)
	}
	a := arch.Of(elf.Machine(f.Machine))
	if a == nil {
		return fmt.Errorf("machine %v is not supported", elf.Machine(f.Machine))
	}
	p.page = a.MaxPage
	return nil
}

// check refuses unsupported files.
func (p *planner) check() error {
	f := p.f
	if err := p.kind(); err != nil {
		return err
	}
	if len(f.Progs)+newHeaders+1 >= math.MaxUint16 && len(f.Sections) == 0 {
		return fmt.Errorf("%d program headers: no section header can hold the number of two more", len(f.Progs))
	}
	if len(f.Sections) > 0 && f.Shstrndx == 0 {
		return errors.New("the sections have no name table (e_shstrndx is 0)")
	}
	table, _ := p.table()
	for i := range f.Progs {
		h := &f.Progs[i]
		if h.Filesz > 0 && (h.Off > f.Size || h.Filesz > f.Size-h.Off) {
			return fmt.Errorf("program header %d: %d bytes at file offset %#x do not fit the file of %d bytes",
				i, h.Filesz, h.Off, f.Size)
		}
		if elf.ProgType(h.Type) == elf.PT_PHDR && h.Off != f.Phoff {
			return fmt.Errorf("program header %d: PT_PHDR at file offset %#x, but the program headers are at %#x",
				i, h.Off, f.Phoff)
		}
		if elf.ProgType(h.Type) == elf.PT_LOAD && fileSpan(h).Contains(table) && p.head < 0 {
			p.head = i
		}
	}
	if err := checkOrder(f); err != nil {
		return err
	}
	p.loadAddrs = loadAddrsOf(f)
	var err error
	if p.tags, err = dynamicTags(f); err != nil {
		return err
	}
	if p.isInterpreter, err = isInterpreter(f); err != nil {
		return err
	}
	if len(f.Sections) > 0 {
		return checkSections(f)
	}
	for _, t := range p.tags {
		if off, ok := f.FileOffset(t.value, 0); ok {
			p.marks = append(p.marks, off)
		}
	}
	return nil
}

// checkOrder refuses segments that overlap or are not in the order of their addresses. Those of kernels need no order:
// processors have data at other addresses.
func checkOrder(f *elffile.File) error {
	loads := loadsOf(f.Progs)
	if elf.Type(f.Type) == elf.ET_EXEC && f.Prog(elf.PT_INTERP) == nil {
		slices.SortStableFunc(loads, func(i, j int) int { return cmp.Compare(f.Progs[i].Vaddr, f.Progs[j].Vaddr) })
	}
	var end uint64
	for _, i := range loads {
		h := &f.Progs[i]
		if h.Vaddr < end {
			return fmt.Errorf("program header %d: segment at %#x overlaps the one before it, or is out of order",
				i, h.Vaddr)
		}
		end = h.Vaddr + h.Memsz
	}
	if end == 0 {
		return errNoLoad
	}
	return nil
}

var errNoLoad = errors.New("it has no loaded segment (PT_LOAD)")

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

// checkSections refuses sections that are not in the file.
func checkSections(f *elffile.File) error {
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.HasBytes() && (s.Off > f.Size || s.Size > f.Size-s.Off) {
			return fmt.Errorf("section %d (%s): %d bytes at file offset %#x do not fit the file of %d bytes",
				i, s.Name, s.Size, s.Off, f.Size)
		}
	}
	return nil
}

// programHeader returns the PT_GNU_SFRAME of the section.
func (p *planner) programHeader() elf.Prog64 {
	return elf.Prog64{
		Type: sframe.PTGNUSFrame, Flags: uint32(elf.PF_R), Off: p.off,
		Vaddr: p.Addr, Paddr: p.loadAddr(p.Addr), Filesz: p.Size, Memsz: p.Size, Align: sectionAlign,
	}
}

// sectionHeader returns the header of .sframe, whose name is at an offset of the section names.
func (l *Layout) sectionHeader(name uint32) elf.Section64 {
	return elf.Section64{
		Name: name, Type: sframe.SHTGNUSFrame, Flags: uint64(elf.SHF_ALLOC),
		Addr: l.Addr, Off: l.off, Size: l.Size, Addralign: sectionAlign,
	}
}

// place finds the place of a new segment and its headers.
func (p *planner) place() error {
	p.bounds()
	if err := p.checkEnd(); err != nil {
		return err
	}
	p.dropSegments()
	if !p.remove {
		if err := p.extendTable(); err != nil {
			return err
		}
	} else if len(p.units) > 0 && len(p.f.Sections) > 0 && p.repack(elffile.Span{}, math.MaxUint64) != nil {
		p.forget() // what an earlier run moved does not fit where linkers have it
	}
	end, err := p.segment()
	if err != nil {
		return err
	}
	if err := p.files(end); err != nil {
		return err
	}
	p.programHeaders(end)
	p.dynamic()
	if p.shift > 0 {
		for _, s := range codeOf(p.f) {
			p.MovedCode += s.End - s.Begin
		}
	}
	p.StaleHeaders = p.shift > 0 || p.headOff > 0
	return p.distances()
}

// bounds finds where the PT_LOADs that stay end, and where bytes that are not loaded begin.
func (p *planner) bounds() {
	var last uint64 // address of the segment that ends last in the file
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if elf.ProgType(h.Type) != elf.PT_LOAD || i == p.own {
			continue
		}
		if end := min(h.Off+h.Filesz, p.f.Size); end > p.loadEnd { // one of .bss only may lie anywhere
			p.loadEnd, last = end, h.Vaddr
		}
		p.addrEnd = max(p.addrEnd, h.Vaddr+h.Memsz)
	}
	switch {
	case p.head >= 0 && last == p.f.Progs[p.head].Vaddr+p.page: // an earlier run inserted a page before the head
		p.tail = p.alignedTail()
	case p.own >= 0:
		p.tail = p.ownTail()
	default:
		p.tail = p.loadEnd
	}
}

// alignedTail returns where bytes that are not loaded begin, without padding before them. Where a page was inserted,
// another segment is the last one than before, and the padding of both places would stay.
func (p *planner) alignedTail() uint64 {
	from := p.loadEnd
	if p.own >= 0 {
		from = fileSpan(&p.f.Progs[p.own]).End
	}
	if next := p.next(from); next-from < p.tailAlign(from) && p.unused(span(from, next)) {
		return next
	}
	return from
}

// checkEnd refuses a file with something across the place of the new segment.
func (p *planner) checkEnd() error {
	if table, _ := p.table(); table.End > p.loadEnd {
		return fmt.Errorf("program header table at file offset %#x: it is not before %#x, where loaded bytes end",
			table.Begin, p.loadEnd)
	}
	across := func(s elffile.Span) bool { return s.Begin < p.loadEnd && p.loadEnd < s.End }
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && !p.isOld(i) && across(sectionSpan(s)) {
			return fmt.Errorf("section %d (%s) at file offset %#x, %d bytes, lies across %#x, "+
				"where loaded bytes end", i, s.Name, s.Off, s.Size, p.loadEnd)
		}
	}
	for i := range p.f.Progs {
		if h := &p.f.Progs[i]; h.Type != sframe.PTGNUSFrame && across(fileSpan(h)) {
			return fmt.Errorf("program header %d at file offset %#x, %d bytes, lies across %#x, "+
				"where loaded bytes end", i, h.Off, h.Filesz, p.loadEnd)
		}
	}
	return nil
}

// segment lays out the new segment and returns where it ends in the file.
func (p *planner) segment() (uint64, error) {
	if p.addrEnd > math.MaxUint64-p.page { // to align it would wrap around
		return 0, p.noAddresses()
	}
	if p.isInterpreter {
		return p.interpreter()
	}
	p.begin = p.loadEnd + p.shift
	if p.headOff > 0 {
		p.begin = p.headOff + fileSpan(&p.f.Progs[p.head]).End
	}
	if p.remove && !p.hasMoved() { // there is no segment
		return p.begin, nil
	}
	p.begin = elffile.AlignUp(p.begin, sectionAlign)
	p.start = elffile.AlignUp(p.addrEnd, p.page) + p.begin%p.page
	p.off, p.Addr = p.begin, p.start
	end := p.moveUnits(p.off+p.Size, p.Addr+p.Size)
	if end < p.begin || end-p.begin > math.MaxUint64-p.start {
		return 0, p.noAddresses()
	}
	return end, p.placeLoad(end - p.begin)
}

// hasMoved reports whether a unit is in the new segment.
func (p *planner) hasMoved() bool {
	return slices.ContainsFunc(p.units, func(u *unit) bool { return !u.inHead })
}

func (p *planner) noAddresses() error {
	return fmt.Errorf("no addresses are left after %#x for one more segment", p.addrEnd)
}

// moveUnits puts the units that move at a file offset and an address, and returns where they end in the file.
func (p *planner) moveUnits(off, addr uint64) uint64 {
	end := off
	for _, u := range p.units {
		if u.inHead {
			continue
		}
		u.newAddr = elffile.AlignUp(addr+(end-off), u.align)
		u.off = off + (u.newAddr - addr)
		end = u.off + u.size()
	}
	return end
}

// lastLoad returns the index of the last PT_LOAD that stays. The one of an earlier run is never the only one.
func (p *planner) lastLoad() int {
	loads := loadsOf(p.progs)
	return loads[len(loads)-1]
}

// programHeaders writes the new table.
func (p *planner) programHeaders(end uint64) {
	for i := range p.progs {
		h := &p.progs[i]
		load := elf.ProgType(h.Type) == elf.PT_LOAD
		switch u := p.unitAt(fileSpan(h)); {
		case u != nil && !load:
			h.Off += u.off - u.Begin
			h.Vaddr += u.newAddr - u.addr
			h.Paddr = p.loadAddr(h.Vaddr)
		case load && p.grown > 0 && *h == p.f.Progs[p.head]:
			h.Filesz, h.Memsz = p.grown-h.Off, p.grown-h.Off
		case h.Filesz > 0:
			h.Off = p.newOff(h.Off)
		case h.Memsz > 0:
			h.Off += p.shift
		}
	}
	p.addPage()
	if end > p.begin {
		p.progs = slices.Insert(p.progs, p.lastLoad()+1, elf.Prog64{
			Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R),
			Off: p.begin, Vaddr: p.start, Paddr: p.loadAddr(p.start),
			Filesz: end - p.begin, Memsz: end - p.begin, Align: p.page,
		})
	}
	if !p.remove {
		p.progs = append(p.progs, p.programHeader())
	} else if len(p.f.Sections) == 0 {
		// Only these tell that the bytes after the table are free for another .sframe.
		p.progs = append(p.progs, make([]elf.Prog64, max(0, len(p.f.Progs)-len(p.progs)))...)
	}
	for i := range p.progs {
		if h := &p.progs[i]; elf.ProgType(h.Type) == elf.PT_PHDR {
			h.Filesz = uint64(len(p.progs)) * elffile.ProgSize
			h.Memsz = h.Filesz
		}
	}
	if n := len(p.f.Progs) - len(p.progs); n > 0 {
		end := p.phoff + uint64(len(p.f.Progs))*elffile.ProgSize
		p.zeros = append(p.zeros, span(end-uint64(n)*elffile.ProgSize, end))
	}
}
