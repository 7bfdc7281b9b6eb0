package elfwrite

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"

	"cfi2sframe/internal/elffile"
	"cfi2sframe/sframe"
)

const (
	sectionName  = ".sframe"
	sectionAlign = 8
)

// pageSizes holds the largest page size in bytes of each machine.
var pageSizes = map[elf.Machine]uint64{
	elf.EM_X86_64:  4 << 10,
	elf.EM_AARCH64: 64 << 10,
	elf.EM_S390:    4 << 10,
}

// firstPage is the part of a file in which the build-id note is looked for: core
// dumps keep that much of each mapping, and kernels read it from there.
const firstPage = 4096

// ErrExists is returned for a file that has an .sframe section already.
var ErrExists = errors.New("the file has an .sframe section already")

// Options change what Plan accepts.
type Options struct {
	Force bool // replace an .sframe section that is there
}

// A Layout is a plan for the new file.
type Layout struct {
	Addr uint64 // of .sframe, when the program runs unrelocated
	Size uint64 // of .sframe, in bytes

	f        *elffile.File
	progs    []elf.Prog64
	sections []elf.Section64   // in their new order
	index    []uint32          // from old section indexes to new ones
	values   map[uint32]uint64 // what is added to addresses in a section that moved, by its old index
	shoff    uint64            // of the section header table
	shstrndx uint32
	off      uint64 // of .sframe in the file
	copies   []extent
	moves    []extent // copied after zeros was cleared
	zeros    []span   // of the new file
	patches  []patch
}

// An extent is a range of the old file that is copied to the new one.
type extent struct{ from, to, n uint64 }

// A patch overwrites bytes of the new file.
type patch struct {
	off  uint64
	data []byte
}

// A span is a range of file offsets or addresses, end excluded.
type span struct{ begin, end uint64 }

func (s span) overlaps(t span) bool { return s.begin < t.end && t.begin < s.end }

func (s span) contains(t span) bool { return s.begin <= t.begin && t.end <= s.end }

func alignUp(v, align uint64) uint64 { return (v + align - 1) &^ (align - 1) }

// validAlign returns the alignment as a power of two that is at least 1.
func validAlign(a uint64) uint64 {
	if a == 0 || a&(a-1) != 0 {
		return 1
	}
	return a
}

func fileSpan(p *elf.Prog64) span { return span{p.Off, p.Off + p.Filesz} }

func sectionSpan(s *elffile.Section) span { return span{s.Off, s.Off + s.Size} }

// planner is the work of Plan.
type planner struct {
	*Layout
	opt     Options
	page    uint64
	loadEnd uint64 // end of the bytes of all PT_LOADs
	addrEnd uint64 // end of their addresses
	head    int    // index of the PT_LOAD that holds the program header table, or -1
	old     int    // section index of an .sframe to replace, or 0
	units   []*unit
	begin   uint64 // of the new segment in the file
	last    bool   // .sframe is the last thing in it, not the first
	shift   uint64 // by which what is not loaded moves up
	// In an interpreter, the segment whose .bss is in the file, and the section that
	// ends it.
	filled elf.Prog64
	tail   int
}

// Plan finds the layout of f with an .sframe of size bytes.
func Plan(f *elffile.File, size uint64, opt Options) (*Layout, error) {
	p := &planner{Layout: &Layout{f: f, Size: size, progs: slices.Clone(f.Progs)}, opt: opt, head: -1}
	if err := p.check(); err != nil {
		return nil, err
	}
	done, err := p.existing()
	if err != nil {
		return nil, err
	}
	if !done {
		if err := p.place(); err != nil {
			return nil, err
		}
	}
	return p.Layout, nil
}

