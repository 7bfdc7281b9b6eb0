package generate

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"sort"

	"cfi2sframe/elffile"
	"cfi2sframe/internal/testkit/elftest"
)

// A File is an ELF file.
type File struct {
	Bytes    []byte
	Machine  *Machine
	Object   bool
	Headers  bool // it has section headers
	CFI      *CFI // .eh_frame, or nil
	Debug    *CFI // .debug_frame, or nil
	Text     []string
	fakeText []Range // where the sections of code are in the CFI of an object
}

// Rows returns the rows of the file, at the addresses of the sections of x, which is the same file.
func (f *File) Rows(x *elffile.File) []Row {
	var out []Row
	if f.CFI != nil {
		out = f.CFI.Rows()
	}
	if f.Debug != nil {
		out = fill(out, f.Debug.Rows())
	}
	if !f.Object {
		return out
	}
	for i := range out {
		for j, r := range f.fakeText {
			if out[i].Begin >= r.Begin && out[i].Begin < r.End {
				move := x.Section(f.Text[j]).Base - r.Begin
				out[i].Begin += move
				out[i].End += move
				break
			}
		}
	}
	return out
}

// fill returns the rows a, and those parts of the rows b that a does not describe.
func fill(a, b []Row) []Row {
	out := slices.Clone(a)
	for _, r := range b {
		begin := r.Begin
		add := func(end uint64) {
			if begin < end {
				p := r
				p.Begin, p.End = begin, end
				out = append(out, p)
			}
		}
		for i := range a {
			if a[i].End > begin && a[i].Begin < r.End {
				add(a[i].Begin)
				begin = max(begin, a[i].End)
			}
		}
		add(r.End)
	}
	slices.SortFunc(out, func(a, b Row) int { return cmp.Compare(a.Begin, b.Begin) })
	return out
}

// At returns the row for pc, or nil. The rows are sorted.
func At(rows []Row, pc uint64) *Row {
	i := sort.Search(len(rows), func(i int) bool { return rows[i].End > pc })
	if i == len(rows) || rows[i].Begin > pc {
		return nil
	}
	return &rows[i]
}

// A builder makes a file.
type builder struct {
	s        *Source
	m        *Machine
	f        *File
	b        []byte // the file so far
	sections []elftest.Section
	progs    []elf.Prog64
	symbols  []byte
	strings  []byte
	dynamic  []elf.Dyn64
	slot     uint64 // offset of the first slot in the data segment
}

// bases are where segments begin, from the first one's address.
const (
	textBase = 0x20000
	dataBase = 0x80000
	roBase   = 0x40000
)

// NewFile makes a file, linked or an object.
func NewFile(s *Source) *File {
	m := &Machines[s.N(len(Machines))]
	f := &File{Machine: m, Headers: true}
	b := &builder{s: s, m: m, f: f, symbols: make([]byte, elffile.SymSize), strings: []byte{0}}
	b.sections = make([]elftest.Section, 1)
	if s.Rarely(4) {
		f.Object = true
		b.object()
	} else {
		b.linked()
	}
	return f
}

// write encodes a value of fixed size.
func (b *builder) write(v any) []byte { return elftest.Append(nil, b.m.Order, v) }

func (b *builder) align(n int) { b.b = elftest.Pad(b.b, n) }

// pad appends zeros up to an address; diff is the difference between addresses and file offsets.
func (b *builder) pad(diff, addr uint64) {
	for uint64(len(b.b))+diff < addr {
		b.b = append(b.b, 0)
	}
}

// add appends a section with its contents, and returns its index. If it is loaded, its address is its file offset plus
// diff.
func (b *builder) add(name string, typ elf.SectionType, flags elf.SectionFlag, align, diff uint64, data []byte) int {
	b.align(int(align))
	x := elftest.Section{Name: name, Section64: elf.Section64{
		Type: uint32(typ), Flags: uint64(flags), Addralign: align, Off: uint64(len(b.b)), Size: uint64(len(data)),
	}}
	if flags&elf.SHF_ALLOC != 0 && !b.f.Object {
		x.Addr = x.Off + diff
	}
	if typ == elf.SHT_NOBITS {
		x.Size, data = 64, nil
	}
	b.b = append(b.b, data...)
	b.sections = append(b.sections, x)
	return len(b.sections) - 1
}

