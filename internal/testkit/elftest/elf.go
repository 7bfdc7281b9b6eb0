// Package elftest makes files for tests: damaged fixtures, and objects, CFI and archives that no tool produces.
package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/must"
)

// Offsets of fields in the ELF header and in program and section headers.
const (
	EhEntry, EhPhoff, EhShoff              = 24, 32, 40
	EhPhentsize, EhPhnum, EhShentsize      = 54, 56, 58
	EhShnum, EhShstrndx                    = 60, 62
	PhFlags, PhOff, PhVaddr                = 4, 8, 16
	PhFilesz, PhMemsz, PhAlign             = 32, 40, 48
	ShType, ShFlags, ShAddr, ShOff, ShSize = 4, 8, 16, 24, 32
	ShLink, ShInfo, ShAlign                = 40, 44, 48
)

// A Patcher modifies a little-endian ELF file in memory.
type Patcher struct {
	fatalf func(string, ...any)
	B      []byte
}

// Patch returns a Patcher for a copy of b. If a section or segment is missing, the Patcher calls fatalf.
func Patch(fatalf func(string, ...any), b []byte) *Patcher {
	return &Patcher{fatalf, bytes.Clone(b)}
}

// U16, U32 and U64 read a number at a file offset.
func (p *Patcher) U16(off int) uint16 { return binary.LittleEndian.Uint16(p.B[off:]) }
func (p *Patcher) U32(off int) uint32 { return binary.LittleEndian.Uint32(p.B[off:]) }
func (p *Patcher) U64(off int) uint64 { return binary.LittleEndian.Uint64(p.B[off:]) }

// Put16, Put32 and Put64 write a number at a file offset.
func (p *Patcher) Put16(off int, v uint16) { binary.LittleEndian.PutUint16(p.B[off:], v) }
func (p *Patcher) Put32(off int, v uint32) { binary.LittleEndian.PutUint32(p.B[off:], v) }
func (p *Patcher) Put64(off int, v uint64) { binary.LittleEndian.PutUint64(p.B[off:], v) }

// put writes a fixed-size value.
func (p *Patcher) put(off int, v any) { copy(p.B[off:], Append(nil, binary.LittleEndian, v)) }

// Header returns the offset of the i-th section header.
func (p *Patcher) Header(i int) int { return int(p.U64(EhShoff)) + i*elffile.SectionSize }

// Index returns the index of a section.
func (p *Patcher) Index(name string) int {
	names := p.U64(p.Header(int(p.U16(EhShstrndx))) + ShOff)
	for i := range int(p.U16(EhShnum)) {
		if bytes.HasPrefix(p.B[names+uint64(p.U32(p.Header(i))):], []byte(name+"\x00")) {
			return i
		}
	}
	p.fatalf("no section %s", name)
	return 0
}

// Section returns the offset of a section's header.
func (p *Patcher) Section(name string) int { return p.Header(p.Index(name)) }

// segments returns the offsets of the program headers of the given type.
func (p *Patcher) segments(typ elf.ProgType) (all []int) {
	for i := range int(p.U16(EhPhnum)) {
		if off := int(p.U64(EhPhoff)) + i*elffile.ProgSize; elf.ProgType(p.U32(off)) == typ {
			all = append(all, off)
		}
	}
	return all
}

// Segment returns the offset of the nth program header of the given type.
func (p *Patcher) Segment(typ elf.ProgType, n int) int {
	all := p.segments(typ)
	if n >= len(all) {
		p.fatalf("no %v", typ)
		return 0
	}
	return all[n]
}

// LastLoad returns the offset of the header of the last PT_LOAD.
func (p *Patcher) LastLoad() int {
	all := p.segments(elf.PT_LOAD)
	return all[len(all)-1]
}

// Append adds bytes at the end of the file and returns their offset.
func (p *Patcher) Append(data []byte) int {
	p.B = Pad(p.B, 8)
	off := len(p.B)
	p.B = append(p.B, data...)
	return off
}

// Contents replaces the contents of a section; the new contents are at the end of the file.
func (p *Patcher) Contents(name string, data []byte) {
	off := p.Append(data)
	h := p.Section(name)
	p.Put64(h+ShOff, uint64(off))
	p.Put64(h+ShSize, uint64(len(data)))
}