// check refuses files that no layout below is meant for.
func (p *planner) check() error {
	f := p.f
	switch t := elf.Type(f.Type); t {
	case elf.ET_EXEC, elf.ET_DYN:
	default:
		return fmt.Errorf("ELF type %v: an executable or a shared library was expected", t)
	}
	page, ok := pageSizes[elf.Machine(f.Machine)]
	if !ok {
		return fmt.Errorf("machine %v is not supported", elf.Machine(f.Machine))
	}
	p.page = page
	if len(f.Progs)+2 >= math.MaxUint16 {
		return fmt.Errorf("%d program headers: there is no room for two more", len(f.Progs))
	}
	if len(f.Sections)+1 >= int(elf.SHN_LORESERVE) {
		return fmt.Errorf("%d sections: fewer than %d were expected", len(f.Sections), int(elf.SHN_LORESERVE)-1)
	}
	if len(f.Sections) > 0 && f.Shstrndx == 0 {
		return errors.New("there are sections, but no section name table (e_shstrndx is 0)")
	}
	table := span{f.Phoff, f.Phoff + uint64(len(f.Progs))*elffile.ProgSize}
	for i := range f.Progs {
		h := &f.Progs[i]
		if h.Filesz > 0 && (h.Off > f.Size || h.Filesz > f.Size-h.Off) {
			return fmt.Errorf("program header %d: %d bytes at file offset %#x do not fit the file of %d bytes", i, h.Filesz, h.Off, f.Size)
		}
		if elf.ProgType(h.Type) != elf.PT_LOAD {
			continue
		}
		if h.Vaddr < p.addrEnd {
			return fmt.Errorf("program header %d: segment at %#x overlaps the one before it, or is out of order", i, h.Vaddr)
		}
		p.addrEnd = h.Vaddr + h.Memsz
		p.loadEnd = max(p.loadEnd, h.Off+h.Filesz)
		if fileSpan(h).contains(table) && p.head < 0 {
			p.head = i
		}
	}
	if p.addrEnd == 0 {
		return errors.New("no loaded segment (PT_LOAD): a linked program was expected")
	}
	if p.addrEnd > math.MaxUint64/2 {
		return fmt.Errorf("segments end at address %#x, which leaves no room for one more", p.addrEnd)
	}
	var symbols uint64
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.HasBytes() && (s.Off > f.Size || s.Size > f.Size-s.Off) {
			return fmt.Errorf("section %d (%s): %d bytes at file offset %#x do not fit the file of %d bytes", i, s.Name, s.Size, s.Off, f.Size)
		}
		if t := elf.SectionType(s.Type); t == elf.SHT_SYMTAB || t == elf.SHT_DYNSYM {
			if symbols += s.Size; symbols > f.Size {
				return fmt.Errorf("section %d (%s): symbol tables overlap, having more than the %d bytes of the file", i, s.Name, f.Size)
			}
		}
	}
	return nil
}

// existing deals with an .sframe that is there. It reports whether the new one
// could take its place.
func (p *planner) existing() (bool, error) {
	f := p.f
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type == sframe.SHTGNUSFrame || s.Name == sectionName && s.Alloc() {
			p.old = i
			break
		}
	}
	seg := -1
	for i := range f.Progs {
		if f.Progs[i].Type == sframe.PTGNUSFrame && f.Progs[i].Filesz > 0 {
			seg = i
		}
	}
	if p.old == 0 && (seg < 0 || len(f.Sections) > 0) {
		return false, nil // nothing, or an entry without a section, which is reused
	}
	if !p.opt.Force {
		return false, ErrExists
	}
	if p.old == 0 || seg < 0 || !p.fitsOld(&f.Sections[p.old]) {
		return false, nil
	}
	s := &f.Sections[p.old]
	p.Addr, p.off = s.Addr, s.Off
	p.copies = []extent{{0, 0, f.Size}}
	p.zeros = []span{sectionSpan(s)}
	if is, err := IsInterpreter(f); err != nil {
		return false, err
	} else if is { // whose last section has to end where it did
		p.Addr += (s.Size - p.Size) &^ (sectionAlign - 1)
		p.off += p.Addr - s.Addr
	}
	p.shoff, p.shstrndx = f.Shoff, uint32(f.Shstrndx)
	p.setSegment(&p.progs[seg])
	p.sections = make([]elf.Section64, len(f.Sections))
	p.index = make([]uint32, len(f.Sections))
	for i := range f.Sections {
		p.sections[i], p.index[i] = f.Sections[i].Section64, uint32(i)
	}
	p.setSection(&p.sections[p.old])
	return true, nil
}