// symbol appends a symbol, and returns its index.
func (b *builder) symbol(name string, typ elf.SymType, bind elf.SymBind, shndx int, value, size uint64) int {
	x := elf.Sym64{Info: elf.ST_INFO(bind, typ), Shndx: uint16(shndx), Value: value, Size: size}
	if name != "" {
		x.Name = uint32(len(b.strings))
		b.strings = append(append(b.strings, name...), 0)
	}
	b.symbols = append(b.symbols, b.write(&x)...)
	return len(b.symbols)/elffile.SymSize - 1
}

// prog returns a program header for n bytes of the file.
func prog(typ elf.ProgType, flags elf.ProgFlag, off, addr, n, align uint64) elf.Prog64 {
	return elf.Prog64{
		Type: uint32(typ), Flags: uint32(flags), Off: off, Vaddr: addr, Paddr: addr, Filesz: n, Memsz: n, Align: align,
	}
}

// code returns ranges for sections of code at an address, 64 bytes and more each.
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
		f.CFI = NewCFI(s, b.m, false, f.Object, text)
	}
	if kind >= 2 {
		f.Debug = NewCFI(s, b.m, true, f.Object, text)
	}
}

// linked makes a linked file.
func (b *builder) linked() {
	s, f := b.s, b.f
	page := one[uint64](s, 0x1000, 0x10000)
	b.slot = page + 0x1000 // after .dynamic, for every start of that in its page
	base := one[uint64](s, 0, 0x400000, 0x1000000)
	kind := elf.ET_DYN
	if base != 0 {
		kind = elf.ET_EXEC
	}
	isDynamic := kind == elf.ET_DYN || s.N(2) == 0
	b.b = make([]byte, elffile.HeaderSize+16*elffile.ProgSize)
	spare := one(s, 0, 2, 0, 1, 0)
	alloc := elf.SHF_ALLOC
	first := base // the difference between addresses and file offsets in the first segment
	note := func(name string, typ uint32, desc []byte) []byte {
		out := b.write([]uint32{uint32(len(name) + 1), uint32(len(desc)), typ})
		return append(elftest.Pad(append(out, name+"\x00"...), 4), desc...)
	}
	var extra []elf.Prog64 // after the segments that are loaded
	keep := func(typ elf.ProgType, flags elf.ProgFlag, i int) {
		x := &b.sections[i]
		extra = append(extra, prog(typ, flags, x.Off, x.Addr, x.Size, x.Addralign))
	}
	headersEnd := len(b.b) // what the headers really take is known at the end
	if isDynamic && s.N(2) == 0 {
		i := b.add(".interp", elf.SHT_PROGBITS, alloc, 1, first, []byte("/lib/ld.so.1\x00"))
		x := &b.sections[i]
		b.progs = append(b.progs, prog(elf.PT_INTERP, elf.PF_R, x.Off, x.Addr, x.Size, 1))
	}
	if s.N(2) == 0 {
		id := note("GNU", 3, bytes.Repeat([]byte{0xb1}, 20))
		keep(elf.PT_NOTE, elf.PF_R, b.add(".note.gnu.build-id", elf.SHT_NOTE, alloc, 4, first, id))
	}
	if s.Rarely(3) {
		property := note("GNU", 5, b.write([]uint32{0xc0000002, 4, 3, 0}))
		i := b.add(".note.gnu.property", elf.SHT_NOTE, alloc, 8, first, property)
		keep(elf.PT_NOTE, elf.PF_R, i)
		keep(elf.PT_GNU_PROPERTY, elf.PF_R, i)
	}
	if s.Rarely(4) {
		keep(elf.PT_NOTE, elf.PF_R, b.add(".note.own", elf.SHT_NOTE, alloc, 4, first, note("Own", 7, s.Bytes(8))))
	}
	dyn := func(tag elf.DynTag, v uint64) { b.dynamic = append(b.dynamic, elf.Dyn64{Tag: int64(tag), Val: v}) }
	if isDynamic {
		b.tables(first, dyn)
	} else if s.N(2) == 0 {
		b.add(".rela.plt", elf.SHT_RELA, alloc|elf.SHF_INFO_LINK, 8, first, make([]byte, 24))
		b.sections[len(b.sections)-1].Entsize = elffile.RelaSize
	}
	firstEnd := uint64(len(b.b))

	// The code.
	segment := func(at uint64) (begin, diff uint64) {
		if s.N(2) == 0 {
			b.align(0x1000)
		} else {
			b.align(16)
		}
		begin = uint64(len(b.b))
		return begin, base + at + begin%page - begin
	}
	textOff, textDiff := segment(textBase)
	text := b.code(textOff + textDiff)
	b.frames(text)
	var textSections []int
	for i, r := range text {
		b.pad(textDiff, r.Begin)
		f.Text = append(f.Text, textNames[i])
		code := b.add(textNames[i], elf.SHT_PROGBITS, alloc|elf.SHF_EXECINSTR, 16, textDiff,
			make([]byte, r.End-r.Begin))
		textSections = append(textSections, code)
	}
	textEnd := uint64(len(b.b))

	// What is only read.
	roOff, roDiff := segment(roBase)
	b.add(".rodata", elf.SHT_PROGBITS, alloc, 8, roDiff, s.Bytes(16))
	dataAddr := base + dataBase // of the next segment, as far as that is known
	slot := dataAddr + b.slot
	if f.CFI != nil {
		hdr := b.add(".eh_frame_hdr", elf.SHT_PROGBITS, alloc, 4, roDiff, make([]byte, 8))
		b.align(8)
		addr := uint64(len(b.b)) + roDiff
		frames, _ := f.CFI.Encode(Layout{Addr: addr, Text: text[0].Begin, GOT: slot, Slot: slot})
		frames = append(frames, 0, 0, 0, 0)
		i := b.add(".eh_frame", elf.SHT_PROGBITS, alloc, 8, roDiff, frames)
		h := &b.sections[hdr]
		copy(b.b[h.Off:], []byte{1, 0x1b, 0xff, 0xff})
		b.m.Order.PutUint32(b.b[h.Off+4:], uint32(b.sections[i].Addr-h.Addr-4))
		keep(elf.PT_GNU_EH_FRAME, elf.PF_R, hdr)
	}
	roEnd := uint64(len(b.b))

	// What is written.
	dataOff, dataDiff := segment(dataBase)
	if isDynamic {
		dyn(elf.DT_NULL, 0)
		i := b.add(".dynamic", elf.SHT_DYNAMIC, alloc|elf.SHF_WRITE, 8, dataDiff, b.write(b.dynamic))
		b.sections[i].Entsize = elffile.DynSize
		isNames := func(x elftest.Section) bool { return x.Name == ".dynstr" }
		b.sections[i].Link = uint32(slices.IndexFunc(b.sections, isNames))
		keep(elf.PT_DYNAMIC, elf.PF_R|elf.PF_W, i)
	}
	b.pad(dataDiff, slot)
	var slots []byte
	if f.CFI != nil {
		slots = b.write(f.CFI.Slots)
	}
	b.add(".got", elf.SHT_PROGBITS, alloc|elf.SHF_WRITE, 8, dataDiff, append(slots, make([]byte, 8)...))
	dataEnd := uint64(len(b.b))
	bss := uint64(0)
	if s.N(2) == 0 {
		bss = 64
		b.add(".bss", elf.SHT_NOBITS, alloc|elf.SHF_WRITE, 8, dataDiff, nil)
	}

	// Program headers.
	if s.N(2) == 0 {
		table := prog(elf.PT_PHDR, elf.PF_R, elffile.HeaderSize, base+elffile.HeaderSize, 0, 8)
		b.progs = slices.Insert(b.progs, 0, table)
	}
	b.progs = append(b.progs,
		prog(elf.PT_LOAD, elf.PF_R, 0, first, firstEnd, page),
		prog(elf.PT_LOAD, elf.PF_R|elf.PF_X, textOff, textOff+textDiff, textEnd-textOff, page),
		prog(elf.PT_LOAD, elf.PF_R, roOff, roOff+roDiff, roEnd-roOff, page),
		prog(elf.PT_LOAD, elf.PF_R|elf.PF_W, dataOff, dataOff+dataDiff, dataEnd-dataOff, page))
	b.progs[len(b.progs)-1].Memsz += bss
	b.progs = append(b.progs, extra...)
	b.progs = append(b.progs, prog(elf.PT_GNU_STACK, elf.PF_R|elf.PF_W, 0, 0, 0, 16))
	if s.Rarely(4) {
		b.progs = append(b.progs, elf.Prog64{Type: uint32(elf.PT_NULL)})
	}
	if elf.ProgType(b.progs[0].Type) == elf.PT_PHDR {
		b.progs[0].Filesz = uint64(len(b.progs)) * elffile.ProgSize
		b.progs[0].Memsz = b.progs[0].Filesz
	}
	table := b.write(b.progs)
	copy(b.b[elffile.HeaderSize:], table)
	if used := elffile.HeaderSize + len(table); spare < 2 {
		// Linkers leave no free bytes after the headers: other bytes are there.
		for i := used + spare*elffile.ProgSize; i < headersEnd; i++ {
			b.b[i] = 0xee
		}
	}

	// What is not loaded.
	b.add(".comment", elf.SHT_PROGBITS, elf.SHF_MERGE|elf.SHF_STRINGS, 1, 0, []byte("made\x00"))
	if f.Debug != nil {
		frames, _ := f.Debug.Encode(Layout{})
		b.add(".debug_frame", elf.SHT_PROGBITS, 0, 8, 0, frames)
	}
	if s.N(4) > 0 || f.CFI == nil { // else it is stripped
		for i, c := range []*CFI{f.CFI, f.Debug} {
			if c == nil {
				continue
			}
			for j := range c.FDEs {
				fde := &c.FDEs[j]
				for k, r := range text {
					if fde.Start >= r.Begin && fde.Start < r.End {
						name := fmt.Sprintf("f%d_%d", i, j)
						b.symbol(name, elf.STT_FUNC, elf.STB_LOCAL, textSections[k], fde.Start, fde.Size)
					}
				}
			}
		}
		b.symtab()
	}
	f.Headers = s.N(8) < 7 || f.CFI == nil || f.Debug != nil || f.CFI.needsSections()
	b.end(kind, base+text[0].Begin&0xffff)
}

