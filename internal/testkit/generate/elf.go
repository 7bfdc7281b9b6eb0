package generate

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"slices"
	"sort"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/choice"
	"cfi2sframe/internal/testkit/elftest"
)

// A File is a linked ELF file.
type File struct {
	Bytes   []byte
	Machine *Machine
	Headers bool // it has section headers
	CFI     *CFI // .eh_frame, or nil
	Debug   *CFI // .debug_frame, or nil
}

// Rows returns the rows of the file.
func (f *File) Rows() []Row {
	var out []Row
	if f.CFI != nil {
		out = f.CFI.Rows()
	}
	if f.Debug != nil {
		out = merge(out, f.Debug.Rows())
	}
	return out
}

// merge returns the first list of rows, and the parts of the second list that the first does not cover.
func merge(rows, more []Row) []Row {
	out := slices.Clone(rows)
	for _, r := range more {
		begin := r.Begin
		add := func(end uint64) {
			if begin < end {
				p := r
				p.Begin, p.End = begin, end
				out = append(out, p)
			}
		}
		for i := range rows {
			if rows[i].End > begin && rows[i].Begin < r.End {
				add(rows[i].Begin)
				begin = max(begin, rows[i].End)
			}
		}
		add(r.End)
	}
	slices.SortFunc(out, func(a, b Row) int { return cmp.Compare(a.Begin, b.Begin) })
	return out
}

// At returns the row for pc, or nil. Rows must be sorted.
func At(rows []Row, pc uint64) *Row {
	i := sort.Search(len(rows), func(i int) bool { return rows[i].End > pc })
	if i == len(rows) || rows[i].Begin > pc {
		return nil
	}
	return &rows[i]
}

// A builder makes a file in file order: segment starts a segment, and add appends a section to it.
type builder struct {
	s     *choice.Source
	m     *Machine
	f     *File
	o     elftest.Object
	page  uint64
	base  uint64       // address of the first segment
	diff  uint64       // address minus file offset in the current segment
	loads []elf.Prog64 // segments so far; the last one is current
	other []elf.Prog64 // program headers for parts of these segments
	dyn   []elf.Dyn64
}

// Addresses of segments, relative to the first one's.
const (
	textBase = 0x20000
	roBase   = 0x40000
	dataBase = 0x80000
)

// NewFile makes a file.
func NewFile(s *choice.Source) *File {
	m := &Machines[s.N(len(Machines))]
	b := &builder{s: s, m: m, f: &File{Machine: m, Headers: true}}
	b.o = elftest.Object{Big: m.Order == binary.BigEndian}
	b.o.Header.Machine = uint16(m.Elf)
	b.o.Add("", elf.SHT_NULL, 0, nil)
	b.linkedFile()
	b.f.Bytes = b.o.Bytes()
	return b.f
}

// write encodes a fixed-size value.
func (b *builder) write(v any) []byte { return elftest.Append(nil, b.m.Order, v) }

// segment ends the current segment and starts the next one, at least offset bytes after the first one's address.
func (b *builder) segment(offset uint64, flags elf.ProgFlag) {
	b.endSegment()
	align := 16
	if b.s.N(2) == 0 {
		align = 0x1000
	}
	b.o.Head = elftest.Pad(b.o.Head, align)
	off := uint64(len(b.o.Head))
	addr := b.base + offset + off%b.page
	b.diff = addr - off
	b.loads = append(b.loads, prog(elf.PT_LOAD, flags, off, addr, 0, b.page))
}

// endSegment sets the current segment's size.
func (b *builder) endSegment() {
	p := &b.loads[len(b.loads)-1]
	p.Filesz = uint64(len(b.o.Head)) - p.Off
	p.Memsz = p.Filesz
}

// currentAddr returns the address of the next byte.
func (b *builder) currentAddr() uint64 { return uint64(len(b.o.Head)) + b.diff }

// pad appends zeros up to an address.
func (b *builder) pad(addr uint64) {
	b.o.Head = append(b.o.Head, make([]byte, addr-b.currentAddr())...)
}

// add appends a section to the current segment.
func (b *builder) add(name string, typ elf.SectionType, flags elf.SectionFlag, align int, data []byte) int {
	b.o.Head = elftest.Pad(b.o.Head, align)
	i := b.o.Add(name, typ, flags|elf.SHF_ALLOC, nil)
	b.o.At(i, uint64(len(b.o.Head)), uint64(len(data)))
	b.o.Sections[i].Addr, b.o.Sections[i].Addralign = b.currentAddr(), uint64(align)
	b.o.Head = append(b.o.Head, data...)
	return i
}