// fitsOld reports whether the new .sframe can take the place of the section s.
func (p *planner) fitsOld(s *elffile.Section) bool {
	if s.Size < p.Size || s.Addr%sectionAlign != 0 || !s.HasBytes() || !s.Alloc() {
		return false
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if elf.ProgType(h.Type) == elf.PT_LOAD && fileSpan(h).contains(sectionSpan(s)) {
			return elf.ProgFlag(h.Flags)&(elf.PF_R|elf.PF_W|elf.PF_X) == elf.PF_R && s.Addr-h.Vaddr == s.Off-h.Off
		}
	}
	return false
}

// setSegment makes h the PT_GNU_SFRAME of the section.
func (p *planner) setSegment(h *elf.Prog64) {
	*h = elf.Prog64{
		Type: sframe.PTGNUSFrame, Flags: uint32(elf.PF_R), Off: p.off,
		Vaddr: p.Addr, Paddr: p.Addr, Filesz: p.Size, Memsz: p.Size, Align: sectionAlign,
	}
}

// setSection makes s the header of .sframe; its name stays.
func (p *planner) setSection(s *elf.Section64) {
	*s = elf.Section64{
		Name: s.Name, Type: sframe.SHTGNUSFrame, Flags: uint64(elf.SHF_ALLOC),
		Addr: p.Addr, Off: p.off, Size: p.Size, Addralign: sectionAlign,
	}
}

// place finds the room for a new segment and its headers.
func (p *planner) place() error {
	if err := p.room(); err != nil {
		return err
	}
	end, err := p.segment()
	if err != nil {
		return err
	}
	p.programHeaders(end)
	p.files(end)
	p.dynamic()
	return nil
}

// duplicateNote returns the index of a PT_NOTE that repeats PT_GNU_PROPERTY, or -1.
// Who wants the property finds it through the latter.
func (p *planner) duplicateNote() int {
	prop := p.f.Prog(elf.PT_GNU_PROPERTY)
	if prop == nil {
		return -1
	}
	return slices.IndexFunc(p.progs, func(h elf.Prog64) bool {
		return elf.ProgType(h.Type) == elf.PT_NOTE && h.Off == prop.Off && h.Filesz == prop.Filesz && h.Vaddr == prop.Vaddr
	})
}

// room makes room for PT_LOAD and PT_GNU_SFRAME in the program header table: p.progs
// loses what they replace, and p.units what has to give way.
func (p *planner) room() error {
	p.progs = slices.DeleteFunc(p.progs, func(h elf.Prog64) bool { return h.Type == sframe.PTGNUSFrame })
	for free := len(p.f.Progs) - len(p.progs); free < 2; free++ {
		i := slices.IndexFunc(p.progs, func(h elf.Prog64) bool { return elf.ProgType(h.Type) == elf.PT_NULL })
		if i < 0 {
			break
		}
		p.progs = slices.Delete(p.progs, i, i+1)
	}
	if p.slack() {
		return nil
	}
	if i := p.duplicateNote(); i >= 0 {
		p.progs = slices.Delete(p.progs, i, i+1)
		if p.slack() {
			return nil
		}
	}
	return p.repack()
}

// table returns where the program headers are, and where they will be.
func (p *planner) table() (before, after span) {
	begin := p.f.Phoff
	return span{begin, begin + uint64(len(p.f.Progs))*elffile.ProgSize},
		span{begin, begin + uint64(len(p.progs)+2)*elffile.ProgSize}
}

