package elfwrite

import (
	"debug/elf"
	"errors"

	"cfi2sframe/elffile"
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
	// Refers, if not nil, is called by Plan, if that looks for references, and by Layout.References.
	Refers func(first, last uint64)
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
	program  *program                           // of Plan and PlanRemoval, or nil
	resize   func(size uint64) (*Layout, error) // of the other layouts that Resize accepts, or nil
	phoff    uint64                             // of the program header table
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

// Plan finds the layout of f with an .sframe of size bytes.
func Plan(f *elffile.File, size uint64, opt Options) (l *Layout, err error) {
	defer readWhole(f, &l, &err)
	p, err := newProgram(f, opt)
	if err != nil {
		return nil, err
	}
	return p.withSFrame(size)
}

// Resize is Plan, PlanDetached or PlanInto for the same file and options with an .sframe of another size. It does not
// scan the file again.
func (l *Layout) Resize(size uint64) (resized *Layout, err error) {
	if l.resize != nil {
		return l.resize(size)
	}
	defer readWhole(l.f, &resized, &err)
	return l.program.withSFrame(size)
}

// PlanRemoval finds the layout of f without its .sframe and without segments that hold nothing else. Write then takes
// an empty section.
func PlanRemoval(f *elffile.File) (l *Layout, err error) {
	if f.IsObject() {
		return planObjectRemoval(f)
	}
	defer readWhole(f, &l, &err)
	p, err := newProgram(f, Options{Force: true})
	if err != nil {
		return nil, err
	}
	if p.old == nil {
		return nil, ErrNone
	}
	return p.withoutSFrame()
}

// readWhole makes the error of reading f that of the plan: parts that cannot be read may have been taken for damaged.
func readWhole(f *elffile.File, l **Layout, err *error) {
	if failed := f.ReadError(); failed != nil {
		*l, *err = nil, failed
	}
}

// withSFrame returns the layout of the program with an .sframe of size bytes.
func (p *program) withSFrame(size uint64) (*Layout, error) {
	if l := p.inPlace(size); l != nil {
		return l, nil
	}
	if err := p.checkEnd(); err != nil {
		return nil, err
	}
	t, err := p.extendTable()
	if err != nil {
		return nil, err
	}
	seg, err := p.newSegment(t, size)
	if err != nil {
		return nil, err
	}
	return p.layout(t, seg)
}

// withoutSFrame returns the layout of the program without its .sframe.
func (p *program) withoutSFrame() (*Layout, error) {
	if err := p.checkEnd(); err != nil {
		return nil, err
	}
	t := p.shrinkTable()
	seg, err := p.newSegment(t, 0)
	if err != nil {
		return nil, err
	}
	return p.layout(t, seg)
}

// programHeader returns the PT_GNU_SFRAME of the section, which has a load address.
func (l *Layout) programHeader(loadAddr uint64) elf.Prog64 {
	return elf.Prog64{
		Type: sframe.PTGNUSFrame, Flags: uint32(elf.PF_R), Off: l.off,
		Vaddr: l.Addr, Paddr: loadAddr, Filesz: l.Size, Memsz: l.Size, Align: sectionAlign,
	}
}

// sectionHeader returns the header of .sframe, whose name is at an offset of the section names.
func (l *Layout) sectionHeader(name uint32) elf.Section64 {
	return elf.Section64{
		Name: name, Type: sframe.SHTGNUSFrame, Flags: uint64(elf.SHF_ALLOC),
		Addr: l.Addr, Off: l.off, Size: l.Size, Addralign: sectionAlign,
	}
}