// header adds a program header that covers a section.
func (b *builder) header(typ elf.ProgType, flags elf.ProgFlag, section int) {
	x := &b.o.Sections[section]
	b.other = append(b.other, prog(typ, flags, x.Off, x.Addr, x.Size, x.Addralign))
}

// prog returns a program header for n bytes of the file.
func prog(typ elf.ProgType, flags elf.ProgFlag, off, addr, n, align uint64) elf.Prog64 {
	return elf.Prog64{
		Type: uint32(typ), Flags: uint32(flags), Off: off, Vaddr: addr, Paddr: addr, Filesz: n, Memsz: n, Align: align,
	}
}

// code returns ranges for code sections at an address, at least 64 bytes each.
func (b *builder) code(addr uint64) []Range {
	var out []Range
	for i := range 1 + b.s.N(2) {
		size := uint64(256 + 16*b.s.N(128))
		out = append(out, Range{addr, addr + size})
		addr += size + uint64(b.s.N(2))*256 + uint64(i)
		addr = (addr + 15) &^ 15
	}
	return out
}

var textNames = []string{".text", ".text.cold"}

// frames makes the CFI.
func (b *builder) frames(text []Range) {
	f, s := b.f, b.s
	kind := s.N(4) // mostly .eh_frame alone
	if kind != 3 {
		f.CFI = NewCFI(s, b.m, false, text)
	}
	if kind >= 2 {
		f.Debug = NewCFI(s, b.m, true, text)
	}
}

// linkedFile makes a linked file.
func (b *builder) linkedFile() {
	s := b.s
	b.page = choice.Of[uint64](s, 0x1000, 0x10000)
	b.base = choice.Of[uint64](s, 0, 0x400000, 0x1000000)
	b.diff = b.base
	kind := elf.ET_DYN
	if b.base != 0 {
		kind = elf.ET_EXEC
	}
	isDynamic := kind == elf.ET_DYN || s.N(2) == 0
	const space = elffile.HeaderSize + 16*elffile.ProgSize // the number of program headers is not known yet
	b.o.Head = make([]byte, space)
	spare := choice.Of(s, 0, 2, 0, 1, 0)
	b.loads = []elf.Prog64{prog(elf.PT_LOAD, elf.PF_R, 0, b.base, 0, b.page)}
	var first []elf.Prog64 // program headers before those of segments
	if isDynamic && s.N(2) == 0 {
		i := b.add(".interp", elf.SHT_PROGBITS, 0, 1, []byte("/lib/ld.so.1\x00"))
		x := &b.o.Sections[i]
		first = append(first, prog(elf.PT_INTERP, elf.PF_R, x.Off, x.Addr, x.Size, 1))
	}
	b.notes()
	if isDynamic {
		b.tables()
	} else if s.N(2) == 0 {
		i := b.add(".rela.plt", elf.SHT_RELA, elf.SHF_INFO_LINK, 8, make([]byte, elffile.RelaSize))
		b.o.Sections[i].Entsize = elffile.RelaSize
	}
	b.segment(textBase, elf.PF_R|elf.PF_X)
	text := b.text()
	b.segment(roBase, elf.PF_R)
	b.readOnly(text)
	b.segment(dataBase, elf.PF_R|elf.PF_W)
	b.data(isDynamic)
	b.programHeaders(first, space, spare)
	b.notLoaded()
	b.o.Header.Type, b.o.Header.Entry = uint16(kind), b.base+text[0].Begin&0xffff
}

// got returns the address of .got, which does not depend on the position of .dynamic within its page.
func (b *builder) got() uint64 { return b.base + dataBase + b.page + 0x1000 }

