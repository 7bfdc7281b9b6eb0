// Package elffile reads the headers and contents of 64-bit ELF files of either byte order, which may be malformed or
// hostile.
//
//	f, err := elffile.Open("program")
//	if err != nil {
//		return err
//	}
//	defer f.Close()
//	symbols, err := f.FindSymbols("main")
//	if err != nil {
//		return err
//	}
//	fmt.Printf("%#x\n", symbols["main"].Value)
//
// Unlike debug/elf, it meets the needs of tools that rewrite files. Headers keep their values from the file (indexes,
// offsets, positions of the tables), and section headers are optional. Every offset is checked against the size of the
// file before memory is allocated. Contents are read only on request, so damage in unused parts does no harm. The work
// on a file is bounded by its size; see Budget. Types and constants are those of debug/elf.
//
// Relocatable objects have no addresses. New assigns addresses to code sections and to .eh_frame (Section.Base), as a
// linker would, and ReadRelocated applies relocations to contents.
//
// A File is not safe for concurrent use, except for ReadAt, ReadInto and Contents.
package elffile

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"cfi2sframe/internal/arch"
)

// Sizes in bytes of the 64-bit records in the ELF specification.
const (
	HeaderSize  = 64
	ProgSize    = 56
	SectionSize = 64
	SymSize     = 24
	RelaSize    = 24
	DynSize     = 16
)

// Offsets in bytes of fields in these records. The first field of a relocation is its offset; the first field of a
// dynamic entry is its tag.
const (
	SymShndx   = 6
	SymValue   = 8
	RelaInfo   = 8
	RelaAddend = 16
	DynValue   = 8
)

// Offsets in bytes of fields in the ELF header, for errors.
const (
	offPhentsize = 0x36
	offShentsize = 0x3a
	offShnum     = 0x3c
	offShstrndx  = 0x3e
)

// An Error describes a malformed file.
type Error struct {
	Where string // part of the file, for example "program header 3" or "section .eh_frame"
	Off   uint64 // offset in bytes from the start of the file
	Msg   string

	cause error
}

// Reasons why a valid file cannot be read.
var (
	ErrNotELF = errors.New("not an ELF file")
	Err32Bit  = errors.New("32-bit ELF file")
)

func (e *Error) Error() string {
	return fmt.Sprintf("%s at file offset %#x: %s", e.Where, e.Off, e.Msg)
}

// Unwrap returns the cause: a system error, ErrNotELF, Err32Bit or nil.
func (e *Error) Unwrap() error { return e.cause }

func errorf(where string, off uint64, format string, args ...any) error {
	e := &Error{Where: where, Off: off, Msg: fmt.Sprintf(format, args...)}
	for _, a := range args {
		if err, ok := a.(error); ok {
			e.cause = err
		}
	}
	return e
}

// A reader records the first system error.
type reader struct {
	io.ReaderAt
	size   int64
	failed atomic.Pointer[error]
}