// slack reports whether the table fits where it is: without growing, or into
// unused bytes that belong to nothing.
func (p *planner) slack() bool {
	before, after := p.table()
	if after.end <= before.end {
		return true
	}
	grown := span{before.end, after.end}
	if p.head >= 0 && !fileSpan(&p.f.Progs[p.head]).contains(grown) {
		return false
	}
	if p.next(before.end) < after.end {
		return false
	}
	return p.unused(grown)
}

// unused reports whether the bytes of the file are there, and are zero or the X that
// patchelf leaves behind where it moved a section away.
func (p *planner) unused(s span) bool {
	b, err := p.f.ReadAt("padding", s.begin, s.end-s.begin)
	return err == nil && !slices.ContainsFunc(b, func(c byte) bool { return c != 0 && c != 'X' })
}

// next returns the file offset of the first thing at or behind off: a section, a
// segment, or the end of the segment that holds the table.
func (p *planner) next(off uint64) uint64 {
	n := p.f.Size
	if p.head >= 0 {
		n = fileSpan(&p.f.Progs[p.head]).end
	}
	for i := range p.f.Sections {
		if s := &p.f.Sections[i]; s.HasBytes() && s.Size > 0 && s.Off+s.Size > off {
			n = min(n, max(s.Off, off))
		}
	}
	for i := range p.f.Progs {
		h := &p.f.Progs[i]
		if t := elf.ProgType(h.Type); t != elf.PT_PHDR && h.Filesz > 0 && h.Off >= off {
			n = min(n, h.Off)
		}
	}
	if p.f.Shoff >= off && len(p.f.Sections) > 0 {
		n = min(n, p.f.Shoff)
	}
	return n
}

// segment lays out the new segment and returns where it ends in the file.
func (p *planner) segment() (uint64, error) {
	is, err := IsInterpreter(p.f)
	if err != nil {
		return 0, err
	}
	if is {
		return p.interpreter()
	}
	p.begin = alignUp(p.loadEnd, sectionAlign)
	p.off = p.begin
	p.Addr = alignUp(p.addrEnd, p.page) + p.off%p.page
	return p.moveUnits(p.off+p.Size, p.Addr+p.Size), nil
}

// moveUnits puts the units that move at a file offset and an address, and returns
// where they end in the file.
func (p *planner) moveUnits(off, addr uint64) uint64 {
	end := off
	for _, u := range p.units {
		if u.stays {
			continue
		}
		u.toAddr = alignUp(addr+(end-off), u.align)
		u.to = off + (u.toAddr - addr)
		end = u.to + (u.end - u.begin)
	}
	return end
}

// lastLoad returns the index of the last PT_LOAD, which check has made sure of.
func (p *planner) lastLoad() int {
	last := 0
	for i := range p.progs {
		if elf.ProgType(p.progs[i].Type) == elf.PT_LOAD {
			last = i
		}
	}
	return last
}

// programHeaders writes the new table.
func (p *planner) programHeaders(end uint64) {
	for i := range p.progs {
		h := &p.progs[i]
		if u := p.unitAt(fileSpan(h)); u != nil && elf.ProgType(h.Type) != elf.PT_LOAD {
			delta := u.toAddr - u.addr
			h.Off += u.to - u.begin
			h.Vaddr += delta
			h.Paddr += delta
		}
	}
	var gnu elf.Prog64
	p.setSegment(&gnu)
	start := p.Addr - (p.off - p.begin)
	p.progs = slices.Insert(p.progs, p.lastLoad()+1, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: p.begin, Vaddr: start, Paddr: start,
		Filesz: end - p.begin, Memsz: end - p.begin, Align: p.page,
	})
	p.progs = append(p.progs, gnu)
	for i := range p.progs {
		if h := &p.progs[i]; elf.ProgType(h.Type) == elf.PT_PHDR {
			h.Filesz = uint64(len(p.progs)) * elffile.ProgSize
			h.Memsz = h.Filesz
		}
	}
}