// needsSections reports whether an address is relative to a section, so that the file needs section headers.
func (c *CFI) needsSections() bool {
	return slices.ContainsFunc(c.CIEs, func(d CIE) bool {
		return d.Encoding&0x70 == encText || d.Encoding&0x70 == encData
	})
}

// tables adds what the loader reads.
func (b *builder) tables(diff uint64, dyn func(elf.DynTag, uint64)) {
	s := b.s
	alloc := elf.SHF_ALLOC
	names := []byte("\x00lib.so\x00one\x00two\x00")
	info := elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
	symbols := b.write([]elf.Sym64{
		{}, {Name: 8, Info: info}, {Name: 12, Info: info, Shndx: uint16(elf.SHN_ABS), Value: 4},
	})
	addr := func(i int) uint64 { return b.sections[i].Addr }
	kinds := s.N(3) // one hash table, or the other one, or both
	var tables []int
	if kinds != 1 {
		h := b.write([]uint32{1, 3, 1, 0, 2, 0}) // a bucket, a chain of the symbols
		if b.m.HashWord == 8 {
			h = b.write([]uint64{1, 3, 1, 0, 2, 0})
		}
		i := b.add(".hash", elf.SHT_HASH, alloc, 8, diff, h)
		b.sections[i].Entsize = uint64(b.m.HashWord)
		dyn(elf.DT_HASH, addr(i))
		tables = append(tables, i)
	}
	if kinds != 0 {
		// One bucket with the symbol two, whose hash is that of GNU's function.
		hash := uint32(5381)
		for _, c := range []byte("two") {
			hash = hash*33 + uint32(c)
		}
		h := b.write([]uint32{1, 2, 1, 6})
		h = append(h, b.write([]uint64{^uint64(0)})...)
		h = append(h, b.write([]uint32{2, hash | 1})...)
		i := b.add(".gnu.hash", elf.SHT_GNU_HASH, alloc, 8, diff, h)
		dyn(elf.DT_GNU_HASH, addr(i))
		tables = append(tables, i)
	}
	sym := b.add(".dynsym", elf.SHT_DYNSYM, alloc, 8, diff, symbols)
	b.sections[sym].Entsize, b.sections[sym].Info = elffile.SymSize, 1
	str := b.add(".dynstr", elf.SHT_STRTAB, alloc, 1, diff, names)
	b.sections[sym].Link = uint32(str)
	for _, i := range tables {
		b.sections[i].Link = uint32(sym)
	}
	dyn(elf.DT_SYMTAB, addr(sym))
	dyn(elf.DT_SYMENT, elffile.SymSize)
	dyn(elf.DT_STRTAB, addr(str))
	dyn(elf.DT_STRSZ, uint64(len(names)))
	dyn(elf.DT_SONAME, 1)
	if s.N(3) > 0 {
		var list []elf.Rela64
		for i := range 1 + s.N(3) {
			off := dataBase + b.slot + 8*uint64(i)
			list = append(list, elf.Rela64{Off: off, Info: uint64(b.m.Relative), Addend: textBase})
		}
		data := b.write(list)
		i := b.add(".rela.dyn", elf.SHT_RELA, alloc, 8, diff, data)
		b.sections[i].Entsize, b.sections[i].Link = elffile.RelaSize, uint32(sym)
		dyn(elf.DT_RELA, addr(i))
		dyn(elf.DT_RELASZ, uint64(len(data)))
		dyn(elf.DT_RELAENT, elffile.RelaSize)
	}
}