// notes adds notes.
func (b *builder) notes() {
	note := func(name string, typ uint32, desc []byte) []byte {
		out := b.write([]uint32{uint32(len(name) + 1), uint32(len(desc)), typ})
		return append(elftest.Pad(append(out, name+"\x00"...), 4), desc...)
	}
	if b.s.N(2) == 0 {
		id := note("GNU", 3, bytes.Repeat([]byte{0xb1}, 20))
		b.header(elf.PT_NOTE, elf.PF_R, b.add(".note.gnu.build-id", elf.SHT_NOTE, 0, 4, id))
	}
	if b.s.Rarely(3) {
		property := note("GNU", 5, b.write([]uint32{0xc0000002, 4, 3, 0}))
		i := b.add(".note.gnu.property", elf.SHT_NOTE, 0, 8, property)
		b.header(elf.PT_NOTE, elf.PF_R, i)
		b.header(elf.PT_GNU_PROPERTY, elf.PF_R, i)
	}
	if b.s.Rarely(4) {
		b.header(elf.PT_NOTE, elf.PF_R, b.add(".note.own", elf.SHT_NOTE, 0, 4, note("Own", 7, b.s.Bytes(8))))
	}
}

// text adds code with CFI.
func (b *builder) text() []Range {
	text := b.code(b.currentAddr())
	b.frames(text)
	for i, r := range text {
		b.pad(r.Begin)
		b.add(textNames[i], elf.SHT_PROGBITS, elf.SHF_EXECINSTR, 16, make([]byte, r.End-r.Begin))
	}
	return text
}

// readOnly adds .rodata and, if there is CFI, .eh_frame_hdr and .eh_frame.
func (b *builder) readOnly(text []Range) {
	b.add(".rodata", elf.SHT_PROGBITS, 0, 8, b.s.Bytes(16))
	if b.f.CFI == nil {
		return
	}
	hdr := b.add(".eh_frame_hdr", elf.SHT_PROGBITS, 0, 4, make([]byte, 8))
	b.o.Head = elftest.Pad(b.o.Head, 8)
	frames := b.f.CFI.Encode(Layout{Addr: b.currentAddr(), Text: text[0].Begin, GOT: b.got()})
	i := b.add(".eh_frame", elf.SHT_PROGBITS, 0, 8, append(frames, 0, 0, 0, 0))
	h := &b.o.Sections[hdr]
	copy(b.o.Head[h.Off:], []byte{1, 0x1b, 0xff, 0xff})
	b.m.Order.PutUint32(b.o.Head[h.Off+4:], uint32(b.o.Sections[i].Addr-h.Addr-4))
	b.header(elf.PT_GNU_EH_FRAME, elf.PF_R, hdr)
}

// data adds writable sections.
func (b *builder) data(isDynamic bool) {
	if isDynamic {
		b.entry(elf.DT_NULL, 0)
		i := b.add(".dynamic", elf.SHT_DYNAMIC, elf.SHF_WRITE, 8, b.write(b.dyn))
		isNames := func(x elftest.Section) bool { return x.Name == ".dynstr" }
		b.o.Sections[i].Entsize = elffile.DynSize
		b.o.Sections[i].Link = uint32(slices.IndexFunc(b.o.Sections, isNames))
		b.header(elf.PT_DYNAMIC, elf.PF_R|elf.PF_W, i)
	}
	b.pad(b.got())
	b.add(".got", elf.SHT_PROGBITS, elf.SHF_WRITE, 8, make([]byte, 32))
	b.endSegment()
	if b.s.N(2) == 0 {
		const size = 64
		b.o.Sections[b.add(".bss", elf.SHT_NOBITS, elf.SHF_WRITE, 8, nil)].Size = size
		b.loads[len(b.loads)-1].Memsz += size
	}
}

// programHeaders writes the program headers into the space after the ELF header. The rest of the space stays unused. If
// spare is less than 2, there is space for only that many more headers.
func (b *builder) programHeaders(first []elf.Prog64, space, spare int) {
	if b.s.N(2) == 0 {
		table := prog(elf.PT_PHDR, elf.PF_R, elffile.HeaderSize, b.base+elffile.HeaderSize, 0, 8)
		first = slices.Insert(first, 0, table)
	}
	progs := slices.Concat(first, b.loads, b.other)
	progs = append(progs, prog(elf.PT_GNU_STACK, elf.PF_R|elf.PF_W, 0, 0, 0, 16))
	if b.s.Rarely(4) {
		progs = append(progs, elf.Prog64{Type: uint32(elf.PT_NULL)})
	}
	if p := &progs[0]; elf.ProgType(p.Type) == elf.PT_PHDR {
		p.Filesz = uint64(len(progs)) * elffile.ProgSize
		p.Memsz = p.Filesz
	}
	end := elffile.HeaderSize + copy(b.o.Head[elffile.HeaderSize:], b.write(progs))
	if used := end + spare*elffile.ProgSize; spare < 2 && used < space {
		copy(b.o.Head[used:space], bytes.Repeat([]byte{0xee}, space))
	}
	h := &b.o.Header
	h.Phoff, h.Phentsize, h.Phnum = elffile.HeaderSize, elffile.ProgSize, uint16(len(progs))
}