// Code replaces .text with size bytes of zeros, and returns its address.
func (p *Patcher) Code(size int) uint64 {
	p.Contents(".text", make([]byte, size))
	return p.U64(p.Section(".text") + ShAddr)
}

// BigPLT adds a segment of PLT stubs without CFI.
func (p *Patcher) BigPLT(size int, stub ...byte) {
	p.B = Pad(p.B, 4096)
	off := p.Append(bytes.Repeat(stub, size/len(stub)))
	const addr = 0x100000
	// The PT_LOAD replaces PT_GNU_STACK, which is after the other PT_LOADs.
	h := p.Segment(elf.PT_GNU_STACK, 0)
	p.Prog(h, elf.PT_LOAD, uint64(off), addr, uint64(size))
	p.Put32(h+PhFlags, uint32(elf.PF_R|elf.PF_X))
	s := p.Section(".plt")
	p.Put64(s+ShAddr, addr)
	p.Put64(s+ShOff, uint64(off))
	p.Put64(s+ShSize, uint64(size))
}

// Frames builds a section of CFI.
type Frames struct {
	B     []byte
	Order Order // nil: little-endian
	Debug bool  // .debug_frame
	Wide  bool  // 64-bit DWARF, starting with the next record
}

func (f *Frames) order() Order {
	if f.Order == nil {
		return binary.LittleEndian
	}
	return f.Order
}

// id returns the offset and the size of the next record's ID.
func (f *Frames) id() (at, size int) {
	switch {
	case f.Wide && f.Debug:
		return len(f.B) + 12, 8
	case f.Wide:
		return len(f.B) + 12, 4
	}
	return len(f.B) + 4, 4
}

// Next returns the offset of the next record's contents.
func (f *Frames) Next() int {
	at, size := f.id()
	return at + size
}

// Record appends a record with an ID and contents, and returns its offset.
func (f *Frames) Record(id int, body []byte) int {
	off := len(f.B)
	_, size := f.id()
	if length := size + len(body); f.Wide {
		f.B = Append(f.B, f.order(), uint32(math.MaxUint32))
		f.B = Append(f.B, f.order(), uint64(length))
	} else {
		f.B = Append(f.B, f.order(), uint32(length))
	}
	if size == 8 {
		f.B = Append(f.B, f.order(), uint64(id))
	} else {
		f.B = Append(f.B, f.order(), uint32(id))
	}
	f.B = append(f.B, body...)
	return off
}

// Shared appends a CIE with the given body, and returns its offset.
func (f *Frames) Shared(body ...[]byte) int {
	if f.Debug {
		return f.Record(-1, slices.Concat(body...))
	}
	return f.Record(0, slices.Concat(body...))
}

// Entry appends an FDE with the given body.
func (f *Frames) Entry(cie int, body ...[]byte) int {
	if f.Debug {
		return f.Record(cie, slices.Concat(body...))
	}
	at, _ := f.id()
	return f.Record(at-cie, slices.Concat(body...))
}

// Sound contains the usual initial instructions: CFA rsp+8, RA c-8.
var Sound = []byte{0x0c, 7, 8, 0x90, 1}

// CIE appends a CIE for FDEs with absolute addresses, and returns its offset.
func (f *Frames) CIE(instructions ...byte) int {
	return f.CIEOf("", 1, nil, instructions)
}

// CIEOf appends a CIE of version 1 with the given augmentation string, data, and encoded code alignment factor.
func (f *Frames) CIEOf(aug string, codeAlign byte, data, instructions []byte) int {
	return f.Shared([]byte("\x01"+aug), []byte{0, codeAlign, 0x78, 16}, data, instructions)
}

// FDE appends an FDE.
func (f *Frames) FDE(cie int, start, size uint64, instructions ...byte) int {
	return f.Entry(cie, f.Addresses(start, size), instructions)
}

// Addresses encodes a start and a size, 8 bytes each.
func (f *Frames) Addresses(start, size uint64) []byte {
	return Append(nil, f.order(), []uint64{start, size})
}