func (b *builder) symtab() {
	i := b.add(".symtab", elf.SHT_SYMTAB, 0, 8, 0, b.symbols)
	b.sections[i].Entsize, b.sections[i].Info = elffile.SymSize, uint32(len(b.symbols)/elffile.SymSize)
	b.sections[i].Link = uint32(b.add(".strtab", elf.SHT_STRTAB, 0, 1, 0, b.strings))
}

// end writes the section names and the headers.
func (b *builder) end(kind elf.Type, entry uint64) {
	h := elf.Header64{Type: uint16(kind), Machine: uint16(b.m.Elf), Entry: entry}
	if len(b.progs) > 0 {
		h.Phoff, h.Phentsize, h.Phnum = elffile.HeaderSize, elffile.ProgSize, uint16(len(b.progs))
	}
	if b.f.Headers {
		i := b.add(".shstrtab", elf.SHT_STRTAB, 0, 1, 0, nil)
		names := elftest.Names(b.sections)
		b.b, b.sections[i].Size, h.Shstrndx = append(b.b, names...), uint64(len(names)), uint16(i)
	} else {
		b.sections = nil
	}
	b.f.Bytes = elftest.Encode(b.b, b.m.Order, h, b.sections)
}

// object makes a relocatable object.
func (b *builder) object() {
	f := b.f
	b.b = make([]byte, elffile.HeaderSize)
	const fake = 0x100000 // far enough from address 0, and from each other
	for i, r := range b.code(0) {
		size := r.End - r.Begin
		f.fakeText = append(f.fakeText, Range{uint64(i+1) * fake, uint64(i+1)*fake + size})
	}
	b.frames(f.fakeText)
	var symbols []uint32
	for i, r := range f.fakeText {
		f.Text = append(f.Text, textNames[i])
		code := make([]byte, r.End-r.Begin)
		x := b.add(textNames[i], elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, 16, 0, code)
		symbols = append(symbols, uint32(b.symbol("", elf.STT_SECTION, elf.STB_LOCAL, x, 0, 0)))
	}
	b.add(".data", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_WRITE, 8, 0, b.s.Bytes(8))
	var relas []int
	frames := func(name string, flags elf.SectionFlag, c *CFI) {
		if c == nil {
			return
		}
		data, relocs := c.Encode(Layout{})
		i := b.add(name, elf.SHT_PROGBITS, flags, 8, 0, data)
		var list []elf.Rela64
		for _, r := range relocs {
			for j, text := range f.fakeText {
				if r.Target < text.Begin || r.Target >= text.End {
					continue
				}
				typ := b.m.Abs64
				if r.PCRel && r.Size == 8 {
					typ = b.m.PC64
				} else if r.PCRel {
					typ = b.m.PC32
				}
				info := elf.R_INFO(symbols[j], typ)
				list = append(list, elf.Rela64{Off: r.Off, Info: info, Addend: int64(r.Target - text.Begin)})
			}
		}
		r := b.add(".rela"+name, elf.SHT_RELA, elf.SHF_INFO_LINK, 8, 0, b.write(list))
		b.sections[r].Entsize, b.sections[r].Info = elffile.RelaSize, uint32(i)
		relas = append(relas, r)
	}
	frames(".eh_frame", elf.SHF_ALLOC, f.CFI)
	frames(".debug_frame", 0, f.Debug)
	b.symtab()
	for _, r := range relas {
		b.sections[r].Link = uint32(len(b.sections) - 2)
	}
	b.end(elf.ET_REL, 0)
}