// notLoaded adds sections that are not loaded.
func (b *builder) notLoaded() {
	f := b.f
	b.o.Add(".comment", elf.SHT_PROGBITS, elf.SHF_MERGE|elf.SHF_STRINGS, []byte("made\x00"))
	if f.Debug != nil {
		b.o.Add(".debug_frame", elf.SHT_PROGBITS, 0, f.Debug.Encode(Layout{}))
	}
	if f.Headers = b.s.N(8) < 7 || f.CFI == nil || f.Debug != nil || f.CFI.needsSections(); f.Headers {
		b.o.Names()
	} else {
		b.o.Sections = nil
	}
}

// needsSections reports whether an address is relative to a section, which requires section headers.
func (c *CFI) needsSections() bool {
	return slices.ContainsFunc(c.CIEs, func(d CIE) bool {
		return d.Encoding&0x70 == encText || d.Encoding&0x70 == encData
	})
}

// entry adds an entry to .dynamic.
func (b *builder) entry(tag elf.DynTag, v uint64) {
	b.dyn = append(b.dyn, elf.Dyn64{Tag: int64(tag), Val: v})
}

// table adds a section and the .dynamic entry that refers to it.
func (b *builder) table(tag elf.DynTag, name string, typ elf.SectionType, entry int, data []byte) int {
	i := b.add(name, typ, 0, 8, data)
	b.o.Sections[i].Entsize = uint64(entry)
	b.entry(tag, b.o.Sections[i].Addr)
	return i
}

// tables adds the tables that the dynamic loader reads.
func (b *builder) tables() {
	s := b.s
	names := []byte("\x00lib.so\x00one\x00two\x00")
	info := elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
	symbols := b.write([]elf.Sym64{
		{}, {Name: 8, Info: info}, {Name: 12, Info: info, Shndx: uint16(elf.SHN_ABS), Value: 4},
	})
	kinds := s.N(3) // 0: .hash; 1: .gnu.hash; 2: both
	var users []int // sections that refer to the symbol table
	if kinds != 1 {
		h := b.write([]uint32{1, 3, 1, 0, 2, 0}) // one bucket with a chain of both symbols
		if b.m.HashWord == 8 {
			h = b.write([]uint64{1, 3, 1, 0, 2, 0})
		}
		users = append(users, b.table(elf.DT_HASH, ".hash", elf.SHT_HASH, b.m.HashWord, h))
	}
	if kinds != 0 {
		// One bucket, which contains the symbol "two", hashed with the GNU hash function.
		hash := uint32(5381)
		for _, c := range []byte("two") {
			hash = hash*33 + uint32(c)
		}
		h := slices.Concat(b.write([]uint32{1, 2, 1, 6}), b.write(^uint64(0)), b.write([]uint32{2, hash | 1}))
		users = append(users, b.table(elf.DT_GNU_HASH, ".gnu.hash", elf.SHT_GNU_HASH, 0, h))
	}
	sym := b.table(elf.DT_SYMTAB, ".dynsym", elf.SHT_DYNSYM, elffile.SymSize, symbols)
	str := b.table(elf.DT_STRTAB, ".dynstr", elf.SHT_STRTAB, 0, names)
	b.o.Sections[sym].Info, b.o.Sections[sym].Link = 1, uint32(str)
	b.entry(elf.DT_SYMENT, elffile.SymSize)
	b.entry(elf.DT_STRSZ, uint64(len(names)))
	b.entry(elf.DT_SONAME, 1)
	if s.N(3) > 0 {
		var list []elf.Rela64
		for i := range 1 + s.N(3) {
			off := b.got() + 8*uint64(i)
			list = append(list, elf.Rela64{Off: off, Info: uint64(b.m.Relative), Addend: textBase})
		}
		data := b.write(list)
		users = append(users, b.table(elf.DT_RELA, ".rela.dyn", elf.SHT_RELA, elffile.RelaSize, data))
		b.entry(elf.DT_RELASZ, uint64(len(data)))
		b.entry(elf.DT_RELAENT, elffile.RelaSize)
	}
	for _, i := range users {
		b.o.Sections[i].Link = uint32(sym)
	}
}