// NewSections adds n section headers, and calls fill to set each.
func (p *Patcher) NewSections(n int, fill func(i, header int)) {
	old := int(p.U16(EhShnum)) * elffile.SectionSize
	table := p.Append(slices.Concat(p.B[p.Header(0):][:old], make([]byte, n*elffile.SectionSize)))
	p.Put64(EhShoff, uint64(table))
	for i := range n {
		fill(i, table+old+i*elffile.SectionSize)
	}
	n += old / elffile.SectionSize
	if n >= int(elf.SHN_LORESERVE) {
		p.Put64(p.Header(0)+ShSize, uint64(n))
		n = 0
	}
	p.Put16(EhShnum, uint16(n))
}

// CopySection copies the named section's header to the file offset off.
func (p *Patcher) CopySection(off int, name string) {
	copy(p.B[off:], p.B[p.Section(name):][:elffile.SectionSize])
}

// Compressed returns contents for a section with SHF_COMPRESSED.
func Compressed(kind elf.CompressionType, size uint64, data []byte) []byte {
	return append(Append(nil, binary.LittleEndian, &elf.Chdr64{Type: uint32(kind), Size: size, Addralign: 1}), data...)
}

// AddSection adds a section with the given name and contents.
func (p *Patcher) AddSection(name string, flags uint64, data []byte) {
	off := p.Append(data)
	h := p.Section(".shstrtab")
	names := p.B[p.U64(h+ShOff):][:p.U64(h+ShSize)]
	p.Contents(".shstrtab", slices.Concat(names, []byte(name+"\x00")))
	p.SectionIn(elf.SHT_PROGBITS, elf.SectionFlag(flags), uint64(off), 0, uint64(len(data)))
	p.Put32(p.Header(int(p.U16(EhShnum))-1), uint32(len(names)))
}

// Symbol returns a function symbol.
func Symbol(name uint32, value, size uint64, section uint16) []byte {
	s := elf.Sym64{Name: name, Info: byte(elf.STT_FUNC), Shndx: section, Value: value, Size: size}
	return Append(nil, binary.LittleEndian, &s)
}

// Note returns a note.
func Note(nameSize, descSize, typ uint32, name string, desc []byte) []byte {
	return slices.Concat(Append(nil, binary.LittleEndian, []uint32{nameSize, descSize, typ}), []byte(name), desc)
}

// Prog writes a program header of the given type at off; it loads a part of the file at an address.
func (p *Patcher) Prog(off int, typ elf.ProgType, at, addr, size uint64) {
	p.put(off, &elf.Prog64{
		Type: uint32(typ), Flags: uint32(elf.PF_R), Off: at, Vaddr: addr, Paddr: addr,
		Filesz: size, Memsz: size, Align: 4,
	})
}

// SectionIn adds a section header for bytes that are already in the file.
func (p *Patcher) SectionIn(typ elf.SectionType, flags elf.SectionFlag, off, addr, size uint64) {
	p.NewSections(1, func(_, h int) {
		p.put(h, &elf.Section64{
			Type: uint32(typ), Flags: uint64(flags), Addr: addr, Off: off, Size: size, Addralign: 1,
		})
	})
}

// ManyProgs moves the program headers to the end of the file, with n more of them.
func (p *Patcher) ManyProgs(n int, fill func(i, off int)) {
	old := int(p.U16(EhPhnum))
	from := p.U64(EhPhoff)
	table := p.Append(append(bytes.Clone(p.B[from:][:old*elffile.ProgSize]), make([]byte, n*elffile.ProgSize)...))
	p.Put64(EhPhoff, uint64(table))
	if elf.ProgType(p.U32(table)) == elf.PT_PHDR {
		p.Put64(table+PhOff, uint64(table))
	}
	for i := range n {
		fill(i, table+(old+i)*elffile.ProgSize)
	}
	if old+n >= math.MaxUint16 {
		p.Put32(p.Header(0)+ShInfo, uint32(old+n))
		p.Put16(EhPhnum, math.MaxUint16)
		return
	}
	p.Put16(EhPhnum, uint16(old+n))
}

// Parse reads an ELF file in memory.
func Parse(t testing.TB, b []byte) *elffile.File {
	t.Helper()
	return must.Get(elffile.New(bytes.NewReader(b), int64(len(b))))(t)
}
