package elfwrite

import (
	"debug/elf"
	"errors"

	"cfi2sframe/elffile"
	"cfi2sframe/sframe"
)

// sectionAlign is the alignment of .sframe in bytes, as V3 requires.
const sectionAlign = 8

// tableAlign is the alignment of headers and relocations in the file, in bytes.
const tableAlign = 8

// firstPage is the size of the part of the file that must contain the build-id: core dumps include no more of a file,
// and kernels look no further.
const firstPage = 4096

// ErrExists is returned for a file that already has an .sframe section.
var ErrExists = errors.New("the file already has an .sframe section")

// ErrNoRoom is returned for a file whose program header table cannot grow.
var ErrNoRoom = errors.New("no room")

// ErrNone is returned by PlanRemoval for a file without an .sframe section.
var ErrNone = errors.New("the file has no .sframe section")

// Options control Plan.
type Options struct {
	Force bool // replace an existing .sframe section
	Near  bool // place .sframe within 2 GiB of the code if possible, because start addresses have 32 bits
	// Refers, if not nil, is called for each reference found by Plan (if it searches for any) or by Program.References.
	Refers func(first, last uint64)
}

// A Layout is a plan for the new file.
type Layout struct {
	Addr uint64 // address of .sframe in the file
	Size uint64 // size of .sframe in bytes

	// MovedCode is the number of bytes of code whose file offset changes.
	MovedCode uint64
	// StaleHeaders reports whether a page was inserted before the headers, so __ehdr_start refers to the old headers.
	StaleHeaders bool
	// Appended is the number of bytes at the end of the file that no header describes and whose offset changes. It does
	// not include zeros at their end, nor the image of an AppImage, which follows the section headers.
	Appended uint64

	f        *elffile.File
	phoff    uint64 // offset of the program header table
	progs    []elf.Prog64
	sections []elf.Section64   // in their new order
	index    []uint32          // new section index by old index
	values   map[uint32]uint64 // increment of addresses in moved sections, by old index
	shoff    uint64            // offset of the section header table
	shstrndx uint32
	off      uint64 // file offset of .sframe
	copies   []extent
	moves    []extent       // copied after the ranges in the field zeros are cleared
	zeros    []elffile.Span // cleared in the new file
	patches  []patch
}

// An extent is a range of the old file to copy to the new file.
type extent struct{ from, to, n uint64 }

// A patch overwrites bytes of the new file.
type patch struct {
	off  uint64
	data []byte
}

func span(begin, end uint64) elffile.Span { return elffile.Span{Begin: begin, End: end} }

func fileSpan(p *elf.Prog64) elffile.Span { return span(p.Off, p.Off+p.Filesz) }

func sectionSpan(s *elffile.Section) elffile.Span { return span(s.Off, s.Off+s.Size) }

// Plan returns the layout of f with an .sframe of size bytes.
func Plan(f *elffile.File, size uint64, opt Options) (*Layout, error) {
	p, err := NewProgram(f, opt)
	if err != nil {
		return nil, err
	}
	return p.Plan(size)
}

// Plan returns the layout of the program with an .sframe of size bytes.
func (p *Program) Plan(size uint64) (l *Layout, err error) {
	defer readWhole(p.f, &l, &err)
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
	if p.isFar(seg) {
		if near, s := p.nearTable(size); s != nil {
			t, seg = near, s
		}
	}
	return p.layout(t, seg)
}

// PlanRemoval returns the layout of f without its .sframe and without segments that contain nothing else. Pass an empty
// section to Write.
func PlanRemoval(f *elffile.File) (l *Layout, err error) {
	if f.IsObject() {
		return planObjectRemoval(f)
	}
	defer readWhole(f, &l, &err)
	p, err := NewProgram(f, Options{Force: true})
	if err != nil {
		return nil, err
	}
	if p.old == nil {
		return nil, ErrNone
	}
	return p.withoutSFrame()
}

// readWhole replaces a result with the read error of f, if any: unreadable parts may have been treated as malformed.
func readWhole[T any](f *elffile.File, result **T, err *error) {
	if failed := f.ReadError(); failed != nil {
		*result, *err = nil, failed
	}
}

// withoutSFrame returns the layout of the program without its .sframe.
func (p *Program) withoutSFrame() (*Layout, error) {
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

// programHeader returns the PT_GNU_SFRAME for the section, which has the given load address.
func (l *Layout) programHeader(loadAddr uint64) elf.Prog64 {
	return elf.Prog64{
		Type: sframe.PTGNUSFrame, Flags: uint32(elf.PF_R), Off: l.off,
		Vaddr: l.Addr, Paddr: loadAddr, Filesz: l.Size, Memsz: l.Size, Align: sectionAlign,
	}
}

// sectionHeader returns the header of .sframe. The argument is the offset of its name in the section name table.
func (l *Layout) sectionHeader(name uint32) elf.Section64 {
	return elf.Section64{
		Name: name, Type: sframe.SHTGNUSFrame, Flags: uint64(elf.SHF_ALLOC),
		Addr: l.Addr, Off: l.off, Size: l.Size, Addralign: sectionAlign,
	}
}