func (r *reader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(b, off)
	if end := off + int64(n); n < len(b) && end < r.size && (err == nil || errors.Is(err, io.EOF)) {
		err = fmt.Errorf("file ends early: at offset %#x instead of %#x", end, r.size)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// A Section is a section header with its name. Section64.Name is the offset of the name in the section name table.
type Section struct {
	elf.Section64
	Name string
	Base uint64 // Addr; in a relocatable object, the address assigned by New, or 0
}

// Compressed reports whether the section has SHF_COMPRESSED set.
func (s *Section) Compressed() bool { return s.Flags&uint64(elf.SHF_COMPRESSED) != 0 }

// Alloc reports whether the section occupies memory at run time.
func (s *Section) Alloc() bool { return s.Flags&uint64(elf.SHF_ALLOC) != 0 }

// IsCode reports whether the section contains code that is in memory at run time.
func (s *Section) IsCode() bool {
	return s.Alloc() && s.HasBytes() && s.Flags&uint64(elf.SHF_EXECINSTR) != 0
}

// HasBytes reports whether the section occupies space in the file.
func (s *Section) HasBytes() bool {
	t := elf.SectionType(s.Type)
	return t != elf.SHT_NOBITS && t != elf.SHT_NULL
}

// A File is an ELF file with decoded and checked headers.
type File struct {
	elf.Header64
	Order    binary.ByteOrder
	Progs    []elf.Prog64
	Sections []Section // as in the file: index 0 is the null section; empty if there are no section headers
	Shstrndx int       // index of the section name table, or 0
	Size     uint64    // file size in bytes

	r       reader
	opened  *os.File       // by Open, or nil
	indexes map[uint32]int // index of the SHT_SYMTAB_SHNDX section, by index of the symbol table
	budget  *Budget
	loads   []int // indexes of the PT_LOADs
	sorted  bool  // the PT_LOADs are sorted by address and do not overlap

	based []int // indexes of the sections of an object that have a Base, by address

	// Relocations.
	fields   map[uint32]arch.Field // by relocation type
	relas    map[*Section][]int    // indexes of relocation sections, by target section
	places   map[int]*symbolPlaces // by section index of the symbol table
	placesOf uint64                // total size of the symbol tables whose indexes are keys of places
}

// Open opens the ELF file with the given name; see New.
func Open(name string) (f *File, err error) {
	r, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := r.Stat()
	if err == nil {
		f, err = New(r, info.Size())
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f.opened = r
	return f, nil
}

// Close closes a file that Open returned.
func (f *File) Close() error { return f.opened.Close() }

// New decodes the headers of the ELF file of the given size in r. It ensures that both header tables are within the
// file; contents may not be. The File keeps r and reads contents from it on request.
func New(r io.ReaderAt, size int64) (*File, error) { return NewIn(NewBudget(size), r, size) }

// NewIn is like New, but uses the budget of the input that contains the file.
func NewIn(budget *Budget, r io.ReaderAt, size int64) (*File, error) {
	f := &File{Size: uint64(size), r: reader{ReaderAt: r, size: size}, budget: budget}
	raw := make([]byte, min(max(size, 0), HeaderSize))
	if err := f.readAt(raw, 0); err != nil {
		return nil, errorf("ELF header", 0, "%v", err)
	}
	if !bytes.HasPrefix(raw, []byte(elf.ELFMAG)) {
		return nil, errorf("ELF header", 0, "%v: starts with %q", ErrNotELF, raw[:min(len(raw), len(elf.ELFMAG))])
	}
	if len(raw) < HeaderSize {
		return nil, errorf("ELF header", 0, "file of %d bytes is shorter than an ELF header (%d bytes)", size,
			HeaderSize)
	}
	switch c := elf.Class(raw[elf.EI_CLASS]); c {
	case elf.ELFCLASS64:
	case elf.ELFCLASS32:
		return nil, errorf("ELF header", elf.EI_CLASS, "%v; SFrame is defined for 64-bit ABIs only", Err32Bit)
	default:
		return nil, errorf("ELF header", elf.EI_CLASS, "class is %d, not ELFCLASS64 (2)", c)
	}
	switch d := elf.Data(raw[elf.EI_DATA]); d {
	case elf.ELFDATA2LSB:
		f.Order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		f.Order = binary.BigEndian
	default:
		return nil, errorf("ELF header", elf.EI_DATA,
			"data encoding is %d, not 1 (little-endian) or 2 (big-endian)", d)
	}
	if v := raw[elf.EI_VERSION]; v != byte(elf.EV_CURRENT) {
		return nil, errorf("ELF header", elf.EI_VERSION, "version is %d, not 1", v)
	}
	_, _ = binary.Decode(raw, f.Order, &f.Header64) // cannot fail: raw has the size of the header
	if err := f.readSectionHeaders(); err != nil {
		return nil, err
	}
	if err := f.readProgramHeaders(); err != nil {
		return nil, err
	}
	if f.IsObject() {
		if a := arch.Of(elf.Machine(f.Machine)); a != nil {
			f.fields = a.Fields
		}
		return f, f.assignBases()
	}
	for i := range f.Sections {
		f.Sections[i].Base = f.Sections[i].Addr
	}
	return f, nil
}

func (f *File) readAt(b []byte, off uint64) error {
	if !f.inFile(off, uint64(len(b))) {
		return io.ErrUnexpectedEOF
	}
	n, err := f.r.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	return err
}

// inFile reports whether the file contains n bytes at off.
func (f *File) inFile(off, n uint64) bool { return n <= f.Size && off <= f.Size-n }

const sectionTable = "section header table"

// maxSections is the maximum number of section headers.
const maxSections = 3 << 18

// readSectionHeaders decodes the section headers and their names.
func (f *File) readSectionHeaders() error {
	num, shstrndx, err := f.sectionNumbers()
	if err != nil || num == 0 {
		return err
	}
	if num > maxSections {
		return errorf(sectionTable, f.Shoff, "%d section headers exceed the limit of %d", num, maxSections)
	}
	if !f.inFile(f.Shoff, num*SectionSize) {
		return errorf(sectionTable, f.Shoff, "%d headers of %d bytes do not fit in the file of %d bytes", num,
			SectionSize, f.Size)
	}
	f.Sections = make([]Section, 0, num)
	f.indexes = make(map[uint32]int)
	var headers []elf.Section64
	err = f.ReadTable(sectionTable, f.Shoff, num*SectionSize, SectionSize, func(b []byte, _ uint64) error {
		n := len(b) / SectionSize
		headers = slices.Grow(headers[:0], n)[:n]
		_, err := binary.Decode(b, f.Order, headers)
		for _, h := range headers {
			if elf.SectionType(h.Type) == elf.SHT_SYMTAB_SHNDX {
				f.indexes[h.Link] = len(f.Sections)
			}
			f.Sections = append(f.Sections, Section{Section64: h})
		}
		return err
	})
	if err != nil {
		return err
	}
	// Clear the null section's header, except for the fields that can hold num and shstrndx.
	first := &f.Sections[0]
	first.Section64 = elf.Section64{Size: first.Size, Link: first.Link, Info: first.Info}
	if shstrndx == 0 {
		return nil
	}
	if shstrndx >= num {
		return errorf("ELF header", offShstrndx, "section name table index is %d, but there are only %d sections",
			shstrndx, num)
	}
	f.Shstrndx = int(shstrndx)
	return f.readSectionNames(&f.Sections[shstrndx])
}

// sectionNumbers returns the number of section headers, and the index of the section name table. If they do not fit in
// the ELF header, they are in the null section (ELF gABI, "ELF Header").
func (f *File) sectionNumbers() (num, shstrndx uint64, err error) {
	if f.Shoff == 0 {
		if f.Shnum != 0 {
			err = errorf("ELF header", offShnum, "e_shnum is %d but e_shoff is 0", f.Shnum)
		}
		return num, shstrndx, err
	}
	if f.Shentsize != SectionSize {
		return num, shstrndx, errorf("ELF header", offShentsize, "e_shentsize is %d, not %d", f.Shentsize, SectionSize)
	}
	num, shstrndx = uint64(f.Shnum), uint64(f.Header64.Shstrndx)
	wide := shstrndx == uint64(elf.SHN_XINDEX)
	if num > 0 && !wide {
		return num, shstrndx, nil
	}
	var raw [SectionSize]byte
	if err := f.readAt(raw[:], f.Shoff); err != nil {
		return num, shstrndx, errorf(sectionTable, f.Shoff, "past the end of the file (%d bytes)", f.Size)
	}
	var s elf.Section64
	_, _ = binary.Decode(raw[:], f.Order, &s)
	if num == 0 {
		num = s.Size
	}
	if wide {
		shstrndx = uint64(s.Link)
	}
	return num, shstrndx, nil
}

// Bounds on section names in bytes. Names may share bytes of their table, so even a table of a few kilobytes could
// contain long names of 100,000 sections; meanName bounds their total size.
const (
	maxNames       = 64 << 20 // table size
	maxSectionName = 4096     // size of a name; longer names are read as ""
	meanName       = 64       // allowance per section, in addition to twice the table size
)

// readSectionNames sets the names of the sections. Names that are unterminated or outside the table are empty.
func (f *File) readSectionNames(table *Section) error {
	const where = "section name table"
	if !table.HasBytes() || table.Size > maxNames || !f.inFile(table.Off, table.Size) {
		return errorf(where, table.Off,
			"%d bytes of type %v are not within the file of %d bytes, or exceed the limit of %d",
			table.Size, elf.SectionType(table.Type), f.Size, maxNames)
	}
	names := make([]byte, table.Size)
	if err := f.ReadInto(where, names, table.Off); err != nil {
		return err
	}
	all := string(names) // section names are substrings that share its memory
	most := meanName*uint64(len(f.Sections)) + 2*table.Size
	left := most
	for i, s := range Each(f.Sections) {
		if uint64(s.Section64.Name) < table.Size {
			rest := names[s.Section64.Name:]
			if end := bytes.IndexByte(rest[:min(len(rest), maxSectionName)], 0); end >= 0 {
				s.Name = all[s.Section64.Name:][:end]
			}
		}
		if uint64(len(s.Name)) > left {
			return errorf(where, table.Off, "names of %d sections overlap in %d bytes: "+
				"their total size exceeds %d bytes at section %d", len(f.Sections), table.Size, most, i)
		}
		left -= uint64(len(s.Name))
	}
	return nil
}

// Bounds on the number of program headers. Linux loads files with up to 1170 program headers.
const (
	maxProgs = 1 << 17
	maxLoads = 1 << 11 // of type PT_LOAD
)

func (f *File) readProgramHeaders() error {
	const where = "program header table"
	num := uint64(f.Phnum)
	if num == math.MaxUint16 && len(f.Sections) > 0 { // PN_XNUM
		num = uint64(f.Sections[0].Info)
	}
	if num == 0 {
		return nil
	}
	if f.Phentsize != ProgSize {
		return errorf("ELF header", offPhentsize, "e_phentsize is %d, not %d", f.Phentsize, ProgSize)
	}
	if !f.inFile(f.Phoff, num*ProgSize) {
		return errorf(where, f.Phoff, "%d headers of %d bytes do not fit in the file of %d bytes", num, ProgSize,
			f.Size)
	}
	if num > maxProgs {
		return errorf(where, f.Phoff, "%d program headers exceed the limit of %d", num, maxProgs)
	}
	raw := make([]byte, num*ProgSize)
	if err := f.readAt(raw, f.Phoff); err != nil {
		return errorf(where, f.Phoff, "%v", err)
	}
	f.Progs = make([]elf.Prog64, num)
	_, _ = binary.Decode(raw, f.Order, f.Progs)
	f.sorted = true
	for i, p := range f.Progs {
		wrong := func(format string, args ...any) error {
			return errorf(fmt.Sprintf("program header %d", i), f.Phoff+uint64(i)*ProgSize, format, args...)
		}
		if p.Memsz > math.MaxUint64-p.Vaddr {
			return wrong("p_vaddr %#x + p_memsz %#x exceeds 2^64", p.Vaddr, p.Memsz)
		}
		if elf.ProgType(p.Type) != elf.PT_LOAD {
			continue
		}
		if p.Filesz > p.Memsz {
			return wrong("p_filesz %#x is larger than p_memsz %#x", p.Filesz, p.Memsz)
		}
		n := len(f.loads)
		if n == maxLoads {
			return wrong("more than %d segments (PT_LOAD)", maxLoads)
		}
		if n > 0 {
			before := &f.Progs[f.loads[n-1]]
			f.sorted = f.sorted && before.Vaddr+before.Memsz <= p.Vaddr
		}
		f.loads = append(f.loads, i)
	}
	return nil
}

// Section returns the first section with the given name, or nil.
func (f *File) Section(name string) *Section {
	for i := range f.Sections {
		if f.Sections[i].Name == name {
			return &f.Sections[i]
		}
	}
	return nil
}

// Budget returns the budget of the input that contains the file.
func (f *File) Budget() *Budget {
	if f == nil {
		return nil
	}
	return f.budget
}

// Contents returns the contents of the file.
func (f *File) Contents() io.ReaderAt { return &f.r }

// ReadError returns the first system error from reading the file, or nil. After such an error, results derived from the
// file must not be used, because unreadable parts may have been treated as missing or malformed.
func (f *File) ReadError() error {
	if f == nil {
		return nil
	}
	err := f.r.failed.Load()
	if err == nil {
		return nil
	}
	cause := *err
	var p *fs.PathError
	if errors.As(cause, &p) {
		cause = p.Err // callers add the file name
	}
	return fmt.Errorf("read error: %w", cause)
}

// ReadSection returns the contents of s in the file, without decompressing them.
func (f *File) ReadSection(s *Section) ([]byte, error) {
	where := "section " + s.Name
	if !s.HasBytes() {
		return nil, errorf(where, s.Off, "section of type %v has no contents in the file", elf.SectionType(s.Type))
	}
	return f.ReadAt(where, s.Off, s.Size)
}

// checkRange returns an error unless the file contains n bytes at off.
func (f *File) checkRange(where string, off, n uint64) error {
	if f.inFile(off, n) {
		return nil
	}
	return errorf(where, off, "%d bytes do not fit in the file of %d bytes", n, f.Size)
}

// maxContent bounds the size in bytes of contents that are read at once, after decompression.
const maxContent = 128 << 20

// ReadAt returns n bytes at a file offset. The given name identifies these bytes in errors.
func (f *File) ReadAt(name string, off, n uint64) ([]byte, error) {
	if err := f.checkRange(name, off, n); err != nil {
		return nil, err
	}
	if n > maxContent {
		return nil, errorf(name, off, "%d bytes exceed the limit of %d", n, maxContent)
	}
	b := make([]byte, n)
	return b, f.ReadInto(name, b, off)
}

// ReadInto reads len(b) bytes at a file offset into b. The given name identifies these bytes in errors.
func (f *File) ReadInto(name string, b []byte, off uint64) error {
	if err := f.readAt(b, off); err != nil {
		return errorf(name, off, "%v", err)
	}
	return nil
}

// ReadTable calls fn for successive parts of the n bytes at a file offset, with the file offset of each part. A part
// consists of whole records of the given size and is valid only during the call. The given name identifies the
// table in errors.
func (f *File) ReadTable(name string, off, n, size uint64, fn func(b []byte, off uint64) error) error {
	const records = 1 << 11 // records per read: few enough to fit in the processor's cache
	n -= n % size
	if err := f.checkRange(name, off, n); err != nil {
		return err
	}
	b := make([]byte, min(n, records*size))
	for end := off + n; off < end; off += uint64(len(b)) {
		b = b[:min(uint64(len(b)), end-off)]
		if err := f.ReadInto(name, b, off); err != nil {
			return err
		}
		if err := fn(b, off); err != nil {
			return err
		}
	}
	return nil
}

// addSize adds the size of s, which contains a table, to the total for such tables. If the total exceeds the size of
// the file, tables overlap, and reading all of them would take too long.
func (f *File) addSize(total *uint64, s *Section, kind string) error {
	if s.Size > f.Size || *total > f.Size-s.Size {
		return errorf("section "+s.Name, s.Off,
			"%s overlap: their total size exceeds the file size of %d bytes", kind, f.Size)
	}
	*total += s.Size
	return nil
}

// UncompressedSize returns the size in bytes that the headers declare for the result of ReadUncompressed. It may be
// wrong.
func (f *File) UncompressedSize(s *Section) (uint64, error) {
	if err := f.checkRange("section "+s.Name, s.Off, s.Size); err != nil {
		return 0, err
	}
	c, err := f.compression(s)
	if c == nil || err != nil {
		return s.Size, err
	}
	return c.size, nil
}

// ReadUncompressed returns the contents of s, decompressed if s has SHF_COMPRESSED (zlib or zstd) or is an old .zdebug_
// section.
func (f *File) ReadUncompressed(s *Section) ([]byte, error) {
	c, err := f.compression(s)
	if err != nil {
		return nil, err
	}
	b, err := f.ReadSection(s)
	if c == nil || err != nil {
		return b, err
	}
	return f.decompress("section "+s.Name, s.Off, c, b)
}

// Sizes in bytes of headers of compressed contents: a compression header (ELF gABI, "Section Compression"), or in an
// old .zdebug_ section "ZLIB" and the size as a big-endian number.
const (
	chdrSize   = 24
	zdebugSize = 12
)

// A compression describes how a section is compressed.
type compression struct {
	kind   elf.CompressionType
	header int    // size of the header in bytes
	size   uint64 // decompressed size in bytes
}

// compression returns how s is compressed, or nil if it is not.
func (f *File) compression(s *Section) (*compression, error) {
	where := "section " + s.Name
	switch {
	case s.Compressed():
		if s.Size < chdrSize {
			return nil, errorf(where, s.Off,
				"compressed section of %d bytes is shorter than a compression header (%d bytes)", s.Size, chdrSize)
		}
		b, err := f.ReadAt(where, s.Off, chdrSize)
		if err != nil {
			return nil, err
		}
		return &compression{elf.CompressionType(f.Order.Uint32(b)), chdrSize, f.Order.Uint64(b[8:])}, nil
	case strings.HasPrefix(s.Name, ".zdebug_"):
		b, err := f.ReadAt(where, s.Off, min(s.Size, zdebugSize))
		if err != nil {
			return nil, err
		}
		if len(b) < zdebugSize || string(b[:4]) != "ZLIB" {
			return nil, errorf(where, s.Off, "does not start with ZLIB and an 8-byte size")
		}
		return &compression{elf.COMPRESS_ZLIB, zdebugSize, binary.BigEndian.Uint64(b[4:])}, nil
	}
	return nil, nil
}

// costUnpacked is the budget cost per decompressed byte: 4 for time, the rest for memory.
const costUnpacked = 32

// decompress decompresses the contents of a section, whose decompressed size must be c.size.
func (f *File) decompress(where string, off uint64, c *compression, b []byte) ([]byte, error) {
	size := c.size
	if size > maxContent {
		return nil, errorf(where, off, "decompressed size of %d bytes exceeds the limit of %d", size, maxContent)
	}
	if err := f.budget.Spend(costUnpacked, size); err != nil {
		return nil, errorf(where, off, "decompressed size of %d bytes: %v", size, err)
	}
	var out []byte
	var err error
	switch c.kind {
	case elf.COMPRESS_ZLIB:
		out, err = inflate(b[c.header:], size)
	case elf.COMPRESS_ZSTD:
		out, err = f.unzstd(b, size)
	default:
		return nil, errorf(where, off, "compression type is %d, not zlib (1) or zstd (2)", c.kind)
	}
	if err == nil && uint64(len(out)) != size {
		err = errors.New("size differs")
	}
	if err != nil {
		return nil, errorf(where, off, "cannot decompress to the %d bytes declared in the header: %v", size, err)
	}
	return out, nil
}

// inflate decompresses zlib data b. It stops after size+1 bytes, which reveals a wrong size.
func inflate(b []byte, size uint64) ([]byte, error) {
	z, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return readUnpacked(z, size)
}

// readUnpacked reads up to size+1 bytes from r.
func readUnpacked(r io.Reader, size uint64) ([]byte, error) {
	// A growing buffer would take four times as much memory.
	var out bytes.Buffer
	out.Grow(int(size) + 1 + bytes.MinRead)
	_, err := io.Copy(&out, io.LimitReader(r, int64(size)+1))
	return out.Bytes(), err
}

// unzstd is like inflate, for zstd data with its compression header. The decoder in debug/elf reads only sections of
// files, so unzstd builds a file with this section.
func (f *File) unzstd(b []byte, size uint64) ([]byte, error) {
	const headers = HeaderSize + 3*SectionSize
	h := elf.Header64{
		Ident: f.Ident, Version: uint32(elf.EV_CURRENT), Shoff: HeaderSize, Shentsize: SectionSize, Shnum: 3,
		Shstrndx: 1,
	}
	sections := []elf.Section64{
		1: {Type: uint32(elf.SHT_STRTAB), Off: elf.EI_NIDENT - 1, Size: 1}, // a NUL byte
		2: {Flags: uint64(elf.SHF_COMPRESSED), Off: headers, Size: uint64(len(b))},
	}
	file, _ := binary.Append(make([]byte, 0, headers+len(b)), f.Order, h) // cannot fail: structs of fixed size
	file, _ = binary.Append(file, f.Order, sections)
	e, err := elf.NewFile(bytes.NewReader(append(file, b...)))
	if err != nil {
		return nil, err
	}
	return readUnpacked(e.Sections[2].Open(), size)
}

// FileOffset returns the file offset of the n bytes at an address. It reports false if they are not within the file
// contents of a single PT_LOAD.
func (f *File) FileOffset(addr, n uint64) (uint64, bool) {
	loads := f.loads
	if f.sorted && n > 0 { // only the last segment that starts at or before addr can contain them
		i := sort.Search(len(loads), func(i int) bool { return f.Progs[loads[i]].Vaddr > addr })
		loads = loads[max(i-1, 0):i]
	}
	for _, i := range loads {
		p := &f.Progs[i]
		if addr >= p.Vaddr && n <= p.Filesz && addr-p.Vaddr <= p.Filesz-n {
			if off := p.Off + (addr - p.Vaddr); f.inFile(off, n) {
				return off, true
			}
		}
	}
	return 0, false
}

// Prog returns the first program header of type t, or nil.
func (f *File) Prog(t elf.ProgType) *elf.Prog64 {
	for i := range f.Progs {
		if elf.ProgType(f.Progs[i].Type) == t {
			return &f.Progs[i]
		}
	}
	return nil
}
